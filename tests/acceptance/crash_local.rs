//! kill -9 of a server whose sandboxes are real: nothing of them is left running, and the next
//! server gives each acknowledged issue its one sandbox back, with its workspace.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};

use crate::process::{Place, Server, issue_event, send, try_send, until};
use crate::processes::{self, local_objects, marker};

const ISSUES: usize = 6;
const ROUNDS: usize = 18;
/// How soon after the server's death everything of its sandboxes must be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

fn issue(n: usize) -> u64 {
    7_000_000_000 + n as u64
}

/// Delivers for every issue at once, twice each, and kills the server at its `nth` 202, which may
/// be while the sandboxes are just being made.
async fn deliver_and_kill(server: &Server, round: usize, nth: usize) -> BTreeSet<String> {
    let accepted = AtomicUsize::new(0);
    let deliveries = (0..ISSUES * 2).map(|n| {
        let (accepted, n) = (&accepted, n / 2);
        async move {
            let body = issue_event("labeled", issue(n)).to_string();
            let request = server.delivery("issues", &format!("local-{round}-{n}"), body);
            let answer = try_send(request).await?;
            if answer.status == 202 && accepted.fetch_add(1, Ordering::Relaxed) + 1 == nth {
                server.signal(Signal::KILL);
            }
            (answer.status == 202).then(|| issue(n).to_string())
        }
    });
    join_all(deliveries).await.into_iter().flatten().collect()
}

/// Puts a command, a background process and one in a session of its own into each sandbox.
async fn work_in_all(server: &Server, place: &Place, mark: &str) {
    for n in 0..ISSUES {
        let id = server.running(&issue(n).to_string()).await["id"].as_str().expect("id").to_owned();
        let script = format!(
            "echo kept > kept; sleep {mark} >/dev/null 2>&1 & \
             setsid sleep {mark} >/dev/null 2>&1 & echo begun"
        );
        assert_eq!(server.sh(&id, &script).await["stdout"], "begun\n");
        let path = format!("/v1/sandboxes/{id}/exec");
        let request = server.request(reqwest::Method::POST, &path);
        let request = request.json(&json!({"command": ["sleep", mark]}));
        // Its answer never comes: the server is killed under it.
        tokio::spawn(try_send(request));
    }
    let all = || async { processes::with(mark, &processes::of(place, mark)) >= ISSUES * 3 };
    until("everything runs", all).await;
    if geteuid().is_root() {
        // The server, and for each sandbox its launcher and its first process.
        let of_program = processes::of(place, &marker()).len();
        assert!(of_program > ISSUES * 2, "only {of_program} are seen");
    }
}

/// Waits until nothing of a place runs; how long that took.
async fn nothing_is_left(place: &Place, mark: &str) -> Duration {
    let died = Instant::now();
    loop {
        let left = processes::of(place, mark);
        let held: Vec<_> = local_objects(place).into_iter().filter(|(_, held)| *held).collect();
        if left.is_empty() && held.is_empty() {
            return died.elapsed();
        }
        assert!(died.elapsed() < GONE_WITHIN, "left without an owner: {left:?} {held:?}");
        tokio::task::yield_now().await;
    }
}

/// Checks what the next server makes of it.
async fn taken_up(place: &Place, server: &Server, acknowledged: &BTreeSet<String>, mark: &str) {
    server.settled().await;
    let list = server.get("/v1/sandboxes?deleted=true").await.json();
    let all = list["data"].as_array().expect("a list");
    let of = |key: &str| -> BTreeSet<String> {
        all.iter().map(|s| s[key].as_str().expect("a text").to_owned()).collect()
    };
    let issues = of("issueId");
    assert_eq!(issues.len(), all.len(), "one each: {list}");
    assert!(issues.is_superset(acknowledged), "{acknowledged:?} of {list}");
    for sandbox in all {
        let phase = sandbox["phase"].as_str().expect("live");
        assert!(matches!(phase, "running" | "stopped"), "{sandbox}");
        if phase == "stopped" {
            assert!(sandbox["reason"].to_string().contains("server_restarted"), "{sandbox}");
            assert_eq!(sandbox["wanted"], "stopped", "{sandbox}");
        }
    }
    let objects: BTreeSet<String> =
        local_objects(place).into_iter().map(|(name, _)| name).collect();
    assert_eq!(objects, of("name"), "one object each, and none else");
    let running = processes::of(place, mark);
    assert_eq!(processes::with(mark, &running), 0, "{running:?}");
    let orphans = processes::without_owner(&running, server.pid);
    assert_eq!(orphans, [], "the server is {}", server.pid);
}

async fn every_kill_is_made_good(user: Option<u32>) {
    let Some(place) = Place::local(user).await else { return };
    let mut acknowledged = BTreeSet::new();
    let mut longest = Duration::ZERO;
    for round in 0..ROUNDS {
        let server = place.serve().await;
        let mark = marker();
        // One time in three with everything at work, else in the middle of making or starting.
        if round % 3 == 2 {
            work_in_all(&server, &place, &mark).await;
            server.signal(Signal::KILL);
        } else {
            let nth = 1 + round * 5 % ISSUES;
            acknowledged.extend(deliver_and_kill(&server, round, nth).await);
        }
        server.kill().await;
        longest = longest.max(nothing_is_left(&place, &mark).await);
        let server = place.serve().await;
        taken_up(&place, &server, &acknowledged, &mark).await;
        if round % 3 == 2 {
            let first = server.sandbox(&issue(0).to_string()).await;
            let id = first["id"].as_str().expect("an id");
            assert_eq!(server.sh(id, "cat kept").await["stdout"], "kept\n", "its workspace");
        }
        // Half of the next rounds begin with sandboxes that are down, half with ones that run.
        if round % 2 == 0 {
            let all = (0..ISSUES).map(|n| async move { issue(n).to_string() });
            for issue in join_all(all).await.iter().filter(|i| acknowledged.contains(*i)) {
                server.running(issue).await;
            }
        }
        server.kill().await;
        nothing_is_left(&place, &mark).await;
    }
    println!("after {} kills; gone after {longest:?} at most", ROUNDS * 2);
    assert_eq!(acknowledged.len(), ISSUES);
    let server = place.serve().await;
    for issue in &acknowledged {
        let unknown_guid = format!("again-{issue}");
        let body = issue_event("labeled", issue.parse().expect("a number")).to_string();
        let answer = send(server.delivery("issues", &unknown_guid, body)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let sandbox: Value = server.running(issue).await;
        assert_eq!(sandbox["generation"], 1);
    }
    assert_eq!(local_objects(&place).len(), ISSUES);
    server.stop().await;
    nothing_is_left(&place, &marker()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and walks /proc; run by .ci/run"]
async fn a_killed_server_leaves_no_process_and_loses_no_sandbox() {
    every_kill_is_made_good(None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes as another user; run by .ci/run as root"]
async fn nor_does_one_of_an_ordinary_user() {
    if geteuid().is_root() {
        every_kill_is_made_good(Some(65_534)).await;
    }
}
