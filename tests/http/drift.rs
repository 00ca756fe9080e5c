//! Drift over HTTP: items are listed and decisions carried out, with every
//! answer that the description lists.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::document::{Operation, listed, operations};
use crate::common::server::{Answer, TestServer, send};
use crate::common::store::Mood;
use issuebox::sandbox::{Labels, Object};
use issuebox::store::Store as _;
use issuebox::types::{
    AccountName, ExternalId, Generation, HomeId, IssueId, Mode, ObjectName, ObjectState, SandboxId,
};
use serde_json::{Value, json};

/// An orphan of this installation, for an issue and home.
fn put_orphan(server: &TestServer, external_id: &str, issue: &str, home: i64) {
    let labels = Labels {
        instance: server.store.instance(),
        account: AccountName::default_account(),
        home: HomeId(home),
        issue: IssueId::parse(issue).expect("a valid id"),
        sandbox: SandboxId::trusted(format!("sandbox-of-{external_id}")),
        generation: Generation(4),
        mode: Mode::Strong,
    };
    let object = Object {
        external_id: ExternalId::trusted(external_id),
        name: ObjectName::trusted(external_id),
        labels: Some(labels),
        state: ObjectState::Stopped,
    };
    server.provider.outside(|objects| drop(objects.insert(external_id.to_owned(), object)));
}

async fn drift(server: &TestServer) -> Value {
    let answer = server.get("/v1/system/drift").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Decides, and checks that the description lists the answer.
async fn decide(server: &TestServer, id: &str, remedy: &str) -> Answer {
    let path = format!("/v1/system/drift/{{driftId}}/{remedy}");
    let all = operations(server).await;
    let operation: &Operation = all.iter().find(|o| o.path == path).expect("it is described");
    let answer = server.post(&format!("/v1/system/drift/{id}/{remedy}"), Value::Null).await;
    listed(operation, &answer);
    answer
}

async fn is_gone(server: &TestServer, external_id: &str) {
    for _ in 0..1_000 {
        let mut is_there = true;
        server.provider.outside(|objects| is_there = objects.contains_key(external_id));
        if !is_there {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{external_id} is still there");
}

#[tokio::test]
async fn each_item_is_listed_with_both_sides_and_its_remedies() {
    let server = TestServer::start().await;
    let before = drift(&server).await;
    assert_eq!((&before["data"], &before["total"]), (&json!([]), &json!(0)));
    server.running("1").await;
    put_orphan(&server, "stray", "77", 40);
    server.provider.outside(|objects| {
        let mut twin = objects["m-0"].clone();
        twin.external_id = ExternalId::trusted("twin");
        objects.insert("twin".into(), twin);
    });
    server.engine.sweep_now().await;
    let shown = drift(&server).await;
    assert_eq!(shown["total"], 3, "{shown:#}");
    // The failed one's own object runs, too.
    let (own, twin, orphan) = (&shown["data"][0], &shown["data"][1], &shown["data"][2]);
    assert_eq!((&own["id"], &own["kind"]), (&json!("memory:m-0"), &json!("started_outside")));
    assert_eq!(own["remedies"], json!(["adopt", "remove"]));
    assert_eq!((&twin["id"], &twin["kind"]), (&json!("memory:twin"), &json!("duplicate")));
    assert_eq!(twin["alarm"], true);
    assert_eq!(twin["record"]["phase"], "failed");
    assert_eq!(twin["record"]["externalId"], "m-0");
    assert_eq!(twin["object"]["externalId"], "twin");
    assert_eq!(twin["object"]["sandboxId"], twin["record"]["sandboxId"]);
    assert_eq!(twin["remedies"], json!(["remove"]));
    assert_eq!((&orphan["id"], &orphan["kind"]), (&json!("memory:stray"), &json!("quarantined")));
    assert_eq!((&orphan["record"], &orphan["issueId"]), (&Value::Null, &json!("77")));
    assert_eq!(orphan["remedies"], json!(["adopt", "remove"]));
    assert!(orphan["nextAt"].as_str() > orphan["since"].as_str(), "{orphan:#}");
    let sweeps = &shown["sweeps"][0];
    assert_eq!((&sweeps["done"], &sweeps["records"]), (&json!(1), &json!(1)));
    assert_eq!(sweeps["counts"], json!({"duplicate": 1, "quarantined": 1, "started_outside": 1}));
    // Page by page.
    let first = server.get("/v1/system/drift?limit=1").await.json();
    let cursor = first["nextCursor"].as_str().expect("there is more").to_owned();
    let second = server.get(&format!("/v1/system/drift?limit=1&cursor={cursor}")).await.json();
    assert_eq!(second["data"][0]["id"], twin["id"]);
    let cursor = second["nextCursor"].as_str().expect("there is more").to_owned();
    let third = server.get(&format!("/v1/system/drift?limit=1&cursor={cursor}")).await.json();
    assert_eq!((&third["data"][0]["id"], &third["nextCursor"]), (&orphan["id"], &Value::Null));
    assert_eq!(server.get("/v1/system/drift?cursor=x").await.status, 400);
    // Alarms are seen where a look is taken for other reasons.
    let ready = server.get("/readyz").await.json();
    assert_eq!(ready["data"]["status"], "degraded");
    assert_eq!(ready["data"]["degraded"], json!(["memory: duplicate"]));
    let system = server.get("/v1/system").await.json();
    let reason = system["data"]["degraded"][0].as_str().expect("a reason");
    assert!(
        reason.starts_with("memory: it is a second object of the recorded sandbox"),
        "{reason}"
    );
    assert_eq!(twin["account"], "default");
    // Drift is of the sandboxes of all accounts: others learn that there is some.
    let viewer = server.token("acme", "viewer").await;
    let system = send(server.client.get(server.url("/v1/system")).bearer_auth(&viewer)).await;
    let reasons = json!(["memory: drift waits for the decision of an admin"]);
    assert_eq!(system.json()["data"]["degraded"], reasons);
    assert_eq!(ready["data"]["reasons"], reasons);
    let page = server.client.get(server.url("/")).header("cookie", server.log_in().await);
    let page = send(page).await.text;
    assert!(page.contains("it is a second object of the recorded sandbox"), "{page}");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains(r#"issuebox_drift{provider="memory",kind="duplicate"} 1"#));
}

#[tokio::test]
async fn an_object_is_adopted_or_removed_as_a_person_says() {
    let server = TestServer::start().await;
    put_orphan(&server, "a", "77", 40);
    put_orphan(&server, "b", "78", 41);
    put_orphan(&server, "c", "77", 42);
    server.engine.sweep_now().await;
    let adopted = decide(&server, "memory:a", "adopt").await;
    assert_eq!((adopted.status, adopted.json()["data"]["id"].clone()), (202, "memory:a".into()));
    let sandbox = server.get("/v1/issues/77/sandbox").await.json();
    assert_eq!(sandbox["data"]["phase"], "stopped", "{sandbox:#}");
    assert_eq!(sandbox["data"]["externalId"], "a");
    let second = decide(&server, "memory:c", "adopt").await;
    assert_eq!((second.status, second.code().as_str()), (409, "issue_id_conflict"));
    assert_eq!(decide(&server, "memory:b", "remove").await.status, 202);
    is_gone(&server, "b").await;
    assert_eq!(decide(&server, "memory:b", "remove").await.code(), "drift_over");
    server.engine.sweep_now().await;
    assert_eq!(drift(&server).await["total"], 1, "only the one that nothing was decided about");
}

#[tokio::test]
async fn a_decision_that_cannot_be_carried_out_is_refused_and_the_item_stays() {
    let server = TestServer::start().await;
    for issue in ["1", "2", "3", "4"] {
        server.running(issue).await;
    }
    put_orphan(&server, "stray", "77", 40);
    server.engine.sweep_now().await;
    // Four of four: too many to be believed, so that a person decides about each.
    server.provider.outside(|objects| objects.retain(|id, _| id == "stray"));
    server.engine.sweep_now().await;
    assert_eq!(drift(&server).await["data"][0]["id"], "mass_loss:memory");
    server.provider.unreachable.store(true, Ordering::SeqCst);
    for remedy in ["adopt", "remove"] {
        assert_eq!(decide(&server, "memory:stray", remedy).await.code(), "provider_failed");
    }
    server.provider.unreachable.store(false, Ordering::SeqCst);
    for (mood, code) in [(Mood::Overloaded, "overloaded"), (Mood::Fails, "store_failed")] {
        server.store.set(mood);
        assert_eq!(decide(&server, "memory:m-0", "remove").await.code(), code);
        assert_eq!(decide(&server, "memory:stray", "adopt").await.code(), code);
        server.store.set(Mood::Works);
    }
    let is_running = async || {
        let sandbox = server.get("/v1/issues/1/sandbox").await.json();
        sandbox["data"]["phase"] == "running"
    };
    assert!(is_running().await);
    assert_eq!(decide(&server, "memory:m-0", "remove").await.status, 202);
    let lost = server.get("/v1/issues/1/sandbox").await.json();
    assert_eq!(lost["data"]["failure"]["code"], "object_lost", "{lost:#}");
    assert_eq!(decide(&server, "mass_loss:memory", "adopt").await.status, 202);
    server.engine.sweep_now().await;
    let lost = server.get("/v1/issues/2/sandbox").await.json();
    assert_eq!(lost["data"]["failure"]["code"], "object_lost", "{lost:#}");
    let unknown = send(server.request(reqwest::Method::POST, "/v1/system/drift/x/y")).await;
    assert_eq!(unknown.code(), "route_not_found");
}
