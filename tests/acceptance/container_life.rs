//! The life of one sandbox in a container, as a caller of the server and its engine see it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::agent_place::KEY;
use crate::container_place::ContainerPlace;
use crate::engine;
use crate::process::{SECRET, Server, TOKEN, until};

/// How soon a kill by another program must be seen. Usually it takes some ten milliseconds; other tests
/// run at the same time.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn forty_callers_at_once_are_given_one_container() {
    let place = ContainerPlace::new("");
    let server = place.place.serve().await;
    let body = json!({"issueId": place.issue(0)});
    let ask = async |_| server.post("/v1/sandboxes?wait=60", &body).await;
    let answers = join_all((0..40).map(ask)).await;
    let container = place.container(0);
    for answer in answers {
        assert!(answer.is_success(), "{answer:?}");
        let sandbox = &answer.json()["data"];
        assert_eq!(sandbox["phase"], "running", "{answer:?}");
        assert_eq!(sandbox["id"], container.sandbox.as_str(), "{answer:?}");
        assert_eq!(sandbox["externalId"], container.id.as_str(), "{answer:?}");
    }
    place.each_has_its_container(&server).await;
    assert_eq!(place.workspaces().len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_create_under_a_killed_server_is_finished_by_the_next_one() {
    let place = ContainerPlace::new("");
    // The events of a create, in their order; at none of them the ensure has just been answered.
    let moments = [None, Some("create"), Some("start"), Some("exec_create"), Some("exec_start")];
    for (n, moment) in moments.into_iter().enumerate() {
        let issue = place.issue(n);
        let mut server = place.place.serve().await;
        let events = engine::Events::about(&engine::host(), &format!("issuebox.issue={issue}"));
        let asked = server.ensure(&issue).await;
        assert!(asked.is_success(), "{asked:?}");
        if let Some(moment) = moment {
            until(moment, || async { events.count(moment) > 0 }).await;
        }
        server.kill().await;
        server = place.place.serve().await;
        let sandbox = server.running(&issue).await;
        assert_eq!(sandbox["id"], asked.sandbox_id(), "killed at {moment:?}");
        let container = place.container(n);
        assert_eq!(sandbox["externalId"], container.id.as_str(), "killed at {moment:?}");
        assert_eq!(container.state, "running", "killed at {moment:?}");
        assert_eq!(server.sh(&container.sandbox, "echo works").await["stdout"], "works\n");
        until("the create is heard of", || async { events.count("create") > 0 }).await;
        assert_eq!(events.count("create"), 1, "killed at {moment:?}");
        assert_eq!(events.count("destroy"), 0, "killed at {moment:?}");
        server.kill().await;
    }
    let server = place.place.serve().await;
    let live = place.each_has_its_container(&server).await;
    assert_eq!((live.len(), place.workspaces().len()), (moments.len(), moments.len()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn another_program_s_container_under_the_name_stays_and_is_named_in_the_failure() {
    let place = ContainerPlace::new("");
    let run = ["run", "--detach", "--network", "none", "--name"];
    let command = [engine::image(), "sleep", "1000"];
    let foreign = place.docker(&[&run[..], &[&place.name(0)], &command].concat());
    let look = ["inspect", "--format", "{{.State.Running}} {{.State.StartedAt}}", &foreign];
    let before = place.docker(&look);
    let server = place.place.serve().await;
    let body = json!({"issueId": place.issue(0)});
    let answer = server.post("/v1/sandboxes?wait=30", &body).await.json();
    let sandbox = &answer["data"];
    assert_eq!(sandbox["phase"], "failed", "{answer}");
    let message = sandbox["failure"]["message"].as_str().expect("a message");
    assert!(message.contains(&foreign), "it says which: {message}");
    assert!(message.contains("remove or rename it"), "it says what to do: {message}");
    let id = sandbox["id"].as_str().expect("an id");
    for call in ["stop", "retry"] {
        server.post(&format!("/v1/sandboxes/{id}/{call}?wait=20"), &json!({})).await;
        assert_eq!(place.docker(&look), before, "{call}: it runs as before");
    }
    place.docker(&["rm", "--force", &foreign]);
    let again = json!({"issueId": place.issue(0), "retry": true});
    let answer = server.post("/v1/sandboxes?wait=60", &again).await.json();
    assert_eq!(answer["data"]["phase"], "running", "{answer}");
    assert_eq!(answer["data"]["id"], id, "{answer}");
    place.each_has_its_container(&server).await;
    server.stop().await;
}

/// The phases that an issue's timeline has, the oldest first.
async fn phases(server: &Server, issue: &str) -> Vec<String> {
    let timeline = server.get(&format!("/v1/issues/{issue}/events?limit=200")).await.json();
    let rows = timeline["data"].as_array().expect("a list").iter().rev();
    rows.filter_map(|row| row["to"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn an_end_from_outside_is_told_from_a_stop_and_a_delete_leaves_nothing() {
    let place = ContainerPlace::new("");
    let server = place.place.serve().await;
    let networks = || place.docker(&["network", "ls", "--quiet", "--no-trunc"]);
    let (before, issue) = (networks(), place.issue(0));
    let sandbox = server.running(&issue).await;
    let id = sandbox["id"].as_str().expect("an id").to_owned();
    server.sh(&id, "echo kept > kept").await;
    let container = place.container(0);

    place.docker(&["kill", &container.id]);
    let began = Instant::now();
    until("the end is noticed", || async { server.sandbox(&issue).await["phase"] != "running" })
        .await;
    let took = began.elapsed();
    println!("noticed after {took:?}");
    assert!(took < NOTICED_WITHIN, "{took:?}");
    until("it is failed", || async { server.sandbox(&issue).await["phase"] == "failed" }).await;
    let failed = server.sandbox(&issue).await;
    assert_eq!(failed["failure"]["code"], "killed_outside", "{failed}");
    let retried = server.post(&format!("/v1/sandboxes/{id}/retry?wait=60"), &json!({})).await;
    assert_eq!(retried.json()["data"]["phase"], "running", "{retried:?}");
    assert_eq!(server.sh(&id, "cat kept").await["stdout"], "kept\n");

    let stopped = server.post(&format!("/v1/sandboxes/{id}/stop?wait=60"), &json!({})).await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped", "{stopped:?}");
    assert_eq!(place.container(0).state, "exited");
    assert_eq!(server.running(&issue).await["externalId"], container.id.as_str());
    let phases = phases(&server, &issue).await;
    let failures = phases.iter().filter(|phase| *phase == "failed").count();
    assert_eq!(failures, 1, "a stop of ours is no end from outside: {phases:?}");

    let deleted = server.delete(&format!("/v1/sandboxes/{id}?wait=60")).await;
    assert_eq!(deleted.json()["data"]["phase"], Value::Null, "{deleted:?}");
    assert_eq!((place.containers(), place.workspaces()), (vec![], vec![]));
    assert_eq!(networks(), before, "no network is made or left");
    server.stop().await;
}

/// Whether one of these texts is in what docker's command line writes.
fn is_in(place: &ContainerPlace, texts: &[&str], args: &[&str]) -> bool {
    let mut shown = Command::new("docker")
        .args(["--host", &engine::host()])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .expect("docker is there");
    let mut search = Command::new("grep")
        .args(["-aqF", "--", &texts.join("\n")])
        .stdin(shown.stdout.take().expect("a pipe"))
        .spawn()
        .expect("grep is there");
    let is_found = search.wait().expect("waited").success();
    let ended = shown.wait().expect("waited");
    assert!(is_found || ended.success(), "{args:?} at {}", place.place.data().display());
    is_found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn no_secret_of_the_server_is_in_a_container() {
    const SEEN: &str = "seen-inside";
    const APP: &str = "github-token-of-the-server";
    const OTHER: &str = "password-of-the-server-s-environment";
    let place = ContainerPlace::new(&format!("[templates.default.env]\nSEEN = {SEEN:?}"));
    let key = place.place.config().with_file_name("model-key");
    std::fs::File::create(&key)
        .and_then(|mut file| file.write_all(KEY.as_bytes()))
        .expect("written");
    let mut command = place.place.serve_command("127.0.0.1:0");
    command
        .env("ISSUEBOX__MODELS__ANTHROPIC__KEY_FILE", &key)
        .env("ISSUEBOX__GITHUB__TOKEN", APP)
        .env("ISSUEBOX__GITHUB__API_URL", "http://127.0.0.1:9")
        .env("UNRELATED_PASSWORD", OTHER)
        .stdout(Stdio::null());
    let server = Server::start(&mut command).await;
    let secrets = [TOKEN, SECRET, KEY, APP, OTHER];
    server.running(&place.issue(0)).await;
    let container = place.container(0);
    let begun = "sleep 1000 > /dev/null 2>&1 & echo $SEEN > seen; echo begun";
    assert_eq!(server.sh(&container.sandbox, begun).await["stdout"], "begun\n");

    // What a process inside reads of all processes, and what root of the host does.
    let read = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env";
    let inside = server.sh(&container.sandbox, read).await["stdout"].to_string();
    let top = place.docker(&["top", &container.id, "-eo", "pid"]);
    let pids: Vec<&str> = top.lines().skip(1).map(str::trim).collect();
    assert!(pids.len() > 1, "the helper and what was begun: {top}");
    let environ = |pid: &&str| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let outside =
        String::from_utf8_lossy(&pids.iter().flat_map(environ).collect::<Vec<_>>()).into_owned();
    for shown in [&inside, &outside] {
        assert!(shown.contains(SEEN), "what is plain is seen: {shown}");
        let found: Vec<_> = secrets.iter().filter(|secret| shown.contains(**secret)).collect();
        assert!(found.is_empty(), "{found:?} in {shown}");
    }
    let id = container.id.as_str();
    let [workspace, helper] = ["/workspace", "/.issuebox"].map(|dir| format!("{id}:{dir}"));
    assert!(is_in(&place, &[SEEN], &["cp", &workspace, "-"]), "the workspace is looked through");
    let ways: [&[&str]; 6] = [
        &["cp", &workspace, "-"],
        &["cp", &helper, "-"],
        &["export", id],
        &["inspect", id],
        &["logs", id],
        &["volume", "inspect", &place.workspaces()[0]],
    ];
    for way in ways {
        assert!(!is_in(&place, &secrets, way), "a secret is in docker {way:?}");
    }
    server.stop().await;
}
