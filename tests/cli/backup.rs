//! `issuebox backup` and `restore` with the whole program: taken from a running server, restored
//! after it was killed.

use crate::process::{Place, until};
use serde_json::json;

/// Runs the program; returns its exit code and standard error.
async fn ran(place: &Place, args: &[&str]) -> (i32, String) {
    let (config, data) = (place.config(), place.data());
    let mut command = place.command(args);
    command.arg("--config").arg(config).arg("--data").arg(data);
    let ended = command.output().await.expect("it runs");
    (ended.status.code().expect("not killed"), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[tokio::test]
async fn a_restored_server_creates_nothing_until_it_is_released() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("up").await;
    place.configure("create_delay_ms = 60000");
    server.reload().await;
    assert_eq!(server.ensure("under-way").await.status, 201);
    assert_eq!(ran(&place, &["backup", "copy"]).await.0, 0);
    let (code, err) = ran(&place, &["backup", "copy"]).await;
    assert!(code == 1 && err.contains("copy exists already"), "{err}");
    let (code, err) = ran(&place, &["restore", "copy", "--yes"]).await;
    assert!(code == 1 && err.contains("another server runs on the data directory"), "{err}");
    place.configure("");
    server.reload().await;
    // Made after the backup: its record will be lost, its object is not.
    server.running("later").await;
    server.kill().await;

    let (code, err) = ran(&place, &["restore", "copy"]).await;
    assert!(code == 2 && err.contains("replaces the records"), "{err}");
    let (code, err) = ran(&place, &["restore", "copy", "--yes"]).await;
    assert!(code == 0 && err.contains("release --all"), "{err}");
    let creates_before = place.calls("create").len();
    let server = place.serve().await;
    assert_eq!(server.sandbox("up").await["phase"], "running");
    assert_eq!(server.sandbox("under-way").await["phase"], "failed");
    assert_eq!(server.ensure("new").await.status, 423);
    // The orphan waits for a person's decision, and is not touched meanwhile.
    until("the sweep has looked", || async {
        let drift = server.get("/v1/system/drift").await.json();
        drift["data"].as_array().is_some_and(|items| !items.is_empty())
    })
    .await;
    assert_eq!(place.calls("create").len(), creates_before);
    assert_eq!(place.calls("delete").len(), 0);

    let (code, err) = ran(&place, &["release", "--all"]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(server.ensure("new").await.status, 201);
    let retry = "/v1/sandboxes/claude-issue-under-way/retry?wait=60";
    let retried = server.post(retry, &json!({})).await.json();
    assert_eq!(retried["data"]["phase"], "running", "{retried}");
    server.stop().await;
}
