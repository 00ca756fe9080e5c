//! `issuebox backup` and `restore` with the whole program: taken from a server at work, put back
//! after it was killed.

use crate::process::{Place, until};
use serde_json::json;

/// How the program ended with these arguments: its exit code, and what it said on standard error.
async fn ran(place: &Place, args: &[&str]) -> (i32, String) {
    let (config, data) = (place.config(), place.data());
    let mut command = place.command(args);
    command.arg("--config").arg(config).arg("--data").arg(data);
    let ended = command.output().await.expect("it runs");
    (ended.status.code().expect("not killed"), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[tokio::test]
async fn a_restored_server_makes_nothing_until_it_is_released() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("up").await;
    place.configure("create_delay_ms = 60000");
    server.reload().await;
    assert_eq!(server.ensure("under-way").await.status, 201);
    assert_eq!(ran(&place, &["backup", "copy"]).await.0, 0);
    let (code, told) = ran(&place, &["backup", "copy"]).await;
    assert!(code == 1 && told.contains("copy exists already"), "{told}");
    let (code, told) = ran(&place, &["restore", "copy", "--yes"]).await;
    assert!(code == 1 && told.contains("another server runs on the data directory"), "{told}");
    place.configure("");
    server.reload().await;
    // Made after the backup: its record will be lost, its object is not.
    server.running("later").await;
    server.kill().await;

    let (code, told) = ran(&place, &["restore", "copy"]).await;
    assert!(code == 2 && told.contains("replaces the records"), "{told}");
    let (code, told) = ran(&place, &["restore", "copy", "--yes"]).await;
    assert!(code == 0 && told.contains("release --all"), "{told}");
    let creates_before = place.calls("create").len();
    let server = place.serve().await;
    assert_eq!(server.sandbox("up").await["phase"], "running");
    assert_eq!(server.sandbox("under-way").await["phase"], "failed");
    assert_eq!(server.ensure("new").await.status, 423);
    // The object that no record tells of is looked at by a person, and nothing is done meanwhile.
    until("the sweep has looked", || async {
        let drift = server.get("/v1/system/drift").await.json();
        drift["data"].as_array().is_some_and(|items| !items.is_empty())
    })
    .await;
    assert_eq!(place.calls("create").len(), creates_before);
    assert_eq!(place.calls("delete").len(), 0);

    let (code, told) = ran(&place, &["release", "--all"]).await;
    assert_eq!(code, 0, "{told}");
    assert_eq!(server.ensure("new").await.status, 201);
    let retry = "/v1/sandboxes/claude-issue-under-way/retry?wait=60";
    let retried = server.post(retry, &json!({})).await.json();
    assert_eq!(retried["data"]["phase"], "running", "{retried}");
    server.stop().await;
}
