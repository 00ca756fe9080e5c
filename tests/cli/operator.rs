//! The verbs of an operator against a stub of the API: deliveries and holds.

use crate::stub::{Asked, Ran, Reply, Stub, json_reply, refusal, sandbox, success};
use serde_json::{Value, json};

fn ran(code: i32, out: &str, err: &str) -> Ran {
    Ran { code, out: out.to_owned(), err: err.to_owned() }
}

fn delivery(guid: Value, status: &str) -> Value {
    json!({"delivery": guid, "event": "issues", "action": "labeled", "status": status,
        "reason": "a \u{1b}[31mreason that goes on and on and on for a long time",
        "issueId": "5", "sandboxName": "claude-issue-5",
        "receivedAt": "2026-03-02T09:00:00.000Z", "new": ["thing"]})
}

/// Pages of deliveries, three in all.
fn paged(asked: &Asked) -> Reply {
    let one = |n: u32| delivery(json!(format!("d-{n}")), "accepted");
    let (data, next) = if asked.line.contains("cursor=more") {
        (json!([delivery(Value::Null, "badly_signed")]), Value::Null)
    } else {
        (json!([one(1), one(2)]), json!("more"))
    };
    json_reply(200, &json!({"success": true, "data": data, "nextCursor": next, "total": 3}))
}

#[test]
fn deliveries_are_shown_up_to_the_limit() {
    let stub = Stub::start(paged);
    assert_eq!(stub.run(&["deliveries", "-q"]), ran(0, "d-1\nd-2\n", ""));
    let note = "note: 2 of 3; --limit shows more\n";
    let table =
        stub.run(&["deliveries", "--limit", "2", "--event", "issues", "--status", "ignored"]);
    assert_eq!((table.code, table.err.as_str()), (0, note));
    let lines: Vec<&str> = table.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", table.out);
    assert!(lines[0].starts_with("STATUS    AGE"), "{}", lines[0]);
    for part in ["accepted", "issues.labeled", "5", "a \\u{1b}[31mreason", "…", "d-1"] {
        assert!(lines[1].contains(part), "{part} is missing in {}", lines[1]);
    }
    let json: Value =
        serde_json::from_str(&stub.run(&["deliveries", "-o", "json"]).out).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(3));
    assert_eq!(json[0]["new"], json!(["thing"]), "as the API says it");
    assert_eq!(
        stub.lines(),
        [
            "GET /v1/deliveries?limit=50",
            "GET /v1/deliveries?limit=48&cursor=more",
            "GET /v1/deliveries?event=issues&status=ignored&limit=2",
            "GET /v1/deliveries?limit=50",
            "GET /v1/deliveries?limit=48&cursor=more",
        ]
    );
}

#[test]
fn deliveries_of_an_issue_are_asked_for_by_its_id() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/repos/octo/hello/issues/7/sandbox" => success(&sandbox("444", Some("running"))),
        line if line.ends_with("/sandbox") => success(&Value::Null),
        line if line.starts_with("GET /v1/sandboxes/") => {
            refusal(404, "sandbox_not_found", "none", "x")
        }
        "GET /v1/repos/octo/hello/issues/9/events?limit=1" => {
            json_reply(200, &json!({"success": true, "issueId": "999", "data": [], "total": 0}))
        }
        _ => json_reply(200, &json!({"success": true, "data": [], "total": 0})),
    });
    assert_eq!(stub.run(&["deliveries", "octo/hello#7"]), ran(0, "", "no deliveries\n"));
    assert_eq!(stub.lines()[1], "GET /v1/deliveries?issueId=444&limit=50");
    // Its sandboxes may be gone, but not its deliveries.
    assert_eq!(stub.run(&["deliveries", "gone-1"]).code, 0);
    assert_eq!(stub.lines().last().expect("asked"), "GET /v1/deliveries?issueId=gone-1&limit=50");
    // Its first sandbox may still be pending.
    assert_eq!(stub.run(&["deliveries", "octo/hello#9"]).code, 0);
    assert_eq!(stub.lines().last().expect("asked"), "GET /v1/deliveries?issueId=999&limit=50");
    let unknown = stub.run(&["deliveries", "octo/hello#8"]);
    assert_eq!(unknown.code, 3);
    assert!(unknown.err.starts_with("error: there is no record of octo/hello#8\n"), "{unknown:?}");
}

fn hold(id: &str) -> Value {
    json!({"id": id, "scope": "x", "name": null, "reason": "broken\u{1b}[2J", "by": "admin",
        "since": "2026-03-02T09:00:00.000Z"})
}

/// A hold as a current server shows it.
fn labelled(scope: &str, name: &str, label: &str) -> Value {
    let mut hold = hold(&format!("{scope}s/{name}"));
    (hold["scope"], hold["name"], hold["label"]) = (scope.into(), name.into(), label.into());
    hold
}

/// A server where everything can be held and only `issues/free` is not.
fn brakes(asked: &Asked) -> Reply {
    let (method, path) = asked.line.split_once(" /v1/").unwrap_or_default();
    match (method, path.strip_prefix("holds/")) {
        ("PUT", Some(id)) => success(&hold(id)),
        ("DELETE", Some(id)) => success(&json!({"id": id, "released": id != "issues/free"})),
        ("GET", None) if path.starts_with("issues/") => success(&Value::Null),
        ("GET", None) if path.starts_with("sandboxes/") => {
            refusal(404, "sandbox_not_found", "none", "x")
        }
        _ => refusal(500, "unexpected", &asked.line, "fix the test"),
    }
}

#[test]
fn everything_that_can_be_held_is_held_and_released_by_its_name() {
    for (args, id) in [
        (&["test-1"][..], "issues/test-1"),
        (&["--repository", "Octo/Hello.rs"], "repositories/Octo/Hello.rs"),
        (&["--account", "default"], "accounts/default"),
        (&["--all"], "server"),
    ] {
        let stub = Stub::start(brakes);
        let ended = stub.run(&[&["hold"], args].concat());
        assert_eq!(ended, ran(0, &format!("{id} is held\n"), ""), "{args:?}");
        let ended = stub.run(&[&["release"], args].concat());
        assert_eq!(ended, ran(0, &format!("{id} was released\n"), ""), "{args:?}");
        let asked = stub.lines();
        let of_holds: Vec<_> = asked.iter().filter(|line| line.contains("/v1/holds")).collect();
        assert_eq!(of_holds, [&format!("PUT /v1/holds/{id}"), &format!("DELETE /v1/holds/{id}")]);
    }
}

#[test]
fn a_hold_carries_its_reason_and_a_release_says_whether_there_was_one() {
    let stub = Stub::start(brakes);
    assert_eq!(stub.run(&["hold", "--all", "--reason", "a b", "-q"]), ran(0, "server\n", ""));
    assert_eq!(stub.asked()[0].body, json!({"reason": "a b"}));
    assert_eq!(stub.run(&["release", "free"]), ran(0, "issues/free was not held\n", ""));
    let json: Value =
        serde_json::from_str(&stub.run(&["release", "free", "-o", "json"]).out).expect("JSON");
    assert_eq!(json, json!({"id": "issues/free", "released": false}));
}

#[test]
fn a_hold_without_a_scope_is_wrong_usage() {
    let stub = Stub::start(brakes);
    let hint = "error: no scope is given\n  hint: specify an ISSUE, \
                --repository OWNER/REPO, --account NAME or --all\n";
    for verb in ["hold", "release"] {
        assert_eq!(stub.run(&[verb]), ran(2, "", hint));
    }
    assert_eq!(stub.run(&["hold", "test-1", "--server"]).code, 2);
    assert_eq!(stub.run(&["ls", "--server"]).code, 2, "means nothing to other verbs");
    assert_eq!(stub.lines(), Vec::<String>::new());
}

#[test]
fn holds_are_listed_inert() {
    let stub = Stub::start(|_| {
        let data = json!([hold("server"), hold("issues/a")]);
        json_reply(200, &json!({"success": true, "data": data, "nextCursor": null, "total": 2}))
    });
    assert_eq!(stub.run(&["holds", "-q"]), ran(0, "server\nissues/a\n", ""));
    let table = stub.run(&["holds"]).out;
    assert!(table.starts_with("HELD      AGE"), "{table}");
    assert!(table.contains("broken\\u{1b}[2J"), "{table}");
    let stub = Stub::start(|_| json_reply(200, &json!({"success": true, "data": [], "total": 0})));
    assert_eq!(stub.run(&["holds"]), ran(0, "", "no holds\n"));
}

#[test]
fn a_hold_is_shown_by_the_name_of_what_it_covers_and_at_the_sandboxes() {
    let stub = Stub::start(|asked| {
        let (data, next) = match asked.line.split('?').next().unwrap_or_default() {
            "GET /v1/holds" => {
                (json!([labelled("issue", "a", "the issue pear-garden/orchard#12")]), Value::Null)
            }
            "GET /v1/sandboxes" => {
                (json!([sandbox("a", Some("running")), sandbox("b", Some("running"))]), Value::Null)
            }
            "GET /v1/issues/a/sandbox" => return success(&sandbox("a", Some("running"))),
            "PUT /v1/holds/issues/a" => {
                return success(&labelled("issue", "a", "the issue pear-garden/orchard#12"));
            }
            _ => return refusal(404, "route_not_found", "older", "x"),
        };
        json_reply(200, &json!({"success": true, "data": data, "nextCursor": next, "total": 2}))
    });
    let holds = stub.run(&["holds"]).out;
    assert!(
        holds
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("the issue pear-garden/orchard#12 ")),
        "{holds}"
    );
    assert_eq!(stub.run(&["hold", "a"]).out, "the issue pear-garden/orchard#12 is held\n");
    let wide = stub.run(&["ls", "-o", "wide"]).out;
    let lines: Vec<&str> = wide.lines().collect();
    let at = lines[0].find("HELD").expect("a column");
    assert!(lines[1][at..].starts_with("issue ") && lines[2][at..].starts_with("- "), "{wide}");
    let sheet = stub.run(&["get", "a"]).out;
    let held = "held       the issue pear-garden/orchard#12, by admin: broken\\u{1b}[2J\n";
    assert!(sheet.contains(held), "{sheet}");
}

#[test]
fn a_page_is_opened_in_the_browser_of_the_person() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/issues/a/sandbox" => success(&sandbox("a", Some("running"))),
        "POST /v1/login-links" => success(&json!({"url": "https://box.example/login?key=k"})),
        other => refusal(500, "unexpected", other, "fix the test"),
    });
    let dir = tempfile::tempdir().expect("a directory");
    let (browser, seen) = (dir.path().join("browser"), dir.path().join("seen"));
    let script = format!("#!/bin/sh\necho \"$1\" > {0}.new && mv {0}.new {0}\n", seen.display());
    std::fs::write(&browser, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&browser, mode).expect("set");
    let mut command = stub.command(&["open", "a"]);
    let opened = Ran::of(command.env("BROWSER", &browser).env("PATH", "/usr/bin:/bin"));
    let url = "https://box.example/login?key=k&next=%2Fsandboxes%2Fid%2Dof%2Da\n";
    assert_eq!(opened, ran(0, url, ""));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while std::fs::read_to_string(&seen).ok().as_deref() != Some(url) {
        assert!(std::time::Instant::now() < end, "the browser is started");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn the_link_to_the_button_logs_in_and_leads_to_its_page() {
    let stub = Stub::start(|_| success(&json!({"url": "https://box.example/login?key=k"})));
    let shown = stub.run(&["connect", "github"]);
    let url = "https://box.example/login?key=k&next=%2Fconnect\n";
    assert_eq!((shown.code, shown.out.as_str()), (0, url));
    assert!(shown.err.contains("press Create GitHub App"), "{}", shown.err);
    assert_eq!(stub.lines(), ["POST /v1/login-links"]);
}

#[test]
fn a_log_in_link_is_asked_for_and_shown() {
    let stub = Stub::start(|_| {
        let link = json!({"url": "https://box.example/login?key=k\u{1b}",
            "expiresAt": "2026-03-02T09:10:00.000Z"});
        json_reply(201, &json!({"success": true, "data": link}))
    });
    let shown = stub.run(&["login"]);
    assert_eq!((shown.code, shown.out.as_str()), (0, "https://box.example/login?key=k\\u{1b}\n"));
    assert!(shown.err.contains("once, within 10 minutes"), "{}", shown.err);
    let json = stub.run(&["login", "-o", "json"]).out;
    assert!(json.contains("\"expiresAt\""), "{json}");
    assert_eq!(stub.lines(), ["POST /v1/login-links", "POST /v1/login-links"]);
}
