//! `issuebox chat`, `runs`, `cancel` and `usage`: against a stub of the API, and with an agent that works
//! in a real sandbox.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::agent;
use crate::process::{Place, Server, TOKEN, until};
use crate::pty::OnTerminal;
use crate::stub::{Asked, Ran, Reply, Stub, events, json_reply, refusal, sandbox, success};
use rustix::process::Signal;
use serde_json::{Value, json};

const EVENTS: &str = "GET /v1/issues/known/conversation/events";

fn event(id: u32, data: &Value) -> String {
    format!("event: conversation\nid: {id}\ndata: {data}\n\n")
}

fn said(asked: &Asked) -> Option<Reply> {
    let run = json!({"id": "r1", "state": "queued"});
    let data = json!({"message": {"id": "m1", "run": "r1"}, "run": run});
    match asked.line.as_str() {
        "GET /v1/issues/known/sandbox" => Some(success(&sandbox("known", Some("running")))),
        "PUT /v1/issues/known/messages" => {
            Some(json_reply(202, &json!({"success": true, "data": data})))
        }
        line if line == format!("{EVENTS}?tail=0") => Some(events(": hello\n\nid: 10\n\n")),
        _ => None,
    }
}

/// The events of a run that ends in this state, in two streams.
fn run(state: &'static str) -> impl Fn(&Asked) -> Reply + Send + Sync {
    let text = |text: &str, part: &str| json!({"type": "text", "text": text, "part": part, "run": "r1", "at": "t"});
    let call = json!({"type": "toolCall", "id": "t", "tool": "Bash", "title": "rm \u{1b}[2J", "input": {},
        "run": "r1"});
    let first = [
        event(11, &json!({"type": "text", "text": "of another", "part": "whole", "run": "r0"})),
        event(12, &json!({"type": "message", "id": "m1", "author": "admin", "text": "hello"})),
        event(13, &json!({"type": "run", "id": "r1", "state": "queued", "reason": "held by bob"})),
        event(14, &json!({"type": "run", "id": "r1", "state": "running", "reason": ""})),
        event(20, &text("One ", "piece")),
    ];
    let second = [
        event(21, &text("two\u{1b}[31m\u{202e}\nthree", "piece")),
        event(22, &text("One two\u{1b}[31m\u{202e}\nthree", "whole")),
        event(23, &call),
        event(
            24,
            &json!({"type": "toolResult", "id": "t", "text": "denied", "isError": true,
            "run": "r1"}),
        ),
        event(25, &json!({"type": "later", "run": "r1"})),
        event(26, &json!({"type": "run", "id": "r1", "state": state, "reason": "a\u{9b}b"})),
    ];
    move |asked| match (said(asked), asked.resume_from.as_str()) {
        (Some(reply), _) => reply,
        (None, "10") if asked.line == EVENTS => events(&first.concat()),
        (None, "20") if asked.line == EVENTS => events(&second.concat()),
        (None, from) => refusal(500, "unexpected", &asked.line, from),
    }
}

#[test]
fn a_message_is_said_once_and_answered_over_a_broken_connection() {
    let stub = Stub::start(run("succeeded"));
    let ended = stub.run(&["chat", "--interrupt", "known", "fix", "it"]);
    let out = "One two\\u{1b}[31m\\u{202e}\nthree\n".to_owned();
    let err = "(waits: held by bob)\n▸ Bash: rm \\u{1b}[2J\n  failed: denied\n".to_owned();
    assert_eq!(ended, Ran { code: 0, out, err });
    let asked = stub.asked();
    let sent: Vec<_> = asked.iter().filter(|one| one.line.starts_with("PUT")).collect();
    assert!(
        matches!(&sent[..], [one] if one.body == json!({"text": "fix it", "interrupt": true})),
        "{sent:?}"
    );
    let joined = asked.iter().filter(|one| one.line.starts_with(EVENTS));
    let from: Vec<_> = joined.map(|one| one.resume_from.as_str()).collect();
    assert_eq!(from, ["", "10", "20"]);
}

#[test]
fn a_run_without_success_is_an_error_and_json_is_every_event() {
    let stub = Stub::start(run("failed"));
    let ended = stub.run(&["chat", "known", "fix it", "--json"]);
    let lines: Vec<Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((ended.code, lines.len()), (1, 10), "{}", ended.out);
    assert!(!ended.out.contains(['\u{202e}', '\u{9b}']), "{}", ended.out);
    assert_eq!(
        ended.err,
        "error: the run failed: a\\u{9b}b\n  hint: run issuebox retry known to try it again, or \
         issuebox runs known to see all\n"
    );
    let silent = stub.run(&["chat", "known"]);
    assert_eq!((silent.code, silent.out.as_str()), (2, ""), "{}", silent.err);
    assert!(silent.err.starts_with("error: there is nothing to say\n"), "{}", silent.err);
}

#[test]
fn runs_are_listed_and_the_one_in_progress_is_cancelled() {
    let usage = json!({"requests": 3, "inputTokens": 1000, "outputTokens": 20, "costUsd": 1.239});
    let run = move |id: &str, state: &str| {
        json!({"id": id, "agent": "claude-code", "state": state, "reason": "a\u{1b}b", "waits": "nothing",
            "messages": 1, "attempt": 1, "summary": "", "since": "2026-03-02T09:00:05.000Z",
            "usage": usage, "issue": {"issueId": "known", "repository": "o/r", "issueNumber": 7}})
    };
    let asked = AtomicUsize::new(0);
    let stub = Stub::start(move |one| match one.line.as_str() {
        "GET /v1/runs?state=running%2Cfailed&limit=50" => json_reply(
            200,
            &json!({"success": true, "data": [run("r2", "running"), run("r1", "failed")],
                "nextCursor": null, "total": 2}),
        ),
        "GET /v1/issues/known/sandbox" => success(&sandbox("known", Some("running"))),
        line if line.starts_with(
            "GET /v1/runs?issueId=known&state=queued%2Crunning%2Cwaiting_for_person",
        ) =>
        {
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => success(&json!([run("r3", "queued"), run("r2", "running")])),
                _ => success(&json!([])),
            }
        }
        "POST /v1/runs/r2/cancel" => {
            json_reply(202, &json!({"success": true, "data": run("r2", "cancelling")}))
        }
        "GET /v1/usage?by=day&since=2026-03-01" => success(&json!({"by": "day",
            "sums": [{"name": "2026-03-02", "issue": null, "usage": run("", "")["usage"]}],
            "total": run("", "")["usage"]})),
        other => refusal(500, "unexpected", other, "fix the test"),
    });
    let table = stub.run(&["runs", "--state", "running,failed"]);
    let rows: Vec<_> = table.out.lines().collect();
    assert_eq!(rows.len(), 3, "{}{}", table.out, table.err);
    assert!(rows[0].starts_with("STATE    ISSUE  AGENT"), "{}", table.out);
    assert!(rows[1].starts_with("running  o/r#7  claude-code"), "{}", table.out);
    assert!(rows[1].contains("$1.24  a\\u{1b}b"), "{}", table.out);
    let ended = stub.run(&["cancel", "known"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "r2 cancelling  a\\u{1b}b\n"));
    assert!(ended.err.contains("answered next"), "{}", ended.err);
    let none = stub.run(&["cancel", "known"]);
    assert_eq!((none.code, none.out.as_str()), (3, ""), "{}", none.err);
    let usage = stub.run(&["usage", "--by", "day", "--since", "2026-03-01"]);
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = usage.out.lines().map(columns).collect();
    assert_eq!(rows.len(), 3, "{}{}", usage.out, usage.err);
    assert_eq!(rows[1], ["2026-03-02", "3", "1000", "20", "$1.24"]);
    assert_eq!(rows[2][0], "total");
    assert_eq!(stub.run(&["usage", "--by", "colour"]).code, 2);
}

fn command(place: &Place, server: &Server, args: &[&str]) -> tokio::process::Command {
    let mut command = place.command(&["chat", "--server", &server.url]);
    command.args(args).env("ISSUEBOX_TOKEN", TOKEN).env("TERM", "dumb");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_a_sandbox_is_spoken_to() {
    let Some(place) = Place::local(None).await else { return };
    let server = agent::serve(&place).await;
    let id = server.running("1").await["id"].as_str().expect("an id").to_owned();
    agent::teach(&server, &id, "two tests").await;
    let output = command(&place, &server, &["1", "please\nsay done."]).output().await;
    let ended = Ran::ended(output.expect("it runs"));
    let out = "First words.\ndone.\n".to_owned();
    assert_eq!(ended, Ran { code: 0, out, err: "▸ Bash: cargo test\n".to_owned() });
    let failed = command(&place, &server, &["1", "fail"]).output().await.expect("it runs");
    assert_eq!(failed.status.code(), Some(1), "{}", String::from_utf8_lossy(&failed.stderr));

    let mut typed = OnTerminal::start(command(&place, &server, &["1"]));
    typed.shows("each line is a message", 0).await;
    typed.press("say typed\r");
    typed.shows("typed", typed.text().find("say typed").map_or(0, |at| at + 9)).await;
    typed.press("linger\r");
    typed.shows("It goes on.", 0).await;
    let agent = server.sandbox("1").await["agent"].clone();
    assert_eq!((&agent["state"], agent["run"].is_string()), (&json!("running"), true), "{agent}");
    // Ctrl-C as the terminal of a shell's job makes it.
    typed.signal(Signal::INT);
    typed.shows("press Ctrl-C again to cancel it", 0).await;
    typed.signal(Signal::INT);
    assert_eq!(typed.ended().await.code(), Some(130), "{}", typed.text());
    assert_eq!(server.sandbox("1").await["agent"]["state"], "idle");

    let mut left = OnTerminal::start(command(&place, &server, &["1", "linger"]));
    left.shows("It goes on.", 0).await;
    left.signal(Signal::INT);
    assert_eq!(left.ended().await.code(), Some(130), "{}", left.text());
    assert_eq!(server.sandbox("1").await["agent"]["state"], "running", "it was left alone");
    let runs = || async { server.get("/v1/runs?state=running&issueId=1").await.json() };
    let run = runs().await["data"][0]["id"].as_str().expect("a run").to_owned();
    server.post(&format!("/v1/runs/{run}/cancel"), &Value::Null).await;
    until("it is cancelled", || async { runs().await["total"] == 0 }).await;
    server.stop().await;
}

#[test]
fn what_an_agent_asks_is_shown_and_answered_by_id_or_name() {
    let option = |id: &str, name: &str| json!({"id": id, "name": name, "kind": "allow_once"});
    let question = json!({"id": "1-1", "text": "execute: ls \u{1b}[2J",
        "options": [option("once", "Allow once"), option("no", "Reject")]});
    let asked = AtomicUsize::new(0);
    let stub = Stub::start(move |one| match one.line.as_str() {
        "GET /v1/issues/known/sandbox" => success(&sandbox("known", Some("running"))),
        "GET /v1/runs?issueId=known&state=waiting_for_person" => {
            match asked.fetch_add(1, Ordering::SeqCst) {
                0..4 => success(&json!([{"id": "r2", "question": question}])),
                _ => success(&json!([])),
            }
        }
        "POST /v1/runs/r2/answer" => {
            json_reply(202, &json!({"success": true, "data": {"id": "r2"}}))
        }
        other => refusal(500, "unexpected", other, "fix the test"),
    });
    let shown = stub.run(&["answer", "known"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    assert_eq!(shown.out, "execute: ls \\u{1b}[2J\n  once  Allow once\n  no  Reject\n");
    for word in ["once", "allow ONCE"] {
        let ended = stub.run(&["answer", "known", word]);
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (0, "answered: Allow once\n"),
            "{}",
            ended.err
        );
    }
    let bodies: Vec<_> =
        stub.asked().into_iter().filter(|one| one.line.starts_with("POST")).collect();
    assert!(bodies.iter().all(|one| one.body == json!({"question": "1-1", "option": "once"})));
    let other = stub.run(&["answer", "known", "maybe"]);
    assert_eq!((other.code, other.out.as_str()), (2, ""), "{}", other.err);
    assert!(other.err.contains("one of once, no"), "{}", other.err);
    let none = stub.run(&["answer", "known", "once"]);
    assert_eq!((none.code, none.out.as_str()), (3, ""), "{}", none.err);
}
