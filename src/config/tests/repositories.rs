//! `[repositories]`: what is different for the repositories that a pattern matches.

use super::*;
use crate::types::{Money, PermissionLevel, Repository, TemplateName};

fn repository(name: &str) -> Repository {
    Repository::parse(name).expect("a name")
}

const ALL_KEYS: &str = r#"
    [triggers]
    label = "agent"
    command = "/work"
    assignee = 7

    [budgets]
    run = 1.0
    account_per_day = 9.0

    [templates.large]

    [repositories."octo/*"]
    template = "codex"
    triggers = { label = "robot" }

    [repositories."octo/my.tools"]
    template = "large"
    base_branch = "next"
    working_dir = "server"
    instructions = "Run make."
    triggers = { command = "", opened = true, permission = "maintain" }
    budget = { run = 0, issue = 20.5 }

    [repositories."octo/nothing"]
"#;

#[test]
fn each_key_of_a_repository_is_read_and_the_rest_is_as_everywhere() {
    let config = load(ALL_KEYS).expect("it is right").config;
    let (tools, others, none) =
        (repository("Octo/my.tools"), repository("octo/hello"), repository("mona/hello"));

    let settings = config.repositories.of(&tools);
    let template = |name: &str| Some(TemplateName::trusted(name));
    let name_of = |name: &Repository| {
        config.repositories.of(name).template.as_ref().map(|template| template.name.clone())
    };
    assert_eq!(name_of(&tools), template("large"));
    assert_eq!((name_of(&others), name_of(&none)), (template("codex"), None));
    assert_eq!(settings.base_branch.as_deref(), Some("next"));
    assert_eq!(settings.working_dir.as_deref(), Some("server"));
    assert_eq!(settings.instructions, "Run make.");

    let usual = config.triggers.usual();
    let wanted = Triggers {
        command: String::new(),
        opened: true,
        permission: PermissionLevel::Maintain,
        ..usual.clone()
    };
    assert_eq!(*config.triggers.of(&tools), wanted, "the most specific pattern alone counts");
    assert_eq!(*config.triggers.of(&others), Triggers { label: "robot".into(), ..usual.clone() });
    assert_eq!(config.triggers.of(&none), usual);
    assert_eq!(config.triggers.of(&repository("octo/nothing")), usual);

    let dollars = |amount| Money::from_dollars(amount).expect("an amount");
    let budgets = &config.models.budgets;
    assert_eq!((budgets.of(&tools).run, budgets.of(&tools).issue), (Money::ZERO, dollars(20.5)));
    assert_eq!(budgets.of(&tools).account_per_day, dollars(9.0));
    assert_eq!(budgets.of(&others), budgets.usual());
}

#[test]
fn each_mistake_in_a_repository_is_named_with_its_key() {
    let long = "x".repeat(16 * 1024 + 1);
    let wrong = error_of(&format!(
        r#"
        [repositories."octo/hello"]
        template = "huge"
        base_branch = "a..b"
        working_dir = "../x"
        instructions = "{long}"
        triggers = {{ command = "two words", opened = 1, permission = "owner", bots = [1] }}
        budget = {{ run = -1, account_per_day = 5 }}
        image = "debian:13"

        [repositories.hello]
        label = "robot"

        [repositories."Octo/Hello"]
        "#
    ));
    for words in [
        "repositories.octo/hello.template must be one of claude-code, codex, command, default, \
         not \"huge\"",
        "repositories.octo/hello.base_branch must be the name of a branch, not \"a..b\"",
        "repositories.octo/hello.working_dir must be a path without ..",
        "repositories.octo/hello.instructions is longer than 16 KiB",
        "repositories.octo/hello.triggers.command must be one word",
        "repositories.octo/hello.triggers.opened must be true or false",
        "repositories.octo/hello.triggers.permission must be",
        "unknown key repositories.octo/hello.triggers.bots",
        "repositories.octo/hello.budget.run must be a number from 0",
        "unknown key repositories.octo/hello.budget.account_per_day",
        "unknown key repositories.octo/hello.image",
        "repositories.hello: its name must have the form owner/name",
        "repositories.hello.label",
        "is there twice: upper and lower case are the same",
    ] {
        assert!(wrong.contains(words), "{words} is not in {wrong}");
    }
}

#[test]
fn a_label_that_says_what_is_at_work_triggers_in_no_repository() {
    let text = "[github]\nworking_label = \"Busy\"\n[repositories.\"octo/*\".triggers]\nlabel = ";
    assert!(error_of(&format!("{text}\"busy\"")).contains("github.working_label must not be"));
    assert!(load(&format!("{text}\"idle\"")).is_ok());
}

#[test]
fn a_repository_that_may_not_trigger_is_warned_of() {
    let text =
        "[github]\nrepositories = [\"octo/*\"]\n[repositories.\"mona/x\"]\nworking_dir = \"a\"";
    let warnings = load(text).expect("it is right").warnings;
    let words = "repositories.mona/x: github.repositories does not match it";
    assert!(warnings.iter().any(|warning| warning.contains(words)), "{warnings:?}");
}

#[test]
fn a_branch_to_begin_at_needs_credentials() {
    let text = "[repositories.\"octo/*\"]\nbase_branch = \"next\"";
    let warnings = load(text).expect("it is right").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("base_branch has no effect")));
    let with = format!("[github]\ntoken = \"hush\"\n{text}");
    assert_eq!(load(&with).expect("it is right").warnings, Vec::<String>::new());
}
