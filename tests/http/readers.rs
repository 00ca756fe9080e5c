//! Clients that do not read what they asked for: they cost a bounded memory, and others nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use issuebox::http::Limits;
use reqwest::Method;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use serde_json::json;

use super::server::metric;
use crate::common::server::{TOKEN, TestServer, opened};

/// The memory for answers in these tests, in bytes.
const ANSWERS_MAX: usize = 1 << 20;
/// How many clients do not read: more than there is memory for.
const STALLED: usize = 160;
/// How many commands have written a thousand lines each, which the log of a sandbox holds here.
const COMMANDS: usize = 3;
const UNREAD: &str = r#"issuebox_http_cut_offs_total{reason="answer_unread"}"#;

/// A client that asks for this and has room for some KiB of the answer.
fn stalled(server: &TestServer, path: &str) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    set_socket_recv_buffer_size(&socket, 4096).expect("set");
    connect(&socket, &server.address).expect("the server listens");
    let mut stream = TcpStream::from(socket);
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is taken");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time-out");
    stream
}

/// A server with a sandbox whose log has many lines; how many.
async fn with_long_log() -> (TestServer, usize) {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { answers_sum_max: ANSWERS_MAX, ..edge.limits.clone() };
    })
    .await;
    server.running("1").await;
    let lines: String = (0..1_000).map(|n| format!("{n} {}\n", "x".repeat(100))).collect();
    for _ in 0..COMMANDS {
        let body = json!({"command": ["echo", lines.trim_end()]});
        let answer = server.post("/v1/sandboxes/claude-issue-1/exec", body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let begun = Instant::now();
    // A command, its lines, its end.
    while log_len(&server).await < COMMANDS * 1_002 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} lines", log_len(&server).await);
    }
    (server, COMMANDS * 1_002)
}

async fn log_len(server: &TestServer) -> usize {
    let log = server.get("/v1/sandboxes/claude-issue-1/logs?tail=10000").await.json();
    log["data"].as_array().expect("a list").len()
}

const FOLLOW: &str = "/v1/sandboxes/claude-issue-1/logs?follow=true&tail=10000";

#[tokio::test]
async fn clients_that_do_not_read_give_way_and_others_get_every_byte() {
    let (server, lines) = with_long_log().await;
    let paths = [FOLLOW, "/v1/sandboxes/claude-issue-1/logs?tail=10000"];
    let held: Vec<_> =
        (0..STALLED).map(|n| stalled(&server, paths[usize::from(n % 16 == 0)])).collect();
    // They have what there is, and those that came first have nothing any more.
    let begun = Instant::now();
    while metric(&server, UNREAD).await < 80.0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "they have to give way");
    }
    let used = metric(&server, "issuebox_http_answer_bytes").await;
    assert!((200_000.0..=ANSWERS_MAX as f64).contains(&used), "{used}");

    let reading = async {
        let answer = server.request(Method::GET, FOLLOW).send().await.expect("answers");
        let (mut bytes, mut text) = (answer.bytes_stream(), String::new());
        while text.matches("event: log").count() < lines {
            let more = tokio::time::timeout(Duration::from_secs(20), bytes.next()).await;
            text.push_str(&String::from_utf8_lossy(
                &more.expect("in time").expect("goes on").expect("bytes"),
            ));
        }
        text
    };
    let delivering = async {
        for id in 1..=20 {
            let answer =
                server.deliver("issues", &format!("d-{id}"), &opened(id, "an issue")).await;
            assert_eq!(answer.status, 202, "{answer:?}");
            let used = metric(&server, "issuebox_http_answer_bytes").await;
            assert!(used <= ANSWERS_MAX as f64, "{used}");
        }
    };
    let (text, ()) = tokio::join!(reading, delivering);
    let numbers = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "none is missing");
    // The entries of the commands have the beginning of the lines, too.
    let line = "x".repeat(100);
    let is_whole = |entry: &&str| entry.contains(r#""stream":"stdout""#) && entry.contains(&line);
    let whole = text.lines().filter(is_whole).count();
    assert_eq!((numbers.len(), whole), (lines, COMMANDS * 1_000));

    // What gave way has ended, with a part of its answer.
    let ended = held.into_iter().filter(|stream| {
        let mut stream = stream;
        let mut rest = Vec::new();
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a valid time-out");
        match stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    });
    assert!(ended.count() >= 80);
    let end = Instant::now();
    while metric(&server, "issuebox_http_answer_bytes").await > 0.0 {
        assert!(end.elapsed() < Duration::from_secs(10), "what ended holds no memory");
    }
}
