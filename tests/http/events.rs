//! The stream of changes over HTTP.

use std::time::Duration;

use crate::common::server::TestServer;
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// Reads a stream until `enough` says so.
async fn read(request: RequestBuilder, enough: impl Fn(&str) -> bool) -> String {
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut pieces = answer.bytes_stream();
    let mut text = String::new();
    while !enough(&text) {
        let piece = tokio::time::timeout(Duration::from_secs(10), pieces.next()).await;
        match piece.unwrap_or_else(|_| panic!("nothing more came after {text}")) {
            Some(piece) => text.push_str(&String::from_utf8_lossy(&piece.expect("it is sound"))),
            None => return text + "(end)",
        }
    }
    text
}

fn data(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn a_list_and_the_stream_from_its_cursor_leave_no_gap() {
    let server = TestServer::start().await;
    let cursor = server.get("/v1/sandboxes").await.json()["eventCursor"].clone();
    let cursor = cursor.as_str().expect("a cursor").to_owned();
    server.running("1").await;
    let request = server.request(Method::GET, &format!("/v1/events?cursor={cursor}"));
    let text = read(request, |text| text.contains("\"to\":\"running\"")).await;
    let seen = data(&text);
    assert_eq!((&seen[0]["from"], &seen[0]["to"]), (&Value::Null, &json!("creating")));
    assert_eq!(seen[0]["sandbox"]["issueId"], "1");
    assert!(seen[0]["cause"].as_str().is_some_and(|cause| cause.starts_with("caller admin")));
    assert!(seen[0]["reason"].is_string());
    let timeline = server.get("/v1/issues/1/events").await.json()["data"].clone();
    let oldest = timeline.as_array().and_then(|all| all.last()).expect("an entry");
    for (field, value) in oldest.as_object().expect("an entry") {
        assert_eq!(seen[0][field], *value, "{field} is as in the timeline");
    }
    let first_id = text.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id");
    let resumed = server.request(Method::GET, "/v1/events").header("last-event-id", first_id);
    let rest = read(resumed, |text| text.contains("\"to\":\"running\"")).await;
    assert_eq!(data(&rest).len() + 1, seen.len(), "{rest}");
}

#[tokio::test]
async fn a_cursor_that_cannot_be_resumed_is_a_gap() {
    let server = TestServer::start().await;
    for cursor in ["otherrun-3", "nonsense", "testrun-99"] {
        let request = server.request(Method::GET, &format!("/v1/events?cursor={cursor}"));
        let text = read(request, |text| text.contains("event:")).await;
        assert!(text.contains("event: gap\nid: testrun-0\n"), "{cursor}: {text}");
    }
}

#[tokio::test]
async fn streams_end_when_the_server_is_to_end() {
    let server = TestServer::start().await;
    let closing = server.closing.clone();
    let request = server.request(Method::GET, "/v1/events");
    let reading = read(request, |text| text.contains("never"));
    let (text, ()) = tokio::join!(reading, async {
        // Once the stream is there: its subscription is counted.
        while server.feed.events.subscriber_count() == 0 {
            tokio::task::yield_now().await;
        }
        closing.send_replace(true);
    });
    assert!(text.ends_with("(end)"), "{text}");
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, ready.code().as_str()), (503, "shutting_down"));
}

#[tokio::test]
async fn a_subscriber_that_goes_away_is_forgotten() {
    let server = TestServer::start().await;
    let request = server.request(Method::GET, "/v1/events");
    read(request, |text| text.contains("welcome")).await;
    let gone = async {
        while server.feed.events.subscriber_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(5), gone).await.is_ok());
}
