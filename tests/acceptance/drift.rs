//! Changes at the provider without the server are detected within a period and reported;
//! what only looks like such a change is not acted on.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::process::{Object, Place, Server, until};
use crate::processes::{self, local_objects};

/// Sweeps every second.
const SWEPT: &str = "\n[lifecycle]\nreconcile_seconds = 1";

async fn drift(server: &Server) -> Value {
    server.get("/v1/system/drift").await.json()
}

/// The items, as `kind id`.
async fn items(server: &Server) -> Vec<String> {
    let drift = drift(server).await;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let items = drift["data"].as_array().expect("a list").iter();
    items.map(|item| format!("{} {}", text(&item["kind"]), text(&item["id"]))).collect()
}

/// Waits until a sweep has begun and ended after now.
async fn swept(server: &Server) {
    let done = async || {
        let sweeps = drift(server).await["sweeps"].clone();
        let of = |name: &str| sweeps[0][name].as_u64().unwrap_or_default();
        of("done") + of("heldBack") + of("notMade")
    };
    let before = done().await;
    // The one that is under way may have read its list before.
    until("a sweep", || async { done().await >= before + 2 }).await;
}

async fn fails_with(server: &Server, issue: &str, code: &str) {
    until(&format!("{issue} fails with {code}"), || async {
        let sandbox = server.sandbox(issue).await;
        sandbox["phase"] == "failed" && sandbox["failure"]["code"] == code
    })
    .await;
}

fn object_of(place: &Place, issue: &str) -> Object {
    let objects = place.objects();
    objects.into_iter().find(|object| object.issue == issue).expect("it has an object")
}

fn file_of(place: &Place, object: &Object) -> std::path::PathBuf {
    place.simulated_dir().join(format!("{}.json", object.external_id))
}

/// Rewrites one field of an object's file, as an editor would.
fn edit(path: &Path, field: &str, value: &str) {
    let text = std::fs::read(path).expect("a file");
    let mut file: Value = serde_json::from_slice(&text).expect("JSON");
    file[field] = value.into();
    std::fs::write(path, file.to_string()).expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_the_provider_are_detected_and_reported() {
    let place = Place::simulated(SWEPT);
    let server = place.serve().await;
    for issue in ["gone", "killed", "stopped", "well"] {
        server.running(issue).await;
    }
    let id = server.sandbox("stopped").await["id"].as_str().expect("an id").to_owned();
    server.post(&format!("/v1/sandboxes/{id}/stop?wait=10"), &Value::Null).await;
    std::fs::remove_file(file_of(&place, &object_of(&place, "gone"))).expect("removed");
    edit(&file_of(&place, &object_of(&place, "killed")), "state", "stopped");
    fails_with(&server, "gone", "object_lost").await;
    fails_with(&server, "killed", "killed_outside").await;
    swept(&server).await;
    assert_eq!(server.sandbox("stopped").await["phase"], "stopped", "that was our own stop");
    assert_eq!(server.sandbox("well").await["phase"], "running");
    assert_eq!(items(&server).await, Vec::<String>::new(), "the records say what is true");
    // Both come back by a retry, one of them as it was.
    let killed = object_of(&place, "killed");
    for issue in ["gone", "killed"] {
        let id = server.sandbox(issue).await["id"].as_str().expect("an id").to_owned();
        let retried = server.post(&format!("/v1/sandboxes/{id}/retry?wait=10"), &Value::Null).await;
        assert_eq!(retried.json()["data"]["phase"], "running", "{retried:?}");
    }
    assert_eq!(object_of(&place, "killed").external_id, killed.external_id);
    assert_eq!(place.objects().len(), 4);
    let (status, _, log) = server.stop().await;
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_deletes_no_unknown_object() {
    let place = Place::simulated(SWEPT);
    let server = place.serve().await;
    server.running("old").await;
    server.stop().await;
    let backup = tempfile::tempdir().expect("a directory");
    copy(&place.data(), backup.path());
    let server = place.serve().await;
    for issue in ["new-1", "new-2"] {
        server.running(issue).await;
    }
    server.stop().await;
    std::fs::remove_dir_all(place.data()).expect("removed");
    copy(backup.path(), &place.data());

    let server = place.serve().await;
    let [one, two] = ["new-1", "new-2"].map(|issue| object_of(&place, issue));
    until("both are found and stopped", || async {
        items(&server).await.len() == 2
            && [&one, &two].iter().all(|o| object_of(&place, &o.issue).state == "stopped")
    })
    .await;
    let found: BTreeSet<String> = items(&server).await.into_iter().collect();
    let expected = [&one, &two].map(|o| format!("quarantined simulated:{}", o.external_id));
    assert_eq!(found, BTreeSet::from(expected));
    assert_eq!(place.calls("delete").len(), 0);
    // No other issue gets the number of a home that an object carries.
    let other = server.running("another").await;
    assert_eq!(place.objects().len(), 4);
    let path = format!("/v1/system/drift/simulated:{}/adopt", one.external_id);
    let adopted = server.post(&path, &Value::Null).await;
    assert_eq!(adopted.status, 202, "{adopted:?}");
    let sandbox = server.sandbox("new-1").await;
    assert_eq!((&sandbox["phase"], &sandbox["id"]), (&json!("stopped"), &json!(one.sandbox)));
    assert_eq!(server.running("new-1").await["externalId"], json!(one.external_id));
    assert_eq!(server.sandbox("another").await["id"], other["id"]);
    let path = format!("/v1/system/drift/simulated:{}/remove", two.external_id);
    assert_eq!(server.post(&path, &Value::Null).await.status, 202);
    // Accepted is not done yet: the removal goes on behind the answer.
    until("it is removed, and nothing disagrees any more", || async {
        place.objects().len() == 3 && items(&server).await.is_empty()
    })
    .await;
    assert!(place.objects().iter().all(|object| object.external_id != two.external_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_too_many_losses_and_a_replaced_provider_are_not_trusted() {
    let place = Place::simulated(SWEPT);
    let server = place.serve().await;
    for n in 0..5 {
        server.running(&format!("test-{n}")).await;
    }
    let kept = tempfile::tempdir().expect("a directory");
    let names: Vec<_> = place.objects().iter().map(|o| file_of(&place, o)).collect();
    let of = |path: &Path| kept.path().join(path.file_name().expect("a name"));
    for path in &names {
        std::fs::rename(path, of(path)).expect("moved away");
    }
    until("the alarm is raised", || async {
        items(&server).await.first().is_some_and(|item| item == "mass_loss mass_loss:simulated")
    })
    .await;
    let ready = server.get("/readyz").await.json();
    assert_eq!(ready["data"]["degraded"], json!(["simulated: mass_loss"]));
    let shown = place
        .command(&["drift", "--server", &server.url])
        .env("ISSUEBOX_TOKEN", crate::process::TOKEN)
        .output()
        .await
        .expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(shown.contains("issuebox drift adopt mass_loss:simulated"), "{shown}");
    for path in &names {
        std::fs::rename(of(path), path).expect("moved back");
    }
    until("it heals by itself", || async { items(&server).await.is_empty() }).await;
    for n in 0..5 {
        assert_eq!(server.sandbox(&format!("test-{n}")).await["phase"], "running");
    }
    server.stop().await;

    // Another provider at the same place, without any of our objects.
    let identity = place.simulated_dir().join(".simulated/identity");
    let first = std::fs::read_to_string(&identity).expect("it has one");
    std::fs::write(&identity, "another").expect("written");
    for path in &names {
        std::fs::rename(path, of(path)).expect("moved away");
    }
    let calls = place.calls("list").len();
    let server = place.serve().await;
    until("the alarm is raised", || async {
        items(&server).await == ["identity_changed identity:simulated"]
    })
    .await;
    server.ensure("test-9").await;
    swept(&server).await;
    assert_eq!(server.sandbox("test-1").await["phase"], "running");
    assert_eq!(place.objects().len(), 0, "nothing is made there");
    assert_eq!(place.calls("list").len(), calls, "its list is not looked at");
    server.stop().await;
    std::fs::write(&identity, first).expect("written");
    for path in &names {
        std::fs::rename(of(path), path).expect("moved back");
    }
    let server = place.serve().await;
    until("what was wished is made", || async {
        server.sandbox("test-9").await["phase"] == "running"
    })
    .await;
    assert_eq!(server.sandbox("test-1").await["phase"], "running");
    assert_eq!(items(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_real_sandbox_that_is_killed_differs_from_one_that_was_stopped() {
    let Some(place) = Place::local(None).await else { return };
    place.configure(SWEPT);
    let server = place.serve().await;
    let stopped = server.running("stopped").await["id"].as_str().expect("an id").to_owned();
    server.post(&format!("/v1/sandboxes/{stopped}/stop?wait=10"), &Value::Null).await;
    let killed = server.running("killed").await;
    let mark = processes::marker();
    let background = format!("echo kept > kept; setsid sleep {mark} >/dev/null 2>&1 &");
    server.sh(killed["id"].as_str().expect("an id"), &background).await;
    until("it runs", || async { processes::with(&mark, &processes::of(&place, &mark)) == 1 }).await;
    // Its launcher, its first process and what it started, all but the server.
    for process in processes::of(&place, &mark) {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).expect("a pid");
        if process.pid != server.pid {
            // Killing the first process may end others, which then cannot be killed any more.
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(why) => panic!("{pid:?} could not be killed: {why}"),
            }
        }
    }
    fails_with(&server, "killed", "killed_outside").await;
    swept(&server).await;
    assert_eq!(server.sandbox("stopped").await["phase"], "stopped");
    assert_eq!(items(&server).await, Vec::<String>::new());
    assert_eq!(local_objects(&place).len(), 2, "its workspace is there");
    let path = format!("/v1/sandboxes/{}/retry?wait=10", killed["id"].as_str().expect("an id"));
    let retried = server.post(&path, &Value::Null).await;
    assert_eq!(retried.json()["data"]["phase"], "running", "{retried:?}");
    let said = server.sh(killed["id"].as_str().expect("an id"), "cat kept").await;
    assert_eq!(said["stdout"], "kept\n");
    let (status, took, log) = server.stop().await;
    assert!(status.success() && took < Duration::from_secs(14), "{log}");
}

/// The provider watches its sandboxes, so this needs no sweep.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_real_sandbox_whose_first_process_is_killed_is_seen_before_any_sweep() {
    let Some(place) = Place::local(None).await else { return };
    place.configure("\n[lifecycle]\nreconcile_seconds = 86400");
    let server = place.serve().await;
    let id = server.running("killed").await["id"].as_str().expect("an id").to_owned();
    let mark = processes::marker();
    server.sh(&id, &format!("setsid sleep {mark} >/dev/null 2>&1 &")).await;
    let marked = || processes::of(&place, &mark).into_iter().find(|p| p.arguments.contains(&mark));
    let first = || marked().and_then(|marked| i32::try_from(marked.parent).ok());
    until("it runs", || async { marked().is_some() }).await;
    let first = first().and_then(Pid::from_raw).expect("its parent, which is the first process");
    let sweeps = drift(&server).await["sweeps"].clone();
    kill_process(first, Signal::KILL).expect("killed");
    fails_with(&server, "killed", "killed_outside").await;
    assert_eq!(drift(&server).await["sweeps"], sweeps, "no sweep was needed");
    server.stop().await;
}

/// Copies a directory and what is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}
