//! Checks of style: layers import only downward, each file begins with its purpose and is short, words
//! are plain, and a type name means one type.
//!
//! This is a separate binary because it does not use the crate, so that it links quickly.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/functions.rs"]
mod functions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines.
const LINES_MAX: usize = 600;

/// The layer of adapters.
const ADAPTERS: u8 = 3;
/// The layer that may import them.
const ASSEMBLY: u8 = 6;
/// The layers, from the bottom up. A module imports from its own layer and those below it. Only the
/// assembly and the layers above it import an adapter. [`providers`] finds the providers' layers.
const LAYERS: [(&str, u8); 19] = [
    ("types", 0),
    ("clock", 0),
    ("telemetry", 0),
    ("config", 0),
    ("sabotage", 0),
    ("fuzz", 0),
    ("issue", 1),
    ("store", 2),
    ("sandbox", 2),
    ("github", 2),
    ("logs", 2),
    ("egress", 2),
    ("store::sqlite", ADAPTERS),
    ("engine", 4),
    ("http", 5),
    ("app", ASSEMBLY),
    ("cli", 7),
    ("main", 8),
    ("lib", 8),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// `src/store/sqlite/rows.rs` is `store::sqlite::rows`.
fn module_of(path: &Path) -> String {
    let relative = path.strip_prefix(root().join("src")).expect("below src").with_extension("");
    let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    parts.join("::")
}

/// The providers: each has a folder in `src/sandbox/` with a file `kind.rs`.
fn providers() -> Vec<String> {
    let dirs = fs::read_dir(root().join("src/sandbox")).expect("a readable directory");
    let dirs = dirs.map(|entry| entry.expect("a readable entry").path());
    let names = dirs.filter(|dir| dir.join("kind.rs").exists());
    let mut names: Vec<String> =
        names.filter_map(|dir| Some(dir.file_name()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

/// The layer of a module, by its longest known prefix.
fn layer_of(module: &str) -> Option<(String, u8)> {
    let adapters = providers().into_iter().map(|name| (format!("sandbox::{name}"), ADAPTERS));
    let layers = LAYERS.iter().map(|(name, layer)| ((*name).to_owned(), *layer)).chain(adapters);
    layers
        .filter(|(name, _)| module == name || module.starts_with(&format!("{name}::")))
        .max_by_key(|(name, _)| name.len())
}

/// Everything that a file names of this crate: `crate::a::b` paths, also inside `use` groups one
/// level deep.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
        let path = rest[..end.unwrap_or(rest.len())].trim_end_matches(':').to_owned();
        let behind = &rest[path.len()..];
        let group = behind.strip_prefix("::{").or_else(|| behind.strip_prefix('{'));
        match group.and_then(|group| group.split('}').next()) {
            Some(group) => found.extend(group.split(',').map(|item| {
                let full = format!("{path}::{}", item.trim());
                full.trim_start_matches(':').to_owned()
            })),
            None => found.push(path),
        }
    }
    found
}

/// The code of a file: without comments, and without what follows its test module.
fn code_of(text: &str) -> String {
    let is_tests = |(_, rest): &(&str, &str)| {
        rest.lines().next().is_some_and(|line| line.ends_with("mod tests {"))
    };
    let parts = text
        .match_indices("#[cfg(test)]\n")
        .map(|(at, mark)| (&text[..at], &text[at + mark.len()..]));
    let code = parts.into_iter().find(is_tests).map_or(text, |(code, _)| code);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Imports of `module` that lead upward, or from one adapter into another.
fn wrong_imports(module: &str, text: &str) -> Vec<String> {
    let (own_name, own) = layer_of(module).unwrap_or_else(|| panic!("{module} has no layer"));
    imports(&code_of(text))
        .into_iter()
        .filter_map(|import| {
            let (name, layer) = layer_of(&import)?;
            // Only the assembly, and the binary above it, may name an adapter.
            let adapter = layer == ADAPTERS && name != own_name && own < ASSEMBLY;
            (layer > own || adapter).then(|| format!("{module} imports crate::{import}"))
        })
        .collect()
}

#[test]
fn layers_import_only_downward() {
    let wrong: Vec<String> = rust_files(&root().join("src"))
        .iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == "tests"))
        .flat_map(|path| {
            wrong_imports(&module_of(path), &fs::read_to_string(path).expect("a text file"))
        })
        .collect();
    assert!(wrong.is_empty(), "upward or sideways imports:\n{}", wrong.join("\n"));
}

#[test]
fn the_layer_check_finds_upward_and_sideways_imports() {
    assert_eq!(wrong_imports("issue::step", "use crate::store::Store;").len(), 1);
    assert_eq!(wrong_imports("engine::actor", "use crate::{store::sqlite::X, types::Y};").len(), 1);
    assert_eq!(wrong_imports("store::sqlite", "use crate::sandbox::local::X;").len(), 1);
    assert_eq!(wrong_imports("engine::actor", "use crate::store::Store;").len(), 0);
    assert_eq!(wrong_imports("engine::actor", "// crate::http\nuse crate::types::A;").len(), 0);
}

/// The registry: the one file outside of a provider's folder that names it. (`src/sandbox.rs` has the
/// line `pub mod …;` too, without which the folder would not be compiled.)
const REGISTRY: &str = "app::providers";

/// What the code of a file says of one provider: its path, its name as a text, its section in the
/// configuration, its types.
fn names_of_provider(provider: &str, types: &[String], code: &str) -> Vec<String> {
    let mut forbidden = vec![
        format!("sandbox::{provider}"),
        format!("\"{provider}\""),
        format!("providers.{provider}"),
        format!("PROVIDERS__{}", provider.to_uppercase()),
    ];
    forbidden.extend_from_slice(types);
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_named = |name: &String| {
        code.match_indices(name.as_str()).any(|(at, _)| {
            let behind = code[at + name.len()..].chars().next();
            !is_word(code[..at].chars().next_back()) && !is_word(behind)
        })
    };
    forbidden.retain(is_named);
    forbidden
}

/// The public types of a provider that carry its name.
fn types_of_provider(provider: &str) -> Vec<String> {
    let prefix = format!("{}{}", provider[..1].to_uppercase(), &provider[1..]);
    let mut types = Vec::new();
    for path in files_of_provider(provider) {
        let text = fs::read_to_string(path).expect("a text file");
        let declared = text.lines().filter_map(|line| {
            let rest =
                line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "))?;
            rest.split(|c: char| !c.is_alphanumeric()).next().map(str::to_owned)
        });
        types.extend(declared.filter(|name| name.starts_with(&prefix)));
    }
    types
}

fn files_of_provider(provider: &str) -> Vec<PathBuf> {
    let mut files = rust_files(&root().join("src/sandbox").join(provider));
    files.push(root().join("src/sandbox").join(format!("{provider}.rs")));
    files
}

#[test]
fn a_provider_is_named_in_its_folder_and_the_registry_only() {
    assert_eq!(providers(), ["local", "simulated"], "both are found");
    let mut wrong = Vec::new();
    for provider in providers() {
        let (types, own) = (types_of_provider(&provider), files_of_provider(&provider));
        assert!(types.len() >= 3, "{types:?}");
        for path in rust_files(&root().join("src")) {
            let module = module_of(&path);
            let is_test = module.split("::").any(|part| part == "tests" || part == "simulation");
            if is_test || own.contains(&path) || module == REGISTRY {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a text file");
            let named = names_of_provider(&provider, &types, &code_of(&text));
            wrong.extend(named.iter().map(|name| format!("{module} names {name}")));
        }
    }
    assert!(
        wrong.is_empty(),
        "the provider's folder or the registry must do this:\n{}",
        wrong.join("\n")
    );
    let found = |code: &str| names_of_provider("pear", &["PearKind".to_owned()], code).len();
    assert_eq!(found("use crate::sandbox::pear::PearKind; \"pear\" \"providers.pear.dir\""), 4);
    assert_eq!(found("pear spear::PearKinds \"pears\""), 0);
}

#[test]
fn every_file_begins_with_its_purpose_and_is_short() {
    let mut wrong = Vec::new();
    for dir in ["src", "tests", "benches"] {
        let dir = root().join(dir);
        for path in if dir.exists() { rust_files(&dir) } else { Vec::new() } {
            let text = fs::read_to_string(&path).expect("a text file");
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            let docs = text.lines().next().unwrap_or_default();
            if docs.strip_prefix("//! ").is_none_or(|words| words.len() < 10) {
                wrong.push(format!("{name} does not begin with its purpose"));
            }
            let lines = text.lines().count();
            if lines > LINES_MAX {
                wrong.push(format!("{name} has {lines} lines, more than {LINES_MAX}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words that hide who acts, and how often each may occur in the sources and documents. Use the
/// field's noun and a verb instead. Lower a bound when you remove an occurrence; never raise it.
const VAGUE_WORDS: [(&str, usize); 5] =
    [("told", 0), ("nobody", 0), ("somebody", 0), ("where it is", 0), ("whoever", 0)];

/// Phrases that must not occur in a text for people.
const RIDDLES: [&str; 14] = [
    "where it is",
    "whoever",
    "nobody",
    "somebody",
    "told",
    "put away",
    "came to nothing",
    "not as it was shown",
    "what is meant",
    "take what",
    "for right",
    "taken up",
    "not now",
    "that was not done",
];
/// How many riddles remain in texts for people.
const RIDDLES_MAX: usize = 0;

/// How often whole words occur in a text, in any case and across line breaks.
fn occurrences(text: &str, words: &str) -> usize {
    // `nobody` in passwd(5) is a user, not a word.
    let text = text.to_lowercase().replace("nobody:x:", "");
    let parts = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\''));
    let found: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let words: Vec<&str> = words.split(' ').collect();
    found.windows(words.len()).filter(|window| *window == words).count()
}

/// Files below a directory with one of these extensions.
fn files_below(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files.extend(files_below(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)) {
            files.push(path);
        }
    }
    files
}

/// The code of a Rust source with empty string literals, and the literals with their line.
fn lexed(source: &str) -> (String, Vec<(usize, String)>) {
    let (mut code, mut literals) = (String::new(), Vec::new());
    let mut rest = source;
    let line_of = |rest: &str| source[..source.len() - rest.len()].matches('\n').count() + 1;
    while let Some(c) = rest.chars().next() {
        let word_before = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let raw = rest.trim_start_matches(['b', 'c']).strip_prefix('r').filter(|_| !word_before);
        let hashes = raw.map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            rest = rest.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some(text) = raw.and_then(|raw| raw[hashes..].strip_prefix('"')) {
            let end = format!("\"{}", "#".repeat(hashes));
            let (literal, behind) = text.split_once(&end).unwrap_or((text, ""));
            literals.push((line_of(rest), literal.to_owned()));
            code.push_str("\"\"");
            rest = behind;
        } else if let Some(text) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = text.find(|c| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            });
            let end = end.unwrap_or(text.len());
            literals.push((line_of(rest), text[..end].replace("\\n", " ")));
            code.push_str("\"\"");
            rest = text.get(end + 1..).unwrap_or_default();
        } else if let Some(text) = rest.strip_prefix('\'') {
            // A character, or the name of a lifetime.
            let escape = text.strip_prefix('\\').map(|text| 2 + text[1..].find('\'').unwrap_or(0));
            let plain = text.chars().next().map_or(0, char::len_utf8);
            let len = escape.or_else(|| text[plain..].starts_with('\'').then_some(plain));
            code.push('\'');
            rest = len.map_or(text, |len| &text[len + 1..]);
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (code, literals)
}

/// Whether a source is compiled for tests only.
fn is_test(path: &Path) -> bool {
    let is = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs" || part == "simulation";
    path.iter().any(is)
}

/// The string literals of a source, outside its tests, in which a riddle occurs.
fn riddles(source: &str) -> Vec<String> {
    let production = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or(source);
    // Without what a format string prints, and without the backslash of a continued line.
    let words = |text: &str| {
        let parts = text.split('{').map(|part| part.rsplit('}').next().unwrap_or(part));
        parts.collect::<Vec<_>>().join(" ").replace('\\', " ")
    };
    let has_riddle =
        |text: &str| RIDDLES.iter().any(|riddle| occurrences(&words(text), riddle) > 0);
    let literals = lexed(production).1.into_iter().filter(|(_, text)| has_riddle(text));
    literals.map(|(line, text)| format!("{line}: {text:?}")).collect()
}

#[test]
fn plain_words() {
    let src = root().join("src");
    let mut files = files_below(&src, &["rs", "js", "css", "sql", "c"]);
    files.extend(files_below(&root().join("docs"), &["md"]));
    files.extend(["README.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    let texts: Vec<String> =
        files.iter().map(|path| fs::read_to_string(path).expect("a text file")).collect();
    let mut wrong = Vec::new();
    for (word, max) in VAGUE_WORDS {
        let count: usize = texts.iter().map(|text| occurrences(text, word)).sum();
        if count > max {
            wrong.push(format!("{word:?} occurs {count} times, more than {max}"));
        }
    }
    let mut found = Vec::new();
    for (path, text) in files.iter().zip(&texts) {
        if path.extension().is_some_and(|e| e == "rs") && !is_test(path) {
            let name = path.strip_prefix(root()).expect("below the root").display();
            found.extend(riddles(text).into_iter().map(|riddle| format!("{name}:{riddle}")));
        }
    }
    if found.len() > RIDDLES_MAX {
        wrong.push(format!("{} riddles, more than {RIDDLES_MAX}:", found.len()));
        wrong.extend(found);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn vague_words_and_riddles_are_found() {
    assert_eq!(occurrences("Nobody, nobody's and nobody_else; NOBODY", "nobody"), 2);
    assert_eq!(occurrences("It stays where\n/// it is.", "where it is"), 1);
    let found = |source: &str| riddles(source).len();
    assert_eq!(found("fn a() { log(\"the caller was told\"); }"), 1);
    assert_eq!(found("const A: &str = r#\"say \"Not now\" twice\"#;"), 1);
    assert_eq!(found("f('\"', \"take \\\n     what it says\")"), 1, "a continued line");
    assert_eq!(found("f(\"a \\\"quoted\\\" word\", \"it was put away\")"), 1);
    assert_eq!(found("f(\"{told} of {all}\", \"nobody:x:65534\")"), 0);
    assert_eq!(found("// told\nfn told<'a>(told: &'a str) -> char { '\\'' }"), 0);
    assert_eq!(found("f(\"untold\");\n#[cfg(test)]\nmod tests {\n    f(\"told\"); }"), 0);
}

/// The types that a source declares in a module: name, and whether it is private.
fn declared_types(source: &str) -> Vec<(String, bool)> {
    let code = lexed(source).0;
    // Of each open block, whether it is a module.
    let (mut blocks, mut item, mut found) = (Vec::new(), String::new(), Vec::new());
    for c in code.chars() {
        if !matches!(c, '{' | '}' | ';') {
            item.push(c);
            continue;
        }
        let words: Vec<&str> = item.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let is_kind = |word: &&str| matches!(*word, "struct" | "enum" | "trait" | "type" | "union");
        let is_other = |word: &&str| matches!(*word, "fn" | "impl" | "use" | "macro_rules");
        let kind = words.iter().position(|word| is_kind(word));
        let is_type = kind.is_some_and(|at| !words[..at].iter().any(is_other));
        if let (true, Some(at), true) = (blocks.iter().all(|is_mod| *is_mod), kind, is_type) {
            let name = words.get(at + 1).copied().unwrap_or_default();
            found.push((name.to_owned(), !words[..at].contains(&"pub")));
        }
        match c {
            '{' => blocks.push(words.contains(&"mod") && !is_type),
            '}' => drop(blocks.pop()),
            _ => {}
        }
        item.clear();
    }
    found
}

/// Type names with more than two declarations, or with two of which one is not private.
fn ambiguous_types(files: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<(bool, &str)>> = BTreeMap::new();
    for (file, source) in files {
        for (name, is_private) in declared_types(source) {
            places.entry(name).or_default().push((is_private, file));
        }
    }
    let is_ambiguous = |declared: &[(bool, &str)]| match declared {
        [] | [_] => false,
        [one, two] => !(one.0 && two.0),
        [..] => true,
    };
    let ambiguous = places.into_iter().filter(|(_, declared)| is_ambiguous(declared));
    let text = |(is_private, file): &(bool, &str)| {
        format!("{file} ({})", if *is_private { "private" } else { "public" })
    };
    ambiguous
        .map(|(name, declared)| {
            format!("{name}: {}", declared.iter().map(text).collect::<Vec<_>>().join(", "))
        })
        .collect()
}

#[test]
fn a_type_name_means_one_type() {
    let files: Vec<(String, String)> = rust_files(&root().join("src"))
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            (name, fs::read_to_string(path).expect("a text file"))
        })
        .collect();
    let wrong = ambiguous_types(&files);
    assert!(wrong.is_empty(), "rename one of each:\n{}", wrong.join("\n"));
}

#[test]
fn ambiguous_type_names_are_found() {
    let check = |sources: &[&str]| {
        let files = sources.iter().map(|source| ("a.rs".to_owned(), (*source).to_owned()));
        ambiguous_types(&files.collect::<Vec<_>>()).len()
    };
    assert_eq!(check(&["struct A;", "enum A { B }"]), 0, "two private types");
    assert_eq!(check(&["struct A;", "#[derive(Debug)]\npub(super) struct A(u8);"]), 1);
    assert_eq!(check(&["struct A;", "type A = [u8; 4];", "mod m { trait A {} }"]), 1);
    assert_eq!(check(&["pub struct A;", "mod tests { struct B; union A { x: u8 } }"]), 1);
    assert_eq!(check(&["pub struct A;", "impl Iterator for B { type A = u8; }"]), 0);
    assert_eq!(check(&["pub struct A;", "trait T { type A; }", "fn f() { struct A; }"]), 0);
    assert_eq!(check(&["pub struct A;", "// struct A;\nconst T: &str = \"struct A;\";"]), 0);
}
