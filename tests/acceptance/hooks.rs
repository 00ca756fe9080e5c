//! Hooks of a template in real sandboxes: each runs at its moment with its environment, a cold start
//! that fails leaves nothing, one that is killed runs again, and none holds up a delete.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::agent;
use crate::process::{Place, Server, until};
use crate::processes::local_objects;

/// A step that runs this script.
fn step(hook: &str, script: &str) -> String {
    format!("[[templates.default.hooks.{hook}]]\nrun = [\"sh\", \"-c\", {script:?}]\n")
}

/// What happened to an issue, the oldest first.
async fn timeline(server: &Server, issue: &str) -> Vec<String> {
    let events = server.get(&format!("/v1/issues/{issue}/events?limit=200")).await.json();
    let rows = events["data"].as_array().unwrap_or_else(|| panic!("{events}")).iter().rev();
    rows.map(|row| row["reason"].as_str().expect("a reason").to_owned()).collect()
}

fn has(timeline: &[String], what: &str) -> bool {
    timeline.iter().any(|reason| reason.contains(what))
}

#[tokio::test]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_cold_start_that_fails_leaves_nothing_and_a_retry_runs_it_again() {
    let Some(place) = Place::local(None).await else { return };
    let script = "echo tried; echo no such package >&2; exit 3";
    place.configure(&(step("on_cold_start", "echo first") + &step("on_cold_start", script)));
    let server = place.serve().await;
    for tries in 1..=2 {
        if tries == 1 {
            let answer = server.post("/v1/sandboxes?wait=60", &json!({"issueId": "1"})).await;
            assert_eq!(answer.json()["data"]["phase"], "failed", "{answer:?}");
        } else {
            let id = server.sandbox("1").await["id"].as_str().expect("an id").to_owned();
            let answer =
                server.post(&format!("/v1/sandboxes/{id}/retry?wait=60"), &json!({})).await;
            assert_eq!(answer.json()["data"]["phase"], "failed", "{answer:?}");
        }
        let sandbox = server.sandbox("1").await;
        let failure = &sandbox["failure"];
        assert_eq!(
            (&failure["code"], &failure["step"]),
            (&json!("hook_failed"), &json!("cold_start"))
        );
        let message = failure["message"].as_str().expect("a message");
        assert!(message.starts_with("on_cold_start step 2 of 2 (sh -c echo tried"), "{message}");
        assert!(message.contains("ended with exit code 3:\n"), "{message}");
        assert!(message.ends_with("no such package"), "{message}");
        assert_eq!(local_objects(&place), [], "nothing is left");
        let reasons = timeline(&server, "1").await;
        let succeeded = reasons.iter().filter(|one| one.contains("step 1 of 2 (sh -c echo first)"));
        assert_eq!(succeeded.count(), tries, "{reasons:?}");
        let id = sandbox["id"].as_str().expect("an id");
        let log = format!("/v1/sandboxes/{id}/logs");
        until("the log has each try", || async {
            server.get(&log).await.text.matches("\"tried\"").count() == tries
        })
        .await;
    }
}

#[tokio::test]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn each_hook_runs_at_its_moment_with_its_environment() {
    let Some(place) = Place::local(None).await else { return };
    let keep = |hook: &str| step(hook, &format!("env | grep ^ISSUEBOX_ | sort >> {hook}; date"));
    let hooks = ["on_cold_start", "on_message", "on_stream_finish", "on_terminate"];
    let more: String = hooks.map(keep).concat();
    let server = agent::serve_with(&place, &more).await;
    let id = server.running("test-7").await["id"].as_str().expect("an id").to_owned();
    agent::teach(&server, &id, "").await;
    let read = async |hook: &str| {
        let answer = server.sh(&id, &format!("cat {hook}")).await;
        answer["stdout"].as_str().expect("a text").to_owned()
    };
    let own = format!("ISSUEBOX_ACCOUNT=default\nISSUEBOX_ISSUE=test-7\nISSUEBOX_SANDBOX={id}\n");
    assert_eq!(read("on_cold_start").await, own);
    let path = format!("/v1/sandboxes/{id}/messages");
    let said = server.post(&path, &json!({"text": "say hello"})).await;
    assert!(said.is_success(), "{said:?}");
    until("the hook after the run ran", || async { !read("on_stream_finish").await.is_empty() })
        .await;
    let (before, after) = (read("on_message").await, read("on_stream_finish").await);
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split('=').next().unwrap_or_default().to_owned()).collect()
    };
    let of_run = ["ACCOUNT", "CONVERSATION", "ISSUE", "MESSAGE", "RUN", "SANDBOX"];
    assert_eq!(lines(&before), of_run.map(|name| format!("ISSUEBOX_{name}")), "{before}");
    let of_run = ["ACCOUNT", "CONVERSATION", "ISSUE", "RUN", "SANDBOX"];
    assert_eq!(lines(&after), of_run.map(|name| format!("ISSUEBOX_{name}")), "{after}");
    let stopped = server.post(&format!("/v1/sandboxes/{id}/stop?wait=60"), &json!({})).await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped", "{stopped:?}");
    let started = server.post(&format!("/v1/sandboxes/{id}/start?wait=60"), &json!({})).await;
    assert_eq!(started.json()["data"]["phase"], "running", "{started:?}");
    let terminate = read("on_terminate").await;
    let of_sandbox = ["ACCOUNT", "CONVERSATION", "ISSUE", "SANDBOX"];
    assert_eq!(lines(&terminate), of_sandbox.map(|name| format!("ISSUEBOX_{name}")), "{terminate}");
    assert_eq!(read("on_cold_start").await, own, "a start with a workspace needs no cold start");
    let reasons = timeline(&server, "test-7").await;
    for hook in hooks {
        assert!(has(&reasons, &format!("{hook} step 1 of 1 (sh -c env")), "{hook}: {reasons:?}");
    }
    let configuration = server.get(&format!("/v1/sandboxes/{id}/configuration")).await.json();
    let shown = &configuration["data"]["hooks"]["on_message"][0];
    assert_eq!((&shown["run"][0], &shown["timeoutSeconds"]), (&json!("sh"), &json!(600)));
}

#[tokio::test]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_hook_that_hangs_holds_up_no_stop_and_no_delete() {
    let Some(place) = Place::local(None).await else { return };
    let mut command = place.serve_command("127.0.0.1:0");
    let cold_start = step("on_cold_start", "echo cold >> cold");
    place.configure(&(cold_start + &step("on_terminate", "echo waiting; sleep 1000")));
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__GRACE_SECONDS", "1");
    let server = Server::start(command.stdout(std::process::Stdio::null())).await;
    let id = server.running("1").await["id"].as_str().expect("an id").to_owned();
    // The next start finds an empty workspace.
    server.sh(&id, "find . -mindepth 1 -delete").await;
    let began = Instant::now();
    let stopped = server.post(&format!("/v1/sandboxes/{id}/stop?wait=60"), &json!({})).await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped", "{stopped:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "it had its grace");
    server.running("1").await;
    assert_eq!(server.sh(&id, "cat cold").await["stdout"], "cold\n", "it ran again");
    let deleted = server.delete(&format!("/v1/sandboxes/{id}?wait=60")).await;
    assert!(deleted.is_success(), "{deleted:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(local_objects(&place), []);
    let reasons = timeline(&server, "1").await;
    let of_grace = reasons.iter().filter(|one| one.contains("grace time of 1 s"));
    assert_eq!(of_grace.count(), 2, "{reasons:?}");
}

#[tokio::test]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_server_killed_in_a_cold_start_runs_it_again_in_the_same_sandbox() {
    let Some(place) = Place::local(None).await else { return };
    let script = "if [ -e begun ]; then echo again > done; else touch begun; sleep 1000; fi";
    place.configure(&step("on_cold_start", script));
    let server = place.serve().await;
    assert_eq!(server.ensure("1").await.status, 201);
    let sandbox = server.sandbox("1").await;
    let id = sandbox["id"].as_str().expect("an id").to_owned();
    let log = format!("/v1/sandboxes/{id}/logs");
    until("its cold start runs", || async { server.get(&log).await.text.contains("begun") }).await;
    assert_eq!(server.sandbox("1").await["phase"], "creating");
    server.signal(Signal::KILL);
    server.kill().await;
    let server = place.serve().await;
    let up = || async { server.sandbox("1").await["phase"] == "running" };
    until("its cold start succeeded", up).await;
    let sandbox = server.sandbox("1").await;
    assert_eq!((&sandbox["id"], &sandbox["generation"]), (&json!(id), &json!(1)));
    assert_eq!(local_objects(&place).len(), 1, "there is no second one");
    let read = server.sh(&id, "cat done; ls begun").await;
    assert_eq!(read["stdout"], "again\nbegun\n", "its workspace is the same");
}

#[tokio::test]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_workspace_is_pushed_before_a_stop_and_a_delete_and_pulled_by_a_cold_start() {
    let Some(place) = Place::local(None).await else { return };
    let storage = tempfile::tempdir().expect("a directory");
    let text = format!(
        "[sync]\nurl = \"file://{}\"\n[templates.default.sync]\non_stop = true\n\
         before_delete = true\n[[templates.default.hooks.on_cold_start]]\nuses = \"sync-pull\"\n",
        storage.path().display()
    );
    place.configure(&text);
    let server = place.serve().await;
    let id = server.running("1").await["id"].as_str().expect("an id").to_owned();
    server.sh(&id, "echo kept > kept").await;
    let stopped = server.post(&format!("/v1/sandboxes/{id}/stop?wait=60"), &json!({})).await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped", "{stopped:?}");
    let versions = async |server: &Server| {
        let answer = server.get(&format!("/v1/sandboxes/{id}/sync/versions")).await.json();
        answer["total"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(versions(&server).await, 1);
    // The cold start of an empty workspace brings back what was pushed last. A killed server pushes
    // nothing, and its sandbox ends with it.
    server.running("1").await;
    server.sh(&id, "find . -mindepth 1 -delete").await;
    server.signal(Signal::KILL);
    server.kill().await;
    let server = place.serve().await;
    server.running("1").await;
    assert_eq!(server.sh(&id, "cat kept").await["stdout"], "kept\n");
    let path = format!("/v1/sandboxes/{id}/files?source=synced");
    assert!(server.get(&path).await.text.contains("\"kept\""));
    let deleted = server.delete(&format!("/v1/sandboxes/{id}?wait=60")).await;
    assert!(deleted.is_success(), "{deleted:?}");
    assert_eq!(versions(&server).await, 2);
    assert!(has(&timeline(&server, "1").await, "the workspace was pushed"));
}
