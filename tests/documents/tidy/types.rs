//! A type name means one type: at most two private types share a name.

use std::collections::BTreeMap;
use std::fs;

use super::words::lexed;
use super::{root, rust_files};

/// Whether attributes compile an item for some systems only.
fn is_for_some(words: &[&str]) -> bool {
    words.contains(&"cfg") && !words.contains(&"test")
}

/// The types that a source declares in a module: name, and whether it is private.
fn declared_types(source: &str) -> Vec<(String, bool)> {
    let code = lexed(source).0;
    // Of each open block, whether it is a module, and whether it is for some systems only.
    let (mut blocks, mut item, mut found) = (Vec::new(), String::new(), Vec::new());
    for c in code.chars() {
        if !matches!(c, '{' | '}' | ';') {
            item.push(c);
            continue;
        }
        let words: Vec<&str> = item.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let is_kind = |word: &&str| matches!(*word, "struct" | "enum" | "trait" | "type" | "union");
        let is_other =
            |word: &&str| matches!(*word, "fn" | "impl" | "use" | "macro_rules" | "const");
        let kind = words.iter().position(is_kind);
        let is_type = kind.is_some_and(|at| !words[..at].iter().any(is_other));
        if let (true, Some(at), true) = (blocks.iter().all(|(is_mod, _)| *is_mod), kind, is_type) {
            let name = words.get(at + 1).copied().unwrap_or_default();
            // A second one for another system is the same type.
            let is_variant = (is_for_some(&words[..at]) || blocks.iter().any(|(_, some)| *some))
                && found.iter().any(|(known, _): &(String, bool)| known == name);
            if !is_variant {
                found.push((name.to_owned(), !words[..at].contains(&"pub")));
            }
        }
        match c {
            '{' => blocks.push((words.contains(&"mod") && !is_type, is_for_some(&words))),
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
    assert_eq!(check(&["#[cfg(unix)] pub struct A; #[cfg(not(unix))] pub struct A(u8);"]), 0);
    assert_eq!(
        check(&["#[cfg(unix)] mod a { pub struct A; } #[cfg(windows)] mod a { pub struct A; }"]),
        0
    );
    assert_eq!(check(&["pub struct A; #[cfg(test)] mod tests { struct A; }"]), 1);
    assert_eq!(check(&["pub struct A;", "impl Iterator for B { type A = u8; }"]), 0);
    assert_eq!(check(&["pub struct A;", "trait T { type A; }", "fn f() { struct A; }"]), 0);
    assert_eq!(check(&["pub struct A;", "// struct A;\nconst T: &str = \"struct A;\";"]), 0);
}
