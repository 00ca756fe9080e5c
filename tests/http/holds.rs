//! Holds over HTTP: put on, listed, in force, released.

use crate::common::server::{Answer, TestServer, opened, send};
use reqwest::Method;
use serde_json::{Value, json};

async fn put(server: &TestServer, id: &str, body: &'static str) -> Answer {
    send(server.request(Method::PUT, &format!("/v1/holds/{id}")).body(body)).await
}

async fn release(server: &TestServer, id: &str) -> Value {
    let answer = send(server.request(Method::DELETE, &format!("/v1/holds/{id}"))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["data"].clone()
}

async fn ids(server: &TestServer) -> Vec<String> {
    let list = server.get("/v1/holds").await.json();
    let data = list["data"].as_array().expect("a list");
    assert_eq!(list["total"], data.len());
    data.iter().map(|hold| hold["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn holds_are_put_on_listed_and_released() {
    let server = TestServer::start().await;
    let answer = put(&server, "repositories/Octo/Hello", r#"{"reason":"a broken build"}"#).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut hold = answer.json()["data"].clone();
    let since = hold.as_object_mut().and_then(|hold| hold.remove("since"));
    assert!(since.is_some_and(|since| since.is_string()));
    let expected = json!({"id": "repositories/Octo/Hello", "scope": "repository",
        "name": "Octo/Hello", "label": "the repository Octo/Hello", "reason": "a broken build",
        "by": "admin"});
    assert_eq!(hold, expected);

    for id in ["issues/test-1", "server", "accounts/default"] {
        assert_eq!(put(&server, id, "").await.status, 200, "{id}");
    }
    let all = ["server", "accounts/default", "repositories/Octo/Hello", "issues/test-1"];
    assert_eq!(ids(&server).await, all, "the widest first");
    let first = server.get("/v1/holds?limit=3").await.json();
    assert_eq!(
        (&first["data"][0]["name"], &first["data"][0]["reason"]),
        (&Value::Null, &json!(""))
    );
    let next = first["nextCursor"].as_str().expect("a second page");
    let second = server.get(&format!("/v1/holds?limit=3&cursor={next}")).await.json();
    assert_eq!(second["data"][0]["id"], "issues/test-1");
    assert_eq!((&second["nextCursor"], &second["total"]), (&Value::Null, &json!(4)));

    put(&server, "repositories/octo/hello", r#"{"reason":"still broken"}"#).await;
    assert_eq!(ids(&server).await.len(), 4, "whatever the case");
    let released = json!({"id": "repositories/OCTO/hello", "label": "the repository OCTO/hello",
        "released": true});
    assert_eq!(release(&server, "repositories/OCTO/hello").await, released);
    assert_eq!(release(&server, "repositories/octo/hello").await["released"], false);

    let data = std::sync::Arc::clone(&server.data);
    drop(server);
    let server = TestServer::over(data, "memory", |_| {}).await;
    assert_eq!(ids(&server).await, ["server", "accounts/default", "issues/test-1"]);
}

#[tokio::test]
async fn held_issues_are_refused_with_the_reason_until_released() {
    let server = TestServer::start().await;
    for id in ["server", "accounts/default", "repositories/octo/hello", "issues/7"] {
        put(&server, id, r#"{"reason":"a broken build"}"#).await;
        let ask = json!({"issueId": "7", "repository": "octo/hello", "issueNumber": 7});
        let refused = server.post("/v1/sandboxes", ask.clone()).await;
        assert_eq!((refused.status, refused.code().as_str()), (423, "held"), "{id}");
        assert!(refused.text.contains("a broken build"), "{id}: {refused:?}");
        release(&server, id).await;
    }
    // What a webhook asked for meanwhile is made once nothing forbids it.
    put(&server, "repositories/octo/hello", "").await;
    assert_eq!(server.deliver("issues", "d-1", &opened(5, "A title")).await.status, 202);
    assert_eq!(server.get("/v1/issues/5/sandbox").await.json()["data"], Value::Null);
    // Its timeline says so, by whichever name it is asked for.
    let timeline = server.get("/v1/repos/Octo/Hello/issues/1/events").await.json();
    assert_eq!((&timeline["issueId"], &timeline["total"]), (&json!("5"), &json!(1)));
    let reason = timeline["data"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("the start waits: "), "{reason}");
    assert_eq!(timeline, server.get("/v1/issues/5/events").await.json());
    let unknown = server.get("/v1/repos/octo/hello/issues/99/events").await.json();
    assert_eq!((&unknown["issueId"], &unknown["data"]), (&Value::Null, &json!([])));
    release(&server, "repositories/octo/hello").await;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while server.get("/v1/issues/5/sandbox").await.json()["data"].is_null() {
        assert!(std::time::Instant::now() < end, "the wish was not granted");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_invalid_hold_names_what_is_wrong() {
    let server = TestServer::start().await;
    let long = json!({"reason": "x".repeat(1_025)}).to_string();
    for (id, body, field) in [
        ("issues/a--b", "", "issueId"),
        ("repositories/octo/a%20b", "", "repository"),
        ("accounts/a%20b", "", "account"),
        ("server", r#"{"reason":5}"#, "reason"),
        ("server", r#"{"why":"x"}"#, "why"),
        ("server", long.as_str(), "reason"),
    ] {
        let request = server.request(Method::PUT, &format!("/v1/holds/{id}"));
        let answer = send(request.body(body.to_owned())).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{id}");
        assert_eq!(answer.json()["error"]["field"], field, "{id}");
    }
    assert_eq!(ids(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_issue_that_is_held_is_named_by_its_repository_and_number() {
    let server = TestServer::start().await;
    server.deliver("issues", "d-1", &opened(5, "A title")).await;
    let known = put(&server, "issues/5", "").await.json();
    assert_eq!(known["data"]["label"], "the issue octo/hello#1");
    let unknown = put(&server, "issues/6", "").await.json();
    assert_eq!(unknown["data"]["label"], "the issue 6");
    let listed = server.get("/v1/holds").await.json();
    assert_eq!(listed["data"][0]["label"], "the issue octo/hello#1", "{listed}");
    let released = send(server.request(Method::DELETE, "/v1/holds/issues/5")).await.json();
    assert_eq!(released["data"]["label"], "the issue octo/hello#1");
}
