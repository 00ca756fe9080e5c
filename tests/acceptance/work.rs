//! Work in real sandboxes through HTTP: commands, their streams and their ends, and files that
//! hostile links must not lead out of.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Method;
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::process::{Answer, Place, Server, send, until};
use crate::processes::{self, marker};

/// A server with one running sandbox.
struct World {
    place: Place,
    server: Server,
    id: String,
}

impl World {
    async fn new(user: Option<u32>) -> Option<Self> {
        let place = Place::local(user).await?;
        let server = place.serve().await;
        let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
        Some(Self { place, server, id })
    }

    async fn exec(&self, call: Value) -> Answer {
        self.server.post(&format!("/v1/sandboxes/{}/exec", self.id), &call).await
    }

    async fn sh(&self, script: &str) -> String {
        let ended = self.server.sh(&self.id, script).await;
        assert_eq!(ended["exitCode"], 0, "{script}: {ended}");
        ended["stdout"].as_str().expect("text").to_owned()
    }

    fn content(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let path = format!("/v1/sandboxes/{}/files/content?path={path}", self.id);
        self.server.request(method, &path)
    }

    async fn read(&self, path: &str) -> Answer {
        send(self.content(Method::GET, path)).await
    }

    async fn write(&self, path: &str, body: &'static str) -> Answer {
        send(self.content(Method::PUT, path).body(body)).await
    }

    fn running_with(&self, mark: &str) -> usize {
        processes::with(mark, &processes::of(&self.place, mark))
    }

    async fn until_running_with(&self, mark: &str, count: usize) {
        until("so many processes", || async { self.running_with(mark) == count }).await;
    }
}

async fn commands_have_streams_codes_and_bounds(world: &World) {
    let script = "cat; pwd; echo $KEY; echo oops >&2; exit 7";
    let ended = world
        .exec(json!({"command": ["sh", "-c", script], "stdin": "in\n", "env": {"KEY": "a value"}}))
        .await
        .json();
    let data = &ended["data"];
    assert_eq!(
        (&data["exitCode"], &data["stdout"], &data["stderr"], &data["timedOut"]),
        (&json!(7), &json!("in\n/workspace\na value\n"), &json!("oops\n"), &json!(false))
    );
    // It has no uid of a user of the host, and sees nothing of the host.
    assert_eq!(
        world.sh("id -u; ls /root /home 2>/dev/null; hostname").await.lines().next(),
        Some("1000")
    );
    let seen = world.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; env").await;
    assert!(!seen.contains("serve") && !seen.contains("ISSUEBOX"), "{seen}");

    let mark = marker();
    let script = format!("set -m; trap '' TERM; sleep {mark} & echo begun; sleep {mark}");
    let call = json!({"command": ["bash", "-c", script], "timeoutSeconds": 1});
    let cut = world.exec(call).await.json();
    assert_eq!((&cut["data"]["timedOut"], &cut["data"]["exitCode"]), (&json!(true), &json!(137)));
    assert_eq!(cut["data"]["stdout"], "begun\n");
    assert_eq!(world.running_with(&mark), 0, "nothing is left when the end is reported");
    let unknown = world.exec(json!({"command": ["no-such-command"]})).await;
    assert_eq!(unknown.refusal(), (422, "command_not_found".into()));
}

async fn output_streams_while_the_command_runs(world: &World) {
    let path = format!("/v1/sandboxes/{}/exec", world.id);
    let request = |script: &str| {
        let request = world.server.request(Method::POST, &path);
        let request = request.header("accept", "text/event-stream");
        request.json(&json!({"command": ["sh", "-c", script]}))
    };
    // The second half is written only after the first was received.
    let script = "echo first; until [ -e go ]; do sleep 0.01; done; echo second >&2; exit 3";
    let answer = request(script).send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let (mut pieces, mut seen) = (answer.bytes_stream(), String::new());
    let mut until_seen = async |what: &str| {
        while !seen.contains(what) {
            let piece = pieces.next().await.expect("it goes on").expect("it is sound");
            seen.push_str(&String::from_utf8_lossy(&piece));
        }
        seen.clone()
    };
    let out = "event: stdout\ndata: {\"data\":\"first\\n\",\"encoding\":\"utf-8\"}\n\n";
    until_seen(out).await;
    assert_eq!(world.write("go", "").await.status, 201);
    let all = until_seen("event: exit").await;
    assert!(all.contains("event: stderr\ndata: {\"data\":\"second\\n\""), "{all}");
    let all = until_seen("\"exitCode\":3").await;
    assert!(all.contains("event: exit\n"), "{all}");
}

async fn a_caller_that_goes_away_ends_its_command(world: &World) {
    let path = format!("/v1/sandboxes/{}/exec", world.id);
    for accept in ["application/json", "text/event-stream"] {
        let (mark, other) = (marker(), marker());
        world.sh(&format!("setsid sleep {other} >/dev/null 2>&1 &")).await;
        let script = format!("sleep {mark} & sleep {mark}");
        let request = world.server.request(Method::POST, &path).header("accept", accept);
        let request = request.json(&json!({"command": ["sh", "-c", script]}));
        let caller = tokio::spawn(async move {
            let answer = request.send().await.expect("an answer");
            answer.text().await
        });
        world.until_running_with(&mark, 3).await;
        caller.abort();
        world.until_running_with(&mark, 0).await;
        assert_eq!(world.running_with(&other), 1, "{accept}: other commands go on");
    }
}

async fn files_stay_in_the_workspace(world: &World) {
    assert_eq!(world.write("a/b.txt", "one").await.status, 201);
    assert_eq!(world.write("/workspace/a/b.txt", "two").await.status, 204);
    assert_eq!(world.read("a/b.txt").await.text, "two");
    assert_eq!(world.sh("cat a/b.txt").await, "two");
    world
        .sh("ln -s /etc/shadow shadow; ln -s / root; ln -s ../../../../etc up; \
             ln -s /proc/1/root proc1; ln -s /proc/self/environ environ; ln -s a/b.txt inside; \
             mkfifo fifo; touch \"$(printf 'bad\\377name')\"")
        .await;
    for path in ["shadow", "root/etc/passwd", "up/passwd", "proc1/etc/passwd", "environ"] {
        let read = world.read(path).await;
        assert_eq!(read.refusal(), (400, "path_not_allowed".into()), "reading {path}");
        let written = world.write(path, "x").await;
        assert_eq!(written.refusal(), (400, "path_not_allowed".into()), "writing {path}");
    }
    for path in ["root/etc/hosts", "up/hosts", "proc1/tmp"] {
        let deleted = send(world.content(Method::DELETE, path)).await;
        assert_eq!(deleted.refusal(), (400, "path_not_allowed".into()), "deleting {path}");
    }
    for path in ["../x", "/etc/passwd", "a/%2e%2e/%2e%2e/x", "a%00b"] {
        let read = world.read(path).await;
        assert_eq!(read.refusal(), (400, "path_not_allowed".into()), "{path}");
    }
    assert_eq!(world.read("inside").await.text, "two", "within the workspace links are followed");
    assert_eq!(world.read("fifo").await.refusal(), (422, "wrong_kind".into()));
    assert_eq!(world.read("nothing").await.refusal(), (404, "file_not_found".into()));

    let list = world.server.get(&format!("/v1/sandboxes/{}/files?depth=4", world.id)).await.json();
    let entries = list["data"]["entries"].as_array().expect("a list");
    let kind = |path: &str| {
        let entry = entries.iter().find(|entry| entry["path"] == path);
        entry.unwrap_or_else(|| panic!("{path} in {list}"))["kind"].clone()
    };
    assert_eq!(
        [kind("a"), kind("a/b.txt"), kind("root"), kind("fifo")],
        ["directory", "file", "link", "other"]
    );
    let below = |entry: &&Value| entry["path"].as_str().is_some_and(|p| p.starts_with("root/"));
    assert_eq!(entries.iter().find(below), None, "a list goes below no link");
    assert!(entries.iter().any(|entry| entry["nameBase64"] == "YmFk/25hbWU="), "{list}");
    assert_eq!(world.read("bad%ffname").await.status, 200);
    for path in ["root", "shadow", "a"] {
        assert_eq!(send(world.content(Method::DELETE, path)).await.status, 204, "{path}");
    }
    assert_eq!(world.sh("ls -d a root 2>/dev/null; ls /etc/passwd").await, "/etc/passwd\n");
    assert!(std::path::Path::new("/etc/passwd").exists());
}

async fn background_processes_live_until_the_stop(world: &World) {
    let mark = marker();
    world.sh(&format!("sleep {mark} & setsid sleep {mark} >/dev/null 2>&1 & echo > here")).await;
    world.until_running_with(&mark, 2).await;
    let path = format!("/v1/sandboxes/{}", world.id);
    let stopped = world.server.post(&format!("{path}/stop?wait=30"), &json!({})).await.json();
    assert_eq!(stopped["data"]["phase"], "stopped", "{stopped}");
    assert_eq!(world.running_with(&mark), 0, "nothing outlives the stop");
    let refused = world.exec(json!({"command": ["true"]})).await;
    assert_eq!(refused.refusal(), (409, "stopped".into()), "a person stopped it");
    let started = world.server.post(&format!("{path}/start?wait=30"), &json!({})).await.json();
    assert_eq!(started["data"]["phase"], "running", "{started}");
    assert_eq!(world.sh("ls here").await, "here\n", "the workspace is kept");

    world.sh(&format!("sleep {mark} >/dev/null 2>&1 &")).await;
    let deleted = world.server.delete(&format!("{path}?wait=30")).await;
    assert_eq!((deleted.status, &deleted.json()["data"]["phase"]), (200, &Value::Null));
    assert_eq!(world.running_with(&mark), 0);
    assert_eq!(processes::local_objects(&world.place), []);
    let gone = world.exec(json!({"command": ["true"]})).await;
    assert_eq!(gone.refusal(), (409, "sandbox_deleted".into()));
    let next = world.server.running("test-1").await;
    assert_eq!(next["generation"], 2);
    let id = next["id"].as_str().expect("an id");
    assert_eq!(world.server.sh(id, "ls -A").await["stdout"], "", "a workspace of its own");
}

async fn all_of_it(user: Option<u32>) {
    let Some(world) = World::new(user).await else { return };
    commands_have_streams_codes_and_bounds(&world).await;
    output_streams_while_the_command_runs(&world).await;
    a_caller_that_goes_away_ends_its_command(&world).await;
    files_stay_in_the_workspace(&world).await;
    background_processes_live_until_the_stop(&world).await;
    let (status, took, log) = world.server.stop().await;
    assert!(status.success() && took < Duration::from_secs(5), "{took:?} {log}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn work_in_a_real_sandbox_over_http() {
    all_of_it(None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes as another user; run by .ci/run as root"]
async fn work_in_a_real_sandbox_of_an_ordinary_users_server() {
    if geteuid().is_root() {
        all_of_it(Some(65_534)).await;
    }
}
