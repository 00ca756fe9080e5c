//! Servers that are killed and an engine that restarts while callers ask for containers: whatever was
//! acknowledged comes true once, and no container is left that is not meant.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::container_place::ContainerPlace;
use crate::own_engine::OwnEngine;
use crate::process::{Server, try_send, until, until_within};

/// How long the servers of the storm live, in turns, in milliseconds, from when each is ready.
const LIVES_MS: [u64; 9] = [1500, 3000, 700, 4000, 2200, 300, 3500, 1100, 4000];
/// How long they live together.
const STORM_MS: u64 = 60_000;
/// The issues of the storm, each with a caller.
const ISSUES: usize = 6;

/// A request of the storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Ensure,
    Stop,
    Delete,
}

/// What a caller asks for, in turns.
const WISHES: [Wish; 8] = [
    Wish::Ensure,
    Wish::Stop,
    Wish::Ensure,
    Wish::Ensure,
    Wish::Delete,
    Wish::Ensure,
    Wish::Stop,
    Wish::Ensure,
];

/// The caller of one issue.
struct Caller {
    issue: String,
    name: String,
    asked: usize,
    acknowledged: usize,
    /// The last request, if it was acknowledged. A later one may have been cut off.
    last: Option<Wish>,
    /// How that was answered.
    answer: String,
}

impl Caller {
    /// Asks until the server is gone, or until it is over and the last request is answered.
    async fn ask(&mut self, server: &Server, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let wish = WISHES[self.asked % WISHES.len()];
            // One in three does not wait, so that the next request meets what is under way.
            let wait = if self.asked.is_multiple_of(3) { 0 } else { 2 };
            self.asked += 1;
            let (method, path) = match wish {
                Wish::Ensure => (Method::PUT, format!("issues/{}/sandbox", self.issue)),
                Wish::Stop => (Method::POST, format!("sandboxes/{}/stop", self.name)),
                Wish::Delete => (Method::DELETE, format!("sandboxes/{}", self.name)),
            };
            self.last = None;
            let request = server.request(method, &format!("/v1/{path}?wait={wait}"));
            let Some(answer) = try_send(request).await else { return };
            self.answer.clone_from(&answer.text);
            match answer.status {
                200..300 => {
                    self.acknowledged += 1;
                    // An accepted delete is final: a stop withdraws the create that was to follow it.
                    let is_ending = answer.json()["data"]["wanted"] == "deleted";
                    self.last = Some(if is_ending { Wish::Delete } else { wish });
                }
                // There is nothing to stop or to delete.
                404 => self.last = Some(Wish::Delete),
                _ => panic!("{}: {wish:?}: {answer:?}", self.issue),
            }
        }
    }

    /// Checks the issue's sandbox, once nothing is under way.
    fn check(&self, sandbox: Option<&Value>) {
        let phase = sandbox.map(|sandbox| sandbox["phase"].as_str().unwrap_or_default());
        let expected = match self.last.expect("the last request is answered") {
            Wish::Ensure => Some("running"),
            Wish::Stop => Some("stopped"),
            Wish::Delete => None,
        };
        assert_eq!(phase, expected, "{}: {:?}, answered {}", self.issue, self.last, self.answer);
    }
}

/// Has the callers ask for as long as the server lives; the last one dies when all that it was asked for is
/// acknowledged.
async fn ask_all(callers: &mut [Caller], server: &Server, life: Duration, is_last: bool) {
    let is_over = AtomicBool::new(false);
    let asking = join_all(callers.iter_mut().map(|caller| caller.ask(server, &is_over)));
    let mut asking = std::pin::pin!(asking);
    // The end comes at no moment that the server could know.
    let lived = tokio::time::timeout(life, &mut asking).await;
    assert!(lived.is_err(), "the server ended by itself: {}", server.log());
    if is_last {
        is_over.store(true, Ordering::Relaxed);
        asking.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_storm_of_kills_leaves_one_container_for_each_live_issue() {
    // A create that a killed server asked for counts as possible until its deadline.
    let place = ContainerPlace::new("[lifecycle]\ncreate_timeout_seconds = 10");
    let mut callers: Vec<Caller> = (0..ISSUES)
        .map(|n| Caller {
            issue: place.issue(n),
            name: place.name(n),
            // Each at another of the requests.
            asked: n,
            acknowledged: 0,
            last: None,
            answer: String::new(),
        })
        .collect();
    let (mut stormed_ms, mut servers) = (0, 0);
    for life_ms in LIVES_MS.into_iter().cycle() {
        let server = place.place.serve().await;
        stormed_ms += life_ms;
        servers += 1;
        let is_last = stormed_ms >= STORM_MS;
        ask_all(&mut callers, &server, Duration::from_millis(life_ms), is_last).await;
        server.kill().await;
        // Sorted by issue.
        let there = place.containers();
        let is_twice = there.windows(2).any(|pair| pair[0].issue == pair[1].issue);
        assert!(!is_twice, "two containers of one issue: {there:?}");
        if is_last {
            break;
        }
    }
    let server = place.place.serve().await;
    server.settled().await;
    let live = place.each_has_its_container(&server).await;
    for caller in &callers {
        caller.check(live.get(&caller.issue));
    }
    let acknowledged: usize = callers.iter().map(|caller| caller.acknowledged).sum();
    println!("{servers} servers killed; {acknowledged} acknowledged; {} live", live.len());
    assert!(acknowledged > 2 * ISSUES, "only {acknowledged} acknowledged");
    // All are wanted again.
    for caller in &callers {
        server.running(&caller.issue).await;
    }
    assert_eq!(place.each_has_its_container(&server).await.len(), ISSUES);
    server.stop().await;
}

/// The issues of the engine that restarts.
const LOADED: usize = 10;
/// Those of them that run before it does.
const BEFORE: usize = 5;
/// How soon after the engine answers again the records must be right.
const TRUE_WITHIN: Duration = Duration::from_secs(20);

/// Ensures an issue and works in it, until the outage is over. Says whether something was acknowledged.
async fn load(server: &Server, issue: &str, asked: &AtomicUsize, is_over: &AtomicBool) -> bool {
    let mut is_acknowledged = false;
    while !is_over.load(Ordering::Relaxed) {
        let answer = server.ensure(issue).await;
        asked.fetch_add(1, Ordering::Relaxed);
        if answer.is_success() {
            is_acknowledged = true;
            // May fail: its container ends with the engine.
            let path = format!("/v1/sandboxes/{}/exec?wait=1", answer.sandbox_id());
            let body = json!({"command": ["true"], "timeout": 1});
            server.post(&path, &body).await;
        }
    }
    is_acknowledged
}

/// Whether each record says what the engine says, and nothing is under way.
async fn is_truthful(place: &ContainerPlace, server: &Server, issues: &[String]) -> bool {
    let containers = place.containers();
    for issue in issues {
        let sandbox = server.sandbox(issue).await;
        let container = containers.iter().find(|one| one.issue == *issue);
        let runs = container.is_some_and(|container| container.state == "running");
        let is_true = match sandbox["phase"].as_str() {
            Some("running") => runs,
            Some("stopped" | "failed") => !runs,
            _ => false,
        };
        if !is_true {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn an_engine_that_is_killed_under_load_loses_and_doubles_no_sandbox() {
    nothing_is_lost_when_an_engine_ends_by(Signal::KILL).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn nor_does_one_that_is_restarted() {
    nothing_is_lost_when_an_engine_ends_by(Signal::TERM).await;
}

async fn nothing_is_lost_when_an_engine_ends_by(signal: Signal) {
    let mut engine = OwnEngine::start().await;
    let place = ContainerPlace::at(engine.host(), "");
    let server = place.place.serve().await;
    let issues: Vec<String> = (0..LOADED).map(|n| place.issue(n)).collect();
    let before = join_all(issues[..BEFORE].iter().map(|issue| server.running(issue))).await;
    let (asked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let loads = issues.iter().map(|issue| load(&server, issue, &asked, &is_over));
    let outage = async {
        until("all are asked for", || async { asked.load(Ordering::Relaxed) >= LOADED }).await;
        engine.restart(signal).await;
        is_over.store(true, Ordering::Relaxed);
        Instant::now()
    };
    let (acknowledged, back) = tokio::join!(join_all(loads), outage);
    assert_eq!(acknowledged, [true; LOADED], "the server answers without its engine");
    until_within(TRUE_WITHIN, "each record says what the engine says", || {
        is_truthful(&place, &server, &issues)
    })
    .await;
    println!("{signal:?}: true after {:?}", back.elapsed());
    for issue in &issues {
        let again = json!({"issueId": issue, "retry": true});
        let answer = server.post("/v1/sandboxes?wait=60", &again).await.json();
        assert_eq!(answer["data"]["phase"], "running", "{answer}");
        let id = answer["sandboxId"].as_str().expect("an id");
        assert_eq!(server.sh(id, "echo works").await["stdout"], "works\n");
    }
    let live = place.each_has_its_container(&server).await;
    assert_eq!((live.len(), place.workspaces().len()), (LOADED, LOADED));
    for (issue, before) in issues.iter().zip(before) {
        let now = &live[issue];
        assert_eq!((&now["id"], &now["generation"]), (&before["id"], &before["generation"]));
        assert_eq!(now["externalId"], before["externalId"], "no other container was made");
    }
    server.stop().await;
}
