//! Checks of style: layers import only downward, each file begins with its purpose and is short, words
//! are plain, and a type name means one type.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/functions.rs"]
mod functions;
#[path = "tidy/types.rs"]
mod types;
#[path = "tidy/words.rs"]
mod words;

use circles::relative_imports;
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
const LAYERS: [(&str, u8); 34] = [
    ("types", 0),
    ("clock", 0),
    ("telemetry", 0),
    ("config", 0),
    ("sabotage", 0),
    ("fuzz", 0),
    ("web_socket", 0),
    ("issue", 1),
    ("agents", 1),
    ("conversation", 1),
    ("store", 2),
    ("access", 2),
    ("sandbox", 2),
    ("git", 2),
    ("github", 2),
    ("logs", 2),
    ("models", 2),
    ("egress", 2),
    ("store::sqlite", ADAPTERS),
    ("github::client", ADAPTERS),
    ("models::gateway", ADAPTERS),
    ("engine", 4),
    ("verification", 4),
    ("checkout", 4),
    ("hooks", 4),
    ("runs", 4),
    ("intake", 4),
    ("sync", 4),
    ("issue_sandbox", 4),
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
    let code = code_of(text);
    imports(&code)
        .into_iter()
        .chain(relative_imports(module, &code))
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
        .filter(|path| {
            let is_test = |part: std::path::Component<'_>| {
                part.as_os_str() == "tests" || part.as_os_str() == "tests.rs"
            };
            !path.components().any(is_test)
        })
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
    assert_eq!(wrong_imports("sandbox", "mod local;\npub(crate) use local::X;").len(), 1);
    assert_eq!(wrong_imports("sandbox::simulated::work", "use super::super::local::X;").len(), 1);
    assert_eq!(wrong_imports("sandbox::local::link", "use super::frame::Answer;").len(), 0);
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
    assert_eq!(providers(), ["daytona", "docker", "local", "simulated"], "all are found");
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

#[test]
fn no_statement_of_the_store_returns_the_rows_that_it_changes() {
    // Such a row comes before the statement's commit, whose error nothing would ask for.
    let is_wrong = |text: &str| code_of(text).to_ascii_uppercase().contains("RETURNING");
    assert!(is_wrong("let sql = \"UPDATE meta SET epoch = 2 returning epoch\";"));
    let files = rust_files(&root().join("src/store"));
    let wrong: Vec<_> = files
        .iter()
        .filter(|path| is_wrong(&fs::read_to_string(path).expect("a text file")))
        .collect();
    assert!(wrong.is_empty(), "a transaction must change the row and read it then: {wrong:?}");
}
