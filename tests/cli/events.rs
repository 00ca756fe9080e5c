//! `issuebox events` against a stub of the API: the timeline, and the stream that continues it.

use crate::stub::{Ran, Stub, events, json_reply, refusal, sandbox, success};
use serde_json::{Value, json};

fn ran(code: i32, out: &str, err: &str) -> Ran {
    Ran { code, out: out.to_owned(), err: err.to_owned() }
}

fn change(issue: &str, from: &str, to: &str, at: &str) -> Value {
    let mut sandbox = sandbox(issue, Some(to));
    sandbox["phaseSince"] = json!(at);
    json!({"sandbox": sandbox, "from": from, "to": to, "reason": "why", "cause": "startup"})
}

#[test]
fn events_join_the_timeline_to_the_stream_without_a_gap_or_a_double() {
    let stub = Stub::start(|asked| match asked.line.as_str() {
        "GET /v1/sandboxes?limit=1" => {
            json_reply(200, &json!({"success": true, "data": [], "eventCursor": "c-1"}))
        }
        "GET /v1/issues/a/sandbox" => success(&Value::Null),
        "GET /v1/sandboxes/a" => refusal(404, "sandbox_not_found", "none", "x"),
        "GET /v1/issues/a/events?limit=200" => json_reply(
            200,
            &json!({"success": true, "nextCursor": null, "data": [
                {"at": "2026-03-02T09:00:02.000Z", "from": "creating", "to": "running",
                 "reason": "why", "cause": "startup", "generation": 1},
                {"at": "2026-03-02T09:00:01.000Z", "from": null, "to": "creating",
                 "reason": "asked", "cause": "delivery 0190", "generation": 1,
                 "instruction": {"source": "issue", "author": "ada", "sender": "bo\u{202e}b",
                    "title": "A\u{1b}[2J title", "text": format!("fix\n this {}", "x".repeat(500)),
                    "isExcerpt": true}},
            ]}),
        ),
        "GET /v1/events" if asked.resume_from == "c-1" => events(&format!(
            ": hello\n\nevent: sandbox.changed\nid: c-2\ndata: {}\n\n\
             event: sandbox.changed\nid: c-3\ndata: {}\n\n\
             event: gap\nid: c-4\ndata: {{}}\n\n\
             event: sandbox.changed\nid: c-5\ndata: {}\n\n",
            change("a", "creating", "running", "2026-03-02T09:00:02.000Z"),
            change("b", "creating", "running", "2026-03-02T09:00:03.000Z"),
            change("a", "running", "stopping", "2026-03-02T09:00:04.000Z"),
        )),
        "GET /v1/events" if asked.resume_from == "c-5" => {
            refusal(401, "unauthorized", "the token is gone", "give another")
        }
        other => refusal(500, "unexpected", other, &asked.resume_from),
    });
    let ended = stub.run(&["events", "-f", "a"]);
    assert_eq!(
        ended,
        ran(
            1,
            &format!(
                "2026-03-02T09:00:01.000Z nothing → creating  asked (delivery 0190)\n    \
             bo\\u{{202e}}b: A\\u{{1b}}[2J title fix this {}…\n\
             2026-03-02T09:00:02.000Z creating → running  why (startup)\n\
             2026-03-02T09:00:04.000Z running → stopping  why (startup)\n",
                "x".repeat(139)
            ),
            &format!(
                "note: some events are missing; the server no longer has them\n\
                 error: the token in ISSUEBOX_TOKEN is not that of {}\n  hint: the right one is \
                 auth.admin_token of the server's configuration, or in the file admin-token beside \
                 its database\n",
                stub.url
            )
        )
    );
    assert_eq!(stub.run(&["events", "a"]).code, 0);
}

#[test]
fn events_have_one_shape_with_and_without_following() {
    let stub = Stub::start(|asked| match asked.line.split('?').next().unwrap_or_default() {
        "GET /v1/sandboxes" => json_reply(200, &json!({"data": [], "eventCursor": "c-1"})),
        "GET /v1/issues/a/sandbox" => success(&sandbox("a", Some("running"))),
        "GET /v1/issues/a/events" => json_reply(
            200,
            &json!({"nextCursor": null, "data": [{"at": "2026-03-02T09:00:02.000Z", "generation": 1,
                "from": "creating", "to": "running", "reason": "why", "cause": "startup",
                "instruction": null}]}),
        ),
        "GET /v1/events" if asked.resume_from == "c-1" => {
            let mut change = change("a", "running", "stopping", "2026-03-02T09:00:04.000Z");
            (change["at"], change["generation"]) = ("2026-03-02T09:00:05.000Z".into(), 1.into());
            change["instruction"] = Value::Null;
            events(&format!("event: sandbox.changed\nid: c-2\ndata: {change}\n\n"))
        }
        _ => refusal(401, "unauthorized", "the token is gone", "give another"),
    });
    let followed = stub.run(&["events", "-f", "a", "-o", "json"]).out;
    let lines = followed.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<Value> = lines.collect();
    let keys =
        |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(lines.len(), 2, "{followed}");
    assert_eq!(keys(&lines[0]), keys(&lines[1]), "{followed}");
    assert_eq!((&lines[0]["issueId"], &lines[1]["issueId"]), (&json!("a"), &json!("a")));
    assert_eq!(lines[1]["at"], "2026-03-02T09:00:05.000Z", "with its time");
    let once = stub.run(&["events", "a", "-o", "json"]).out;
    assert!(followed.starts_with(&once), "{once}");
}
