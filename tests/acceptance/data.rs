//! What becomes of a server whose data is gone, replaced or damaged, or whose disk is full when it
//! starts: it says so with the path and the way out, and nothing that it cannot keep is accepted.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rusqlite::Connection;
use rustix::process::geteuid;
use serde_json::Value;

use crate::host_disk::SmallDisk;
use crate::process::{Answer, Place, Server, WAIT, issue_event, send, until};

fn database(place: &Place) -> PathBuf {
    place.data().join("issuebox.db")
}

/// Changes the database of a server that has ended.
fn change(place: &Place, sql: &str) {
    let conn = Connection::open(database(place)).expect("opens");
    conn.execute_batch(sql).expect("changes it");
}

/// Starts a server that must refuse; what it says.
async fn refused(place: &Place, more: &[&str]) -> String {
    let mut command = place.serve_command("127.0.0.1:0");
    let ended = tokio::time::timeout(WAIT, command.args(more).output()).await;
    let ended = ended.expect("it ends by itself").expect("it starts");
    let err = String::from_utf8(ended.stderr).expect("UTF-8");
    assert!(ended.status.code() == Some(1) && !err.contains("ready on"), "{err}");
    err
}

async fn deliver(server: &Server, guid: &str, issue: u64) -> Answer {
    send(server.delivery("issues", guid, issue_event("opened", issue).to_string())).await
}

async fn message(server: &Server) -> String {
    let ready = server.get("/readyz").await;
    assert_eq!(ready.refusal(), (503, "store_failed".to_owned()), "{ready:?}");
    ready.json()["error"]["message"].as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn a_data_directory_that_is_gone_is_noticed_and_nothing_is_accepted() {
    let place = Place::simulated("");
    let server = place.serve().await;
    assert_eq!(deliver(&server, "before", 1).await.status, 202);
    let away = place.data().with_extension("away");
    fs::rename(place.data(), &away).expect("moved");
    assert_eq!(deliver(&server, "lost", 2).await.refusal(), (503, "store_failed".to_owned()));
    assert_eq!(server.ensure("lost").await.status, 503);
    until("readiness is asked again", || async { server.get("/readyz").await.status == 503 }).await;
    let path = database(&place).display().to_string();
    let error = message(&server).await;
    assert!(error.contains(&path) && error.contains("was removed"), "{error}");
    assert!(error.contains("restore FILE"), "{error}");
    assert!(server.log().contains(&error), "{}", server.log());

    // Another one in its place is none of it.
    fs::create_dir(place.data()).expect("made");
    for file in ["issuebox.db", "issuebox.db-wal", "issuebox.db-shm", "lock"] {
        fs::copy(away.join(file), place.data().join(file)).expect("copied");
    }
    until("it is said", || async { message(&server).await.contains("was replaced") }).await;
    assert_eq!(deliver(&server, "lost", 2).await.status, 503);

    fs::remove_dir_all(place.data()).expect("removed");
    fs::rename(&away, place.data()).expect("moved back");
    until("it is ready", || async { server.get("/readyz").await.status == 200 }).await;
    assert_eq!(deliver(&server, "lost", 2).await.status, 202);
    server.running("after").await;
    server.stop().await;
    assert_eq!(place.serve().await.sandbox("after").await["phase"], "running");
}

#[tokio::test]
async fn a_database_that_is_gone_is_not_made_anew_in_silence() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("one").await;
    server.stop().await;
    fs::rename(database(&place), place.data().join("kept")).expect("moved");
    let error = refused(&place, &[]).await;
    let data = place.data().display().to_string();
    assert!(error.contains(&format!("issuebox --data {data} restore FILE")), "{error}");
    assert!(error.contains(&format!("issuebox --data {data} serve --new")), "{error}");
    assert!(!database(&place).exists(), "nothing was made");

    let mut command = place.serve_command("127.0.0.1:0");
    let server = Server::start(command.arg("--new").stdout(Stdio::null())).await;
    assert_eq!(server.sandbox("one").await, Value::Null);
    assert!(server.log().contains("a new installation begins"), "{}", server.log());
    server.stop().await;
    let error = refused(&place, &["--new"]).await;
    assert!(error.contains("start without --new"), "{error}");
    place.serve().await.stop().await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_holds_up_its_issue_alone() {
    let place = Place::simulated("\n[lifecycle]\nreconcile_seconds = 1");
    let server = place.serve().await;
    for issue in ["bad", "good"] {
        server.running(issue).await;
    }
    server.stop().await;
    change(
        &place,
        "UPDATE issue SET body = CAST(x'7b22ff' AS TEXT)
         WHERE home = (SELECT home FROM issue_alias WHERE issue_id = 'bad')",
    );
    let server = place.serve().await;
    assert_eq!(server.sandbox("good").await["phase"], "running");
    assert_eq!(server.ensure("bad").await.refusal(), (503, "store_failed".to_owned()));
    server.running("new").await;
    let listed = server.get("/v1/sandboxes").await.json();
    let listed: Vec<_> = listed["data"].as_array().expect("a list").iter().collect();
    let issues: Vec<_> = listed.iter().map(|one| one["issueId"].as_str().expect("an id")).collect();
    assert_eq!(issues, ["new", "good"]);

    let ready = server.get("/readyz").await.json();
    assert_eq!(ready["data"]["status"], "degraded", "{ready}");
    assert_eq!(ready["data"]["degraded"][0], "store", "{ready}");
    let reason = ready["data"]["reasons"][0].as_str().expect("a reason");
    let path = database(&place).display().to_string();
    for words in [path.as_str(), "the table issue", "of home ", "column body", "restore FILE"] {
        assert!(reason.contains(words), "{words} is not in: {reason}");
    }
    assert!(server.log().contains(reason), "{}", server.log());

    // Its object is no other issue's: sweeps leave it alone.
    let sweeps = async || {
        let drift = server.get("/v1/system/drift").await.json();
        assert_eq!(drift["data"].as_array().map(Vec::len), Some(0), "{drift}");
        drift["sweeps"][0]["done"].as_u64().unwrap_or_default()
    };
    let before = sweeps().await;
    until("two sweeps", || async { sweeps().await >= before + 2 }).await;
    assert!(place.objects().iter().any(|one| one.issue == "bad" && one.state == "running"));
    assert_eq!(place.calls("delete").len() + place.calls("stop").len(), 0);
}

#[tokio::test]
async fn damage_that_a_start_finds_is_named_with_the_way_out() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("one").await;
    server.stop().await;
    let conn = Connection::open(database(&place)).expect("opens");
    let read = "SELECT rootpage, (SELECT page_size FROM pragma_page_size()) FROM sqlite_schema
                WHERE name = 'issue_live'";
    let number = |row: &rusqlite::Row<'_>, column| row.get::<_, u32>(column).map(|n| n as usize);
    let (page, size) =
        conn.query_row(read, [], |row| Ok((number(row, 0)?, number(row, 1)?))).expect("reads");
    drop(conn);
    let mut bytes = fs::read(database(&place)).expect("reads");
    bytes[(page - 1) * size..page * size].fill(0xA5);
    fs::write(database(&place), bytes).expect("writes");
    let error = refused(&place, &[]).await;
    let data = place.data().display().to_string();
    assert!(error.contains(&format!("the database {data}/issuebox.db is damaged: ")), "{error}");
    assert!(error.contains(&format!("issuebox --data {data} restore FILE")), "{error}");
    assert!(!error.contains("resume unfinished work"), "{error}");
}

/// Fills a disk to its last byte.
fn fill(dir: &Path) -> PathBuf {
    let ballast = dir.join("ballast");
    let mut file = fs::File::create(&ballast).expect("made");
    for len in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; len]).and_then(|()| file.sync_data()).is_ok() {}
    }
    ballast
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, mkfs and loop devices; run by .ci/run"]
async fn a_start_beside_a_full_disk_recovers_when_there_is_room() {
    assert!(geteuid().is_root(), "only root can mount");
    let place = Place::simulated("");
    let _disk = SmallDisk::mount(1, &place.config().with_file_name("small.ext4"), place.data());
    let server = place.serve().await;
    server.running("one").await;
    server.kill().await;
    let ballast = fill(&place.data());
    let error = refused(&place, &[]).await;
    assert!(error.contains("full") && error.contains("start again"), "{error}");
    fs::remove_file(ballast).expect("removed");
    let server = place.serve().await;
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(server.ensure("one").await.status, 200);
    server.running("two").await;
}
