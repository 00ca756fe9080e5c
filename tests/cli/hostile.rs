//! A server that lies in every text: no verb passes on what a terminal would act upon.

use crate::stub::{Asked, Reply, Stub, events, json_reply, refusal, sandbox};
use serde_json::{Value, json};

/// CSI in one character, DEL, a direction mark, a title, a line of its own.
const ACTS: &str = "\u{9b}31m\u{7f}\u{202e}\u{1b}]0;x\u{7}\r\nrm -rf";

/// The value with this at the end of every text in it.
fn lying(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(format!("{text}{ACTS}")),
        Value::Array(items) => items.iter().map(lying).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), lying(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn success(data: &Value) -> Reply {
    let mut body = lying(&json!({
        "data": data, "outcome": "created", "reason": "why", "mismatch": ["template"],
        "sweeps": [{"provider": "p", "lastAt": "now"}],
    }));
    body["success"] = json!(true);
    json_reply(200, &body)
}

fn answer(asked: &Asked) -> Reply {
    let (path, _) = asked.line.split_once('?').unwrap_or((&asked.line, ""));
    let mut of_sandbox = sandbox("a", Some("failed"));
    of_sandbox["failure"] = json!({"code": "c", "step": "s", "message": "m"});
    let row = json!({
        "id": "i", "at": "now", "since": "now", "by": "b", "reason": "why", "cause": "c",
        "from": "creating", "to": "running", "status": "accepted", "delivery": "d", "event": "e",
        "action": "a", "issueId": "5", "receivedAt": "now", "name": "memory", "allowed": 1,
        "unit": "MiB", "holds": "enforced", "port": 3000, "state": "up", "stream": "stdout",
        "text": "line", "url": "http://x", "kind": "file", "size": 1, "mode": "0644",
        "modifiedAt": "now", "path": "p", "next": "n", "nextAt": "now", "remedies": ["adopt"],
        "version": "v", "provider": "p", "agent": "a", "network": "n", "ports": [3000],
        "resources": {"cpu": 1, "memoryMb": 1, "diskMb": 1},
        "record": {"sandboxId": "s", "generation": 1, "phase": "running"},
    });
    match path {
        "GET /v1/sandboxes" if asked.line.contains("cursor=") => json_reply(500, &json!({})),
        "GET /v1/sandboxes" => success(&json!([of_sandbox])),
        "POST /v1/login-links" => success(&row),
        "GET /v1/system" => success(&json!({
            "version": "1", "degraded": ["d"], "providers": [{"name": "n", "trouble": "t. u"}],
        })),
        "GET /v1/events" => events(&format!(
            "event: sandbox.changed\nid: 1\ndata: {}\n\n",
            lying(&json!({"sandbox": of_sandbox, "from": "creating", "to": "failed",
                          "reason": "r", "cause": "c"}))
        )),
        path if path.starts_with("PUT /v1/holds") || path.starts_with("DELETE /v1/holds") => {
            let mut body = lying(&json!({"data": row}));
            body["data"]["released"] = json!(true);
            json_reply(200, &body)
        }
        path if path.ends_with("/files") => success(&json!({"entries": [row], "truncated": true})),
        path if path.ends_with("/retry") => refusal(409, "odd", ACTS, ACTS),
        path if [
            "/limits",
            "/ports",
            "/events",
            "/logs",
            "/holds",
            "/deliveries",
            "/drift",
            "/templates",
        ]
        .iter()
        .any(|end| path.ends_with(end)) =>
        {
            success(&json!([row]))
        }
        _ => success(&of_sandbox),
    }
}

#[test]
fn no_text_of_a_server_commands_the_terminal() {
    let stub = Stub::start(answer);
    let acts = |c: char| c != '\n' && issuebox::types::acts(c);
    let mut shown = 0;
    for verb in [
        &["ls"][..],
        &["get", "a"],
        &["ensure", "a"],
        &["stop", "a"],
        &["rm", "a", "--yes"],
        &["retry", "a"],
        &["wait", "a", "--timeout", "1"],
        &["events", "a"],
        &["deliveries"],
        &["hold", "--all"],
        &["release", "--all"],
        &["holds"],
        &["templates"],
        &["drift"],
        &["logs", "a"],
        &["files", "ls", "a"],
        &["login"],
        &["doctor"],
    ] {
        for form in [&[][..], &["-q"], &["-owide"], &["-ojson"], &["-oyaml"]] {
            let ended = stub.run(&[verb, form].concat());
            for text in [&ended.out, &ended.err] {
                assert!(!text.contains(acts), "{verb:?} {form:?}: {text:?}");
                assert!(!text.lines().any(|line| line.starts_with("rm -rf")), "{verb:?}: {text}");
            }
            shown += usize::from(ended.out.contains("rm -rf") || ended.err.contains("rm -rf"));
        }
    }
    assert!(shown > 60, "the texts were shown: {shown}");
}
