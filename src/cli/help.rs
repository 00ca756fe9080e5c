//! The definition of the arguments, with what `--help` adds to it: examples, and for verbs that call no
//! server no options that choose one.

use clap::builder::styling::Style;
use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// Examples by verb. A test parses each.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ensure",
        &[
            "issuebox ensure octo/hello#12 --wait",
            "issuebox ensure octo/hello#12 --issue-id 2874100012 --template big",
        ],
    ),
    ("get", &["issuebox get octo/hello#12", "issuebox get octo/hello#12 -o json"]),
    (
        "ls",
        &[
            "issuebox ls --phase running --search login",
            "issuebox ls --deleted -o wide",
            "issuebox ls --repository octo/hello -q",
        ],
    ),
    ("stop", &["issuebox stop octo/hello#12 octo/hello#13 --wait"]),
    ("start", &["issuebox start octo/hello#12 --wait"]),
    ("restart", &["issuebox restart octo/hello#12 --wait"]),
    ("retry", &["issuebox retry octo/hello#12 --wait=60"]),
    ("publish", &["issuebox publish octo/hello#12"]),
    ("rm", &["issuebox rm octo/hello#12 --yes --wait"]),
    (
        "exec",
        &[
            "issuebox exec octo/hello#12 ls -l",
            "issuebox exec -it octo/hello#12",
            "issuebox exec -i octo/hello#12 -- sh -c 'wc -l' < notes.txt",
            "issuebox exec -e CI=1 -w src --timeout 600 octo/hello#12 make test",
        ],
    ),
    ("shell", &["issuebox shell octo/hello#12"]),
    (
        "cp",
        &[
            "issuebox cp notes.txt octo/hello#12:src/",
            "issuebox cp octo/hello#12:src/main.rs .",
            "issuebox cp octo/hello#12:target/doc ./doc",
        ],
    ),
    (
        "files",
        &[
            "issuebox files ls octo/hello#12 src --depth 3",
            "issuebox files put octo/hello#12 src/main.rs main.rs",
            "issuebox files get octo/hello#12 src --to src.tar",
            "issuebox files rm -r octo/hello#12 target",
        ],
    ),
    (
        "sync",
        &[
            "issuebox sync push octo/hello#12",
            "issuebox sync versions octo/hello#12",
            "issuebox sync pull octo/hello#12 --to v1764627998-1",
        ],
    ),
    ("port-forward", &["issuebox port-forward octo/hello#12 8080:3000"]),
    (
        "chat",
        &[
            "issuebox chat octo/hello#12 fix the build",
            "issuebox chat octo/hello#12",
            "issuebox chat octo/hello#12 < task.md",
            "issuebox chat --interrupt octo/hello#12 \"stop that, keep the old API\"",
        ],
    ),
    ("runs", &["issuebox runs --state running,queued", "issuebox runs octo/hello#12 -o json"]),
    ("cancel", &["issuebox cancel octo/hello#12"]),
    ("usage", &["issuebox usage", "issuebox usage --by day --since 2026-11-01"]),
    ("logs", &["issuebox logs octo/hello#12 --tail 50", "issuebox logs -f -t octo/hello#12"]),
    ("events", &["issuebox events octo/hello#12", "issuebox events -f -o json"]),
    (
        "deliveries",
        &[
            "issuebox deliveries --event issues.labeled --status ignored",
            "issuebox deliveries octo/hello#12",
        ],
    ),
    ("wait", &["issuebox wait octo/hello#12 --for=stopped --timeout 60"]),
    (
        "hold",
        &[
            "issuebox hold octo/hello#12 --reason 'under review'",
            "issuebox hold --repository octo/hello",
            "issuebox hold --all",
        ],
    ),
    ("release", &["issuebox release octo/hello#12", "issuebox release --all"]),
    ("drift", &["issuebox drift", "issuebox drift remove orphan-1 --yes"]),
    ("open", &["issuebox open octo/hello#12"]),
    ("connect", &["issuebox connect github"]),
    ("backup", &["issuebox backup issuebox-backup.db"]),
    ("completions", &["issuebox completions bash > /etc/bash_completion.d/issuebox"]),
];

/// The options that say which server is called.
const OF_CALLS: &[&str] = &["server", "token_file", "insecure_http"];
/// The options that say where the server on this machine is.
const OF_PLACE: &[&str] = &["config", "data"];

/// Verbs that call no server, each with the options that it does not use.
const CALL_NONE: &[(&str, &[&[&str]])] = &[
    ("serve", &[OF_CALLS]),
    ("backup", &[OF_CALLS]),
    ("restore", &[OF_CALLS]),
    ("config", &[OF_CALLS]),
    ("demo", &[OF_CALLS, OF_PLACE]),
    ("completions", &[OF_CALLS, OF_PLACE]),
    ("man", &[OF_CALLS, OF_PLACE]),
    ("version", &[OF_CALLS, OF_PLACE]),
];

/// The whole command.
pub(super) fn command() -> Command {
    let mut command = Cli::command();
    let options: Vec<Arg> =
        command.get_arguments().filter(|o| o.is_global_set()).cloned().collect();
    for (verb, unused) in CALL_NONE {
        let is_unused = |option: &&Arg| unused.concat().contains(&option.get_id().as_str());
        // An option of the verb itself takes the place of the one that all verbs have.
        let hidden: Vec<Arg> =
            options.iter().filter(is_unused).map(|option| option.clone().hide(true)).collect();
        command = command.mut_subcommand(verb, |verb| verb.args(hidden));
    }
    for (verb, examples) in EXAMPLES {
        let header: &Style = command.get_styles().get_header();
        let lines: String = examples.iter().map(|example| format!("\n  {example}")).collect();
        let text = format!("{header}Examples:{header:#}{lines}");
        command = command.mut_subcommand(verb, |verb| verb.after_help(text));
    }
    command
}
