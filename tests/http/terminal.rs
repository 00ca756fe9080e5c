//! Terminals over the API's WebSocket: what is said before the upgrade, the messages, and every way
//! in which one ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::server::{TOKEN, TestServer, opened, opening, send};
use crate::common::socket::SocketClient;
use issuebox::http::{LiveToken, TokenHash};
use issuebox::types::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

const PATH: &str = "/v1/sandboxes/claude-issue-1/terminal";
const WAIT: Duration = Duration::from_secs(10);

const PROTOCOL: &str = "issuebox.terminal.v1";

async fn open(request: reqwest::RequestBuilder) -> SocketClient {
    SocketClient::open(request, PROTOCOL).await
}

/// A socket on which this has been started.
async fn started(server: &TestServer, command: &str) -> SocketClient {
    let mut socket = open(server.request(Method::GET, PATH)).await;
    socket.send_json(json!({"type": "start", "command": [command]})).await;
    assert_eq!(socket.said().await, json!({"type": "started"}));
    socket
}

/// Returns once the command has been hung up.
async fn hung_up(server: &TestServer) {
    let dropped = tokio::time::timeout(WAIT, server.provider.dropped.notified()).await;
    assert!(dropped.is_ok(), "the command goes on without its client");
}

#[tokio::test]
async fn a_terminal_is_bytes_both_ways_and_what_is_done_to_it() {
    let server = TestServer::start().await;
    server.running("1").await;
    let mut socket = open(server.request(Method::GET, PATH)).await;
    let start = json!({"type": "start", "command": ["cat"], "cwd": "src", "env": {"TERM": "vt"},
        "columns": 90, "rows": 20});
    socket.send_json(start).await;
    assert_eq!(socket.said().await, json!({"type": "started"}));
    let prompt = r#"("PS1", "agent@claude-issue-1:$PWD\\$ ")"#;
    let begun = format!(
        r#"Some("src") [("TERM", "vt"), {prompt}] TerminalSize {{ columns: 90, rows: 20 }}"#
    );
    assert_eq!(socket.shown().await, begun);
    socket.keys("ä").await;
    assert_eq!(socket.shown().await, "ä");
    socket.send_json(json!({"type": "resize", "columns": 5, "rows": 6})).await;
    assert_eq!(socket.shown().await, "[Resize(TerminalSize { columns: 5, rows: 6 })]");
    socket.send_json(json!({"type": "signal", "signal": "KILL"})).await;
    assert_eq!(socket.shown().await, "[Signal(Kill)]");
    socket.send(Message::Ping("p".into())).await;
    assert_eq!(socket.next().await, Some(Message::Pong("p".into())));
    socket.keys("exit 7").await;
    assert_eq!(socket.said().await, json!({"type": "exit", "exitCode": 7}));
    assert_eq!(socket.closed().await, 1000);
    assert_eq!(socket.next().await, None, "the connection ends");
}

#[tokio::test]
async fn what_is_shown_is_kept_in_the_log() {
    let server = TestServer::start().await;
    server.running("1").await;
    let mut socket = started(&server, "cat").await;
    socket.shown().await;
    // A line that is typed key by key is one all the same.
    for piece in ["\r\n$ ", "l", "s\x1b[0m\r\n", "\u{1}\r\n"] {
        socket.keys(piece).await;
        socket.shown().await;
    }
    socket.keys("exit 7").await;
    assert_eq!(socket.said().await["exitCode"], 7);
    let kept = async || {
        let answer = server.get("/v1/sandboxes/claude-issue-1/logs").await.json();
        let lines = answer["data"].as_array().expect("a list").clone();
        let of = |line: &Value| (line["stream"].clone(), line["text"].clone());
        lines.iter().map(of).collect::<Vec<_>>()
    };
    let end = std::time::Instant::now() + WAIT;
    while !kept().await.contains(&(json!("exit"), json!("7"))) {
        assert!(std::time::Instant::now() < end, "{:?}", kept().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let kept = kept().await;
    assert_eq!(kept[0], (json!("command"), json!("cat")));
    let lines = ["$ ls\u{1b}[0m", "\u{1}"].map(|line| (json!("stdout"), json!(line)));
    assert_eq!(kept[2..4], lines, "{kept:?}");
}

#[tokio::test]
async fn a_terminal_that_cannot_begin_is_reported() {
    let server = TestServer::start().await;
    server.running("1").await;
    for (first, code, field) in [
        (json!({"type": "start", "command": ["nope"]}), "command_not_found", json!("command")),
        (json!({"type": "start", "command": ["vanish"]}), "not_running", Value::Null),
    ] {
        let mut socket = open(server.request(Method::GET, PATH)).await;
        socket.send_json(first.clone()).await;
        let mut error = socket.said().await;
        if error["type"] == "started" {
            error = socket.said().await;
        }
        let seen = (&error["type"], &error["code"], &error["field"]);
        assert_eq!(seen, (&json!("error"), &json!(code), &field), "{first}");
        assert_eq!(socket.closed().await, 1008);
    }
}

#[tokio::test]
async fn a_wrong_message_before_the_start_is_answered_and_the_session_kept() {
    let server = TestServer::start().await;
    server.running("1").await;
    let exec = "/v1/sandboxes/claude-issue-1/exec";
    for (path, protocol, command) in [(PATH, PROTOCOL, "cat"), (exec, "issuebox.exec.v1", "echo")] {
        let mut socket = SocketClient::open(server.request(Method::GET, path), protocol).await;
        for (wrong, field) in [
            (Message::text(r#"{"type":"start","command":[]}"#), json!("command")),
            (Message::text(r#"{"type":"resize","columns":1,"rows":1}"#), json!("type")),
            (Message::text("dance"), Value::Null),
            (Message::binary("too early"), json!("type")),
        ] {
            let text = format!("{wrong:.80}");
            socket.send(wrong).await;
            let refused = socket.said().await;
            let seen = (&refused["type"], &refused["code"], &refused["field"]);
            assert_eq!(seen, (&json!("refused"), &json!("invalid_request"), &field), "{text}");
        }
        socket.send_json(json!({"type": "start", "command": [command]})).await;
        assert_eq!(socket.said().await, json!({"type": "started"}), "{path}");
    }
}

#[tokio::test]
async fn a_wrong_message_is_answered_and_the_terminal_goes_on() {
    let server = TestServer::start().await;
    server.running("1").await;
    let mut socket = started(&server, "cat").await;
    socket.shown().await;
    for (wrong, field) in [
        (Message::text(r#"{"type":"start","command":["cat"]}"#), json!("type")),
        (Message::text("dance"), Value::Null),
        (Message::text(r#"{"type":"resize","columns":0,"rows":0}"#), json!("columns")),
        (Message::text(r#"{"type":"signal","signal":"HUP"}"#), json!("signal")),
        (Message::binary(vec![b'x'; 100_000]), Value::Null),
        (Message::text("y".repeat(100_000)), Value::Null),
    ] {
        let text = format!("{wrong:.80}");
        socket.send(wrong).await;
        let refused = socket.said().await;
        let seen = (&refused["type"], &refused["code"], &refused["field"]);
        assert_eq!(seen, (&json!("refused"), &json!("invalid_request"), &field), "{text}");
        socket.keys("on").await;
        assert_eq!(socket.shown().await, "on", "{text}");
    }
    socket.send_json(json!({"type": "resize", "columns": 5, "rows": 6})).await;
    assert_eq!(socket.shown().await, "[Resize(TerminalSize { columns: 5, rows: 6 })]");
    socket.keys("exit 7").await;
    assert_eq!(socket.said().await, json!({"type": "exit", "exitCode": 7}));
}

#[tokio::test]
async fn bytes_that_are_no_websocket_end_the_terminal_with_a_reason() {
    use tokio_tungstenite::tungstenite::protocol::frame::Frame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
    let server = TestServer::start().await;
    server.running("1").await;
    let mut socket = started(&server, "cat").await;
    socket.shown().await;
    // A part of a message that is too long by itself: the rest has no meaning without it.
    let part = Frame::message(vec![0; 100_000], OpCode::Data(Data::Binary), false);
    socket.send(Message::Frame(part)).await;
    let error = socket.said().await;
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("invalid_request")));
    assert_eq!(socket.closed().await, 1008);
    hung_up(&server).await;
}

#[tokio::test]
async fn before_the_upgrade_a_request_is_answered_like_any_other() {
    let server = TestServer::start().await;
    server.running("1").await;
    let get = |path: &str| server.request(Method::GET, path);
    let plain = send(get(PATH)).await;
    assert_eq!((plain.status, plain.code().as_str()), (426, "upgrade_required"));
    assert_eq!(plain.header("upgrade"), "websocket");
    assert!(plain.text.contains("issuebox.terminal.v1"), "{plain:?}");
    let mut other = opening(get(PATH)).build().expect("a request");
    let later = "issuebox.terminal.v2".parse().expect("header text");
    other.headers_mut().insert("sec-websocket-protocol", later);
    let other = reqwest::RequestBuilder::from_parts(server.client.clone(), other);
    let other = send(other).await;
    assert_eq!(other.code(), "upgrade_required");
    let unknown = send(opening(get("/v1/sandboxes/nope/terminal"))).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "sandbox_not_found"));
    let anybody = send(opening(server.client.get(server.url(PATH)))).await;
    assert_eq!(anybody.status, 401);
    // A token in the address is none.
    let in_url = server.client.get(server.url(&format!("{PATH}?token={TOKEN}")));
    assert_eq!(send(opening(in_url)).await.status, 401);
}

#[tokio::test]
async fn a_session_opens_one_from_its_own_page_alone() {
    let server = TestServer::start().await;
    server.running("1").await;
    let cookie = server.log_in().await;
    let with = |origin: &str| {
        let request = server.client.get(server.url(PATH)).header("cookie", &cookie);
        request.header("origin", origin)
    };
    let foreign = send(opening(with("https://elsewhere.example"))).await;
    assert_eq!((foreign.status, foreign.code().as_str()), (403, "forbidden"));
    let without = server.client.get(server.url(PATH)).header("cookie", &cookie);
    assert_eq!(send(opening(without)).await.status, 403);
    let mut socket = open(with(&server.url(""))).await;
    socket.send_json(json!({"type": "start", "command": ["cat"]})).await;
    assert_eq!(socket.said().await["type"], "started");
}

#[tokio::test]
async fn a_stopped_sandbox_is_started_first() {
    let server = TestServer::start().await;
    server.deliver("issues", "d-1", &opened(1, "a title")).await;
    server.get("/v1/sandboxes/claude-issue-1?until=running&wait=5").await;
    let closed = opened(1, "a title").replace("opened", "closed").replace("\"open\"", "\"closed\"");
    let closed = closed.replace("2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z");
    server.deliver("issues", "d-2", &closed).await;
    let stopped = server.get("/v1/sandboxes/claude-issue-1?until=stopped&wait=5").await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped");
    let mut socket = started(&server, "cat").await;
    assert!(socket.shown().await.starts_with("None"));
    let running = server.get("/v1/sandboxes/claude-issue-1").await;
    assert_eq!(running.json()["data"]["phase"], "running");
}

#[tokio::test]
async fn a_client_that_goes_away_hangs_up_however_it_goes() {
    let server = TestServer::with(|edge| edge.limits.ping_every = Duration::from_millis(50)).await;
    server.running("1").await;
    for command in ["cat", "many", "deaf"] {
        let mut socket = started(&server, command).await;
        socket.shown().await;
        if command == "cat" {
            socket.close().await;
        }
        if command == "deaf" {
            // What is typed there waits, and the connection with it.
            for _ in 0..8 {
                let _full = tokio::time::timeout(
                    Duration::from_millis(50),
                    socket.send(Message::binary(vec![0; 60_000])),
                )
                .await;
            }
        }
        drop(socket);
        hung_up(&server).await;
    }
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_given_up_and_one_that_does_is_not() {
    let server = TestServer::with(|edge| edge.limits.ping_every = Duration::from_millis(500)).await;
    server.running("1").await;
    let mut answering = started(&server, "cat").await;
    answering.shown().await;
    // A client that does not read answers no ping.
    let silent = started(&server, "deaf").await;
    tokio::select! {
        () = hung_up(&server) => {}
        other = answering.next() => panic!("{other:?}"),
    }
    answering.keys("here").await;
    assert_eq!(answering.shown().await, "here");
    drop(silent);
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_only_its_own_command() {
    let server = TestServer::start().await;
    server.running("1").await;
    let unread = started(&server, "many").await;
    let shown_so_far = || server.provider.shown.load(Ordering::SeqCst);
    let mut before = 0;
    // It has stopped once nothing was added over a while in which others are served.
    loop {
        for _ in 0..50 {
            assert_eq!(server.get("/v1/sandboxes/claude-issue-1").await.status, 200);
        }
        match shown_so_far() {
            now if now == before && now > 0 => break,
            now => before = now,
        }
        assert!(before < 16_384, "64 MiB were taken for a client that does not read");
    }
    let mut other = started(&server, "cat").await;
    assert!(other.shown().await.starts_with("None"));
    drop(unread);
    hung_up(&server).await;
}

#[tokio::test]
async fn the_server_s_end_the_session_s_and_the_token_s_end_it() {
    let token = LiveToken::new(TokenHash::of(&Secret::new(TOKEN)));
    let of_server = token.clone();
    let server = TestServer::with(move |edge| {
        edge.admin_token = of_server;
        edge.limits.session_lag_max = Duration::from_millis(20);
    })
    .await;
    server.running("1").await;
    let cookie = server.log_in().await;
    let by_session = server.client.get(server.url(PATH)).header("cookie", &cookie);
    let mut socket = open(by_session.header("origin", server.url(""))).await;
    socket.send_json(json!({"type": "start", "command": ["cat"]})).await;
    socket.said().await;
    socket.shown().await;
    let page = send(server.client.get(server.url("/")).header("cookie", &cookie)).await.text;
    let form = page.split("name=\"formToken\" value=\"").nth(1).expect("a form token");
    let form = form.split('"').next().expect("a value");
    let logout = server.client.post(server.url("/logout")).header("cookie", &cookie);
    let logout = logout.header("origin", server.url("")).body(format!("formToken={form}"));
    assert_eq!(send(logout).await.status, 303);
    assert_eq!(socket.said().await["code"], "unauthorized");
    hung_up(&server).await;

    let mut socket = started(&server, "many").await;
    token.replace(TokenHash::of(&Secret::new("another")));
    hung_up(&server).await;
    let mut last = None;
    while let Some(message) = socket.next().await {
        if let Message::Text(text) = message {
            last = Some(text.to_string());
        }
    }
    assert!(last.is_some_and(|text| text.contains("the admin token was replaced")));

    token.replace(TokenHash::of(&Secret::new(TOKEN)));
    let mut socket = started(&server, "cat").await;
    socket.shown().await;
    server.closing.send_replace(true);
    assert_eq!(socket.said().await["code"], "shutting_down");
    assert_eq!(socket.closed().await, 1001);
    hung_up(&server).await;
}
