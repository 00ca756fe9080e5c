//! Tables of arguments and their meaning, and the layout of tables.

use super::*;
use crate::types::Timestamp;

fn parse(args: &[&str]) -> Result<CliVerb, String> {
    let args = std::iter::once("issuebox").chain(args.iter().copied()).map(OsString::from);
    super::parse(args).map(|cli| cli.verb).map_err(|error| error.to_string())
}

#[test]
fn the_arguments_are_consistent() {
    help::command().debug_assert();
}

#[test]
fn every_verb_of_the_contract_is_there() {
    for args in [
        &["serve", "--listen", "127.0.0.1:1", "--data", "d", "--config", "f"][..],
        &["demo", "--exit"],
        &["ensure", "test-123", "--wait"],
        &["ensure", "octo/hello#1", "--wait=10", "-o", "json", "--template", "t", "--title", "x"],
        &["get", "https://github.com/octo/hello/issues/1", "-q"],
        &["ls", "--phase", "running", "--deleted", "-o", "table"],
        &["stop", "a", "b", "--wait=0"],
        &["start", "a", "--wait"],
        &["retry", "a"],
        &["rm", "a", "b", "--yes", "--wait"],
        &["exec", "-i", "-e", "A=b=c", "-w", "src", "--timeout", "5", "a", "--", "sh", "-c", "x"],
        &["exec", "a", "ls", "-l"],
        &["exec", "a", "-w", "src", "ls"],
        &["exec", "-it", "a", "bash"],
        &["events"],
        &["events", "-f", "a"],
        &["top"],
        &["wait", "--for=running", "a", "--timeout", "5"],
        &["deliveries"],
        &["deliveries", "a", "--event", "issues", "--status", "ignored", "--limit", "5", "-q"],
        &["hold", "octo/hello#1", "--reason", "broken"],
        &["hold", "--repository", "octo/hello", "-o", "json"],
        &["hold", "--account", "default"],
        &["hold", "--all", "--reason", "broken"],
        &["hold", "--all", "--server", "http://127.0.0.1:1"],
        &["release", "a"],
        &["release", "--all"],
        &["holds", "-q"],
        &["templates", "-o", "wide"],
        &["config", "check"],
        &["version", "-o", "json"],
        &["ls", "-o", "wide"],
        &["get", "a", "-o", "yaml"],
        &["rm", "a", "--force"],
        &["completions", "bash"],
        &["logs", "a"],
        &["logs", "-f", "--tail", "0", "-t", "octo/hello#1", "-o", "json"],
        &["doctor", "-o", "json"],
        &["backup", "f", "-o", "json"],
        &["restore", "f", "--yes"],
        &["files", "ls", "a"],
        &["files", "ls", "a", "src", "--depth", "3", "-o", "yaml"],
        &["files", "cat", "octo/hello#1", "src/main.rs"],
        &["files", "put", "a", "x", "/etc/hostname"],
        &["files", "put", "--tar", "a", "x"],
        &["files", "get", "a"],
        &["files", "get", "a", "src", "--to", "src.tar"],
        &["files", "mkdir", "a", "--", "-x"],
        &["files", "mv", "--overwrite", "a", "x", "y"],
        &["files", "chmod", "a", "0755", "x"],
        &["files", "rm", "-r", "a", "x", "y"],
        &["man"],
        &["man", "--dir", "d"],
        &["ls", "--server", "http://127.0.0.1:1", "--token-file", "f"],
        &["--server", "http://127.0.0.1:1", "ls"],
    ] {
        if let Err(error) = parse(args) {
            panic!("{args:?}: {error}");
        }
    }
}

#[test]
fn examples_of_the_help_are_what_they_show() {
    for (verb, examples) in help::EXAMPLES {
        for example in *examples {
            // What stands in quotes is one word.
            let words = example.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![part],
            });
            let words: Vec<&str> = words.collect();
            let words = words.split(|word| ["<", ">"].contains(word)).next().unwrap_or_default();
            assert_eq!(words[..2], ["issuebox", *verb], "{example}");
            if let Err(error) = parse(&words[1..]) {
                panic!("{example}: {error}");
            }
        }
    }
}

#[test]
fn verbs_that_call_no_server_offer_none() {
    let help = |verb: &str| parse(&[verb, "--help"]).expect_err("the help");
    for verb in ["completions", "demo", "serve", "backup", "version"] {
        assert!(!help(verb).contains("--server"), "{verb}: {}", help(verb));
    }
    assert!(help("serve").contains("--config") && !help("demo").contains("--data"));
    assert!(help("ls").contains("--server") && help("ls").contains("Examples:"));
    assert!(parse(&["--server", "http://127.0.0.1:1", "version"]).is_ok());
}

#[test]
fn usual_words_for_a_verb_are_understood() {
    for (words, verb) in [
        (&["ps"][..], "Ls"),
        (&["list"], "Ls"),
        (&["delete", "a"], "Rm"),
        (&["describe", "a"], "Get"),
        (&["inspect", "a"], "Get"),
        (&["shell", "a"], "Shell"),
        (&["ssh", "a"], "Shell"),
        (&["restart", "a"], "Restart"),
        (&["open"], "Open"),
        (&["cp", "a", "5:b"], "Cp"),
    ] {
        let parsed = parse(words).expect("understood");
        assert!(format!("{parsed:?}").starts_with(&format!("{verb}(")), "{words:?}: {parsed:?}");
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for args in [
        &["unheard"][..],
        &["ensure"],
        &["ensure", "octo/hello"],
        &["ensure", "a", "--wait=301"],
        &["ensure", "a", "--wait=soon"],
        &["ensure", "a", "--force"],
        &["get", "a", "b"],
        &["get", "a", "-o", "xml"],
        &["get", "a", "-q", "-o", "json"],
        &["stop"],
        &["exec", "a"],
        &["exec", "-e", "A", "a", "--", "ls"],
        &["exec", "-e", "=b", "a", "--", "ls"],
        &["wait", "--for=soon", "a"],
        &["deliveries", "--status", "duplicate"],
        &["deliveries", "--limit", "0"],
        &["hold", "a", "--all"],
        &["hold", "--server"],
        &["hold", "--server", "--reason", "broken"],
        &["release", "--server"],
        &["hold", "a", "--repository", "octo/hello"],
        &["hold", "--repository", "octo"],
        &["release", "a", "--reason", "x"],
        &["config"],
        &["files"],
        &["files", "cat", "a"],
        &["files", "mkdir", "a"],
        &["files", "mv", "a", "x"],
        &["files", "chmod", "a", "0755"],
        &["files", "ls", "a", "--depth", "33"],
        &["ls", "--token", "secret"],
    ] {
        assert!(parse(args).is_err(), "{args:?} must be refused");
    }
}

#[test]
fn waiting_takes_its_seconds_after_an_equals_sign_only() {
    // With a space the next word is an issue, not a number of seconds.
    let Ok(CliVerb::Stop(_)) = parse(&["stop", "--wait", "17"]) else {
        panic!("17 is an issue");
    };
    assert!(parse(&["stop", "--wait", "--", "17"]).is_ok());
    assert!(parse(&["ensure", "--wait=17"]).is_err(), "the issue is missing");
}

fn sandbox(changes: &serde_json::Value) -> wire::ApiSandbox {
    let mut value = serde_json::json!({
        "id": "0190c1d2-0000-7000-8000-000000000001", "name": "claude-issue-2874100012",
        "issueId": "2874100012", "repository": "pear-garden/orchard", "issueNumber": 12,
        "issueTitle": "Sign-in loops", "issueUrl": "https://github.example.org/x", "meta": {},
        "provider": "local", "externalId": "box-1", "template": "default", "phase": "running",
        "wanted": "running", "generation": 1, "failure": null, "reason": "it is up",
        "createdAt": "2026-03-02T09:00:00.000Z", "phaseSince": "2026-03-02T09:14:10.000Z",
        "lastActivityAt": "2026-03-02T09:14:30.000Z", "deletedAt": null, "new": ["thing"],
    });
    for (name, change) in changes.as_object().into_iter().flatten() {
        value[name] = change.clone();
    }
    wire::read(&value).expect("a sandbox")
}

fn now() -> Timestamp {
    Timestamp::parse("2026-03-02T09:14:15Z").expect("RFC 3339")
}

fn screen(colours: bool) -> Screen {
    Screen { out: std::io::stdout(), colours, columns: None }
}

fn list(colours: bool, width: output::Width, sandboxes: &[wire::ApiSandbox]) -> String {
    table::list(&screen(colours), width, (sandboxes, &[]), now(), &mut table::TableParts::default())
}

fn samples() -> [wire::ApiSandbox; 3] {
    [
        sandbox(&serde_json::json!({})),
        sandbox(&serde_json::json!({
            "issueId": "test-123", "name": "claude-issue-test-123", "repository": null,
            "issueNumber": null, "issueTitle": null, "phase": "failed",
            "createdAt": "2026-02-20T09:00:00Z",
        })),
        sandbox(&serde_json::json!({
            "issueTitle": "\u{1b}[2Ja very long title, with \u{202e}marks and\nlines, that goes on and on",
            "phase": null, "createdAt": "2026-03-02T09:14:14Z",
        })),
    ]
}

#[test]
fn a_list_is_calm_and_inert() {
    insta::assert_snapshot!(list(false, output::Width::Fitting, &samples()), @r"
    PHASE    ISSUE                   TITLE                                            AGE  AGENT  SANDBOX
    running  pear-garden/orchard#12  Sign-in loops                                    14m  -      claude-issue-2874100012
    failed   test-123                -                                                10d  -      claude-issue-test-123
    deleted  pear-garden/orchard#12  \u{1b}[2Ja very long title, with \u{202e}marks…  1s   -      claude-issue-2874100012
    ");
}

#[test]
fn colours_change_nothing_but_the_colours() {
    let coloured = list(true, output::Width::Fitting, &samples());
    assert!(coloured.contains("\u{1b}[32mrunning\u{1b}["), "{coloured:?}");
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, code)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = code.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    assert_eq!(plain, list(false, output::Width::Fitting, &samples()));
}

#[test]
fn a_list_in_parts_has_one_header_and_keeps_its_columns() {
    let mut parts = table::TableParts::default();
    let mut part = |samples: &[wire::ApiSandbox]| {
        table::list(&screen(false), output::Width::Fitting, (samples, &[]), now(), &mut parts)
    };
    let [one, two, three] = samples();
    let in_parts = [part(&[three]), part(&[one]), part(&[two])].join("\n");
    let mut lines = in_parts.lines();
    let name_at = |line: &str| line.find("claude-issue").expect("a name");
    let header = lines.next().expect("a header");
    assert!(header.starts_with("PHASE "), "{in_parts}");
    let names: Vec<_> = lines.map(name_at).collect();
    // The first title is cut, and ends with a mark of three bytes.
    let at = header.find("SANDBOX").expect("a column");
    assert_eq!(names, [at + 2, at, at], "{in_parts}");
}

#[test]
fn a_sheet_has_all_details() {
    let sheet = |sandbox: &wire::ApiSandbox| {
        table::sheet(&screen(false), output::Width::Fitting, sandbox, &[], now())
    };
    insta::assert_snapshot!(sheet(&samples()[0]), @"
    issue      pear-garden/orchard#12
    title      Sign-in loops
    page       https://github.example.org/x
    sandbox    claude-issue-2874100012
    id         0190c1d2-0000-7000-8000-000000000001
    phase      running for 5s
    reason     it is up
    provider   local
    template   default
    generation 1
    created    14m ago
    last used  0s ago
    ");
    let deleting = sandbox(&serde_json::json!({
        "phase": "deleting", "wanted": "running", "externalId": null, "issueUrl": null,
        "failure": {"code": "provider_unavailable", "step": "delete", "message": "no\nanswer"},
    }));
    insta::assert_snapshot!(sheet(&deleting), @r"
    issue      pear-garden/orchard#12
    title      Sign-in loops
    sandbox    claude-issue-2874100012
    id         0190c1d2-0000-7000-8000-000000000001
    phase      deleting for 5s
    failure    no\nanswer (provider_unavailable at delete)
    wanted     running
    provider   local
    template   default
    generation 1
    created    14m ago
    last used  0s ago
    ");
}

#[test]
fn ages_are_in_their_largest_unit() {
    let age = |at: &str| table::age(at, now());
    assert_eq!(age("2026-03-02T09:14:15Z"), "0s");
    assert_eq!(age("2027-01-01T00:00:00Z"), "0s", "a clock may be off");
    assert_eq!(age("2026-03-02T09:13:16Z"), "59s");
    assert_eq!(age("2026-03-02T08:14:16Z"), "59m");
    assert_eq!(age("2026-03-01T09:14:16Z"), "23h");
    assert_eq!(age("2026-02-01T09:14:15Z"), "29d");
    assert_eq!(age("yesterday"), "?");
}

#[test]
fn a_list_uses_the_width_of_its_terminal() {
    let title = "t".repeat(80);
    let one = || [sandbox(&serde_json::json!({ "issueTitle": title }))];
    let lines = |columns, width| {
        let screen = Screen { columns, ..screen(false) };
        let mut parts = table::TableParts::default();
        let list = table::list(&screen, width, (&one(), &[]), now(), &mut parts);
        list.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = |columns| lines(columns, output::Width::Fitting).remove(1);
    assert_eq!(shown(None).matches('t').count(), 47, "the default without a terminal");
    assert!(shown(Some(200)).contains(&title));
    let fitted = shown(Some(110));
    assert!(fitted.chars().count() == 110 && fitted.contains("t…"), "{fitted:?}");
    assert_eq!(shown(Some(20)).matches('t').count(), 23, "never less than says something");
    let whole = lines(Some(20), output::Width::Whole);
    assert!(whole[0].contains("REASON"), "{whole:?}");
    for part in [title.as_str(), "0190c1d2-0000-7000-8000-000000000001", "it is up", "local"] {
        assert!(whole[1].contains(part), "{part} is missing in {whole:?}");
    }
}
