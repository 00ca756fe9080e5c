//! Plain words: vague words are counted, and texts for people hold no riddles.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// Words that hide who acts, and how often each may occur in the sources and documents. Use the
/// field's noun and a verb instead. One `nobody` is the user of passwd(5); one "where it is" says where a
/// directory is created. Never raise a bound.
const VAGUE_WORDS: [(&str, usize); 5] =
    [("told", 0), ("nobody", 1), ("somebody", 0), ("where it is", 1), ("whoever", 0)];

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
    let text = text.to_lowercase().replace("nobody:", "");
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
pub fn lexed(source: &str) -> (String, Vec<(usize, String)>) {
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
