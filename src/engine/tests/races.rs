//! The traps of actors that were measured, each with its remedy switched on. (The ticket's own
//! test stands beside it, in the registry.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::{EngineBench, account, ensure, eventually, named};
use crate::clock::{Clock, SystemClock};
use crate::engine::WaitFor;
use crate::issue::{Command, Issue};
use crate::types::{Cause, Generation, Outcome, Phase};

impl EngineBench {
    /// Asks every actor without a pending message to end.
    fn passivate_all(&self) {
        let soon = SystemClock.now().after(Duration::from_secs(60));
        self.engine.parts.registry.passivate_idle(soon);
    }

    /// Brings issue 1 to a create that is asked and held open.
    async fn hold_a_create(&self) {
        self.provider.hold();
        self.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
        eventually("the create is asked", async || self.provider.count("create") == 1).await;
    }

    async fn end_all_actors(&self) {
        eventually("the actors have ended", async || {
            self.passivate_all();
            self.engine.parts.registry.len() == 0
        })
        .await;
    }

    async fn until_running(&self, issue: &str) {
        let until = WaitFor::Phase(Phase::Running);
        let at_most = Duration::from_secs(10);
        let waited = self.engine.wait(&account(), &named(issue), until, at_most).await;
        let sandbox = waited.expect("it is known").sandbox.expect("a sandbox");
        assert_eq!(sandbox.phase, Some(Phase::Running), "{}", sandbox.reason);
    }
}

#[actix::test]
async fn a_hundred_and_fifty_at_once_to_a_new_actor_are_all_answered() {
    let bench = EngineBench::new().await;
    let account = account();
    let all = join_all((0..150).map(|_| bench.engine.ensure(&account, ensure("1")))).await;
    let created = all
        .iter()
        .filter(|answer| {
            let answer = answer.as_ref().expect("each is answered");
            answer.outcome == Outcome::Created
        })
        .count();
    assert_eq!(created, 1);
}

#[actix::test]
async fn no_message_is_lost_at_the_moment_of_passivation() {
    let bench = Arc::new(EngineBench::new().await);
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    bench.until_running("1").await;
    let done = Arc::new(AtomicBool::new(false));
    let passivations = Arc::new(AtomicUsize::new(0));
    // Passivation runs on a thread of its own, as fast as it can, against senders.
    let passivating = std::thread::spawn({
        let (parts, done) = (Arc::clone(&bench.engine.parts), Arc::clone(&done));
        let passivations = Arc::clone(&passivations);
        move || {
            while !done.load(Ordering::SeqCst) {
                let soon = SystemClock.now().after(Duration::from_secs(60));
                let before = parts.registry.len();
                parts.registry.passivate_idle(soon);
                if parts.registry.len() < before {
                    passivations.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    for _ in 0..2_000 {
        // Once, without the retry that hides a lost message.
        let answered = bench.engine.ask_once(&account(), ensure("1")).await;
        assert!(answered, "a message was dropped");
    }
    done.store(true, Ordering::SeqCst);
    passivating.join().expect("it ends well");
    assert_eq!(bench.provider.count("create"), 1);
}

#[actix::test]
async fn a_panic_in_a_handler_costs_one_retry_and_never_a_second_create() {
    let bench = EngineBench::new().await;
    bench.hold_a_create().await;
    bench.ids.armed.store(true, Ordering::SeqCst);
    let answer = bench.engine.ensure(&account(), ensure("1")).await.expect("the retry does it");
    assert_eq!(answer.outcome, Outcome::Existing);
    assert!(!bench.ids.armed.load(Ordering::SeqCst), "the handler panicked");
    assert_eq!(bench.provider.count("find"), 0, "the new actor inherits the call");
    bench.provider.release();
    bench.until_running("1").await;
    assert_eq!(bench.provider.count("create"), 1);
}

#[actix::test]
async fn a_panic_with_a_commit_on_its_way_is_taken_up_at_once() {
    let bench = EngineBench::new().await;
    bench.store.hold();
    let engine = bench.engine.clone();
    let first = tokio::spawn(async move { engine.ensure(&account(), ensure("1")).await });
    eventually("the commit is handed in", async || bench.store.issue(1).is_some()).await;
    bench.ids.armed.store(true, Ordering::SeqCst);
    let engine = bench.engine.clone();
    let second = tokio::spawn(async move { engine.ensure(&account(), ensure("1")).await });
    eventually("the handler panicked", async || !bench.ids.armed.load(Ordering::SeqCst)).await;
    bench.store.release();
    bench.until_running("1").await;
    first.await.expect("no panic here").expect("the retry does it");
    second.await.expect("no panic here").expect("the retry does it");
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn an_answer_that_a_panic_swallowed_is_looked_for_soon() {
    let bench = EngineBench::new().await;
    bench.hold_a_create().await;
    bench.ids.armed.store(true, Ordering::SeqCst);
    bench.provider.release();
    // No caller is there to try again: the successor comes by itself, long before the due time.
    bench.until_running("1").await;
    assert!(!bench.ids.armed.load(Ordering::SeqCst), "the handler panicked");
    assert_eq!((bench.provider.count("create"), bench.provider.count("find")), (1, 1));
}

#[actix::test]
async fn a_panic_in_a_provider_is_a_failed_call() {
    let bench = EngineBench::new().await;
    bench.provider.panic_next();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    bench.until_running("1").await;
    assert_eq!(bench.provider.count("create"), 2);
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn what_a_caller_that_goes_away_asked_for_is_done() {
    let bench = EngineBench::new().await;
    bench.store.hold();
    let engine = bench.engine.clone();
    let call = tokio::spawn(async move { engine.ensure(&account(), ensure("1")).await });
    eventually("the commit is handed in", async || bench.store.issue(1).is_some()).await;
    call.abort();
    bench.store.release();
    bench.until_running("1").await;
}

#[actix::test]
async fn an_actor_that_ends_during_a_call_is_built_again_by_the_answer() {
    let bench = EngineBench::new().await;
    bench.hold_a_create().await;
    bench.end_all_actors().await;
    let answer = bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    assert_eq!(answer.outcome, Outcome::Existing);
    bench.provider.release();
    bench.until_running("1").await;
    assert_eq!((bench.provider.count("create"), bench.provider.count("find")), (1, 0));
}

#[actix::test]
async fn a_delete_by_name_means_the_next_generation_where_the_last_one_went_meanwhile() {
    let bench = EngineBench::new().await;
    let (account, name) = (account(), named("1"));
    let delete = || bench.engine.command(&account, &name, Command::Delete, Cause::Service("test"));
    bench.engine.ensure(&account, ensure("1")).await.expect("it is answered");
    bench.until_running("1").await;
    bench.provider.hold();
    delete().await.expect("it is accepted");
    let queued = bench.engine.ensure(&account, ensure("1")).await.expect("it is answered");
    assert_eq!(queued.outcome, Outcome::Queued);

    bench.store.hold_reads();
    let meanwhile = async {
        eventually("the name is looked up", async || bench.store.waiting_reads() == 1).await;
        bench.provider.release();
        let is_next = |issue: Issue| issue.state.phase() == Some(Phase::Running);
        eventually("the next one runs", async || bench.store.issue(1).is_some_and(is_next)).await;
        bench.store.release_reads();
    };
    let (deleted, ()) = tokio::join!(delete(), meanwhile);
    let deleted = deleted.expect("it is accepted");
    assert_eq!((deleted.sandbox.generation, deleted.absent), (Generation(2), false));
    eventually("nothing is left", async || bench.provider.objects() == 0).await;
}

#[actix::test]
async fn work_starts_what_no_person_stopped() {
    let bench = EngineBench::new().await;
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    bench.until_running("1").await;
    let at_most = Duration::from_secs(5);
    let work =
        bench.engine.work(&account(), &named("1"), true, Cause::Service("test"), at_most).await;
    assert!(work.is_ok());
}

#[actix::test]
async fn the_answer_to_a_passivated_actor_counts() {
    for _ in 0..20 {
        let bench = EngineBench::new().await;
        bench.hold_a_create().await;
        bench.end_all_actors().await;
        bench.provider.release();
        bench.until_running("1").await;
        assert_eq!((bench.provider.count("create"), bench.provider.count("find")), (1, 0));
    }
}

#[actix::test]
async fn creating_ends_in_failed_also_when_actors_are_passivated() {
    let bench = EngineBench::new().await;
    bench.provider.break_slowly();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("it has failed", async || {
        bench.passivate_all();
        bench.store.issue(1).is_some_and(|issue| issue.state.phase() == Some(Phase::Failed))
    })
    .await;
    assert_eq!(bench.provider.count("create"), 3, "as many as there are attempts");
}

#[actix::test]
async fn an_issue_that_cannot_be_stored_is_taken_up_more_and_more_seldom() {
    let bench = EngineBench::new().await;
    bench.hold_a_create().await;
    let home = bench.store.issue(1).expect("it is stored").home;
    bench.store.break_home(Some(home));
    bench.provider.release();
    let parts = &bench.engine.parts;
    let restart_backoff = &parts.registry.actor_parts().restart_backoff;
    eventually("its actors end", async || restart_backoff.len() == 1).await;
    bench.store.break_home(None);
    bench.until_running("1").await;
    eventually("it rests", async || restart_backoff.len() == 0).await;
}
