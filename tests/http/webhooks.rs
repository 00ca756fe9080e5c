//! Deliveries from GitHub over HTTP.

use std::collections::BTreeSet;

use crate::common::server::{Answer, SECRET, TestServer, opened, send};
use crate::common::store::Mood;
use crate::github_examples;
use futures_util::future::join_all;
use issuebox::github::webhook::sign;
use issuebox::types::Secret;
use serde_json::json;

fn request(server: &TestServer, body: &str) -> reqwest::RequestBuilder {
    server
        .client
        .post(server.url("/webhooks/github"))
        .header("content-type", "application/json")
        .header("x-github-event", "issues")
        .header("x-github-delivery", "d-1")
        .header("x-hub-signature-256", sign(&Secret::new(SECRET), body.as_bytes()))
        .body(body.to_owned())
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.code())
}

#[tokio::test]
async fn a_delivery_that_is_turned_away_is_looked_for_and_one_that_is_taken_in_is_not() {
    let (given, intake) = std::sync::mpsc::channel();
    let server = TestServer::with(move |edge| {
        given.send(edge.intake.clone()).expect("the test waits");
    })
    .await;
    let intake = intake.recv().expect("it is given");
    assert_eq!(server.deliver("issues", "d-1", &opened(1, "A title")).await.status, 202);
    let forged = server
        .client
        .post(server.url("/webhooks/github"))
        .header("content-type", "application/json")
        .header("x-hub-signature-256", "none")
        .body(opened(2, "A title"));
    assert_eq!(send(forged).await.status, 401);
    assert!(futures_util::FutureExt::now_or_never(intake.missed()).is_none());
    server.store.set(Mood::Overloaded);
    assert_eq!(server.deliver("issues", "d-3", &opened(3, "A title")).await.status, 503);
    assert!(futures_util::FutureExt::now_or_never(intake.missed()).is_some());
}

#[tokio::test]
async fn a_signed_delivery_is_accepted_once_and_makes_one_sandbox() {
    let server = TestServer::start().await;
    let body = opened(5_000_000_000, "A title");
    let first = server.deliver("issues", "d-1", &body).await;
    assert_eq!(first.status, 202, "{first:?}");
    let answer = first.json();
    assert_eq!((&answer["success"], &answer["status"]), (&json!(true), &json!("accepted")));
    assert_eq!((&answer["delivery"], &answer["issueId"]), (&json!("d-1"), &json!("5000000000")));
    let again = server.deliver("issues", "d-1", &body).await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("duplicate")));
    let found = server.get("/v1/issues/5000000000/sandbox").await.json();
    assert_eq!(found["data"]["issueTitle"], "A title");
    assert_eq!(server.get("/v1/sandboxes").await.json()["total"], 1);
}

#[tokio::test]
async fn a_hundred_deliveries_and_fifty_calls_at_once_give_one_sandbox() {
    let server = TestServer::start().await;
    server.provider.held.store(true, std::sync::atomic::Ordering::SeqCst);
    let body = opened(7, "A title");
    let deliveries = (0..100).map(|n| {
        let (server, body) = (&server, &body);
        async move { server.deliver("issues", &format!("d-{n}"), body).await }
    });
    let calls = (0..50).map(|_| server.post("/v1/sandboxes", json!({"issueId": "7"})));
    let (deliveries, calls) = tokio::join!(join_all(deliveries), join_all(calls));
    assert!(deliveries.iter().all(|answer| answer.status == 202));
    let ids: BTreeSet<_> =
        calls.iter().map(|answer| answer.json()["sandboxId"].to_string()).collect();
    assert!(calls.iter().all(|answer| answer.status < 300) && ids.len() == 1, "{ids:?}");
    server.provider.open();
    server.get("/v1/sandboxes/claude-issue-7?until=running&wait=10").await;
    assert_eq!(server.provider.object_count(), 1);
}

#[tokio::test]
async fn a_delivery_without_an_effect_is_acknowledged_with_a_reason() {
    let server = TestServer::start().await;
    let ping = server.deliver("ping", "d-ping", r#"{"zen":"Keep it logically awesome."}"#).await;
    assert_eq!((ping.status, &ping.json()["status"]), (200, &json!("ignored")));
    assert!(ping.json()["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    let again = server.deliver("ping", "d-ping", r#"{"zen":"Keep it logically awesome."}"#).await;
    assert_eq!(again.json()["status"], "duplicate");
}

/// The repository that `opened` speaks of, in a delivery about it.
fn of_repository(action: &str) -> String {
    json!({"action": action, "repository": {"id": 9, "full_name": "octo/hello"}}).to_string()
}

#[tokio::test]
async fn an_archived_repository_stops_its_sandboxes_and_counts_once() {
    let server = TestServer::start().await;
    server.deliver("issues", "d-1", &opened(7, "A title")).await;
    server.get("/v1/sandboxes/claude-issue-7?until=running&wait=10").await;
    let archived = server.deliver("repository", "d-2", &of_repository("archived")).await;
    assert_eq!((archived.status, &archived.json()["status"]), (202, &json!("accepted")));
    let stopped = server.get("/v1/sandboxes/claude-issue-7?until=stopped&wait=10").await.json();
    assert_eq!(stopped["data"]["phase"], "stopped");
    let elsewhere = of_repository("archived").replace("octo/hello", "other/hello");
    let ignored = server.deliver("repository", "d-3", &elsewhere.replace('9', "10")).await;
    assert_eq!(ignored.status, 202, "any repository matches, and none of its issues is known");
    let noted = server.deliver("repository", "d-4", &of_repository("unarchived")).await;
    assert_eq!((noted.status, &noted.json()["status"]), (202, &json!("accepted")));
    let again = server.deliver("repository", "d-4", &of_repository("unarchived")).await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("duplicate")));
}

#[tokio::test]
async fn a_transferred_issue_is_found_by_its_old_and_its_new_names() {
    let server = TestServer::start().await;
    server.deliver("issues", "d-1", &opened(7, "A title")).await;
    let running = server.get("/v1/sandboxes/claude-issue-7?until=running&wait=10").await.json();
    let transferred = json!({
        "action": "transferred",
        "issue": {"id": 7, "number": 1, "state": "open"},
        "repository": {"id": 9, "full_name": "octo/hello"},
        "changes": {
            "new_issue": {"id": 70, "number": 5, "state": "open", "title": "A title",
                "updated_at": "2026-01-31T12:01:00Z"},
            "new_repository": {"id": 10, "full_name": "octo/there"},
        },
    });
    let taken = server.deliver("issues", "d-2", &transferred.to_string()).await;
    assert_eq!((taken.status, &taken.json()["issueId"]), (202, &json!("70")), "{taken:?}");
    for path in [
        "/v1/issues/7/sandbox",
        "/v1/issues/70/sandbox",
        "/v1/repos/octo/hello/issues/1/sandbox",
        "/v1/repos/octo/there/issues/5/sandbox",
        "/v1/sandboxes/claude-issue-70",
    ] {
        let found = server.get(path).await.json();
        assert_eq!(found["data"]["id"], running["data"]["id"], "{path}");
        assert_eq!(found["data"]["repository"], "octo/there", "{path}");
    }
}

#[tokio::test]
async fn a_bad_signature_is_refused_before_anything_is_parsed() {
    let server = TestServer::start().await;
    let body = opened(1, "x");
    let plain = || {
        server
            .client
            .post(server.url("/webhooks/github"))
            .header("content-type", "application/json")
    };
    let unsigned = send(plain().body(body.clone())).await;
    assert_eq!(code(&unsigned), (401, "bad_signature".into()));
    let wrong = sign(&Secret::new("other"), body.as_bytes());
    let forged = send(plain().header("x-hub-signature-256", wrong).body("not even JSON")).await;
    assert_eq!(code(&forged), (401, "bad_signature".into()));
    assert_eq!(server.get("/v1/sandboxes").await.json()["total"], 0);
}

#[tokio::test]
async fn malformed_deliveries_are_400_with_the_reason() {
    let server = TestServer::start().await;
    for body in ["", "{", "[]", "5", &"[".repeat(100_000)] {
        assert_eq!(code(&send(request(&server, body)).await), (400, "invalid_request".into()));
    }
    let body = opened(1, "x");
    let signature = sign(&Secret::new(SECRET), body.as_bytes());
    let bare = || {
        server
            .client
            .post(server.url("/webhooks/github"))
            .header("content-type", "application/json")
            .header("x-hub-signature-256", signature.clone())
            .body(body.clone())
    };
    let no_event = send(bare().header("x-github-delivery", "d")).await;
    assert_eq!(
        (no_event.status, &no_event.json()["error"]["field"]),
        (400, &json!("X-GitHub-Event"))
    );
    for delivery in [None, Some("a b"), Some("")] {
        let mut request = bare().header("x-github-event", "issues");
        if let Some(delivery) = delivery {
            request = request.header("x-github-delivery", delivery);
        }
        let answer = send(request).await;
        let field = &answer.json()["error"]["field"];
        assert_eq!((answer.status, field), (400, &json!("X-GitHub-Delivery")), "{delivery:?}");
    }
}

#[tokio::test]
async fn forms_are_taken_and_other_content_types_refused() {
    let server = TestServer::start().await;
    let encoded: String =
        opened(3, "form & title")
            .bytes()
            .map(|b| {
                if b.is_ascii_alphanumeric() {
                    (b as char).to_string()
                } else {
                    format!("%{b:02X}")
                }
            })
            .collect();
    let form = format!("payload={encoded}");
    let send_as = |kind: &'static str, body: String| {
        let signature = sign(&Secret::new(SECRET), body.as_bytes());
        let request = server
            .client
            .post(server.url("/webhooks/github"))
            .header("content-type", kind)
            .header("x-github-event", "issues")
            .header("x-github-delivery", "d-form")
            .header("x-hub-signature-256", signature)
            .body(body);
        send(request)
    };
    let empty = send_as("application/x-www-form-urlencoded", "other=1".into()).await;
    assert_eq!(code(&empty), (400, "invalid_request".into()));
    let plain = send_as("text/plain", opened(3, "x")).await;
    assert_eq!(code(&plain), (415, "unsupported_media_type".into()));
    let taken = send_as("application/x-www-form-urlencoded", form).await;
    assert_eq!((taken.status, &taken.json()["issueId"]), (202, &json!("3")), "{taken:?}");
}

#[tokio::test]
async fn large_payloads_up_to_githubs_bound_are_read() {
    let server = TestServer::start().await;
    for (size, status) in [(300 << 10, 202), (24 << 20, 202), (26 << 20, 413)] {
        let body = opened(size as u64, &"x".repeat(size));
        let answer = server.deliver("issues", &format!("d-{size}"), &body).await;
        assert_eq!(answer.status, status, "{size}: {:.200}", answer.text);
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn deliveries_are_counted_by_result() {
    let server = TestServer::start().await;
    let body = opened(1, "x");
    server.deliver("issues", "d-1", &body).await;
    server.deliver("issues", "d-1", &body).await;
    send(server.client.post(server.url("/webhooks/github")).body("x")).await;
    let text = send(server.client.get(server.url("/metrics"))).await.text;
    for result in ["accepted", "duplicate", "unsupported_media_type"] {
        let line = format!("issuebox_deliveries_total{{result=\"{result}\"}} 1");
        assert!(text.contains(&line), "{line} is missing in {text}");
    }
}

#[tokio::test]
#[ignore = "needs the npm package @octokit/webhooks-examples; .ci/run installs it"]
async fn every_delivery_that_github_published_is_answered_2xx() {
    let server = TestServer::start().await;
    let examples = github_examples::load().expect("the package");
    let mut refused = Vec::new();
    for (at, example) in examples.iter().enumerate() {
        let body = std::str::from_utf8(&example.body).expect("JSON is text");
        let answer = server.deliver(&example.event, &format!("example-{at}"), body).await;
        if !(200..300).contains(&answer.status) {
            refused.push(format!("{}: {} {}", example.name, answer.status, answer.text));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(examples.len() > 300, "only {} examples", examples.len());
}
