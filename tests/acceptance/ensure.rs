//! *Ensure* in every phase, by the table: what it answers, and what the provider was asked.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::process::{Answer, Place, Server, until};
use crate::watch::Watch;

/// Long enough to be met in between, also on a busy machine.
const SLOW: &str = "create_delay_ms = 800\nstop_delay_ms = 800\ndelete_delay_ms = 800";

/// What an answer to *ensure* says: outcome, phase, generation.
fn said(answer: &Answer) -> (u16, String, String, u64) {
    let body = answer.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let generation = body["data"]["generation"].as_u64().expect("a generation");
    (answer.status, text(&body["outcome"]), text(&body["data"]["phase"]), generation)
}

fn saying(status: u16, outcome: &str, phase: &str, generation: u64) -> (u16, String, String, u64) {
    (status, outcome.to_owned(), phase.to_owned(), generation)
}

async fn with_phase(server: &Server, id: &str, phase: &str) -> Value {
    let path = format!("/v1/sandboxes/{id}?wait=30&until={phase}");
    let answer = server.get(&path).await.json();
    assert_eq!(answer["data"]["phase"], phase, "{answer}");
    answer["data"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_issue_has_one_id_and_another_issue_another() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let first = server.ensure("test-123").await;
    assert_eq!((first.status, &first.json()["outcome"]), (201, &json!("created")));
    let id = first.sandbox_id();
    assert_eq!(first.headers["location"], format!("/v1/sandboxes/{id}"));
    for _ in 0..2 {
        let again = server.ensure("test-123").await;
        assert_eq!((again.status, &again.json()["outcome"]), (200, &json!("existing")));
        assert_eq!(again.sandbox_id(), id);
    }
    let other = server.ensure("test-456").await;
    assert_eq!(other.status, 201);
    assert_ne!(other.sandbox_id(), id);
    assert_eq!(first.json()["data"]["name"], "claude-issue-test-123");
    assert_eq!(other.json()["data"]["name"], "claude-issue-test-456");
    assert_eq!(server.get("/v1/sandboxes/claude-issue-test-123").await.sandbox_id(), id);
    let none = server.get("/v1/issues/non-existent-999/sandbox").await;
    assert_eq!((none.status, none.text.as_str()), (200, r#"{"success":true,"data":null}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn ensure_while_it_is_created_stopped_or_is_down_gives_the_same_one() {
    let place = Place::simulated(SLOW);
    let server = place.serve().await;
    let created = server.ensure("test-1").await;
    assert_eq!(said(&created), saying(201, "created", "creating", 1));
    let id = created.sandbox_id();
    assert_eq!(said(&server.ensure("test-1").await), saying(200, "existing", "creating", 1));
    with_phase(&server, &id, "running").await;
    assert_eq!(said(&server.ensure("test-1").await), saying(200, "existing", "running", 1));

    let stop = format!("/v1/sandboxes/{id}/stop");
    let stopping = server.post(&stop, &json!({})).await;
    assert_eq!((stopping.status, &stopping.json()["data"]["phase"]), (202, &json!("stopping")));
    assert_eq!(said(&server.ensure("test-1").await), saying(200, "queued", "stopping", 1));
    with_phase(&server, &id, "running").await;
    let (stops, starts) = (place.calls("stop").len(), place.calls("start").len());
    assert_eq!((stops, starts), (1, 1), "it was stopped, then started again");

    let stopped = server.post(&format!("{stop}?wait=30"), &json!({})).await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped");
    let resumed = server.post("/v1/sandboxes?wait=30", &json!({"issueId": "test-1"})).await;
    assert_eq!(said(&resumed), saying(200, "resumed", "running", 1));
    assert_eq!(resumed.sandbox_id(), id);
    assert_eq!((place.objects().len(), place.calls("create").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sandbox_stays_the_issues_only_one_until_it_is_retried() {
    let place = Place::simulated("fail_create = 1.0\n[lifecycle]\ncreate_attempts = 2");
    let server = place.serve().await;
    let id = server.ensure("test-1").await.sandbox_id();
    let failed = with_phase(&server, &id, "failed").await;
    assert_eq!(
        (&failed["failure"]["code"], &failed["failure"]["step"]),
        (&json!("provider_broken"), &json!("create"))
    );
    let asked = place.calls("create").len();
    for _ in 0..3 {
        let again = server.ensure("test-1").await;
        assert_eq!(said(&again), saying(200, "failed", "failed", 1));
        assert_eq!(again.sandbox_id(), id);
        let reason = again.json()["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains("the simulated create failed"), "{reason}");
    }
    assert_eq!((place.calls("create").len(), place.objects().len()), (asked, 0));

    place.configure("");
    server.reload().await;
    // The log says that it was read a moment before it is in force.
    until("the retried sandbox runs", || async {
        // Of a failed one a start is a retry.
        let path = format!("/v1/sandboxes/{id}/start?wait=30");
        server.post(&path, &json!({})).await.json()["data"]["phase"] == "running"
    })
    .await;
    assert_eq!(place.objects().len(), 1);
    assert_eq!(place.objects()[0].sandbox, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn ensure_while_it_is_deleted_queues_the_next_generation() {
    let place = Arc::new(Place::simulated("delete_delay_ms = 800"));
    let server = place.serve().await;
    let first = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    let watch = Watch::over(&place);
    let path = format!("/v1/sandboxes/{first}");
    let deleting = server.delete(&path).await;
    assert_eq!((deleting.status, &deleting.json()["data"]["phase"]), (202, &json!("deleting")));
    let queued = server.ensure("test-1").await;
    assert_eq!(said(&queued), saying(200, "queued", "deleting", 1));
    assert_eq!(queued.sandbox_id(), first);
    let start = server.post(&format!("{path}/start"), &json!({})).await;
    assert_eq!(start.refusal(), (409, "deleting".into()));
    let second = server.running("test-1").await;
    assert_eq!(second["generation"], 2);
    assert_ne!(second["id"], *first);
    watch.end();
    let past = server.get(&path).await.json();
    assert_eq!((&past["data"]["phase"], &past["data"]["generation"]), (&Value::Null, &json!(1)));
    assert_eq!(server.delete(&path).await.status, 200, "already absent");
    let stop = server.post(&format!("{path}/stop"), &json!({})).await;
    assert_eq!(stop.refusal(), (409, "sandbox_deleted".into()));
    assert_eq!(place.objects().len(), 1, "the second one was not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_and_ensures_at_once_never_make_two_objects() {
    let place = Arc::new(Place::simulated("create_delay_ms = 10\ndelete_delay_ms = 10"));
    let server = place.serve().await;
    let mut generation = server.running("test-1").await["generation"].as_u64().expect("a number");
    let watch = Watch::over(&place);
    for _ in 0..25 {
        let id = server.sandbox("test-1").await["id"].as_str().expect("live").to_owned();
        let (path, ensures) = (format!("/v1/sandboxes/{id}"), 0..4);
        let ensures = ensures.map(|_| server.ensure("test-1"));
        let all = futures_util::future::join_all(ensures);
        let (deleted, ensured) = tokio::join!(server.delete(&path), all);
        assert!(deleted.is_success() && ensured.iter().all(Answer::is_success));
        // Whichever came first: after one more ensure it is the next generation that runs.
        let now = server.running("test-1").await["generation"].as_u64().expect("a number");
        assert_eq!(now, generation + 1);
        generation = now;
    }
    watch.end();
    assert_eq!((place.objects().len(), place.calls("create").len()), (1, 26));
}
