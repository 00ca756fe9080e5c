//! `issuebox drift` against a stub of the API: what it prints, confirms and sends.

use crate::stub::{Asked, Reply, Stub, json_reply, refusal, success};
use serde_json::{Value, json};

fn twin() -> Value {
    json!({
        "id": "docker:two", "provider": "docker", "kind": "duplicate", "alarm": true,
        "issueId": "7",
        "record": {"sandboxId": "s-1", "generation": 2, "phase": "failed", "externalId": "one"},
        "object": {"externalId": "two", "name": "claude-issue-7", "state": "running",
                   "sandboxId": "s-1", "generation": 2, "mode": "strong"},
        "reason": "it is \u{1b}[31mthere twice", "since": "2026-01-31T12:00:00.000Z",
        "next": "nothing", "nextAt": null, "remedies": ["remove"]
    })
}

fn changed() -> Value {
    json!({
        "id": "identity:docker", "provider": "docker", "kind": "identity_changed", "alarm": true,
        "issueId": null, "record": null, "object": null,
        "reason": "its identity changed", "since": "2026-01-31T12:00:00.000Z",
        "next": "nothing is asked of it", "nextAt": "2026-01-31T13:00:00.000Z",
        "remedies": ["adopt"]
    })
}

fn page(items: &[Value], total: u64, next: Option<&str>) -> Reply {
    let sweeps = json!([{"provider": "docker", "lastAt": "2026-01-31T12:00:00.000Z"},
                        {"provider": "local", "lastAt": null}]);
    json_reply(
        200,
        &json!({"success": true, "data": items, "nextCursor": next, "total": total,
                "sweeps": sweeps}),
    )
}

/// Two items on two pages.
fn two(asked: &Asked) -> Reply {
    match asked.line.as_str() {
        "GET /v1/system/drift?limit=200" => page(&[changed()], 3, Some("1")),
        "GET /v1/system/drift?limit=200&cursor=1" => page(&[twin()], 3, None),
        "POST /v1/system/drift/docker%3Atwo/remove" => success(&twin()),
        "POST /v1/system/drift/identity%3Adocker/adopt" => success(&changed()),
        line if line.starts_with("POST ") => refusal(
            409,
            "drift_over",
            "this drift item has changed since it was listed",
            "list again",
        ),
        other => refusal(500, "unexpected", other, "fix the test"),
    }
}

#[test]
fn every_item_is_printed_with_both_sides_and_its_remedies() {
    let stub = Stub::start(two);
    let shown = stub.run(&["drift"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, "showing 2 of 3\n"));
    let lines: Vec<&str> = shown.out.lines().collect();
    assert!(lines[0].starts_with("identity:docker  identity_changed  since "), "{}", lines[0]);
    assert_eq!(
        lines[1..4],
        [
            "  why       its identity changed",
            "  next      nothing is asked of it (not before 2026-01-31T13:00:00.000Z)",
            "  decide    issuebox drift adopt identity:docker",
        ]
    );
    assert!(lines[4].starts_with("docker:two  duplicate  issue 7  since "), "{}", lines[4]);
    assert_eq!(
        lines[5..],
        [
            "  why       it is \\u{1b}[31mthere twice",
            "  record    failed, sandbox s-1 (generation 2), object one",
            "  provider  two running, sandbox s-1 (generation 2, strong)",
            "  next      nothing",
            "  decide    issuebox drift remove docker:two",
        ]
    );
    let json = stub.run(&["drift", "-o", "json"]);
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value, json!([changed(), twin()]));
    assert_eq!(stub.run(&["drift", "-q"]).out, "identity:docker\ndocker:two\n");
}

#[test]
fn no_drift_says_when_each_provider_was_last_checked() {
    let stub = Stub::start(|_| page(&[], 0, None));
    let shown = stub.run(&["drift"]);
    assert_eq!((shown.code, shown.out.as_str()), (0, ""));
    assert!(shown.err.starts_with("no drift; docker was checked "), "{}", shown.err);
    assert!(shown.err.ends_with(" ago, local was not checked yet\n"), "{}", shown.err);
}

#[test]
fn a_decision_needs_a_confirmation_and_prints_its_result() {
    let stub = Stub::start(two);
    let unasked = stub.run(&["drift", "remove", "docker:two"]);
    assert_eq!(unasked.code, 2);
    assert!(unasked.err.contains("there is no terminal to confirm it"), "{}", unasked.err);
    assert!(unasked.err.starts_with("docker:two  duplicate  issue 7  since "), "{}", unasked.err);
    let unknown = stub.run(&["drift", "adopt", "foo"]);
    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert!(unknown.err.starts_with("error: there is no drift item foo\n"), "{}", unknown.err);
    assert!(stub.lines().iter().all(|line| line.starts_with("GET ")), "nothing was sent");
    let removed = stub.run(&["drift", "remove", "--yes", "docker:two"]);
    let line = "docker:two  remove accepted; run issuebox drift to see what remains\n";
    assert_eq!((removed.code, removed.out.as_str()), (0, line));
    let adopted = stub.run(&["drift", "adopt", "-y", "-q", "identity:docker"]);
    assert_eq!((adopted.code, adopted.out.as_str()), (0, "identity:docker\n"));
    let over = stub.run(&["drift", "adopt", "--yes", "docker:gone"]);
    assert_eq!(over.code, 3, "{}", over.err);
    assert!(over.err.contains("run issuebox drift to list the current items"), "{}", over.err);
}
