//! Sandboxes and issues over HTTP.

use std::sync::atomic::Ordering;

use crate::common::server::{TestServer, send};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn three_ensures_of_one_issue_give_one_sandbox_and_another_issue_another() {
    let server = TestServer::start().await;
    let first = server.post("/v1/sandboxes?wait=10", json!({"issueId": "test-123"})).await;
    assert_eq!(first.status, 201, "{first:?}");
    let body = first.json();
    assert_eq!(body["outcome"], "created");
    assert_eq!(body["settled"], true);
    assert_eq!(body["mismatch"], json!([]));
    assert_eq!(body["data"]["name"], "claude-issue-test-123");
    assert_eq!(body["data"]["id"], body["sandboxId"]);
    let location = format!("/v1/sandboxes/{}", body["sandboxId"].as_str().expect("an id"));
    assert_eq!(first.header("location"), location);
    for _ in 0..2 {
        let again = server.post("/v1/sandboxes", json!({"issueId": "test-123"})).await;
        assert_eq!(again.status, 200);
        assert_eq!(again.json()["outcome"], "existing");
        assert_eq!(again.json()["sandboxId"], body["sandboxId"]);
    }
    let other = send(server.request(Method::PUT, "/v1/issues/test-456/sandbox?wait=10")).await;
    assert_eq!(other.status, 201);
    assert_ne!(other.json()["sandboxId"], body["sandboxId"]);
    assert_eq!(server.provider.object_count(), 2);
}

#[tokio::test]
async fn a_fast_ensure_is_answered_once_it_is_recorded_and_runs() {
    let server = TestServer::start().await;
    let made = server.post("/v1/sandboxes", json!({"issueId": "1", "mode": "fast"})).await;
    let data = &made.json()["data"];
    assert_eq!(
        (made.status, &data["phase"], &data["mode"]),
        (201, &json!("running"), &json!("fast"))
    );
    let id = data["id"].as_str().expect("an id");
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    let found = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(found["data"]["phase"], "running");
    let metrics = send(server.client.get(server.url("/metrics"))).await.text;
    let line =
        r#"issuebox_sandbox_create_seconds_count{mode="fast",success="true",provider="memory"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_create_that_fails_is_counted_and_a_strong_id_has_another_form() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    assert!(uuid::Uuid::parse_str(&id).is_ok() && id.len() == 36, "{id}");
    server.provider.refusing.store(true, Ordering::SeqCst);
    let failed = server.post("/v1/sandboxes?wait=10", json!({"issueId": "2"})).await.json();
    assert_eq!(failed["data"]["phase"], "failed", "{failed}");
    let metrics = send(server.client.get(server.url("/metrics"))).await.text;
    for success in ["true", "false"] {
        let labels = format!(r#"mode="strong",success="{success}",provider="memory""#);
        let line = format!("issuebox_sandbox_create_seconds_count{{{labels}}} 1");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn look_ups_find_a_sandbox_by_each_of_its_names() {
    let server = TestServer::start().await;
    let ask = json!({"issueId": "5", "repository": "octo/hello", "issueNumber": 7});
    let made = server.post("/v1/sandboxes?wait=10", ask).await;
    let id = made.json()["sandboxId"].as_str().expect("an id").to_owned();
    for path in [
        "/v1/issues/5/sandbox".to_owned(),
        "/v1/repos/Octo/HELLO/issues/7/sandbox".to_owned(),
        format!("/v1/sandboxes/{id}"),
        "/v1/sandboxes/claude-issue-5".to_owned(),
    ] {
        let found = server.get(&path).await;
        assert_eq!((found.status, &found.json()["sandboxId"]), (200, &json!(id)), "{path}");
        assert_eq!(found.json()["data"]["phase"], "running");
    }
    let none = server.get("/v1/issues/non-existent-999/sandbox").await;
    assert_eq!((none.status, none.json()), (200, json!({"success": true, "data": null})));
    let none = server.get("/v1/repos/octo/hello/issues/8/sandbox").await;
    assert_eq!(none.json()["data"], Value::Null);
    assert_eq!(server.get("/v1/sandboxes/nope").await.code(), "sandbox_not_found");
    assert_eq!(server.get("/v1/sandboxes/claude-issue-nope").await.status, 404);
}

#[tokio::test]
async fn a_create_that_takes_its_time_is_waited_for_or_not() {
    let server = TestServer::start().await;
    server.provider.held.store(true, Ordering::SeqCst);
    let made = server.post("/v1/sandboxes", json!({"issueId": "1"})).await;
    assert_eq!((made.status, &made.json()["settled"]), (201, &json!(false)));
    assert_eq!(made.json()["data"]["phase"], "creating");
    let again = server.post("/v1/sandboxes?wait=1", json!({"issueId": "1"})).await;
    assert_eq!(
        (&again.json()["outcome"], &again.json()["settled"]),
        (&json!("existing"), &json!(false))
    );
    let waiting = server.get("/v1/sandboxes/claude-issue-1?wait=10&until=running");
    let (waited, ()) = tokio::join!(waiting, async { server.provider.open() });
    assert_eq!(
        (&waited.json()["settled"], &waited.json()["data"]["phase"]),
        (&json!(true), &json!("running"))
    );
}

#[tokio::test]
async fn commands_lead_through_a_life_and_refuse_what_the_phase_forbids() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let path = |verb: &str| format!("/v1/sandboxes/{id}/{verb}?wait=10");
    let stopped = server.post(&path("stop"), Value::Null).await;
    assert_eq!((stopped.status, &stopped.json()["data"]["phase"]), (202, &json!("stopped")));
    assert_eq!(server.post(&path("retry"), Value::Null).await.code(), "not_failed");
    let refused =
        server.post(&format!("/v1/sandboxes/{id}/exec"), json!({"command": ["echo"]})).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "stopped"));
    let started = server.post(&path("start"), Value::Null).await;
    assert_eq!((started.status, &started.json()["data"]["phase"]), (202, &json!("running")));
    let deleted =
        send(server.request(Method::DELETE, &format!("/v1/sandboxes/{id}?wait=10"))).await;
    assert_eq!(
        (deleted.status, &deleted.json()["data"]["phase"]),
        (200, &Value::Null),
        "{deleted:?}"
    );
    assert!(deleted.json()["data"]["deletedAt"].is_string());
    let again = send(server.request(Method::DELETE, &format!("/v1/sandboxes/{id}"))).await;
    assert_eq!(again.status, 200, "already absent");
    assert_eq!(server.post(&path("stop"), Value::Null).await.code(), "sandbox_deleted");
    assert_eq!(
        server.get(&format!("/v1/sandboxes/{id}")).await.json()["data"]["phase"],
        Value::Null
    );
    assert_eq!(server.get("/v1/issues/1/sandbox").await.json()["data"], Value::Null);
    assert_eq!(server.provider.object_count(), 0);
}

#[tokio::test]
async fn a_wait_for_a_delete_returns_that_sandbox_and_not_its_successor() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let path = format!("/v1/sandboxes/{id}");
    server.provider.keeping.store(true, Ordering::SeqCst);
    let delete = send(server.request(Method::DELETE, &format!("{path}?wait=15")));
    let watch = async {
        let deleting = server.get(&format!("{path}?until=deleting&wait=5")).await.json();
        assert_eq!(deleting["data"]["phase"], "deleting", "{deleting}");
        let queued = server.post("/v1/sandboxes", json!({"issueId": "1"})).await.json();
        assert_eq!((&queued["outcome"], &queued["sandboxId"]), (&json!("queued"), &json!(id)));
        server.provider.keeping.store(false, Ordering::SeqCst);
        server.get(&format!("{path}?until=deleted&wait=15")).await
    };
    let (deleted, watched) = tokio::join!(delete, watch);
    for answer in [deleted, watched] {
        let body = answer.json();
        assert_eq!((answer.status, &body["settled"]), (200, &json!(true)), "{body}");
        assert_eq!((&body["data"]["id"], &body["data"]["phase"]), (&json!(id), &Value::Null));
    }
    let next = server.get("/v1/sandboxes/claude-issue-1?until=running&wait=10").await.json();
    assert_eq!(
        (&next["data"]["generation"], &next["data"]["phase"]),
        (&json!(2), &json!("running"))
    );
    assert_eq!(server.provider.object_count(), 1);
}

#[tokio::test]
async fn a_failed_create_is_shown_with_its_failure_and_retried_on_command() {
    let server = TestServer::start().await;
    server.provider.refusing.store(true, Ordering::SeqCst);
    let failed = server.post("/v1/sandboxes?wait=10", json!({"issueId": "1"})).await.json();
    assert_eq!(failed["data"]["phase"], "failed", "{failed}");
    assert_eq!(failed["data"]["failure"]["code"], "provider_refused");
    let again = server.post("/v1/sandboxes", json!({"issueId": "1"})).await;
    assert_eq!((again.status, &again.json()["outcome"]), (200, &json!("failed")));
    // A start, and an ensure with retry, try the same one again.
    let start = server.post("/v1/sandboxes/claude-issue-1/start?wait=5", Value::Null).await;
    assert_eq!((start.status, &start.json()["data"]["id"]), (202, &failed["data"]["id"]));
    let body = json!({"issueId": "1", "retry": true});
    let ensured = server.post("/v1/sandboxes?wait=5", body).await;
    assert_eq!(ensured.json()["outcome"], "resumed", "{ensured:?}");
    assert_eq!(ensured.json()["data"]["id"], failed["data"]["id"]);
    server.provider.refusing.store(false, Ordering::SeqCst);
    let retried = server.post("/v1/sandboxes/claude-issue-1/retry?wait=10", Value::Null).await;
    assert_eq!((retried.status, &retried.json()["data"]["phase"]), (202, &json!("running")));
}

#[tokio::test]
async fn lists_are_filtered_paged_and_counted() {
    let server = TestServer::start().await;
    for issue in ["a-1", "a-2", "b-3"] {
        server.running(issue).await;
    }
    let first = server.get("/v1/sandboxes?limit=2").await.json();
    assert_eq!((first["data"].as_array().map(Vec::len), &first["total"]), (Some(2), &json!(3)));
    assert_eq!(first["data"][0]["issueId"], "b-3", "newest first");
    let cursor = first["nextCursor"].as_str().expect("there is more");
    let second = server.get(&format!("/v1/sandboxes?limit=2&cursor={cursor}")).await.json();
    assert_eq!(second["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(second["nextCursor"], Value::Null);
    for (query, total) in [
        ("q=ISSUE-a", 2),
        ("issueId=b-3", 1),
        ("issueId=unknown", 0),
        ("phase=stopped", 0),
        ("phase=running&provider=memory", 3),
        ("provider=other", 0),
        ("repository=octo/hello", 0),
        ("externalId=m-0", 1),
        ("deleted=true", 3),
    ] {
        let found = server.get(&format!("/v1/sandboxes?{query}")).await.json();
        assert_eq!(found["total"], total, "{query}: {found}");
        assert!(found["eventCursor"].is_string());
    }
}

#[tokio::test]
async fn the_timeline_says_what_happened_and_who_did_it() {
    let server = TestServer::start().await;
    server.running("1").await;
    let timeline = server.get("/v1/issues/1/events?limit=1").await.json();
    assert_eq!(timeline["data"][0]["to"], "running");
    let cursor = timeline["nextCursor"].as_str().expect("there is more").to_owned();
    let rest = server.get(&format!("/v1/issues/1/events?cursor={cursor}")).await.json();
    let first = rest["data"].as_array().and_then(|rows| rows.last()).expect("a first row").clone();
    assert!(
        first["cause"].as_str().is_some_and(|cause| cause.starts_with("caller admin (")),
        "{first}"
    );
    assert_eq!(server.get("/v1/issues/unknown/events").await.json()["total"], 0);
}

#[tokio::test]
async fn wrong_input_is_named() {
    let server = TestServer::start().await;
    for (path, field) in [
        ("/v1/sandboxes?limit=0", "limit"),
        ("/v1/sandboxes?limit=201", "limit"),
        ("/v1/sandboxes?cursor=nonsense", "cursor"),
        ("/v1/sandboxes?phase=happy", "phase"),
        ("/v1/sandboxes?deleted=maybe", "deleted"),
        ("/v1/sandboxes?nope=1", "nope"),
        ("/v1/sandboxes/x?wait=301", "wait"),
        ("/v1/sandboxes/x?until=happy", "until"),
        ("/v1/issues/a--b/sandbox", "issueId"),
        ("/v1/repos/o/r/issues/0/sandbox", "number"),
        ("/v1/repos/o/r/issues/x/sandbox", "number"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{path}");
        assert_eq!(answer.json()["error"]["field"], field, "{path}");
    }
    for (body, status, code, field) in [
        (json!({}), 400, "invalid_request", "issueId"),
        (json!({"issueId": 5}), 400, "invalid_request", "issueId"),
        (json!({"issueId": "1", "nope": 1}), 400, "invalid_request", "nope"),
        (json!({"issueId": "1", "mode": "quick"}), 400, "invalid_request", "mode"),
        (json!({"issueId": "1", "template": "none"}), 422, "template_unknown", "template"),
        (json!({"repository": "o/r", "issueNumber": 1}), 422, "issue_unknown", "issueNumber"),
    ] {
        let answer = server.post("/v1/sandboxes", body.clone()).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{body}");
        assert_eq!(answer.json()["error"]["field"], field, "{body}");
    }
    assert_eq!(server.provider.object_count(), 0);
}

#[tokio::test]
async fn an_issue_id_and_a_number_of_different_issues_are_a_conflict() {
    let server = TestServer::start().await;
    let one = json!({"issueId": "1", "repository": "o/r", "issueNumber": 1});
    assert_eq!(server.post("/v1/sandboxes?wait=10", one).await.status, 201);
    server.running("2").await;
    let both = json!({"issueId": "2", "repository": "o/r", "issueNumber": 1});
    let answer = server.post("/v1/sandboxes", both).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "issue_id_conflict"));
}
