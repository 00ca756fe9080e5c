//! The remote verbs against a stub of the API: what they send, print and return.

use crate::stub::{self, Asked, Ran, Reply, Stub, json_reply, refusal, sandbox, success};
use serde_json::{Value, json};

fn ran(code: i32, out: &str, err: &str) -> Ran {
    Ran { code, out: out.to_owned(), err: err.to_owned() }
}

/// A server that has the running sandbox of issue `known` and nothing else.
fn one_known(asked: &Asked) -> Reply {
    let (path, _query) = asked.line.split_once('?').unwrap_or((&asked.line, ""));
    match path {
        "GET /v1/issues/known/sandbox" | "GET /v1/repos/pear-garden/orchard/issues/12/sandbox" => {
            success(&sandbox("known", Some("running")))
        }
        "GET /v1/sandboxes/id-of-known" | "GET /v1/sandboxes/claude-issue-known" => {
            success(&sandbox("known", Some("running")))
        }
        "POST /v1/sandboxes/id-of-known/stop" => {
            json_reply(202, &json!({"success": true, "data": sandbox("known", Some("stopping"))}))
        }
        "POST /v1/sandboxes/id-of-known/retry" => {
            refusal(409, "not_failed", "it has not failed", "only a failed sandbox is retried")
        }
        "DELETE /v1/sandboxes/id-of-known" => success(&sandbox("known", None)),
        path if path.starts_with("GET /v1/sandboxes/") => {
            refusal(404, "sandbox_not_found", "there is no such sandbox", "issuebox ls")
        }
        path if path.ends_with("/sandbox") => success(&Value::Null),
        other => refusal(500, "unexpected", other, "fix the test"),
    }
}

#[test]
fn the_token_is_sent_and_an_issue_is_found_in_every_way_it_is_written() {
    let stub = Stub::start(one_known);
    for issue in [
        "known",
        "id-of-known",
        "claude-issue-known",
        "pear-garden/orchard#12",
        "https://github.com/pear-garden/orchard/issues/12",
    ] {
        assert_eq!(stub.run(&["get", "-q", issue]), ran(0, "id-of-known\n", ""), "{issue}");
    }
    let asked = stub.asked();
    assert!(asked.iter().all(|asked| asked.authorization == "Bearer the-token"), "{asked:?}");
}

#[test]
fn get_shows_a_sheet_without_what_a_title_could_do() {
    let stub = Stub::start(one_known);
    let shown = stub.run(&["get", "known"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    assert!(shown.out.contains("title      Sign-in \\u{1b}[31mloops\n"), "{}", shown.out);
    assert!(!shown.out.contains('\u{1b}'), "no colours without a terminal");
}

#[test]
fn errors_of_providers_are_printed_beside_the_answer() {
    let trouble = "simulated is unreachable (connection refused), next try in 20 s\u{1b}[2J";
    let stub = Stub::start(move |asked| match asked.line.as_str() {
        "GET /v1/system" => success(&json!({"providers": [
            {"name": "local", "trouble": null},
            {"name": "simulated", "trouble": trouble},
        ]})),
        line if line.starts_with("GET /v1/sandboxes?") => {
            json_reply(200, &json!({"success": true, "data": [], "nextCursor": null}))
        }
        _ => one_known(asked),
    });
    let expected = "provider simulated does not work: simulated is unreachable (connection refused), next try \
                in 20 s\\u{1b}[2J\n";
    let shown = stub.run(&["get", "known"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, expected));
    let listed = stub.run(&["ls"]);
    assert!(listed.code == 0 && listed.err.ends_with(expected), "{}", listed.err);
    for quiet in [["ls", "-q"], ["ls", "-ojson"]] {
        assert!(!stub.run(&quiet).err.contains("unreachable"), "{quiet:?}");
    }
}

#[test]
fn json_is_what_the_api_says_with_what_is_new() {
    let stub = Stub::start(one_known);
    let shown = stub.run(&["get", "known", "-o", "json"]);
    let value: Value = serde_json::from_str(&shown.out).expect("JSON");
    assert_eq!(value, sandbox("known", Some("running")));
}

#[test]
fn an_unknown_issue_or_sandbox_exits_with_three() {
    let stub = Stub::start(one_known);
    let hint = |issue: &str| {
        let more = match issue.contains('#') {
            true => " (with --issue-id for an issue new to this server)",
            false => "",
        };
        format!(
            "error: {issue} has no sandbox\n  hint: run issuebox ensure {issue}{more} to create one, \
             or issuebox events {issue} to see whether a start is pending\n"
        )
    };
    for verb in [&["get"][..], &["stop"], &["rm", "--yes"], &["wait", "--for=running"]] {
        let args = [verb, &["unknown"]].concat();
        assert_eq!(stub.run(&args), ran(3, "", &hint("unknown")), "{args:?}");
    }
    assert_eq!(stub.run(&["get", "pear-garden/press#1"]), ran(3, "", &hint("pear-garden/press#1")));
    assert_eq!(stub.run(&["wait", "--for=deleted", "unknown"]), ran(0, "", ""));
}

#[test]
fn ensure_asks_by_id_or_by_repository_and_number() {
    let stub = Stub::start(|_asked| {
        let mut body = json!({"success": true, "data": sandbox("known", Some("creating")),
            "outcome": "created", "reason": "it had none", "settled": false});
        body["mismatch"] = json!(["template"]);
        json_reply(201, &body)
    });
    let first = stub.run(&["ensure", "test-123", "--template", "big", "--title", "T"]);
    let note = "note: the sandbox exists with another template, which is kept\n";
    assert_eq!(first, ran(0, "claude-issue-known creating  created: it had none\n", note));
    stub.run(&["ensure", "claude-issue-test-9", "-q", "--mode", "fast"]);
    stub.run(&["ensure", "octo/hello#7", "-q"]);
    let asked = stub.asked();
    let bodies: Vec<&Value> = asked.iter().map(|asked| &asked.body).collect();
    assert_eq!(
        bodies,
        [
            &json!({"issueId": "test-123", "template": "big", "issueTitle": "T"}),
            &json!({"issueId": "test-9", "mode": "fast"}),
            &json!({"repository": "octo/hello", "issueNumber": 7}),
        ]
    );
    assert!(asked.iter().all(|asked| asked.line == "POST /v1/sandboxes"), "{asked:?}");
}

#[test]
fn ensure_of_a_sandboxs_id_asks_for_its_issue() {
    let id = "0190c1d2-77aa-7000-8000-000000000001";
    let stub = Stub::start(move |asked| match asked.line.as_str() {
        "POST /v1/sandboxes" => json_reply(
            200,
            &json!({"success": true, "data": sandbox("known", Some("running")),
                "outcome": "existing", "reason": "it is there"}),
        ),
        line if line.ends_with(id) => success(&sandbox("known", Some("running"))),
        _ => success(&Value::Null),
    });
    assert_eq!(stub.run(&["ensure", id, "-q"]).code, 0);
    assert_eq!(stub.asked().last().expect("asked").body, json!({"issueId": "known"}));
}

#[test]
fn an_ensure_that_ends_failed_or_does_not_settle_fails() {
    for (phase, failure, expected) in [
        (
            "failed",
            json!({"code": "provider_broken", "step": "create", "message": "no disk"}),
            "error: claude-issue-known failed at create: no disk\n  \
             hint: run issuebox retry known to try again, or issuebox rm known\n",
        ),
        (
            "creating",
            Value::Null,
            "error: claude-issue-known is creating, not running, after 2 s\n  \
             hint: run issuebox wait --for=running known to wait longer\n",
        ),
    ] {
        let stub = Stub::start(move |_asked| {
            let mut data = sandbox("known", Some(phase));
            data["failure"] = failure.clone();
            let outcome = json!({"success": true, "data": data, "outcome": "x", "reason": "y"});
            json_reply(200, &outcome)
        });
        let ended = stub.run(&["ensure", "known", "--wait=2", "-q"]);
        assert_eq!(ended, ran(1, "id-of-known\n", expected));
        assert_eq!(stub.lines(), ["POST /v1/sandboxes?wait=2"]);
    }
}

#[test]
fn an_api_error_is_printed_with_its_hint() {
    for (status, code, exit_code) in [(423, "later", 1), (429, "quota", 1), (400, "invalid", 2)] {
        let stub = Stub::start(move |_| refusal(status, code, "no \u{1b}[2J", "do\nthis"));
        let ended = stub.run(&["ensure", "a"]);
        let err = "error: no \\u{1b}[2J\n  hint: do\\nthis\n";
        assert_eq!(ended, ran(exit_code, "", err));
    }
}

#[test]
fn acting_on_several_prints_each_result_and_continues_after_a_failure() {
    let stub = Stub::start(one_known);
    assert_eq!(stub.run(&["stop", "known"]), ran(0, "claude-issue-known stopping\n", ""));
    let ended = stub.run(&["stop", "unknown", "known"]);
    assert_eq!((ended.code, ended.out.as_str()), (3, "claude-issue-known stopping\n"));
    assert!(ended.err.starts_with("error: unknown: unknown has no sandbox\n"), "{}", ended.err);
    let ended = stub.run(&["retry", "unknown", "known"]);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    assert!(ended.err.contains("error: known: it has not failed\n"), "{}", ended.err);
}

#[test]
fn removing_without_a_terminal_requires_yes() {
    let stub = Stub::start(one_known);
    let refused = stub.run(&["rm", "known"]);
    assert_eq!(
        refused,
        ran(
            2,
            "",
            "error: removing known deletes the workspace, and there is no terminal to confirm it\n  \
             hint: add --yes to confirm\n"
        )
    );
    assert_eq!(stub.run(&["rm", "unknown"]).code, 3, "what is not there is no question");
    assert!(stub.lines().iter().all(|line| line.starts_with("GET ")), "{:?}", stub.lines());
    let removed = stub.run(&["rm", "known", "--yes", "--wait=5"]);
    assert_eq!(removed, ran(0, "claude-issue-known deleted\n", ""));
    assert_eq!(stub.lines().last().expect("sent"), "DELETE /v1/sandboxes/id-of-known?wait=5");
}

#[test]
fn removing_by_force_says_what_it_gives_up() {
    let stub = Stub::start(one_known);
    let refused = stub.run(&["rm", "known", "--force"]);
    assert_eq!(
        refused,
        ran(
            2,
            "",
            "error: removing known by force deletes the record of a sandbox that may still run at \
             the provider, and there is no terminal to confirm it\n  hint: add --yes to confirm\n"
        )
    );
    assert!(stub.lines().iter().all(|line| line.starts_with("GET ")), "{:?}", stub.lines());
    assert_eq!(stub.run(&["rm", "known", "--force", "--yes"]).code, 0);
    assert_eq!(stub.lines().last().expect("sent"), "DELETE /v1/sandboxes/id-of-known?force=true");
}

#[test]
fn every_verb_that_reads_prints_json_and_yaml() {
    let stub = Stub::start(|asked| {
        let item = json!({"text": "yes", "number": 1, "none": null, "list": ["a: b", "\u{1b}[2J"],
            "nested": {"id": "007"}});
        let path = asked.line.split('?').next().unwrap_or_default();
        let data = match path {
            "GET /v1/issues/known/sandbox" | "GET /v1/sandboxes/id-of-known" => {
                return success(&sandbox("known", Some("running")));
            }
            _ => json!([item]),
        };
        json_reply(200, &json!({"success": true, "data": data, "total": 1, "sweeps": []}))
    });
    for verb in [&["ls"][..], &["get", "known"], &["deliveries"], &["holds"], &["drift"]] {
        let output = |format| stub.run(&[verb, &["-o", format]].concat());
        let json: Value = serde_json::from_str(&output("json").out).expect("JSON");
        let yaml = output("yaml");
        assert_eq!((yaml.code, yaml.err.as_str()), (0, ""), "{verb:?}");
        if verb == ["get", "known"] {
            assert!(yaml.out.contains("\nissueId: known\n"), "{}", yaml.out);
            continue;
        }
        assert_eq!(json[0]["text"], "yes", "{verb:?}");
        // Words that YAML would take for something else are quoted.
        for line in ["text: \"yes\"", "number: 1", "none: null", "id: \"007\"", "\\e[2J"] {
            assert!(yaml.out.contains(line), "{verb:?}: {line} is missing in {}", yaml.out);
        }
    }
}

#[test]
fn completions_and_manual_name_every_verb() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let made = Ran::of(&mut stub::program(&["completions", shell]));
        assert_eq!((made.code, made.err.as_str()), (0, ""), "{shell}");
        for word in ["deliveries", "token-file"] {
            assert!(made.out.contains(word), "{shell}: {word} is missing");
        }
    }
    let first = Ran::of(&mut stub::program(&["man"]));
    assert!(first.out.contains(".TH issuebox 1"), "{}", first.out);
    let dir = tempfile::tempdir().expect("a directory");
    let dir_path = dir.path().to_str().expect("UTF-8");
    assert_eq!(Ran::of(&mut stub::program(&["man", "--dir", dir_path])).code, 0);
    for name in ["issuebox", "issuebox-ls", "issuebox-drift-adopt", "issuebox-config-check"] {
        let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).expect(name);
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
    }
}

#[test]
fn ls_shows_all_pages() {
    let stub = Stub::start(|asked| {
        let (data, next) = if asked.line.contains("cursor=more") {
            (json!([sandbox("b", Some("failed"))]), Value::Null)
        } else {
            (json!([sandbox("a", Some("running"))]), json!("more&x"))
        };
        json_reply(200, &json!({"success": true, "data": data, "nextCursor": next, "total": 2}))
    });
    let args = ["ls", "--phase", "running", "--search", "a b", "--deleted", "-q"];
    assert_eq!(stub.run(&args), ran(0, "id-of-a\nid-of-b\n", ""));
    assert_eq!(
        stub.lines(),
        [
            "GET /v1/sandboxes?phase=running&q=a+b&deleted=true&limit=200",
            "GET /v1/sandboxes?phase=running&q=a+b&deleted=true&limit=200&cursor=more%26x",
        ]
    );
    let table = stub.run(&["ls"]);
    assert_eq!(table.out.lines().count(), 3, "{}", table.out);
    assert!(table.out.starts_with("PHASE    ISSUE"), "{}", table.out);
    let json: Value = serde_json::from_str(&stub.run(&["ls", "-o", "json"]).out).expect("JSON");
    assert_eq!(json, json!([sandbox("a", Some("running")), sandbox("b", Some("failed"))]));
}

#[test]
fn a_list_is_printed_page_by_page() {
    let stub = Stub::start(|asked| {
        if asked.line.contains("cursor=") {
            return refusal(503, "store_failed", "the store failed", "check GET /readyz");
        }
        let data = json!([sandbox("a", Some("running")), sandbox("b", Some("failed"))]);
        json_reply(200, &json!({"success": true, "data": data, "nextCursor": "more", "total": 3}))
    });
    let broken_off = stub.run(&["ls", "-q"]);
    assert_eq!((broken_off.code, broken_off.out.as_str()), (1, "id-of-a\nid-of-b\n"));
    let broken_off = stub.run(&["ls", "-o", "json"]);
    assert!(broken_off.code == 1 && broken_off.out.contains("id-of-b"), "{broken_off:?}");
    let whole = serde_json::from_str::<Value>(&broken_off.out);
    assert!(whole.is_err(), "a part is not taken for all: {broken_off:?}");
}

#[test]
fn a_long_table_is_printed_in_parts_of_the_same_columns() {
    const PAGES: usize = 11;
    let stub = Stub::start(|asked| {
        let (_, at) = asked.line.split_once("cursor=").unwrap_or(("", "0"));
        let at: usize = at.parse().expect("a number");
        let names = (0..200).map(|nth| sandbox(&format!("{:04}", at * 200 + nth), Some("running")));
        let data: Vec<_> = names.collect();
        let next = (at + 1 < PAGES).then(|| (at + 1).to_string());
        json_reply(200, &json!({"success": true, "data": data, "nextCursor": next, "total": 2200}))
    });
    let table = stub.run(&["ls"]).out;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), PAGES * 200 + 1);
    let starts = |line: &str| line.match_indices("  ").map(|(at, _)| at).collect::<Vec<_>>();
    let wrong = lines[2..].iter().find(|line| starts(line) != starts(lines[1]));
    assert_eq!(wrong, None, "{}", lines[1]);
    let json: Value = serde_json::from_str(&stub.run(&["ls", "-o", "json"]).out).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(PAGES * 200));
    let yaml = stub.run(&["ls", "-o", "yaml"]).out;
    assert_eq!(yaml.lines().filter(|line| line.starts_with("- ")).count(), PAGES * 200);
    assert_eq!(stub.run(&["ls", "-q"]).out.lines().count(), PAGES * 200);
}

#[test]
fn an_empty_list_has_nothing_on_standard_output() {
    let stub = Stub::start(|_| json_reply(200, &json!({"success": true, "data": [], "total": 0})));
    let hint = "no sandboxes; run issuebox ensure ISSUE to create one\n";
    assert_eq!(stub.run(&["ls"]), ran(0, "", hint));
    assert_eq!(stub.run(&["ls", "-q"]), ran(0, "", ""));
}

#[test]
fn wait_asks_until_the_phase_is_there() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/issues/a/sandbox" => success(&sandbox("a", Some("creating"))),
        _ => success(&sandbox("a", Some("running"))),
    });
    assert_eq!(stub.run(&["wait", "a"]), ran(0, "claude-issue-a running\n", ""));
    assert_eq!(
        stub.lines(),
        ["GET /v1/issues/a/sandbox", "GET /v1/sandboxes/id-of-a?until=running&wait=30"]
    );
}

#[test]
fn wait_gives_up_when_it_cannot_come_or_time_is_up() {
    let stub = Stub::start(|_| success(&sandbox("a", Some("failed"))));
    let lost = stub.run(&["wait", "--for=running", "a"]);
    assert_eq!(lost.code, 1);
    assert_eq!(stub.lines().len(), 1, "a failed sandbox does not come up by itself");
    let stub = Stub::start(|_| success(&sandbox("a", Some("stopping"))));
    let late = stub.run(&["wait", "--for=stopped", "--timeout=1", "a"]);
    assert_eq!(late.code, 1);
    let expected = "error: claude-issue-a is stopping, not stopped, after 1 s\n";
    assert!(late.err.starts_with(expected), "{}", late.err);
}

#[test]
fn a_list_without_a_match_is_no_empty_server() {
    let stub = Stub::start(|_| json_reply(200, &json!({"data": [], "nextCursor": null})));
    let filtered = stub.run(&["ls", "--search", "zzz"]);
    assert_eq!(filtered, ran(0, "", "no sandbox matches; issuebox ls without filters lists all\n"));
    let all = stub.run(&["ls"]);
    assert_eq!(all, ran(0, "", "no sandboxes; run issuebox ensure ISSUE to create one\n"));
    assert_eq!(stub.run(&["ls", "--phase", "deleted", "-q"]).code, 0);
    assert!(stub.lines().contains(&"GET /v1/sandboxes?phase=deleted&limit=200".to_owned()));
}

#[test]
fn the_log_of_a_deleted_sandbox_is_found_by_its_issue() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/repos/octo/hello/issues/7/sandbox"
        | "GET /v1/repos/octo/hello/issues/8/sandbox" => success(&Value::Null),
        "GET /v1/repos/octo/hello/issues/7/events?limit=1" => {
            json_reply(200, &json!({"issueId": "a", "data": []}))
        }
        "GET /v1/repos/octo/hello/issues/8/events?limit=1" => {
            json_reply(200, &json!({"issueId": null, "data": []}))
        }
        "GET /v1/sandboxes?issueId=a&phase=deleted&limit=1" => {
            json_reply(200, &json!({"data": [sandbox("a", None)]}))
        }
        "GET /v1/sandboxes/id-of-a/logs?tail=1000" => {
            success(&json!([{"at": "now", "stream": "stdout", "text": "kept"}]))
        }
        other => refusal(500, "unexpected", other, "fix the test"),
    });
    let note = "note: the sandbox id-of-a is deleted; this is what is kept of its output\n";
    assert_eq!(stub.run(&["logs", "octo/hello#7"]), ran(0, "kept\n", note));
    let never = stub.run(&["logs", "octo/hello#8"]);
    assert!(never.code == 3 && never.err.starts_with("error: octo/hello#8 has no sandbox\n"));
}

#[test]
fn get_is_in_words_and_more_of_it_is_wide() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/sandboxes/id-of-known/limits" => success(&json!([
            {"name": "memory", "allowed": 512.0, "unit": "MiB", "holds": "enforced"},
            {"name": "openFiles", "allowed": null, "unit": null, "holds": "per process"},
            {"name": "disk", "allowed": 1.0, "unit": "MiB", "holds": "none"},
        ])),
        _ => one_known(asked),
    });
    let shown = stub.run(&["get", "known"]).out;
    let limits =
        "limits     memory 512 MiB, open files (limited per process), disk 1 MiB (not enforced)\n";
    assert!(shown.contains(limits), "{shown}");
    assert!(shown.contains("d ago\n") && !shown.contains("2026-03-02"), "{shown}");
    let wide = stub.run(&["get", "known", "-o", "wide"]).out;
    for more in ["d ago (2026-03-02T09:00:00.000Z)\n", "mode       strong\n", "attempts   1\n"] {
        assert!(wide.contains(more) && !shown.contains(more), "{more} is missing in {wide}");
    }
    let json: Value =
        serde_json::from_str(&stub.run(&["get", "known", "-o", "json"]).out).expect("JSON");
    assert_eq!(json["limits"][1]["name"], "openFiles");
}

#[test]
fn a_restart_is_a_stop_that_is_waited_for_and_a_start() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/issues/known/sandbox" => success(&sandbox("known", Some("running"))),
        "POST /v1/sandboxes/id-of-known/stop?wait=300" => {
            success(&sandbox("known", Some("stopped")))
        }
        "POST /v1/sandboxes/id-of-known/start" => success(&sandbox("known", Some("starting"))),
        other => refusal(500, "unexpected", other, "fix the test"),
    });
    assert_eq!(stub.run(&["restart", "known"]), ran(0, "claude-issue-known starting\n", ""));
    assert_eq!(stub.lines().len(), 3);
}

#[test]
fn a_server_that_is_not_issuebox_is_named() {
    let stub = Stub::start(|_| (200, "text/html", "<h1>hello</h1>".to_owned()));
    let ended = stub.run(&["ls"]);
    let expected = format!(
        "error: {} answered 200 without an issuebox error\n  \
         hint: check that this is the address of an issuebox server\n",
        stub.url
    );
    assert_eq!(ended, ran(1, "", &expected));
}

#[test]
fn a_redirect_is_not_followed_with_the_token() {
    let other = Stub::start(|_| success(&json!([])));
    let target = format!("{}/v1/sandboxes", other.url);
    let stub = Stub::start(move |_| (307, "text/plain", target.clone()));
    assert_eq!(stub.run(&["ls"]).code, 1);
    assert_eq!(other.asked(), []);
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound")
    };
    let mut command = stub::program(&["ls", "--server", &format!("http://{closed}")]);
    let ended = Ran::of(command.env("ISSUEBOX_TOKEN", "t"));
    assert_eq!(ended.code, 1);
    let expected = format!("error: cannot reach http://{closed}: ");
    assert!(ended.err.starts_with(&expected) && ended.err.contains("refused"), "{}", ended.err);
    assert!(
        ended.err.ends_with("hint: check that the server runs and that the address is right\n")
    );
}

#[test]
fn loopback_is_reached_without_a_proxy() {
    let stub = Stub::start(one_known);
    let mut command = stub.command(&["get", "-q", "known"]);
    let nowhere = "http://127.0.0.1:1";
    let ended = Ran::of(command.env("http_proxy", nowhere).env("HTTP_PROXY", nowhere));
    assert_eq!(ended, ran(0, "id-of-known\n", ""));
}
