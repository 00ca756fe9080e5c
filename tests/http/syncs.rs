//! Syncs through HTTP: what a delete refuses, pushes that are not needed, files in pages, and what is
//! synced without being asked for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use issuebox::sync::{SyncRetention, SyncsInBackground};
use reqwest::Method;
use serde_json::{Value, json};

use crate::common::server::{Answer, TestServer, send};
use crate::pages::Person;

async fn write(server: &TestServer, path: &str, content: &'static str) {
    let path = format!("/v1/sandboxes/claude-issue-1/files/content?path={path}");
    let answer = send(server.request(Method::PUT, &path).body(content)).await;
    assert!(answer.status < 300, "{answer:?}");
}

async fn sync(server: &TestServer, body: Value) -> Answer {
    server.post("/v1/sandboxes/claude-issue-1/sync", body).await
}

async fn synced(server: &TestServer, body: Value) -> Value {
    let answer = sync(server, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["data"].clone()
}

async fn versions(server: &TestServer) -> u64 {
    let versions = server.get("/v1/sandboxes/claude-issue-1/sync/versions").await.json();
    versions["total"].as_u64().expect("a number")
}

#[tokio::test]
async fn a_sandbox_is_not_deleted_if_its_push_left_something_out() {
    let server = TestServer::start().await;
    server.running("1").await;
    write(&server, "f", "one").await;
    // The provider of these tests refuses to read a file of this name.
    write(&server, "unreadable", "two").await;
    let delete = async |query: &str| {
        let path = format!("/v1/sandboxes/claude-issue-1?wait=5&sync=true{query}");
        send(server.request(Method::DELETE, &path)).await
    };
    let refused = delete("").await;
    assert_eq!((refused.status, refused.code().as_str()), (502, "sync_failed"));
    assert!(refused.text.contains("unreadable"), "{refused:?}");
    assert!(refused.text.contains("not deleted"), "{refused:?}");
    let sandbox = server.get("/v1/sandboxes/claude-issue-1").await.json();
    assert_eq!(sandbox["data"]["phase"], "running");
    assert_eq!(delete("&force=true").await.status, 200);
}

#[tokio::test]
async fn a_push_that_is_not_needed_is_not_made() {
    let server = TestServer::start().await;
    server.running("1").await;
    write(&server, "f", "one").await;
    // The first one is never recent enough.
    let first = synced(&server, json!({"ifOlderThanSeconds": 3600})).await;
    assert_eq!(first.get("skipped"), None);
    write(&server, "g", "two").await;
    let second = synced(&server, json!({"ifOlderThanSeconds": 3600})).await;
    assert_eq!((&second["skipped"], &second["version"]), (&json!(true), &first["version"]));
    let third = synced(&server, json!({"ifOlderThanSeconds": 0})).await;
    assert_eq!((third.get("skipped"), &third["stats"]["filesUploaded"]), (None, &json!(1)));
    // Nothing has changed since: there is no new version, but a new sync.
    let fourth = synced(&server, json!({"ifOlderThanSeconds": 0})).await;
    assert_eq!((fourth.get("skipped"), &fourth["version"]), (None, &third["version"]));
    assert_eq!(fourth["stats"]["filesSkipped"], 2);
    assert_eq!(versions(&server).await, 2);
    synced(&server, json!({})).await;
    assert_eq!(versions(&server).await, 3, "a plain push makes one always");

    server.post("/v1/sandboxes/claude-issue-1/stop?wait=5", Value::Null).await;
    let skipped = synced(&server, json!({"ifOlderThanSeconds": 3600})).await;
    assert_eq!(skipped["skipped"], true);
    let sandbox = server.get("/v1/sandboxes/claude-issue-1").await.json();
    assert_eq!(sandbox["data"]["phase"], "stopped", "it is not started for nothing");
    let wrong = sync(&server, json!({"direction": "pull", "ifOlderThanSeconds": 1})).await;
    assert_eq!(wrong.json()["error"]["field"], "ifOlderThanSeconds");
}

#[tokio::test]
async fn pages_of_files_are_the_same_from_a_sandbox_and_from_its_version() {
    let server = TestServer::start().await;
    server.running("1").await;
    for path in ["b", "d/one", "d/two", "z"] {
        write(&server, path, "content").await;
    }
    let made = "/v1/sandboxes/claude-issue-1/files/directory?path=d";
    assert!(send(server.request(Method::PUT, made)).await.status < 300);
    synced(&server, json!({})).await;
    let list = async |query: &str| {
        let path = format!("/v1/sandboxes/claude-issue-1/files?{query}");
        let answer = server.get(&path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["data"].clone()
    };
    let paths = |entries: &Value| -> Vec<String> {
        let entries = entries.as_array().expect("a list").iter();
        entries.map(|entry| entry["path"].as_str().expect("text").to_owned()).collect()
    };
    for source in ["sandbox", "synced"] {
        let all = list(&format!("source={source}&format=list")).await;
        assert_eq!(paths(&all["entries"]), ["b", "d", "d/one", "d/two", "z"], "{source}");
        assert_eq!((&all["truncated"], all.get("nextCursor")), (&json!(false), None));
        let first = list(&format!("source={source}&format=list&limit=3")).await;
        assert_eq!((paths(&first["entries"]).len(), &first["truncated"]), (3, &json!(true)));
        let cursor = first["nextCursor"].as_str().expect("a cursor");
        let rest = format!("source={source}&limit=3&cursor={cursor}");
        assert_eq!(paths(&list(&format!("{rest}&format=list")).await["entries"]), ["d/two", "z"]);
        let tree = list(&format!("{rest}&format=tree")).await;
        assert_eq!(paths(&tree["entries"]), ["d", "z"]);
        assert_eq!(paths(&tree["entries"][0]["children"]), ["d/two"]);
        let below = list(&format!("source={source}&format=list&path=d")).await;
        assert_eq!(paths(&below["entries"]), ["d/one", "d/two"]);
        let top = list(&format!("source={source}&format=list&depth=1")).await;
        assert_eq!(paths(&top["entries"]), ["b", "d", "z"]);
    }
    let from = async |source: &str| list(&format!("source={source}&format=tree")).await;
    assert_eq!(from("sandbox").await, from("synced").await);
    for (query, field) in [
        ("format=table", "format"),
        ("limit=1", "limit"),
        ("cursor=Yg", "cursor"),
        ("format=list&limit=10001", "limit"),
        ("format=list&cursor=*", "cursor"),
    ] {
        let answer = server.get(&format!("/v1/sandboxes/claude-issue-1/files?{query}")).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["field"]),
            (400, &json!(field)),
            "{query}"
        );
    }
}

#[tokio::test]
async fn the_page_of_versions_pushes_and_pulls() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let page = format!("/sandboxes/{id}/versions");
    let empty = person.see(&page).await;
    assert_eq!(empty.status, 200, "{empty:?}");
    assert!(empty.text.contains("Nothing was pushed yet") && empty.text.contains("never synced"));
    write(&server, "f", "one").await;
    let form = format!("/sandboxes/{id}/sync");
    let pushed = person.submit(&form, &[("direction", "push")]).await;
    assert_eq!((pushed.status, pushed.header("location")), (303, page.as_str()));
    let version = synced(&server, json!({"ifOlderThanSeconds": 3600})).await["version"].clone();
    let version = version.as_str().expect("a version");
    let shown = person.see(&page).await.text;
    assert!(shown.contains(version) && shown.contains("a push of"), "{shown}");
    assert!(shown.contains("were stored (3 B)"), "{shown}");
    let pulled = person.submit(&form, &[("direction", "pull"), ("version", version)]).await;
    assert_eq!(pulled.status, 303, "{pulled:?}");
    assert!(person.see(&page).await.text.contains("a pull of"));
    let wrong = person.submit(&form, &[("direction", "sideways")]).await;
    assert_eq!(wrong.status, 400);
    send(server.request(Method::DELETE, "/v1/sandboxes/claude-issue-1?wait=5")).await;
    let kept = person.see(&page).await.text;
    assert!(kept.contains(version) && !kept.contains("/sync\""), "{kept}");
    let server = TestServer::with(|edge| edge.sync = None).await;
    let id = server.running("1").await;
    let none = Person::at(&server).await.see(&format!("/sandboxes/{id}/versions")).await;
    assert!(none.text.contains("No object storage is configured"), "{none:?}");
}

#[tokio::test]
async fn running_sandboxes_are_pushed_now_and_then_and_old_versions_are_collected() {
    let parts: Arc<Mutex<Option<SyncsInBackground>>> = Arc::default();
    let given = Arc::clone(&parts);
    let server = TestServer::with(move |edge| {
        let background = SyncsInBackground {
            worker: edge.sync.clone().expect("it is configured"),
            store: Arc::clone(&edge.store),
            providers: edge.providers.clone(),
            retention: SyncRetention::default(),
            every: None,
        };
        *given.lock().expect("not poisoned") = Some(background);
    });
    let server = server.await;
    let background = parts.lock().expect("not poisoned").take().expect("the server is built");
    let (hour, moment) = (Duration::from_secs(3600), Duration::ZERO);
    background.push_running(moment).await.expect("nothing runs");
    server.running("1").await;
    server.running("2").await;
    write(&server, "f", "one").await;
    background.push_running(hour).await.expect("they are pushed");
    assert_eq!(versions(&server).await, 1);
    write(&server, "g", "two").await;
    background.push_running(hour).await.expect("they were pushed just now");
    assert_eq!(versions(&server).await, 1);
    background.push_running(moment).await.expect("they are pushed");
    assert_eq!(versions(&server).await, 2);
    server.post("/v1/sandboxes/claude-issue-1/stop?wait=5", Value::Null).await;
    background.push_running(moment).await.expect("one of them is pushed");
    assert_eq!(versions(&server).await, 2);
    // A day after a version was replaced, at the earliest.
    let none = SyncRetention { versions_max: Some(1), age_max: None };
    background.worker.collect_all(none).await.expect("collected");
    assert_eq!(versions(&server).await, 2);
}
