//! Documents that stay true: their commands run as written, their links lead somewhere, and tables
//! that repeat the code are generated from it.

#[path = "../common/chromium.rs"]
mod chromium;
mod generated;
mod picture;
mod runner;
mod tidy;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use issuebox::app::providers::load_config;
use issuebox::config::Overrides;

/// README and ARCHITECTURE are read from the first line to the last.
const LINES_MAX: usize = 250;
/// Most blocks that may be skipped. A new one needs a reason, and one of the old ones to go.
const SKIPPED_MAX: usize = 24;
/// Languages of fenced blocks, so that no command hides from the runner behind another word.
const LANGUAGES: [&str; 6] = ["sh", "console", "toml", "text", "json", ""];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The program under test, as in `common/process.rs`.
fn built() -> PathBuf {
    let named = std::env::var_os("ISSUEBOX_BINARY");
    let path = named.map_or_else(|| env!("CARGO_BIN_EXE_issuebox").into(), PathBuf::from);
    fs::canonicalize(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every document, relative to the repository.
fn documents() -> Vec<String> {
    let mut found: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned).into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                let path = path.strip_prefix(root()).expect("below the root");
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// A fenced block.
struct Block {
    line: usize,
    language: String,
    skip: Option<String>,
    text: String,
}

impl Block {
    fn is_commands(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "console")
    }
}

fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
        let skip = rest.strip_prefix("skip=\"").and_then(|rest| rest.split('"').next());
        let text = lines.by_ref().take_while(|(_, line)| line.trim() != "```");
        let text = text.fold(String::new(), |text, (_, line)| {
            text + line.get(indent..).unwrap_or_default() + "\n"
        });
        let (language, skip) = (language.to_owned(), skip.map(str::to_owned));
        found.push(Block { line: at + 1, language, skip, text });
    }
    found
}

#[test]
fn blocks_are_of_known_languages_few_are_skipped_and_each_is_a_script() {
    let mut skipped = 0;
    for name in documents() {
        for block in blocks(&read(&name)) {
            let at = format!("{name}:{}", block.line);
            assert!(LANGUAGES.contains(&block.language.as_str()), "{at}: {:?}", block.language);
            let Some(reason) = &block.skip else { continue };
            assert!(block.is_commands() && reason.len() > 5, "{at}: {reason:?}");
            skipped += 1;
            let dry = Command::new("bash").args(["-n", "-c", &block.text]).output();
            let dry = dry.expect("bash is installed");
            assert!(dry.status.success(), "{at}: {}", String::from_utf8_lossy(&dry.stderr));
        }
    }
    assert!(skipped <= SKIPPED_MAX, "{skipped} blocks are not run, more than {SKIPPED_MAX}");
}

#[test]
fn the_two_ways_in_are_short() {
    for name in ["README.md", "ARCHITECTURE.md"] {
        let lines = read(name).lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines, more than {LINES_MAX}");
    }
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let (mut wrong, mut unlinked) = (Vec::new(), BTreeSet::from_iter(documents()));
    unlinked.remove("README.md");
    for name in documents() {
        let text = read(&name);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let here = Path::new(&name).parent().expect("a folder");
            let file = if file.is_empty() { name.clone().into() } else { here.join(file) };
            let there = root().join(&file);
            let is_there = match fs::read_to_string(&there) {
                Ok(text) if !heading.is_empty() => {
                    let headings = text.lines().filter(|line| line.starts_with('#'));
                    let mut headings = headings.map(|line| anchor(line.trim_start_matches('#')));
                    headings.any(|found| found == heading)
                }
                _ => there.exists(),
            };
            if file != Path::new(&name)
                && let Ok(there) = fs::canonicalize(&there)
                && let Ok(there) = there.strip_prefix(root())
            {
                unlinked.remove(&there.display().to_string());
            }
            if !is_there {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
    assert!(unlinked.is_empty(), "no link leads to {unlinked:?}");
}

#[test]
fn every_verb_that_is_named_exists() {
    let known: BTreeSet<String> = generated::verbs(&[]).into_iter().chain(["man".into()]).collect();
    for name in documents() {
        let text = read(&name);
        for (at, _) in text.match_indices("issuebox ") {
            let is_command = text[..at].ends_with(['`', '\n', '(']) || text[..at].ends_with("$ ");
            let word = text[at + 9..].split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next();
            let word = word.unwrap_or_default();
            let line = text[..at].rsplit('\n').next().unwrap_or_default();
            let is_code = line.matches('`').count() % 2 == 1 || line.starts_with("$ ");
            if is_command && is_code && !word.is_empty() && !word.starts_with('-') {
                assert!(known.contains(word), "{name}: there is no issuebox {word}");
            }
        }
    }
}

/// The text of every file below these folders of the repository.
fn code(folders: &[&str]) -> String {
    let mut code = String::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                code += &fs::read_to_string(path).unwrap_or_default();
            }
        }
    }
    code
}

#[test]
fn tests_that_the_invariants_name_exist() {
    let code = code(&["src", "tests"]);
    let text = read("docs/invariants.md");
    let is_name =
        |n: &&str| n.len() > 20 && n.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
    // As a function, or as an entry of a macro that makes one.
    let is_there = |name: &str| [format!("fn {name}("), format!("    {name}: ")];
    let gone = text.split('`').skip(1).step_by(2).filter(is_name);
    let gone = gone.filter(|name| !is_there(name).iter().any(|begin| code.contains(begin)));
    let gone: Vec<&str> = gone.collect();
    assert!(gone.is_empty(), "docs/invariants.md names tests that are gone: {gone:#?}");
}

#[test]
fn types_and_folders_that_the_architecture_names_exist() {
    let code = code(&["src"]);
    let text = read("ARCHITECTURE.md");
    // Blocks are pictures; what is in single marks is a name.
    let prose: String = text.split("```").step_by(2).collect();
    let layers = text.split("## Layers").nth(1).and_then(|rest| rest.split("\n## ").next());
    let layers = layers.expect("the layers");
    let mut gone = Vec::new();
    for name in prose.split('`').skip(1).step_by(2) {
        let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.len() > 2
            && name.bytes().all(|b| b.is_ascii_alphanumeric())
            && name.bytes().any(|b| b.is_ascii_lowercase());
        let kinds = ["struct", "enum", "trait"].map(|kind| format!("{kind} {name}"));
        let is_worded = code.contains(&format!("\n    {name} {{\n"));
        let is_there = |kind: &String| {
            let mut behind = code.split(kind.as_str()).skip(1);
            behind.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        if is_type && name != "Drop" && !is_worded && !kinds.iter().any(is_there) {
            gone.push(name);
        }
    }
    for row in layers.lines().filter(|line| line.starts_with("| ")) {
        let folders = row.split('|').nth(2).unwrap_or_default().split('`').skip(1).step_by(2);
        for folder in folders {
            let path = root().join("src").join(folder);
            if !path.exists() && !path.with_extension("rs").exists() {
                gone.push(folder);
            }
        }
    }
    assert!(gone.is_empty(), "ARCHITECTURE.md names what is gone: {gone:#?}");
}

#[test]
fn the_example_configuration_has_every_default() {
    let load = |file: Option<&Path>| {
        let home = [("HOME".to_owned(), "/home/mira".to_owned())].into_iter();
        let loaded = load_config(file, home, Overrides::default()).expect("it is right");
        (loaded.config, loaded.warnings)
    };
    let example = load(Some(&root().join("deploy/issuebox.example.toml")));
    assert_eq!(example, load(None));
}
