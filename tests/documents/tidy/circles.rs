//! Import circles between the files of `src/engine/`: none, but actor and registry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{code_of, imports, module_of, root, rust_files};

/// An actor knows the registry to start its successor, and the registry starts actors.
const ALLOWED: [&str; 2] = ["engine::actor", "engine::registry"];

/// The modules that each module imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// What a file imports relative to itself (`super::…`, or `child::…` of a child that it declares),
/// as paths from the root of the crate.
pub(super) fn relative_imports(module: &str, code: &str) -> Vec<String> {
    let parents: Vec<&str> = module.split("::").collect();
    let mut absolute = String::new();
    for line in code.split(';') {
        let Some((_, path)) = line.split_once("use ") else { continue };
        let path = path.trim();
        let rest = path.trim_start_matches("super::");
        let ups = (path.len() - rest.len()) / "super::".len();
        let first = path.split("::").next().unwrap_or_default();
        let base = if ups > 0 {
            parents[..parents.len() - ups].join("::")
        } else if code.contains(&format!("mod {first};")) {
            module.to_owned()
        } else {
            continue;
        };
        absolute.push_str(&format!("crate::{base}::{rest};\n"));
    }
    imports(&absolute)
}

/// Which of the modules each one imports.
fn graph(files: &[(String, String)]) -> Graph {
    let modules: BTreeSet<&str> = files.iter().map(|(module, _)| module.as_str()).collect();
    // An import names an item of a module: the longest prefix that is a module.
    let module_in = |import: &str| {
        let mut path = import;
        loop {
            match path.rsplit_once("::") {
                _ if modules.contains(path) => return Some(path.to_owned()),
                Some((parent, _)) => path = parent,
                None => return None,
            }
        }
    };
    let imported = |module: &str, text: &str| {
        let code = code_of(text);
        let all = imports(&code).into_iter().chain(relative_imports(module, &code));
        all.filter_map(|import| module_in(&import)).filter(|other| other != module).collect()
    };
    files.iter().map(|(module, text)| (module.clone(), imported(module, text))).collect()
}

/// Everything that a module imports, also by way of others.
fn reached<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = graph.get(from).into_iter().flatten().map(String::as_str).collect();
    while let Some(module) = open.pop() {
        if let Some((module, imported)) = graph.get_key_value(module)
            && reached.insert(module.as_str())
        {
            open.extend(imported.iter().map(String::as_str));
        }
    }
    reached
}

/// The modules that import themselves by way of others, with those that are in the same circle.
fn circles(files: &[(String, String)]) -> BTreeSet<Vec<String>> {
    let graph = graph(files);
    let in_circle_with = |module: &str| -> Vec<String> {
        let back = |other: &&&str| reached(&graph, other).contains(module);
        reached(&graph, module).iter().filter(back).map(|&other| other.to_owned()).collect()
    };
    graph.keys().map(|module| in_circle_with(module)).filter(|circle| !circle.is_empty()).collect()
}

fn engine() -> Vec<(String, String)> {
    let src = root().join("src");
    let is_test = |module: &str| {
        module.split("::").any(|part| part == "tests" || part == "simulation" || part == "proof")
    };
    rust_files(&src.join("engine"))
        .iter()
        .map(|path| (module_of(path), fs::read_to_string(path).expect("a text file")))
        .filter(|(module, _)| !is_test(module))
        .collect()
}

#[test]
fn the_engines_files_import_each_other_in_no_circle_but_actor_and_registry() {
    let files = engine();
    assert!(files.len() > 30, "the engine was not found");
    let wrong: Vec<String> = (circles(&files).iter())
        .filter(|circle| circle.iter().any(|module| !ALLOWED.contains(&module.as_str())))
        .map(|circle| circle.join(", "))
        .collect();
    assert!(wrong.is_empty(), "these files import each other in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn the_circle_check_sees_each_form_of_import() {
    let files = |imports: [(&str, &str); 3]| imports.map(|(m, t)| (m.to_owned(), t.to_owned()));
    let circle = |one: &str, other: &str| {
        let third = ("engine::c", "use crate::types::X;");
        circles(&files([("engine::a", one), ("engine::b", other), third])).len()
    };
    assert_eq!(circle("use super::b::B;", "use super::a::{self, A};"), 1);
    assert_eq!(circle("use super::{b::B, c::C};", "use crate::engine::a::A;"), 1);
    assert_eq!(circle("fn f() -> crate::engine::b::B {}", "use super::a::A;"), 1);
    assert_eq!(circle("use super::b::B;", "// use super::a::A;\nuse super::c::C;"), 0);
    let child = files([
        ("engine::a", "mod child;\nuse child::Child;"),
        ("engine::a::child", "use super::A;"),
        ("engine::b", "use super::a::child::Child;"),
    ]);
    assert_eq!(circles(&child).len(), 1);
    let long = files([
        ("engine::a", "use super::b::B;"),
        ("engine::b", "use super::c::C;"),
        ("engine::c", "use super::a::A;"),
    ]);
    assert_eq!(circles(&long).iter().next().map(Vec::len), Some(3));
}
