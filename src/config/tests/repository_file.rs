//! `.github/issuebox.toml`: what it says, and what it is refused for.

use std::collections::BTreeMap;
use std::time::Duration;

use super::load;
use crate::config::{REPOSITORY_FILE_LEN_MAX, RepositoryFileText};
use crate::types::{HookAction, HookStep, RepositoryFile};

fn parse(text: &str) -> Result<RepositoryFileText, String> {
    RepositoryFileText::parse(text.as_bytes())
}

fn step(command: &[&str]) -> HookStep {
    HookStep {
        action: HookAction::Run(command.iter().map(|&word| word.to_owned()).collect()),
        cwd: None,
        timeout: Duration::from_secs(600),
        env: BTreeMap::new(),
    }
}

#[test]
fn a_file_says_what_is_set_up_and_how_an_agent_works() {
    let text = r#"
        working_dir = "web/app"
        instructions = """
        Keep lines short."""
        setup = [
            "npm ci && npm run build",
            { run = ["make", "tools"], cwd = "tools", timeout_seconds = 9, env = { CI = "1" } },
            { run = "echo $CI" },
        ]
    "#;
    let read = parse(text).expect("it is read");
    let tools = HookStep {
        cwd: Some("tools".into()),
        timeout: Duration::from_secs(9),
        env: BTreeMap::from([("CI".to_owned(), "1".to_owned())]),
        ..step(&["make", "tools"])
    };
    let first = step(&["sh", "-c", "npm ci && npm run build"]);
    assert_eq!(read.setup, [first, tools, step(&["sh", "-c", "echo $CI"])]);
    assert_eq!(read.working_dir.as_deref(), Some("web/app"));
    assert_eq!(read.instructions, "        Keep lines short.");
    let tables = parse("[[setup]]\nrun = \"a\"\n[[setup]]\nrun = [\"b\"]\n[setup.env]\nA = \"1\"");
    let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
    let second = HookStep { env, ..step(&["b"]) };
    assert_eq!(tables.expect("tables").setup, [step(&["sh", "-c", "a"]), second]);
    assert_eq!(parse(""), Ok(RepositoryFileText::default()));
    assert_eq!(parse("setup = []"), Ok(RepositoryFileText::default()));
}

#[test]
fn the_documented_file_is_right() {
    let document = include_str!("../../../docs/repositories.md");
    let file = document.split_once("```toml\nworking_dir").expect("there is one").1;
    let file = file.split_once("```").expect("it ends").0;
    assert_eq!(parse(&format!("working_dir{file}")).expect("it is read").setup.len(), 2);
}

#[test]
fn a_file_is_refused_by_line_and_key() {
    let operator = "is set by the operator, not by a repository; remove it";
    for (text, expected) in [
        ("\nnetwork = \"full\"", format!("2: network {operator}")),
        ("[secrets.a]\nfile = \"/b\"", format!("1: secrets {operator}")),
        ("[resources]\ncpu = 9", format!("1: resources {operator}")),
        ("budget = { run = 1.0 }", format!("1: budget {operator}")),
        ("triggers.label = \"x\"", format!("1: triggers {operator}")),
        ("image = \"evil\"", format!("1: image {operator}")),
        (
            "ports = [80]",
            "1: ports is set by the operator, not by a repository: it would let those who can push \
             here open ports that the operator did not list; remove it"
                .into(),
        ),
        (
            "working_dri = \"a\"",
            "1: unknown key working_dri; possible are setup, working_dir, instructions".into(),
        ),
        ("working_dir = \"../x\"", "1: working_dir must be a path without .., not \"../x\"".into()),
        (
            "working_dir = \"/etc\"",
            "1: working_dir must be a directory of the repository, not \"/etc\"".into(),
        ),
        ("working_dir = { a = 1 }", "1: working_dir must be a text, not a section".into()),
        ("instructions = 7", "1: instructions must be a text, not 7".into()),
        (
            "instructions = \"a\\u202eb\"",
            "1: instructions must not contain control characters, or marks for the direction of \
             writing"
                .into(),
        ),
        ("setup = \"make\"", "1: setup must be a list of commands".into()),
        ("setup = [\"a\",\n7]", "2: setup.2 must be a command, or a table with run".into()),
        ("setup = [{ cwd = \"a\" }]", "1: setup.1 needs run".into()),
        (
            "setup = [{ run = \"a\", uses = \"sync-pull\" }]",
            "1: unknown key setup.1.uses; possible are run, cwd, timeout_seconds, env".into(),
        ),
        (
            "[[setup]]\nrun = []",
            "2: setup.1.run must name a program and its arguments, without NUL bytes".into(),
        ),
        ("[[setup]]\nrun = 7", "2: setup.1.run must be a list of texts, not 7".into()),
        (
            "[[setup]]\nrun = \"a\"\ncwd = \"a/../b\"",
            "3: setup.1.cwd must be a path without .., not \"a/../b\"".into(),
        ),
        (
            "[[setup]]\nrun = \"a\"\ntimeout_seconds = 601",
            "3: setup.1.timeout_seconds must be at most 600, which is for all of setup together"
                .into(),
        ),
        (
            "[[setup]]\nrun = \"a\"\n[setup.env]\nISSUEBOX_RUN = \"1\"",
            "4: setup.1.env.ISSUEBOX_RUN is a name that issuebox sets; choose another".into(),
        ),
        ("a =", "1: ".into()),
    ] {
        let refused = parse(text).expect_err(text);
        let expected = format!("{}:{expected}", RepositoryFile::PATH);
        assert!(refused == expected || text == "a =" && refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn a_file_is_bounded() {
    let long = format!("instructions = {:?}", "x".repeat(16 * 1024 + 1));
    assert!(parse(&long).expect_err("long").ends_with("instructions is longer than 16 KiB"));
    let large = "#".repeat(REPOSITORY_FILE_LEN_MAX);
    assert_eq!(parse(&large), Ok(RepositoryFileText::default()));
    assert!(parse(&format!("{large}#")).expect_err("large").ends_with("is larger than 64 KiB"));
    assert!(RepositoryFileText::parse(b"\xff").expect_err("bytes").ends_with("is not UTF-8"));
    let many = |count| format!("setup = [{}]", "\"a\",".repeat(count));
    assert_eq!(parse(&many(32)).expect("32").setup.len(), 32);
    let refused = parse(&many(33)).expect_err("33");
    assert!(refused.contains("33 commands; at most 32 are possible"), "{refused}");
    let unknown: String =
        (0..9).map(|n| format!("\"\\u001b{n}{}\" = 1\n", "y".repeat(400))).collect();
    let refused = parse(&unknown).expect_err("unknown");
    let lines: Vec<_> = refused.lines().collect();
    assert_eq!((lines.len(), lines[8]), (9, "and 1 more"), "{refused}");
    assert!(lines[0].chars().count() <= 301 && !refused.contains('\u{1b}'), "{refused}");
    assert!(parse(&"[".repeat(60_000)).is_err(), "no text ends the server");
}

#[test]
fn a_template_has_the_file_read_if_it_has_a_checkout() {
    let reads = |github: &str, template: &str| {
        let template = format!("[templates.default]\n{template}\ngit.repository_file = true");
        let loaded = load(&format!("{github}\n{template}"))?;
        let template = loaded.config.templates.into_values().next().expect("one");
        Ok::<_, String>(template.workload.repository_file().is_some())
    };
    let token = "[github]\ntoken = \"hush\"";
    assert_eq!(reads(token, ""), Ok(true));
    for (github, template) in
        [("", ""), (token, "git.clone = \"none\""), (token, "network = \"host\"")]
    {
        let error = reads(github, template).expect_err("it has no checkout");
        assert!(error.contains("default.git.repository_file needs a checkout: "), "{error}");
    }
}
