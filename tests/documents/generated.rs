//! What is generated from the code: the pages of the command line and of the configuration, and
//! tables between the marks `<!-- generated: … -->` and `<!-- end -->`.
//!
//! `ISSUEBOX_REGENERATE=1 cargo test --test documents` rewrites it.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};

use issuebox::http::error::Code;
use serde_json::Value;

use super::{documents, read, root};

/// Compares a file with what it should be, or writes it.
fn keep(path: &str, wanted: &str) {
    if std::env::var_os("ISSUEBOX_REGENERATE").is_some() {
        fs::write(root().join(path), wanted).expect("written");
        return;
    }
    let is_current = fs::read_to_string(root().join(path)).is_ok_and(|found| found == wanted);
    assert!(is_current, "{path} is out of date: ISSUEBOX_REGENERATE=1 cargo test --test documents");
}

fn help(verb: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_issuebox"));
    let ran = program.args(verb).arg("--help").env_clear().stdin(Stdio::null()).output();
    String::from_utf8(ran.expect("it runs").stdout).expect("text")
}

/// What can come behind a verb.
pub fn verbs(verb: &[&str]) -> Vec<String> {
    let help = help(verb);
    let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default().lines();
    let listed = listed.take_while(|line| line.starts_with("  "));
    // A line that begins further in goes on with what the one above says.
    let words = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    words.filter(|word| *word != "help" && !word.is_empty()).map(str::to_owned).collect()
}

/// The help of a verb without what all have in common, then that of those behind it.
fn write_verb(text: &mut String, verb: &[&str]) {
    let help = help(verb);
    // What stands behind the options that all have in common are the examples.
    let (own, common) = help.split_once("\nWhich server:\n").unwrap_or((&help, ""));
    let examples = common.split_once("\n\n").map_or("", |(_, behind)| behind);
    let own = format!("{}\n\n{examples}", own.trim_end());
    let own = own.lines().filter(|line| !line.starts_with("  -h, --help"));
    let own = own.collect::<Vec<_>>().join("\n");
    let own = own.replace("\nOptions:\n\n", "\n").trim_end().to_owned();
    let own = own.trim_end_matches("\nOptions:").trim_end();
    let level = "#".repeat(verb.len() + 1);
    let _ = write!(text, "\n{level} issuebox {}\n\n```text\n{own}\n```\n", verb.join(" "));
    for word in verbs(verb) {
        write_verb(text, &[verb, &[&word]].concat());
    }
}

#[test]
fn the_page_of_the_command_line_is_current() {
    let mut text = "# The command line\n\n\
        What `issuebox --help` and `issuebox VERB --help` print. Generated: change the code, not \
        this page.\n\n```text\n"
        .to_owned();
    text += help(&[]).trim_end();
    text +=
        "\n```\n\nEvery verb that calls a server takes the options under *Which server*, too.\n";
    for word in verbs(&[]) {
        write_verb(&mut text, &[&word]);
    }
    keep("docs/cli.md", &text);
}

/// A line `key = value` of the example, also if it is commented out.
fn key_of(line: &str) -> Option<(&str, &str, bool)> {
    let is_set = !line.starts_with("# ");
    let (key, value) = line.trim_start_matches("# ").split_once(" = ")?;
    let is_key = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_key.then_some((key, value, is_set))
}

/// Comments as Markdown: what is meant as it is must not be markup.
fn prose(comments: &str) -> String {
    let lines = comments.lines().map(|line| line.strip_prefix(' ').unwrap_or(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.trim_end().replace('*', "\\*").replace('<', "\\<")
}

#[test]
fn the_page_of_the_configuration_is_current() {
    let example = read("deploy/issuebox.example.toml");
    let mut text = "# Configuration\n\nGenerated from \
        [deploy/issuebox.example.toml](../deploy/issuebox.example.toml): change that, not this \
        page.\n"
        .to_owned();
    for part in example.split("\n\n") {
        let (mut keys, mut words, mut section) = (Vec::new(), String::new(), String::new());
        for line in part.lines() {
            if line.starts_with('[') {
                // What is written above a section is about all of it.
                section = format!("\n## `{line}`\n");
                if !words.is_empty() {
                    let _ = write!(section, "\n{}\n", prose(&words));
                    words.clear();
                }
            } else if let Some((key, value, is_set)) = key_of(line) {
                let word = if is_set { "default" } else { "for example" };
                keys.push(format!("**`{key}`**, {word} `{value}`"));
            } else {
                let _ = writeln!(words, "{}", line.strip_prefix('#').unwrap_or(line));
            }
        }
        let words = prose(&words);
        text += &section;
        if keys.is_empty() {
            let _ = write!(text, "\n{words}\n");
        } else {
            let words = words.replace('\n', "\n  ");
            let _ = write!(text, "\n- {}\\\n  {words}\n", keys.join(",\n  "));
        }
    }
    keep("docs/configuration.md", &text);
}

/// Words that a macro in the code declares, each with what is said of it: `/// … Name = "word"`.
fn declared(path: &str, begin: &str) -> Vec<(String, String)> {
    let code = read(path);
    let body = code.split(begin).nth(1).unwrap_or_else(|| panic!("{path} has no {begin}"));
    let (mut found, mut docs) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim).take_while(|line| !line.starts_with('}')) {
        if let Some(words) = line.strip_prefix("/// ") {
            docs.push(words.to_owned());
        } else if let Some(word) = line.split('"').nth(1) {
            found.push((word.to_owned(), docs.join(" ")));
            docs.clear();
        }
    }
    assert!(found.len() > 2, "{path}: {begin} declares {found:?}");
    found
}

fn error_codes() -> String {
    let mut text = "| status | `code` | when |\n|---|---|---|\n".to_owned();
    for (word, docs) in declared("src/http/error.rs", "\ncodes! {\n") {
        let code = Code::ALL.iter().find(|code| code.as_str() == word).expect("it is declared");
        let _ = writeln!(text, "| {} | `{word}` | {docs} |", code.status().as_u16());
    }
    text
}

/// Every route below `/v1` with its summary.
fn routes() -> String {
    let document = issuebox::http::routes::document().to_json().expect("it is JSON");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let mut text = "| route | what it does |\n|---|---|\n".to_owned();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, route) in item.as_object().expect("methods") {
            let summary = route["summary"].as_str().expect("a summary").replace('|', "\\|");
            let method = method.to_uppercase();
            let _ = writeln!(text, "| `{method} {path}` | {summary} |");
        }
    }
    text
}

fn words(path: &str, begin: &str) -> String {
    let rows = declared(path, begin).into_iter();
    let rows = rows.map(|(word, docs)| format!("| `{word}` | {docs} |\n"));
    format!("| word | means |\n|---|---|\n{}", rows.collect::<String>())
}

fn metrics() -> String {
    let mut text = "| metric | labels | what |\n|---|---|---|\n".to_owned();
    for name in ["metrics", "metrics/effects", "metrics/github", "metrics/models"] {
        metrics_of(&read(&format!("src/http/{name}.rs")), &mut text);
    }
    text
}

/// The rows of the metrics that one file registers.
fn metrics_of(code: &str, text: &mut String) {
    let mut parts = code.split(" = add(");
    let mut before = parts.next().expect("a part");
    for part in parts {
        let field = before.rsplit(' ').next().expect("a name");
        let texts: Vec<&str> = part.splitn(5, '"').collect();
        let [_, name, _, what, _] = texts[..] else { panic!("two texts: {part}") };
        before = part;
        let kind = code.split(&format!("    {field}: ")).nth(1).expect("a field");
        let kind = kind.split(",\n").next().expect("its type");
        let end = if kind.contains("Counter") { "_total" } else { "" };
        let labels = kind.split(['<', ',']).find(|part| part.ends_with("Labels"));
        let labels = labels.map_or(String::new(), |labels| {
            let fields = code.split(&format!("struct {labels} {{\n")).nth(1).expect("its labels");
            let fields = fields.split("\n}").next().unwrap_or_default().lines();
            let names = fields.filter_map(|line| Some(line.trim().split_once(':')?.0));
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        });
        let _ = writeln!(text, "| `{name}{end}` | {labels} | {what} |");
    }
}

#[test]
fn tables_that_repeat_the_code_are_current() {
    const BEGIN: &str = "<!-- generated: ";
    const END: &str = "<!-- end -->";
    let mut tables = 0;
    for name in documents() {
        let text = read(&name);
        let mut parts = text.split(BEGIN);
        let mut wanted = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (what, rest) = part.split_once(" -->").expect("a name");
            let (_, behind) = rest.split_once(END).expect("an end");
            let types = "src/types/sandbox.rs";
            let table = match what {
                "error codes" => error_codes(),
                "metrics" => metrics(),
                "routes" => routes(),
                "phases" => words(types, "    Phase {\n"),
                "outcomes" => words(types, "    Outcome {\n"),
                "failure codes" => words(types, "    FailureCode {\n"),
                _ => panic!("{name}: nothing generates {what:?}"),
            };
            let _ = write!(wanted, "{BEGIN}{what} -->\n\n{table}\n{END}{behind}");
            tables += 1;
        }
        keep(&name, &wanted);
    }
    assert!(tables >= 6, "the tables are there");
}
