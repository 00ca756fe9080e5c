//! What is said to agents, what their sandboxes show of it, and what it cost.

use std::time::Duration;

use futures_util::StreamExt;
use issuebox::engine::Quotas;
use reqwest::Method;
use serde_json::{Value, json};

use crate::common::server::{Answer, TestServer, send};
use crate::process::until;

async fn say(server: &TestServer, issue: &str, mut body: Value) -> Answer {
    body["agentId"] = "cat".into();
    let path = format!("/v1/issues/{issue}/messages");
    send(server.request(Method::PUT, &path).json(&body)).await
}

#[tokio::test]
async fn a_message_by_repository_and_number_makes_a_sandbox_of_that_repository() {
    let server = TestServer::limited(Quotas { repository: 1, ..Quotas::default() }).await;
    let place =
        |number: u64| json!({"text": "x", "repository": "octo/hello", "issueNumber": number});
    let hold = server.request(Method::PUT, "/v1/holds/repositories/octo/hello").body("");
    assert_eq!(send(hold).await.status, 200);
    let held = say(&server, "1", place(1)).await;
    assert_eq!((held.status, held.json()["data"]["run"]["state"].as_str()), (202, Some("queued")));
    assert_eq!(server.get("/v1/issues/1/sandbox").await.json()["data"], Value::Null, "it is held");
    let runs = server.get("/v1/runs?issueId=1&state=queued,running").await.json();
    assert_eq!(runs["total"], 1, "{runs}");
    let issue = json!({"issueId": "1", "repository": "octo/hello", "issueNumber": 1,
        "issueTitle": null});
    assert_eq!(runs["data"][0]["issue"], issue);
    assert_eq!(server.get("/v1/runs?issueId=nope").await.json()["total"], 0);
    let release = server.request(Method::DELETE, "/v1/holds/repositories/octo/hello");
    assert_eq!(send(release).await.status, 200);
    until("it has a sandbox of that repository", || async {
        let found = server.get("/v1/issues/1/sandbox").await.json();
        found["data"]["repository"] == "octo/hello" && found["data"]["phase"] == "running"
    })
    .await;

    // The repository's quota is used up: the next one waits.
    assert_eq!(say(&server, "2", place(2)).await.status, 202);
    assert_eq!(server.get("/v1/issues/2/sandbox").await.json()["data"], Value::Null);
    // The number is the first issue's.
    let other = say(&server, "2", place(1)).await;
    assert_eq!((other.status, other.code().as_str()), (409, "issue_id_conflict"));
    let moved = json!({"text": "x", "repository": "octo/other", "issueNumber": 1});
    assert_eq!(say(&server, "1", moved).await.code(), "issue_id_conflict");
    let half = say(&server, "1", json!({"text": "x", "repository": "octo/hello"})).await;
    assert_eq!((half.status, &half.json()["error"]["field"]), (400, &json!("issueNumber")));
}

#[tokio::test]
async fn a_sandbox_shows_what_its_agent_does() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let agent = async || {
        let paths = ["/v1/sandboxes/claude-issue-1", "/v1/issues/1/sandbox"];
        let mut seen = server.get("/v1/sandboxes").await.json()["data"][0]["agent"].clone();
        for path in paths {
            let other = server.get(path).await.json()["data"]["agent"].take();
            assert_eq!(seen, other, "{path}");
            seen = other;
        }
        seen
    };
    let idle = agent().await;
    assert_eq!(
        (&idle["state"], &idle["run"], &idle["cost"], &idle["reason"]),
        (&json!("idle"), &Value::Null, &Value::Null, &json!(""))
    );
    let said = say(&server, "1", json!({"text": "x"})).await.json();
    let run = said["data"]["run"]["id"].clone();
    let queued = agent().await;
    assert_eq!(
        (&queued["state"], &queued["run"], &queued["cost"]),
        (&json!("queued"), &run, &json!(0.0))
    );
    let cancel = format!("/v1/runs/{}/cancel", run.as_str().expect("an id"));
    assert_eq!(server.post(&cancel, Value::Null).await.status, 202);
    let idle = agent().await;
    assert_eq!((&idle["state"], &idle["run"]), (&json!("idle"), &run));
    let reason = "the last run is cancelled: admin ended it";
    assert_eq!(idle["reason"], reason);
    assert_eq!(server.get(&format!("/v1/sandboxes/{id}")).await.json()["data"]["agent"], idle);
}

/// What a stream of events sends until it has this.
async fn until_sent(server: &TestServer, query: &str, from: &str, what: &str) -> String {
    let path = format!("/v1/issues/1/conversation/events{query}");
    let request = server.request(Method::GET, &path).header("last-event-id", from);
    let mut pieces = request.send().await.expect("an answer").bytes_stream();
    let mut seen = String::new();
    while !seen.contains(what) {
        let piece = tokio::time::timeout(Duration::from_secs(10), pieces.next()).await;
        let piece = piece.unwrap_or_else(|_| panic!("{what} is not sent: {seen}"));
        seen.push_str(&String::from_utf8_lossy(&piece.expect("it goes on").expect("it is sound")));
    }
    seen
}

#[tokio::test]
async fn a_follower_can_begin_with_the_last_events() {
    let server = TestServer::start().await;
    server.running("1").await;
    for word in ["apple", "pear", "plum"] {
        assert_eq!(say(&server, "1", json!({"text": word})).await.status, 202);
    }
    // The run's state is the last event.
    let run = "\"type\":\"run\"";
    let all = until_sent(&server, "", "", run).await;
    assert!(["apple", "pear", "plum"].iter().all(|word| all.contains(word)), "{all}");
    let ids: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids.len(), 4, "{all}");
    let last = until_sent(&server, "?tail=1", "", run).await;
    assert!(!last.contains("plum"), "{last}");
    let begins = format!("id: {}\n\n", ids[2]);
    assert!(last.starts_with(&begins), "{last} begins with the place {begins}");
    let two = until_sent(&server, "?tail=2", "", run).await;
    assert!(two.contains("plum") && !two.contains("pear"), "{two}");
    assert_eq!(until_sent(&server, "?tail=10000", "", run).await.matches("apple").count(), 1);
    // Who knows a place goes on there.
    let resumed = until_sent(&server, "?tail=1", ids[0], run).await;
    assert!(resumed.contains("pear") && !resumed.contains("apple"), "{resumed}");
    // Of those that were none comes, but the place behind them does.
    let none = until_sent(&server, "?tail=0", "", "welcome").await;
    assert!(none.starts_with(&format!("id: {}\n\n", ids[3])), "{none}");
    let wrong = server.get("/v1/issues/1/conversation/events?tail=10001").await;
    assert_eq!((wrong.status, &wrong.json()["error"]["field"]), (400, &json!("tail")));
}

#[tokio::test]
async fn usage_is_summed_up_by_what_is_asked() {
    let server = TestServer::start().await;
    server.running("1").await;
    for by in ["issue", "repository", "account", "model", "day"] {
        let report = server.get(&format!("/v1/usage?by={by}")).await.json()["data"].clone();
        assert_eq!((&report["by"], &report["sums"]), (&json!(by), &json!([])));
        assert_eq!(report["total"]["requests"], 0);
    }
    server.spend("1", "claude-x", 0.25).await;
    server.spend("1", "claude-y", 0.5).await;
    let report =
        async |query: &str| server.get(&format!("/v1/usage{query}")).await.json()["data"].clone();
    let by_issue = report("").await;
    assert_eq!(by_issue["sums"][0]["name"], "1", "{by_issue}");
    assert_eq!(by_issue["sums"][0]["issue"]["issueId"], "1");
    assert_eq!(by_issue["sums"][0]["usage"]["costUsd"], 0.75);
    let by_model = report("?by=model").await;
    let names = by_model["sums"].as_array().expect("sums").iter().map(|sum| &sum["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["claude-y", "claude-x"], "the dearest first");
    let first = report("?by=model&limit=1").await;
    assert_eq!(first["sums"].as_array().map(Vec::len), Some(1));
    assert_eq!(first["total"]["costUsd"], 0.75);
    let later = report("?by=day&since=2999-01-01").await;
    assert_eq!((&later["sums"], &later["total"]["requests"]), (&json!([]), &json!(0)));
    let repositories = report("?by=repository").await;
    assert_eq!(repositories["sums"][0]["name"], Value::Null);
    for (query, field) in [("by=run", "by"), ("since=yesterday", "since"), ("limit=0", "limit")] {
        let wrong = server.get(&format!("/v1/usage?{query}")).await;
        assert_eq!((wrong.status, &wrong.json()["error"]["field"]), (400, &json!(field)));
    }
}
