//! The length of functions: at most 70 lines.

use std::fs;

use super::{root, rust_files};

/// A longer function does more than one thing.
const LINES_MAX: usize = 70;

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let words = ["pub ", "const ", "async ", "unsafe ", "extern \"C\" "];
    let mut rest = line.trim_start();
    loop {
        let before = rest;
        if let Some(visibility) = rest.strip_prefix("pub(") {
            rest = visibility.split_once(") ").map_or("", |(_, rest)| rest);
        }
        for word in words {
            rest = rest.strip_prefix(word).unwrap_or(rest);
        }
        if rest == before {
            break;
        }
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

/// The functions of a formatted file, with their lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        // It ends with its body, which a formatter closes below its beginning; one without a body,
        // or with one on the same line, ends at once.
        let ends = |line: &&str| {
            let closes = line.strip_prefix(indent).is_some_and(|rest| rest == "}");
            closes || (line.starts_with(&format!("{indent})")) && line.ends_with(';'))
        };
        let is_short = line.ends_with(';') || line.ends_with('}');
        let end = lines[at..].iter().position(ends).unwrap_or_default();
        found.push((name, if is_short { 1 } else { end + 1 }));
    }
    found
}

#[test]
fn no_function_has_more_than_seventy_lines() {
    let mut wrong = Vec::new();
    for path in ["src", "tests", "benches"].iter().flat_map(|dir| rust_files(&root().join(dir))) {
        let text = fs::read_to_string(&path).expect("a text file");
        let file = path.strip_prefix(root()).expect("below the root").display().to_string();
        for (name, lines) in functions(&text) {
            if lines > LINES_MAX {
                wrong.push(format!("{file}: {name} has {lines} lines, more than {LINES_MAX}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_length_check_counts_from_the_name_to_the_end_of_the_body() {
    let text = "pub(super) async fn one(\n    a: u8,\n) -> u8 {\n    a\n}\n\ntrait T {\n    fn two(\
                &self);\n    fn three(\n        &self,\n    );\n    const fn four() {}\n}\n";
    assert_eq!(functions(text), [("one", 5), ("two", 1), ("three", 3), ("four", 1)]);
}
