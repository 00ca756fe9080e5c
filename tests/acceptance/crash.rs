//! kill -9 right after a 202, again and again: acknowledged requests take effect exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Object, Place, Server, issue_event, send, try_send, until};
use crate::watch::Watch;

/// The first issue's id.
const FIRST: u64 = 6_000_000_000;
/// How many issues there are: a page of the list.
const ISSUES: u64 = 180;
/// Clients that ask at the same moment.
const CLIENTS: usize = 12;
/// Requests of a round at most: more than any server answers before it is killed.
const REQUESTS: usize = 400;

/// What the servers have said to their clients, all of them.
#[derive(Default)]
struct Replies {
    /// The deliveries that were sent, and their issues.
    sent: BTreeMap<String, u64>,
    /// Those that were answered 202.
    accepted: BTreeSet<String>,
    /// The ids of sandboxes that callers were given.
    ids: BTreeMap<u64, String>,
}

impl Replies {
    /// The issues of which something was acknowledged.
    fn acknowledged(&self) -> BTreeSet<String> {
        let of_deliveries = self.accepted.iter().map(|guid| self.sent[guid]);
        of_deliveries.chain(self.ids.keys().copied()).map(|issue| issue.to_string()).collect()
    }
}

/// One round of requests, and who decides that the server has lived long enough.
struct Round<'a> {
    server: &'a Server,
    number: usize,
    replies: &'a Mutex<Replies>,
    next: AtomicUsize,
    accepted: AtomicUsize,
    kill_after: usize,
}

impl Round<'_> {
    /// Asks until the server is gone.
    async fn client(&self) {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            assert!(n < REQUESTS, "the server was not killed");
            // Each delivery is sent twice in a row, so by two clients at once.
            let n = n / 2;
            let issue = FIRST + (self.number * 11 + n * 7) as u64 % ISSUES;
            let answered = match n % 4 {
                3 => self.ensure(issue).await,
                _ => self.deliver(issue, &format!("round-{}-{n}", self.number)).await,
            };
            if answered.is_none() {
                return;
            }
        }
    }

    async fn deliver(&self, issue: u64, guid: &str) -> Option<()> {
        self.replies.lock().expect("not poisoned").sent.insert(guid.to_owned(), issue);
        let body = issue_event("labeled", issue).to_string();
        let answer = try_send(self.server.delivery("issues", guid, body)).await?;
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        if answer.status == 202 {
            if self.accepted.fetch_add(1, Ordering::Relaxed) + 1 == self.kill_after {
                self.server.signal(Signal::KILL);
            }
            self.replies.lock().expect("not poisoned").accepted.insert(guid.to_owned());
        }
        Some(())
    }

    async fn ensure(&self, issue: u64) -> Option<()> {
        let path = format!("/v1/issues/{issue}/sandbox");
        let answer = try_send(self.server.request(reqwest::Method::PUT, &path)).await?;
        assert!(answer.is_success(), "{answer:?}");
        // The body may be cut off; then the caller was not replies an id.
        let id = serde_json::from_str::<Value>(&answer.text).ok()?["sandboxId"].clone();
        let id = id.as_str().expect("an id").to_owned();
        let before = self.replies.lock().expect("not poisoned").ids.insert(issue, id.clone());
        assert!(before.is_none_or(|before| before == id), "issue {issue} has two ids");
        Some(())
    }
}

/// Every live sandbox by its issue, once all of them run.
async fn all_running(server: &Server) -> BTreeMap<String, Value> {
    let running = || async {
        let of = async |query: &str| {
            let list = server.get(&format!("/v1/sandboxes?{query}")).await.json();
            list["total"].as_u64().expect("a number")
        };
        of("phase=running").await == of("deleted=false").await
    };
    until("every sandbox runs", running).await;
    let list = server.get("/v1/sandboxes?limit=200").await.json();
    let live = list["data"].as_array().expect("a list");
    let of_issue = |s: &Value| (s["issueId"].as_str().expect("an id").to_owned(), s.clone());
    let by_issue: BTreeMap<String, Value> = live.iter().map(of_issue).collect();
    assert_eq!(by_issue.len(), live.len(), "an issue has two live sandboxes: {list}");
    by_issue
}

/// Checks that each of these sandboxes has its one object, and that there is no other.
fn each_has_its_object(place: &Place, live: &BTreeMap<String, Value>) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let of =
        |(issue, s): (&String, &Value)| (issue.clone(), text(&s["id"]), text(&s["externalId"]));
    let mut recorded: Vec<_> = live.iter().map(of).collect();
    let of = |object: Object| (object.issue, object.sandbox, object.external_id);
    let mut there: Vec<_> = place.objects().into_iter().map(of).collect();
    recorded.sort();
    there.sort();
    assert_eq!(recorded, there);
}

/// Kills servers over one place; each time the next one must make good what the last one said.
async fn nothing_is_lost_in(rounds: usize) {
    let place = Arc::new(Place::simulated(""));
    let replies = Mutex::new(Replies::default());
    let watch = Watch::over(&place);
    for number in 0..rounds {
        let delay_ms = [0, 5, 40, 200][number % 4];
        place.configure(&format!("lose_response = 0.3\ncreate_delay_ms = {delay_ms}"));
        let server = place.serve().await;
        let round = Round {
            server: &server,
            number,
            replies: &replies,
            next: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            kill_after: 1 + number * 5 % 23,
        };
        join_all((0..CLIENTS).map(|_| round.client())).await;
        server.kill().await;
    }
    place.configure("");
    let server = place.serve().await;
    let live = all_running(&server).await;
    each_has_its_object(&place, &live);
    let replies = replies.into_inner().expect("not poisoned");
    assert!(replies.accepted.len() >= rounds, "each server has said 202 before it was killed");
    for issue in replies.acknowledged() {
        assert!(live.contains_key(&issue), "issue {issue} was acknowledged and is lost");
    }
    for (issue, id) in &replies.ids {
        assert_eq!(live[&issue.to_string()]["id"], **id, "a caller was replies this id");
    }
    assert!(live.values().all(|sandbox| sandbox["generation"] == 1));
    let ever = server.get("/v1/sandboxes?deleted=true").await.json();
    assert_eq!(ever["total"], live.len(), "none was given up");

    // As who finds failed deliveries would do, all are sent again.
    for (guid, issue) in &replies.sent {
        let body = issue_event("labeled", *issue).to_string();
        let answer = send(server.delivery("issues", guid, body)).await;
        if replies.accepted.contains(guid) {
            assert_eq!((answer.status, &answer.json()["status"]), (200, &"duplicate".into()));
        }
        assert!(answer.is_success(), "{answer:?}");
    }
    let after = all_running(&server).await;
    each_has_its_object(&place, &after);
    for (issue, sandbox) in &live {
        assert_eq!(after[issue]["id"], sandbox["id"]);
    }
    let issues: BTreeSet<String> = replies.sent.values().map(u64::to_string).collect();
    assert!(issues.iter().all(|issue| after.contains_key(issue)), "each sent issue has one now");
    watch.end();
}

/// What became known of one issue's delete before the server was killed.
struct Deleted {
    issue: String,
    id: String,
    delete_accepted: bool,
    ensure_answered: bool,
}

/// Deletes an issue's sandbox, and asks for the next one where `again`; kills the server at the
/// `nth` accepted delete.
async fn delete(
    server: &Server,
    (issue, id): (String, String),
    again: bool,
    accepted: &AtomicUsize,
    nth: usize,
) -> Deleted {
    let path = format!("/v1/sandboxes/{id}");
    let answer = try_send(server.request(reqwest::Method::DELETE, &path)).await;
    let delete_accepted = answer.is_some_and(|answer| answer.is_success());
    if delete_accepted && accepted.fetch_add(1, Ordering::Relaxed) + 1 == nth {
        server.signal(Signal::KILL);
    }
    let path = format!("/v1/issues/{issue}/sandbox");
    let ensure_answered = again
        && delete_accepted
        && try_send(server.request(reqwest::Method::PUT, &path))
            .await
            .is_some_and(|answer| answer.is_success());
    Deleted { issue, id, delete_accepted, ensure_answered }
}

/// Kills servers that have just accepted deletes; the next one must carry them out.
async fn deletes_are_carried_out_in(rounds: usize) {
    const ISSUES: usize = 12;
    let place = Arc::new(Place::simulated(""));
    let watch = Watch::over(&place);
    for number in 0..rounds {
        let delay_ms = [0, 20, 100][number % 3];
        // A create that a killed server has asked for counts as possible until its deadline.
        let bound = "[lifecycle]\ncreate_timeout_seconds = 2";
        place.configure(&format!("delete_delay_ms = {delay_ms}\n{bound}"));
        let server = place.serve().await;
        let issues: Vec<String> = (0..ISSUES).map(|n| format!("test-{n}")).collect();
        let running = join_all(issues.iter().map(|issue| server.running(issue))).await;
        let ids = running.iter().map(|s| s["id"].as_str().expect("an id").to_owned());
        let (accepted, nth) = (AtomicUsize::new(0), 1 + number * 5 % ISSUES);
        let deletes = issues.iter().cloned().zip(ids).enumerate();
        let deletes = deletes.map(|(n, of)| delete(&server, of, n % 2 == 0, &accepted, nth));
        let deletes = join_all(deletes).await;
        server.kill().await;

        let server = place.serve().await;
        for deleted in deletes {
            let gone = format!("/v1/sandboxes/{}?wait=20&until=deleted", deleted.id);
            if deleted.delete_accepted {
                let gone = server.get(&gone).await;
                assert_eq!(gone.json()["data"]["phase"], Value::Null, "{gone:?}");
            }
            if deleted.ensure_answered {
                let next = server.get(&format!("/v1/issues/{}/sandbox", deleted.issue)).await;
                assert_ne!(next.sandbox_id(), deleted.id, "the next one was promised");
            }
        }
        let live = all_running(&server).await;
        each_has_its_object(&place, &live);
        server.kill().await;
    }
    watch.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_requests_survive_fifteen_kills() {
    nothing_is_lost_in(15).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long; run by .ci/run"]
async fn acknowledged_requests_survive_a_hundred_and_fifty_kills() {
    nothing_is_lost_in(150).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_deletes_are_carried_out_after_a_kill() {
    deletes_are_carried_out_in(4).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long; run by .ci/run"]
async fn accepted_deletes_are_carried_out_after_sixty_kills() {
    deletes_are_carried_out_in(60).await;
}
