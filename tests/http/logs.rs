//! What commands wrote, over HTTP and from the command line: kept by sandbox, over restarts, also
//! of a deleted one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::server::{TOKEN, TestServer, send};
use futures_util::StreamExt;
use serde_json::{Value, json};

async fn run(server: &TestServer, command: Value) {
    let body = json!({"command": command});
    let answer = server.post("/v1/sandboxes/claude-issue-1/exec", body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// A sandbox's log once it holds so many lines, as `stream text`.
async fn lines(server: &TestServer, path: &str, len: usize) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let data = answer.json()["data"].clone();
        let lines = data.as_array().expect("a list");
        if lines.len() >= len {
            let text = |line: &Value, name: &str| line[name].as_str().expect("text").to_owned();
            return lines
                .iter()
                .map(|line| format!("{} {}", text(line, "stream"), text(line, "text")))
                .collect();
        }
        assert!(Instant::now() < end, "{path}: {lines:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_ran_is_kept_by_sandbox_over_a_restart_and_its_delete() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let path = format!("/v1/sandboxes/{id}/logs");
    assert_eq!(lines(&server, &path, 0).await, Vec::<String>::new());
    run(&server, json!(["echo", "a b", "c"])).await;
    run(&server, json!(["fail", "3"])).await;
    let expected = [
        "command echo 'a b' c",
        "stdout a b c",
        "exit 0",
        "command fail 3",
        "stderr failing",
        "exit 3",
    ];
    assert_eq!(lines(&server, &path, 6).await, expected);
    assert_eq!(lines(&server, "/v1/sandboxes/claude-issue-1/logs?tail=2", 2).await, expected[4..]);
    let whole = server.get(&path).await.json();
    assert_eq!(whole["sandboxId"], id);
    let first = &whole["data"][0];
    assert!(first["n"].as_u64().expect("a number") > 0 && first["partial"] == json!(false));
    assert_eq!(first["exec"], whole["data"][2]["exec"], "one command");
    assert_ne!(first["exec"], whole["data"][3]["exec"], "another one");

    let data = Arc::clone(&server.data);
    drop(server);
    let server = TestServer::over(data, "memory", |_| {}).await;
    assert_eq!(lines(&server, &path, 6).await, expected, "over a restart");
    let gone = server.request(reqwest::Method::DELETE, &format!("/v1/sandboxes/{id}?wait=10"));
    assert!(send(gone).await.status < 300);
    assert_eq!(lines(&server, &path, 6).await, expected, "of a deleted one");
    server.running("1").await;
    let next = lines(&server, "/v1/sandboxes/claude-issue-1/logs", 0).await;
    assert_eq!(next, Vec::<String>::new(), "the next generation has its own");
}

#[tokio::test]
async fn a_follower_gets_the_log_so_far_and_then_new_lines() {
    let server = TestServer::start().await;
    server.running("1").await;
    run(&server, json!(["echo", "before"])).await;
    let path = "/v1/sandboxes/claude-issue-1/logs";
    lines(&server, path, 3).await;
    let first = server.get(path).await.json()["data"][0]["n"].as_u64().expect("a number");
    let id = |n: u64| format!("id: {}\n", first + n);
    let follow = |query: &str, after: Option<&str>| {
        let path = format!("{path}?follow=true{query}");
        let request = server.request(reqwest::Method::GET, &path);
        match after {
            Some(after) => request.header("last-event-id", after),
            None => request,
        }
    };
    // A client that has the answer's head gets everything that follows.
    let open = async |request: reqwest::RequestBuilder| request.send().await.expect("answers");
    let until = async |stream: reqwest::Response, end: &str| {
        let mut bytes = stream.bytes_stream();
        let mut text = String::new();
        while !text.contains(end) {
            let more = tokio::time::timeout(Duration::from_secs(30), bytes.next()).await;
            let more = more.unwrap_or_else(|_| panic!("{end} is missing in {text}"));
            text.push_str(&String::from_utf8_lossy(&more.expect("goes on").expect("bytes")));
        }
        text
    };
    let stream = open(follow("&tail=2", None)).await;
    run(&server, json!(["echo", "after"])).await;
    run(&server, json!(["fail", "7"])).await;
    let seen = until(stream, "exit\",\"text\":\"7").await;
    assert!(!seen.contains("\"command\",\"text\":\"echo before"), "{seen}");
    let at = |what: &str| seen.find(what).unwrap_or_else(|| panic!("{what} is missing in {seen}"));
    assert!(at(&format!("event: log\n{}", id(1))) < at("before"));
    assert!(at("\"text\":\"before") < at("\"text\":\"after") && at("after") < at("failing"));
    let after = (first + 4).to_string();
    let resumed = until(open(follow("", Some(&after))).await, &id(8)).await;
    assert!(resumed.contains(&id(5)) && !resumed.contains(&id(4)), "{resumed}");
    let stream = open(follow("&tail=0", None)).await;
    run(&server, json!(["echo", "latest"])).await;
    let only_new = until(stream, "latest").await;
    assert!(!only_new.contains("failing"), "{only_new:?}");
}

#[tokio::test]
async fn logs_are_shown_on_the_command_line() {
    let server = TestServer::start().await;
    server.running("1").await;
    run(&server, json!(["echo", "\u{1b}[31mred"])).await;
    lines(&server, "/v1/sandboxes/claude-issue-1/logs", 3).await;
    let shown = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_issuebox"));
        command.arg("logs").args(args).env_clear();
        command.env("ISSUEBOX_SERVER", server.url("")).env("ISSUEBOX_TOKEN", TOKEN);
        let ended = command.output().await.expect("it runs");
        (ended.status.code(), String::from_utf8(ended.stdout).expect("UTF-8"))
    };
    let expected = "$ echo '\\u{1b}[31mred'\n\\u{1b}[31mred\nexit 0\n";
    assert_eq!(shown(&["1"]).await, (Some(0), expected.to_owned()), "inert");
    assert_eq!(shown(&["1", "--tail", "1"]).await.1, "exit 0\n");
    assert_eq!(shown(&["1", "-q"]).await.1, "\\u{1b}[31mred\n");
    let json: Value = serde_json::from_str(&shown(&["1", "-o", "json"]).await.1).expect("JSON");
    assert_eq!(json[1]["text"], "\u{1b}[31mred");
    assert_eq!(shown(&["2"]).await.0, Some(3));
}

#[tokio::test]
async fn logs_of_an_unknown_sandbox_are_not_found() {
    let server = TestServer::start().await;
    assert_eq!(server.get("/v1/sandboxes/nope/logs").await.status, 404);
    server.running("1").await;
    for query in ["tail=10001", "tail=x", "follow=perhaps", "until=now"] {
        let answer = server.get(&format!("/v1/sandboxes/claude-issue-1/logs?{query}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{query}");
    }
}
