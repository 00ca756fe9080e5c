//! The whole program: `issuebox serve` on a free port, and the other verbs against it.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::process::{Place, Server};
use crate::stub::{Ran, program};
use serde_json::Value;

/// A server with the simulated provider, ended with its test.
struct Served {
    child: Child,
    url: String,
    data: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let mut command = program(&["serve", "--listen", "127.0.0.1:0"]);
        command
            .env("ISSUEBOX_DATA", data.path())
            .env("ISSUEBOX__TEMPLATES__DEFAULT__PROVIDER", "simulated")
            .env("ISSUEBOX__PROVIDERS__SIMULATED__DIR", data.path().join("simulated"))
            .env("ISSUEBOX__QUOTA__LIVE", "0")
            .env("ISSUEBOX__TEMPLATES__DEFAULT__GIT__CLONE", "full");
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut seen = Vec::new();
        let url = log.by_ref().map_while(Result::ok).find_map(|line| {
            let url = line.split_once("ready on ").map(|(_, url)| url.trim().to_owned());
            seen.push(line);
            url
        });
        let Some(url) = url else { panic!("it is not ready: {seen:#?}") };
        assert!(seen.iter().any(|line| {
            line.contains("templates.default.git.clone has no effect without credentials")
        }));
        assert!(seen.iter().any(|line| line.contains("generated a new admin token")), "{seen:#?}");
        // Its later lines are read away, so that it never waits for a reader.
        std::thread::spawn(move || log.for_each(drop));
        Self { child, url, data }
    }

    fn run(&self, args: &[&str]) -> Ran {
        let token = self.data.path().join("admin-token");
        let place = ["--server", &self.url, "--token-file", path(&token)];
        Ran::of(&mut program(&[&place, args].concat()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn an_issues_whole_life_from_the_command_line() {
    let served = Served::start();
    let done = |args: &[&str], out: &str| {
        let ended = served.run(args);
        assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, out, ""), "{args:?}");
    };
    assert_eq!(served.run(&["get", "test-123"]).code, 3);
    let ensured = served.run(&["ensure", "test-123", "--wait", "--title", "A title"]);
    assert!(ensured.out.starts_with("claude-issue-test-123 running  created: "), "{ensured:?}");
    let id = served.run(&["ensure", "test-123", "-q"]).out;
    done(&["get", "-q", "claude-issue-test-123"], &id);
    done(&["ls", "-q"], &id);
    // On the server's machine the data directory has its address and its token.
    let here = Ran::of(&mut program(&["--data", path(served.data.path()), "ls", "-q"]));
    assert_eq!((here.code, &here.out), (0, &id), "{here:?}");
    done(&["get", "-q", id.trim()], &id);
    let listed: Value = serde_json::from_str(&served.run(&["ls", "-o", "json"]).out).expect("JSON");
    assert_eq!(listed[0]["issueTitle"], "A title");

    let ran = served.run(&["exec", "test-123", "--", "hello", "there"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains("there"), "{ran:?}");

    done(&["stop", "test-123", "--wait"], "claude-issue-test-123 stopped\n");
    let refused = served.run(&["exec", "test-123", "--", "x"]);
    assert_eq!(refused.code, 1, "a person stopped it: {refused:?}");
    done(&["start", "test-123", "--wait"], "claude-issue-test-123 running\n");
    done(&["wait", "--for=running", "test-123"], "claude-issue-test-123 running\n");
    assert_eq!(served.run(&["retry", "test-123"]).code, 1);
    done(&["rm", "test-123", "--yes", "--wait"], "claude-issue-test-123 deleted\n");
    done(&["wait", "--for=deleted", "test-123"], "");

    let again = served.run(&["ensure", "test-123", "--wait", "-o", "json"]);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(again["data"]["generation"], 2);
    let events = served.run(&["events", "test-123"]);
    let phases: Vec<_> = events.out.lines().filter(|line| line.contains(" → ")).collect();
    assert!(phases.len() >= 10, "{}", events.out);
    assert!(phases[0].contains("nothing → creating"), "{}", events.out);
}

#[test]
fn words_that_the_server_rejects_are_wrong_usage() {
    let served = Served::start();
    let ended = served.run(&["ensure", "a..b"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    let ended = served.run(&["ls", "--phase", "soon"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    let unknown = served.run(&["ensure", "octo/hello#7"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.err.contains("hint: "), "{unknown:?}");
}

#[test]
fn a_second_server_on_one_port_or_data_directory_refuses_to_start() {
    let served = Served::start();
    let address = served.url.trim_start_matches("http://");
    let other = tempfile::tempdir().expect("a directory");
    let mut command = program(&["serve", "--listen", address, "--data", path(other.path())]);
    let taken = Ran::of(&mut command);
    assert_eq!(taken.code, 1);
    assert!(taken.err.contains(&format!("error: cannot listen on {address}")), "{taken:?}");

    let mut command = program(&["serve", "--listen", "127.0.0.1:0"]);
    let shared = Ran::of(command.env("ISSUEBOX_DATA", served.data.path()));
    assert_eq!(shared.code, 1, "{shared:?}");
    assert!(shared.err.contains("error: "), "{shared:?}");
}

#[test]
fn the_demo_shows_one_sandbox_an_issue_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().expect("a directory");
    let mut command = program(&["demo", "--exit"]);
    let shown = Ran::of(command.env("TMPDIR", temporary.path()));
    assert_eq!((shown.code, shown.err.as_str()), (0, ""), "{shown:?}");
    let is_left_out = shown.out.contains("The part from a label to a pull request is left out: ");
    let is_told = shown.out.contains("In all 1 reaction, 1 comment and 1 pull request.");
    assert!(is_told != is_left_out, "{}", shown.out);
    assert!(shown.out.contains("124 in parallel, out of order"), "{}", shown.out);
    assert!(shown.out.contains("each exactly one"), "{}", shown.out);
    let row = |issue: &str| {
        let row = shown.out.lines().find(|line| line.contains(issue)).expect("a row");
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("orchard#12 ")[..4], ["running", "pear-garden/orchard#12", "20", "1"]);
    assert_eq!(row("orchard#14 ")[..4], ["none", "pear-garden/orchard#14", "4", "0"]);
    let left = std::fs::read_dir(temporary.path()).expect("a directory").count();
    assert_eq!(left, 0, "the demo's data must be gone");
}

#[test]
fn the_demo_names_what_a_provider_needs() {
    let said = |args: &[&str]| {
        let refused = Ran::of(&mut program(&[&["demo", "--exit", "--provider"], args].concat()));
        assert_eq!(refused.code, 1, "{refused:?}");
        refused.err
    };
    insta::assert_snapshot!(said(&["docker"]), @"error: the provider docker creates sandboxes from an image; name one that has git and a shell: issuebox demo --provider docker --image IMAGE");
    insta::assert_snapshot!(said(&["podman"]), @"error: there is no provider podman; choose one of local, simulated, docker, daytona");
    insta::assert_snapshot!(said(&["local", "--image", "debian:12"]), @"error: --image is not possible with the provider local: its sandboxes see the programs of this machine; remove the key, or use a provider with images");
}

#[tokio::test]
async fn a_start_warns_of_what_others_can_read_and_refuses_what_they_can_write() {
    let place = Place::simulated("");
    let chmod = |mode: u32| {
        std::fs::set_permissions(place.data(), Permissions::from_mode(mode)).expect("it is ours");
    };
    std::fs::create_dir(place.data()).expect("made");
    chmod(0o755);
    let mut command = place.serve_command("0.0.0.0:0");
    let server = Server::start(&mut command).await;
    let log = server.log();
    let data = place.data().display().to_string();
    for warning in [
        &format!("other users can read {data} (mode 0755): chmod 0700 {data}"),
        "the webhook secret is shorter than 32 characters",
        "the admin token is shorter than 32 characters",
        "this server speaks plain HTTP on 0.0.0.0:0",
    ] {
        let is_there = log.lines().any(|line| line.contains("WARN") && line.contains(warning));
        assert!(is_there, "{warning} in {log}");
    }
    let read = format!("read the configuration file={}", place.config().display());
    assert!(log.contains(&read), "{log}");
    server.kill().await;

    chmod(0o777);
    let refused = place.serve_command("127.0.0.1:0").output().await.expect("it runs");
    let said = String::from_utf8(refused.stderr).expect("UTF-8");
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let expected = format!("error: every user of this machine can write to {data} (mode 0777)");
    assert!(said.contains(&expected), "{said}");
}
