//! The list of deliveries over HTTP, with their results.

use crate::common::server::{Answer, TestServer, opened, send};
use issuebox::issue::{FanOut, Scope, ScopeEvent};
use issuebox::store::{PENDING_TRIES_MAX, Store};
use issuebox::types::{AccountName, DeliveryId, Timestamp};
use serde_json::{Value, json};

/// What a test puts into places that must not be kept.
const SECRET_PARTS: [&str; 2] = ["this-is-the-body", "5ec2e7f00d"];

/// A delivery with a wrong signature.
async fn forged(server: &TestServer, delivery: &str, event: &str) -> Answer {
    let request = server
        .client
        .post(server.url("/webhooks/github"))
        .header("content-type", "application/json")
        .header("x-github-event", event)
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", format!("sha256={}", SECRET_PARTS[1].repeat(7)))
        .body(SECRET_PARTS[0]);
    let answer = send(request).await;
    assert_eq!(answer.status, 401, "{answer:?}");
    answer
}

fn fan_out(delivery: &str) -> FanOut {
    FanOut {
        account: AccountName::default_account(),
        delivery: DeliveryId::trusted(delivery),
        received_at: Timestamp::from_unix_ms(1_900_000_000_000),
        recovered: false,
        event: "repository".into(),
        action: "archived".into(),
        scope: Scope::Repositories(vec![9]),
        news: ScopeEvent::Stop("the repository was archived".into()),
    }
}

/// One delivery of every status, oldest first: accepted, ignored, badly signed, refused, set
/// aside, pending.
async fn one_of_each(server: &TestServer) {
    assert_eq!(server.deliver("issues", "d-accepted", &opened(5, "A title")).await.status, 202);
    server.get("/v1/sandboxes/claude-issue-5?until=running&wait=10").await;
    assert_eq!(server.deliver("ping", "d-ignored", "{\"zen\":\"z\"}").await.status, 200);
    forged(server, "d-forged", "issues").await;
    assert_eq!(server.deliver("issues", "d-refused", "{").await.status, 400);
    for delivery in ["d-aside", "d-pending"] {
        server.store.put_pending(fan_out(delivery)).await.expect("is stored");
    }
    for _ in 0..PENDING_TRIES_MAX {
        let id = DeliveryId::trusted("d-aside");
        server.store.fail_pending(&id, "no such thing".into()).await.expect("is stored");
    }
}

async fn list(server: &TestServer, query: &str) -> Value {
    let answer = server.get(&format!("/v1/deliveries{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.json()
}

/// The GUIDs of a list, in its order.
fn guids(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().expect("a list");
    data.iter().map(|one| one["delivery"].as_str().unwrap_or("-")).collect()
}

/// What the delivery of [`opened`] brings for the agent.
fn opened_words() -> Value {
    json!({"source": "issue", "commentId": null, "author": "octocat", "sender": "octocat",
        "asOf": "2026-01-31T12:00:00.000Z", "title": "A title", "text": "", "isExcerpt": false})
}

#[tokio::test]
async fn each_delivery_is_listed_once_with_its_result() {
    let server = TestServer::start().await;
    one_of_each(&server).await;
    let again = server.deliver("issues", "d-accepted", &opened(5, "A title")).await;
    assert_eq!(again.json()["status"], "duplicate");

    let all = list(&server, "").await;
    assert_eq!(
        (&all["success"], &all["total"], &all["nextCursor"]),
        (&json!(true), &json!(6), &Value::Null)
    );
    assert_eq!(
        guids(&all),
        ["d-pending", "d-aside", "d-refused", "d-forged", "d-ignored", "d-accepted"]
    );
    let shown = |n: usize| {
        let mut one = all["data"][n].clone();
        let at = one.as_object_mut().and_then(|one| one.remove("receivedAt"));
        let at = at.as_ref().and_then(Value::as_str).and_then(Timestamp::parse);
        assert!(at.is_some(), "{one}");
        let reason = one.as_object_mut().and_then(|one| one.remove("reason"));
        assert!(
            reason.as_ref().and_then(Value::as_str).is_some_and(|why| !why.is_empty()),
            "{one}"
        );
        one
    };
    let none = Value::Null;
    for (n, guid, event, action, status, issue, sandbox) in [
        (0, "d-pending", "repository", json!("archived"), "pending", &none, &none),
        (1, "d-aside", "repository", json!("archived"), "set_aside", &none, &none),
        (2, "d-refused", "issues", Value::Null, "refused", &none, &none),
        (3, "d-forged", "issues", Value::Null, "badly_signed", &none, &none),
        (4, "d-ignored", "ping", Value::Null, "ignored", &none, &none),
        (
            5,
            "d-accepted",
            "issues",
            json!("opened"),
            "accepted",
            &json!("5"),
            &json!("claude-issue-5"),
        ),
    ] {
        let expected = json!({"delivery": guid, "event": event, "action": action,
            "status": status, "issueId": issue, "sandboxName": sandbox, "recovered": false,
            "instruction": if n == 5 { opened_words() } else { Value::Null }});
        assert_eq!(shown(n), expected);
    }
    assert_eq!(all["data"][1]["reason"], "no such thing");
}

#[tokio::test]
async fn a_command_is_listed_with_the_words_behind_it() {
    let server = TestServer::start().await;
    assert_eq!(server.deliver("issues", "d-opened", &opened(5, "A title")).await.status, 202);
    let comment = json!({
        "action": "created",
        "issue": {"id": 5, "number": 1, "title": "A title", "state": "open"},
        "comment": {
            "id": 70, "body": "Hello\n/issuebox fix this", "author_association": "OWNER",
            "user": {"id": 1, "login": "octocat", "type": "User"},
            "created_at": "2026-03-02T10:00:00Z",
        },
        "repository": {"id": 9, "full_name": "octo/hello"},
        "sender": {"id": 1, "login": "octocat", "type": "User"},
    });
    let answer = server.deliver("issue_comment", "d-command", &comment.to_string()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let listed = list(&server, "?event=issue_comment").await;
    let expected = json!({"source": "comment", "commentId": 70, "author": "octocat",
        "sender": "octocat", "asOf": "2026-03-02T10:00:00.000Z", "title": null,
        "text": "fix this", "isExcerpt": false});
    assert_eq!(listed["data"][0]["instruction"], expected);
    // So does the timeline, where it stands although the sandbox was there already.
    let timeline = server.get("/v1/issues/5/events").await.json();
    let of_command = |row: &&Value| row["cause"] == "delivery d-command";
    let rows = timeline["data"].as_array().expect("a list").iter();
    let row = rows.clone().find(of_command).unwrap_or_else(|| panic!("no row: {timeline:#}"));
    assert_eq!(row["instruction"], expected);
    assert!(rows.clone().any(|row| row["instruction"]["title"] == "A title"), "{timeline:#}");
    let cookie = server.log_in().await;
    for page in ["/sandboxes/claude-issue-5", "/deliveries"] {
        let page = server.client.get(server.url(page)).header("cookie", &cookie);
        let page = send(page).await.text;
        assert!(page.contains("<bdi>octocat</bdi> wrote") && page.contains("fix this"), "{page}");
    }
}

#[tokio::test]
async fn a_list_is_narrowed_by_event_status_and_issue() {
    let server = TestServer::start().await;
    one_of_each(&server).await;
    let other = opened(6, "x").replace("\"number\":1", "\"number\":2");
    assert_eq!(server.deliver("issues", "d-other", &other).await.status, 202);
    let cases: [(&str, &[&str]); 13] = [
        ("?event=ping", &["d-ignored"]),
        ("?event=issues", &["d-other", "d-refused", "d-forged", "d-accepted"]),
        ("?event=issues.opened", &["d-other", "d-accepted"]),
        ("?event=issues.closed", &[]),
        ("?status=accepted", &["d-other", "d-accepted"]),
        ("?status=ignored", &["d-ignored"]),
        ("?status=pending", &["d-pending"]),
        ("?status=set_aside", &["d-aside"]),
        ("?status=badly_signed", &["d-forged"]),
        ("?status=refused&event=issues", &["d-refused"]),
        ("?issueId=5", &["d-accepted"]),
        ("?issueId=5&status=badly_signed", &[]),
        ("?issueId=404", &[]),
    ];
    for (query, expected) in cases {
        let listed = list(&server, query).await;
        let seen = guids(&listed);
        assert_eq!(seen, expected, "{query}");
        assert_eq!(listed["total"], expected.len(), "{query}");
    }
    for (query, field) in
        [("?status=nope", "status"), ("?issueId=a--b", "issueId"), ("?cursor=x", "cursor")]
    {
        let answer = server.get(&format!("/v1/deliveries{query}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{query}");
        assert_eq!(answer.json()["error"]["field"], field, "{query}");
    }
}

#[tokio::test]
async fn pages_go_through_what_is_stored_and_what_is_not() {
    let server = TestServer::start().await;
    let mut expected = std::collections::BTreeSet::new();
    for n in 0..12 {
        let guid = format!("d-{n}");
        if n % 3 == 0 {
            forged(&server, &guid, "issues").await;
        } else {
            assert_eq!(server.deliver("ping", &guid, "{\"zen\":\"z\"}").await.status, 200);
        }
        expected.insert(guid);
    }
    for limit in [1, 5, 12, 200] {
        let (mut cursor, mut seen, mut times) = (String::new(), Vec::new(), Vec::new());
        loop {
            let page = list(&server, &format!("?limit={limit}{cursor}")).await;
            assert_eq!(page["total"], 12);
            seen.extend(guids(&page).into_iter().map(str::to_owned));
            let data = page["data"].as_array().expect("a list");
            times.extend(data.iter().map(|one| one["receivedAt"].to_string()));
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        // Within one millisecond a refused and another delivery may have either order.
        assert!(times.is_sorted_by(|newer, older| newer >= older), "pages of {limit}: {times:?}");
        assert_eq!(seen.len(), 12, "pages of {limit}");
        assert_eq!(seen.into_iter().collect::<std::collections::BTreeSet<_>>(), expected);
    }
}

#[tokio::test]
async fn neither_signature_nor_body_of_a_badly_signed_delivery_is_kept() {
    let server = TestServer::start().await;
    forged(&server, "d-1", "issues").await;
    let long = "x".repeat(3_000);
    forged(&server, &long, &long).await;
    let answer = server.get("/v1/deliveries?status=badly_signed").await;
    for part in SECRET_PARTS {
        assert!(!answer.text.contains(part), "{answer:?}");
    }
    assert_eq!(answer.json()["total"], 2);
    assert!(answer.text.len() < 1_500, "{}", answer.text.len());
    // Nothing of it reached the store.
    assert_eq!(server.store.delivery(&DeliveryId::trusted("d-1")).await, Ok(None));
}

#[tokio::test]
async fn what_is_refused_is_forgotten_at_a_restart_and_what_is_stored_is_not() {
    let server = TestServer::start().await;
    one_of_each(&server).await;
    let data = std::sync::Arc::clone(&server.data);
    drop(server);
    let server = TestServer::over(data, "memory", |_| {}).await;
    let listed = list(&server, "").await;
    assert_eq!(guids(&listed), ["d-pending", "d-aside", "d-ignored", "d-accepted"]);
}
