//! Images, environments, secrets, commands and mounts of templates, and every error about them.

use super::*;
use crate::types::{HostMount, SecretName, Workload, WorkloadSource};

fn workload(text: &str) -> Workload {
    let loaded = load(text).expect("accepted");
    loaded.config.templates.values().next().expect("one").workload.as_ref().clone()
}

#[test]
fn a_template_says_what_runs_in_a_sandbox() {
    assert_eq!(workload(""), Workload::default());
    let text = r#"
[templates.default]
provider = "simulated"
image = "rust:1"
user = "dev"
working_dir = "src"
command = ["sh", "-c", "echo up"]
mounts = ["/srv/cache/cargo:/cache:ro"]
[templates.default.env]
RUST_LOG = "info"
[templates.default.secrets]
NPM_TOKEN = "npm"
[templates.default.simulated]
size = 3
[providers.simulated]
mounts = ["/srv/cache"]
[secrets.npm]
value = "hush"
"#;
    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let expected = Workload {
        source: Some(WorkloadSource::Image("rust:1".into())),
        env: one("RUST_LOG", "info"),
        secrets: BTreeMap::from([("NPM_TOKEN".into(), SecretName::trusted("npm"))]),
        user: Some("dev".into()),
        working_dir: Some("src".into()),
        command: ["sh", "-c", "echo up"].map(str::to_owned).to_vec(),
        mounts: HostMount::parse("/srv/cache/cargo:/cache:ro").into_iter().collect(),
        git: None,
        agent: None,
        options: one("size", "3"),
        ..Workload::default()
    };
    assert_eq!(workload(text), expected);
    let debug = format!("{:?}", load(text).expect("accepted"));
    assert!(debug.contains("NPM_TOKEN") && !debug.contains("hush"), "{debug}");
}

#[test]
fn variables_of_the_environment_are_named_in_upper_case() {
    let env = [
        ("ISSUEBOX__TEMPLATES__DEFAULT__ENV__RUST_LOG", "info"),
        ("ISSUEBOX__SECRETS__NPM__ENV", "OUR_TOKEN"),
        ("OUR_TOKEN", "hush"),
        ("ISSUEBOX__TEMPLATES__DEFAULT__SECRETS__NPM_TOKEN", "npm"),
    ];
    let config = load_env(&env).expect("accepted").config;
    let workload = &config.templates[&TemplateName::trusted("default")].workload;
    assert_eq!(workload.env.keys().collect::<Vec<_>>(), ["RUST_LOG"]);
    assert_eq!(workload.secrets.keys().collect::<Vec<_>>(), ["NPM_TOKEN"]);
    assert_eq!(config.secrets[&SecretName::trusted("npm")].expose(), "hush");
}

#[test]
fn a_secret_is_a_value_a_file_or_a_variable() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("npm");
    std::fs::write(&file, "hush\n").expect("written");
    let config = load(&format!("[secrets.npm]\nfile = {file:?}")).expect("accepted").config;
    assert_eq!(config.secrets[&SecretName::trusted("npm")].expose(), "hush", "without its newline");
    insta::assert_snapshot!(
        error_of(
            r#"
[secrets.none]
[secrets.empty]
value = ""
[secrets.kind]
value = 5
[secrets.gone]
file = "/nowhere/at/all"
[secrets.unset]
env = "NOT_SET_ANYWHERE"
[secrets.twice]
value = "hush"
env = "HOME"
"#
        ),
        @"
    issuebox.toml:4: secrets.empty.value is empty
    issuebox.toml:8: secrets.gone.file cannot be read from /nowhere/at/all: No such file or directory (os error 2)
    issuebox.toml:6: secrets.kind.value must be a text
    secrets.none needs one of value, file, env
    issuebox.toml:12: secrets.twice.value is one of several; keep one of value, file, env
    issuebox.toml:10: secrets.unset.env names the variable NOT_SET_ANYWHERE, which is not set
    "
    );
}

#[test]
fn a_key_that_the_provider_cannot_carry_out_names_template_key_and_provider() {
    insta::assert_snapshot!(
        error_of(
            r#"
[templates.default]
image = "rust:1"
snapshot = "s"
user = "dev"
mounts = ["/srv/cache:/cache"]
[templates.default.simulated]
size = 3
[templates.other]
provider = "simulated"
image = "rust:1"
snapshot = "s"
mounts = ["/srv/cachet:/cache", "cache"]
[providers.simulated]
mounts = ["/srv/cache"]
"#
        ),
        @r#"
    issuebox.toml:4: templates.default.snapshot and image are both set; keep one
    templates.default has a table simulated, which needs provider = "simulated"; remove the table or change the provider
    issuebox.toml:3: templates.default.image is not possible with provider "local": it has none; remove the key
    issuebox.toml:4: templates.default.snapshot is not possible with provider "local": it has none; remove the key
    issuebox.toml:5: templates.default.user is not possible with provider "local": it has none; remove the key
    issuebox.toml:6: templates.default.mounts is not possible with provider "local": it has none; remove the key
    issuebox.toml:12: templates.other.snapshot and image are both set; keep one
    issuebox.toml:13: templates.other.mounts has /srv/cachet, which mounts in the provider's section does not list
    issuebox.toml:13: templates.other.mounts must be /host/path:/sandbox/path, or the same with :ro behind, not "cache"
    "#
    );
}

#[test]
fn wrong_parts_of_a_workload_are_named() {
    insta::assert_snapshot!(
        error_of(
            r#"
[templates.default]
image = ""
working_dir = "../x"
command = []
[templates.default.env]
"A-B" = "1"
PORT = 3000
TOKEN = "plain"
1A = "x"
[templates.default.secrets]
TOKEN = "npm"
OTHER = "nmp"
[templates.default.local]
size = 10
sizes = 1
[secrets.npm]
value = "hush"
"#
        ),
        @r#"
    issuebox.toml:3: templates.default.image must be one word, not ""
    issuebox.toml:4: templates.default.working_dir must be a path without .., not "../x"
    issuebox.toml:5: templates.default.command must name a program and its arguments, without NUL bytes
    issuebox.toml:10: templates.default.env.1A must be named with letters, digits and _, and not begin with a digit
    issuebox.toml:7: templates.default.env.A-B must be named with letters, digits and _, and not begin with a digit
    issuebox.toml:8: templates.default.env.PORT must be a text, not 3000
    issuebox.toml:13: templates.default.secrets.OTHER must name a secret that [secrets] has, not "nmp"
    issuebox.toml:15: templates.default.local.size must be a whole number from 1 to 9, not 10
    issuebox.toml:12: templates.default.secrets.TOKEN is in env, too; keep one
    issuebox.toml:3: templates.default.image is not possible with provider "local": it has none; remove the key
    issuebox.toml:16: unknown key templates.default.local.sizes; did you mean templates.default.local.size?
    "#
    );
    let long = "x".repeat(32 * 1024);
    insta::assert_snapshot!(
        error_of(&format!("[templates.default.env]\nA = \"{long}\"")),
        @"templates.default has more than 32 KiB of env and command"
    );
}
