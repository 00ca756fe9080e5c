//! Everything at once for one issue: still one sandbox, one object, one create.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::process::{Answer, Place, Server, issue_event, send};

const ISSUE: u64 = 5_000_000_001;
const DELIVERIES: usize = 100;
const CALLS: usize = 50;

/// Sends everything at once; the answers to deliveries and to calls.
async fn flood(server: &Server) -> (Vec<Answer>, Vec<Answer>) {
    let deliveries = (0..DELIVERIES).map(|n| {
        let action = if n % 2 == 0 { "opened" } else { "labeled" };
        let body = issue_event(action, ISSUE).to_string();
        send(server.delivery("issues", &format!("flood-{n}"), body))
    });
    let calls = (0..CALLS).map(|n| {
        let request = if n % 2 == 0 {
            let path = format!("/v1/issues/{ISSUE}/sandbox");
            server.request(reqwest::Method::PUT, &path)
        } else {
            let body = json!({"issueId": ISSUE.to_string()});
            server.request(reqwest::Method::POST, "/v1/sandboxes").json(&body)
        };
        send(request)
    });
    join(join_all(deliveries), join_all(calls)).await
}

async fn one_sandbox_comes_of_it(place: &Place) {
    let server = place.serve().await;
    let (deliveries, calls) = flood(&server).await;
    for answer in &deliveries {
        assert_eq!(answer.status, 202, "{answer:?}");
        assert_eq!(answer.json()["issueId"], ISSUE.to_string());
    }
    let outcomes: Vec<Value> =
        calls.iter().map(|answer| answer.json()["outcome"].clone()).collect();
    let (created, existing): (Vec<_>, Vec<_>) = outcomes.iter().partition(|o| *o == "created");
    assert!(created.len() <= 1, "{outcomes:?}");
    assert!(existing.iter().all(|outcome| *outcome == "existing"), "{outcomes:?}");
    assert!(calls.iter().all(Answer::is_success));
    let mut ids: BTreeSet<String> = calls.iter().map(Answer::sandbox_id).collect();

    let sandbox = server.running(&ISSUE.to_string()).await;
    ids.insert(sandbox["id"].as_str().expect("an id").to_owned());
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(sandbox["generation"], 1);
    let all = server.get("/v1/sandboxes?deleted=true").await.json();
    assert_eq!((&all["total"], &all["data"][0]["id"]), (&json!(1), &sandbox["id"]));

    let objects = place.objects();
    assert_eq!(objects.len(), 1, "{objects:?}");
    assert_eq!(Some(objects[0].sandbox.as_str()), sandbox["id"].as_str());
    assert_eq!(Some(objects[0].external_id.as_str()), sandbox["externalId"].as_str());
    let creates = place.calls("create");
    assert_eq!(creates.len(), 1, "{creates:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_deliveries_and_fifty_calls_at_once_make_one_sandbox() {
    one_sandbox_comes_of_it(&Place::simulated("")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_make_one_while_the_providers_create_is_held_open() {
    one_sandbox_comes_of_it(&Place::simulated("create_delay_ms = 2000")).await;
}
