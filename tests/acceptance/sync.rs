//! A workspace's way to the object storage and back, through HTTP and the command line, with a
//! directory of this machine as the storage.

use std::process::Output;
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use crate::process::{Answer, Place, Server, TOKEN, send};

fn place() -> (Place, tempfile::TempDir) {
    let place = Place::simulated("");
    let storage = tempfile::tempdir().expect("a directory");
    place.configure(&format!("[sync]\nurl = \"file://{}\"", storage.path().display()));
    (place, storage)
}

async fn write(server: &Server, id: &str, path: &str, body: &'static str) {
    let path = format!("/v1/sandboxes/{id}/files/content?path={path}");
    let answer = send(server.request(Method::PUT, &path).body(body)).await;
    assert!(answer.is_success(), "{answer:?}");
}

async fn read(server: &Server, id: &str, query: &str) -> Answer {
    server.get(&format!("/v1/sandboxes/{id}/files/content?{query}")).await
}

async fn sync(server: &Server, id: &str, body: Value) -> Answer {
    server.post(&format!("/v1/sandboxes/{id}/sync"), &body).await
}

async fn synced(server: &Server, id: &str, body: Value) -> Value {
    let answer = sync(server, id, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["data"].clone()
}

#[tokio::test]
async fn a_workspace_is_pushed_pulled_and_read_after_its_deletion() {
    let (place, _storage) = place();
    let server = place.serve().await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    let sandbox = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(sandbox["data"].get("lastSyncAt"), None);
    let nothing = sync(&server, &id, json!({"direction": "pull"})).await;
    assert_eq!(nothing.refusal(), (404, "version_not_found".into()));

    write(&server, &id, "src/a", "one").await;
    write(&server, &id, "b", "two").await;
    let first = synced(&server, &id, json!({})).await;
    assert_eq!(first["direction"], "push");
    let stats = &first["stats"];
    assert_eq!((&stats["filesProcessed"], &stats["filesUploaded"]), (&json!(2), &json!(2)));
    assert_eq!(stats["bytesTransferred"], 6);

    write(&server, &id, "src/a", "changed").await;
    write(&server, &id, "c", "three").await;
    let second = synced(&server, &id, json!({"direction": "push"})).await;
    assert_eq!(second["stats"]["filesUploaded"], 2);
    let pulled = synced(&server, &id, json!({"direction": "pull", "version": first["version"]}));
    let pulled = pulled.await;
    assert_eq!(pulled["version"], first["version"]);
    assert_eq!(pulled["stats"]["filesDeleted"], 1);
    assert_eq!(read(&server, &id, "path=src/a").await.text, "one");
    assert_eq!(read(&server, &id, "path=c").await.status, 404);

    let versions = server.get(&format!("/v1/sandboxes/{id}/sync/versions")).await.json();
    let names: Vec<&Value> =
        versions["data"].as_array().expect("a list").iter().map(|one| &one["version"]).collect();
    assert_eq!(names, [&second["version"], &first["version"]]);
    let page = server.get(&format!("/v1/sandboxes/{id}/sync/versions?limit=1")).await.json();
    let next = page["nextCursor"].as_str().expect("a cursor");
    let page = format!("/v1/sandboxes/{id}/sync/versions?limit=1&cursor={next}");
    let page = server.get(&page).await.json();
    assert_eq!(page["data"][0]["version"], first["version"]);
    assert_eq!(page["nextCursor"], Value::Null);

    let sandbox = server.get(&format!("/v1/sandboxes/{id}")).await.json()["data"].clone();
    assert_eq!(sandbox["syncStats"]["filesDeleted"], 1);
    assert!(sandbox["lastSyncAt"].is_string() && sandbox["lastSyncUnix"].is_number(), "{sandbox}");

    let deleted = server.delete(&format!("/v1/sandboxes/{id}?wait=60&sync=true")).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let files = server.get(&format!("/v1/sandboxes/{id}/files?source=synced&depth=2")).await.json();
    let paths: Vec<&Value> = files["data"]["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| &entry["path"])
        .collect();
    assert_eq!(paths, ["b", "src", "src/a"]);
    assert_eq!(read(&server, &id, "path=src/a&source=synced").await.text, "one");
    let query =
        format!("path=src/a&source=synced&version={}", second["version"].as_str().expect("a name"));
    let path = format!("/v1/sandboxes/{id}/files/content?{query}");
    let part = send(server.request(Method::GET, &path).header("range", "bytes=0-2")).await;
    assert_eq!((part.status, part.text.as_str()), (206, "cha"));
    assert_eq!(sync(&server, &id, json!({})).await.refusal(), (409, "sandbox_deleted".into()));
}

#[tokio::test]
async fn wrong_syncs_are_refused_and_change_nothing() {
    let (place, storage) = place();
    let server = place.serve().await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    for (body, field) in [
        (json!({"direction": "sideways"}), "direction"),
        (json!({"version": "v1-1"}), "version"),
        (json!({"direction": "pull", "version": "../x"}), "version"),
        (json!({"depth": 1}), "depth"),
    ] {
        let answer = sync(&server, &id, body).await;
        assert_eq!(answer.refusal(), (400, "invalid_request".into()));
        assert_eq!(answer.json()["error"]["field"], field);
    }
    let unknown = sync(&server, &id, json!({"direction": "pull", "version": "v1-1"})).await;
    assert_eq!(unknown.refusal(), (404, "version_not_found".into()));
    assert!(unknown.text.contains("v1-1"), "{unknown:?}");
    let unknown = sync(&server, "no-such-sandbox", json!({})).await;
    assert_eq!(unknown.refusal(), (404, "sandbox_not_found".into()));

    // A storage that cannot be written to holds a delete up, unless it is forced.
    std::fs::remove_dir_all(storage.path()).expect("removed");
    std::fs::write(storage.path(), "in the way").expect("written");
    let refused = server.delete(&format!("/v1/sandboxes/{id}?sync=true&wait=60")).await;
    assert_eq!(refused.refusal(), (502, "sync_failed".into()));
    assert!(refused.text.contains("not deleted"), "{refused:?}");
    assert_eq!(server.sandbox("test-1").await["phase"], "running");
    let forced = server.delete(&format!("/v1/sandboxes/{id}?sync=true&force=true&wait=60")).await;
    assert_eq!(forced.status, 200, "{forced:?}");
}

#[tokio::test]
async fn without_an_object_storage_nothing_is_synced() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    let refused = sync(&server, &id, json!({})).await;
    assert_eq!(refused.refusal(), (409, "sync_not_configured".into()));
    for path in ["sync/versions", "files?source=synced"] {
        let refused = server.get(&format!("/v1/sandboxes/{id}/{path}")).await;
        assert_eq!(refused.refusal(), (409, "sync_not_configured".into()));
    }
}

#[tokio::test]
async fn the_command_line_pushes_lists_and_pulls() {
    let (place, _storage) = place();
    let server = place.serve().await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    write(&server, &id, "a", "one").await;
    let run = async |args: &[&str]| -> String {
        let mut command = place.command(args);
        command.env("ISSUEBOX_SERVER", &server.url).env("ISSUEBOX_TOKEN", TOKEN);
        let Output { status, stdout, stderr } = command.output().await.expect("it runs");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{args:?}: {said}");
        String::from_utf8(stdout).expect("text")
    };
    let version = run(&["sync", "push", "test-1", "-q"]).await;
    let version = version.trim();
    write(&server, &id, "a", "changed").await;
    let said = run(&["sync", "push", "test-1"]).await;
    assert!(said.contains("1 stored with 7 bytes"), "{said}");
    let said = run(&["sync", "push", "test-1", "--if-older-than", "3600"]).await;
    assert!(said.contains("was synced recently enough"), "{said}");
    let listed = run(&["sync", "versions", "test-1", "-q"]).await;
    assert_eq!(listed.lines().last(), Some(version));
    let table = run(&["sync", "versions", "test-1"]).await;
    assert!(table.starts_with("VERSION") && table.contains(version), "{table}");
    let said = run(&["sync", "pull", "test-1", "--to", version]).await;
    assert!(said.contains("1 written with 3 bytes"), "{said}");
    assert_eq!(read(&server, &id, "path=a").await.text, "one");
}

#[tokio::test]
async fn ten_thousand_files_come_in_pages_from_a_sandbox_and_from_its_version() {
    const FILES: usize = 10_000;
    let (place, _storage) = place();
    let server = place.serve().await;
    let sandbox = server.running("test-1").await;
    let text = |key: &str| sandbox[key].as_str().expect("text").to_owned();
    let (id, object) = (text("id"), text("externalId"));
    let workspace = place.simulated_dir().join(".simulated/work").join(object).join("workspace");
    for at in 0..FILES {
        let directory = workspace.join(format!("d{}", at / 1000));
        std::fs::create_dir_all(&directory).expect("made");
        std::fs::write(directory.join(format!("f{at}")), "x").expect("written");
    }
    let began = Instant::now();
    synced(&server, &id, json!({})).await;
    println!("push of {FILES} new files: {:?}", began.elapsed());
    for source in ["sandbox", "synced"] {
        for format in ["list", "tree"] {
            let began = Instant::now();
            let (mut seen, mut cursor) = (0, String::new());
            loop {
                let query = format!("source={source}&format={format}&limit=4000{cursor}");
                let page = server.get(&format!("/v1/sandboxes/{id}/files?{query}")).await.json();
                seen += files_of(&page["data"]["entries"]);
                match page["data"]["nextCursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            println!("{source}, {format}: {:?} in pages of 4000", began.elapsed());
            assert_eq!(seen, FILES);
        }
    }
}

/// Counts the files of a page.
fn files_of(entries: &Value) -> usize {
    let entries = entries.as_array().expect("a list").iter();
    let count = |entry: &Value| match entry["children"].is_array() {
        true => files_of(&entry["children"]),
        false => usize::from(entry["kind"] == "file"),
    };
    entries.map(count).sum()
}
