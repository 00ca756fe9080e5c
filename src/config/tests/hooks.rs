//! Hooks of templates, and when their workspaces are pushed by themselves.

use std::time::Duration;

use super::*;
use crate::types::{HookAction, HookStep, Hooks, SyncMoments, Workload};

fn workload(text: &str) -> Workload {
    let loaded = load(text).expect("accepted");
    loaded.config.templates.values().next().expect("one").workload.as_ref().clone()
}

#[test]
fn hooks_are_lists_of_steps_in_their_order() {
    let text = r#"
[sync]
url = "file:///var/sync"
[templates.default]
provider = "simulated"
grace_seconds = 45
[templates.default.sync]
on_stop = true
before_delete = true
[[templates.default.hooks.on_cold_start]]
uses = "sync-pull"
timeout_seconds = 60
[[templates.default.hooks.on_cold_start]]
run = ["npm", "ci"]
cwd = "web"
[templates.default.hooks.on_cold_start.env]
CI = "1"
[templates.default.hooks]
on_message = []
on_terminate = [{ run = ["sh", "-c", "echo bye"] }, { uses = "sync-push" }]
"#;
    let step = |action| HookStep {
        action,
        cwd: None,
        timeout: Duration::from_secs(600),
        env: BTreeMap::new(),
    };
    let run = |words: &[&str]| HookAction::Run(words.iter().map(|&word| word.into()).collect());
    let hooks = Hooks {
        on_cold_start: vec![
            HookStep { timeout: Duration::from_secs(60), ..step(HookAction::SyncPull) },
            HookStep {
                cwd: Some("web".into()),
                env: BTreeMap::from([("CI".to_owned(), "1".to_owned())]),
                ..step(run(&["npm", "ci"]))
            },
        ],
        on_terminate: vec![step(run(&["sh", "-c", "echo bye"])), step(HookAction::SyncPush)],
        grace: Duration::from_secs(45),
        ..Hooks::default()
    };
    let workload = workload(text);
    assert_eq!(workload.hooks, hooks);
    assert_eq!(workload.sync, SyncMoments { on_stop: true, before_delete: true });
    assert_eq!(self::workload("").hooks, Hooks::default());
}

#[test]
fn more_than_nine_steps_keep_their_order() {
    let step = |n| format!("[[templates.default.hooks.on_message]]\nrun = [\"{n}\"]\n");
    let text: String = (1..=11).map(step).collect();
    let steps = workload(&text).hooks.on_message;
    let expected: Vec<_> = (1..=11).map(|n| HookAction::Run(vec![n.to_string()])).collect();
    assert_eq!(steps.into_iter().map(|step| step.action).collect::<Vec<_>>(), expected);
}

#[test]
fn wrong_steps_are_named_with_what_to_do() {
    insta::assert_snapshot!(
        error_of(
            r#"
[templates.default]
grace_seconds = 0
[templates.default.sync]
on_stop = true
[[templates.default.hooks.on_cold_start]]
run = ["a"]
uses = "sync-pull"
[[templates.default.hooks.on_cold_start]]
[[templates.default.hooks.on_cold_start]]
run = []
[[templates.default.hooks.on_cold_start]]
uses = "git-clone"
[[templates.default.hooks.on_cold_start]]
uses = "git-checkout"
[[templates.default.hooks.on_cold_start]]
uses = "sync-push"
cwd = "a"
[[templates.default.hooks.on_cold_start]]
run = ["a"]
cwd = "../a"
timeout_seconds = 0
shell = "bash"
[templates.default.hooks.on_cold_start.env]
ISSUEBOX_RUN = "1"
[templates.default.hooks]
on_message = "npm ci"
on_start = [{ run = ["a"] }]
"#
        ),
        @r#"
    issuebox.toml:8: templates.default.hooks.on_cold_start.1.uses and run are both set; keep one
    templates.default.hooks.on_cold_start.2 needs one of run, uses
    issuebox.toml:11: templates.default.hooks.on_cold_start.3.run must name a program and its arguments, without NUL bytes
    issuebox.toml:13: templates.default.hooks.on_cold_start.4.uses must be one of git-checkout, sync-pull, sync-push, not "git-clone"
    issuebox.toml:15: templates.default.hooks.on_cold_start.5.uses needs a checkout: credentials in [github], and a git.clone other than "none"
    issuebox.toml:18: templates.default.hooks.on_cold_start.6.cwd has no effect with uses; remove it
    issuebox.toml:17: templates.default.hooks.on_cold_start.6.uses needs an object storage; set sync.url
    issuebox.toml:21: templates.default.hooks.on_cold_start.7.cwd must be a path without .., not "../a"
    issuebox.toml:22: templates.default.hooks.on_cold_start.7.timeout_seconds must be a whole number from 1 to 86400, not 0
    issuebox.toml:25: templates.default.hooks.on_cold_start.7.env.ISSUEBOX_RUN is a name that issuebox sets; choose another
    issuebox.toml:27: templates.default.hooks.on_message must be a list of steps, each below [[templates.default.hooks.on_message]]
    issuebox.toml:3: templates.default.grace_seconds must be a whole number from 1 to 3600, not 0
    issuebox.toml:5: templates.default.sync.on_stop needs an object storage; set sync.url
    issuebox.toml:23: unknown key templates.default.hooks.on_cold_start.7.shell; did you mean templates.default.hooks.on_cold_start.7.uses?
    issuebox.toml:28: unknown key templates.default.hooks.on_start.1.run; did you mean templates.default.hooks.on_cold_start.7.run?
    "#
    );
    let many = "[[templates.default.hooks.on_message]]\nrun = [\"a\"]\n".repeat(17);
    insta::assert_snapshot!(error_of(&many), @"templates.default.hooks.on_message has 17 steps; at most 16 are possible: join some of them");
    let long = "x".repeat(33 * 1024);
    let long = format!("[[templates.default.hooks.on_message]]\nrun = [\"{long}\"]\n");
    insta::assert_snapshot!(error_of(&long), @"templates.default.hooks has more than 32 KiB of commands and environment; call a script of the repository instead");
}
