//! Exactly one, however many ask, and nothing said that is not durable.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;

use super::{EngineBench, account, ensure, eventually, named};
use crate::engine::mailbox::{Activation, ActorMessage};
use crate::engine::{DeliveredStatus, EngineError, IssueKey, WaitFor};
use crate::issue::event::{DeliveryEffect, IssueDelivery, News, TriggerKind};
use crate::issue::{Command, IssueEvent, IssueState};
use crate::store::CommitError;
use crate::types::{
    Alias, Cause, DeliveryId, Generation, IssueId, IssueNumber, Outcome, Phase, Repository,
    Timestamp,
};

pub(in crate::engine) fn issue_delivery(guid: &str, issue: u64) -> IssueDelivery {
    IssueDelivery {
        delivery: DeliveryId::trusted(guid),
        received_at: Timestamp::from_unix_ms(0),
        recovered: false,
        event: "issues".into(),
        action: "labeled".into(),
        news: News {
            issue_id: IssueId::from_github(issue),
            repository: Repository::trusted("octo/hello"),
            repository_id: 1,
            number: IssueNumber(issue),
            title: "a title".into(),
            url: None,
            open: Some(true),
            labelled: Some(true),
            assigned: None,
            as_of: Timestamp::from_unix_ms(1_800_000_000_000),
        },
        acted_at: Timestamp::from_unix_ms(1_800_000_000_000),
        formerly: None,
        comment: None,
        installation: None,
        effect: DeliveryEffect::Trigger(TriggerKind::Label),
        instruction: None,
    }
}

pub(super) async fn running(bench: &EngineBench, issue: &str) -> crate::types::Sandbox {
    let until = WaitFor::Phase(Phase::Running);
    let waited = bench.engine.wait(&account(), &named(issue), until, Duration::from_secs(10)).await;
    let waited = waited.expect("it is known");
    let sandbox = waited.sandbox.expect("a sandbox");
    assert_eq!(sandbox.phase, Some(Phase::Running), "{}", sandbox.reason);
    sandbox
}

#[actix::test]
async fn deliveries_and_callers_at_once_get_one_sandbox_and_one_create() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    let account = account();
    let calls = join_all((0..50).map(|_| bench.engine.ensure(&account, ensure("7"))));
    let deliveries = join_all((0..100).map(|n| {
        let issue_delivery = issue_delivery(&format!("guid-{n}"), 7);
        bench.engine.deliver(&account, issue_delivery)
    }));
    let (calls, deliveries) = tokio::join!(calls, deliveries);
    let ids: BTreeSet<_> =
        calls.into_iter().map(|call| call.expect("it is answered").sandbox.id).collect();
    assert_eq!(ids.len(), 1, "one id");
    for delivery in deliveries {
        let status = delivery.expect("it is answered").status;
        assert_eq!(status, DeliveredStatus::Accepted);
    }
    assert_eq!(bench.store.deliveries(), 100);
    bench.provider.release();
    running(&bench, "7").await;
    assert_eq!(bench.provider.count("create"), 1, "one create asked");
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn nothing_is_said_or_asked_before_it_is_durable() {
    let bench = EngineBench::new().await;
    bench.store.hold();
    let engine = bench.engine.clone();
    let mut call = Box::pin(async move { engine.ensure(&account(), ensure("1")).await });
    // The step is in the store's hands once its row is there.
    let arrived = eventually("the commit is handed in", async || bench.store.issue(1).is_some());
    tokio::select! {
        biased;
        _ = &mut call => panic!("it was answered before it was durable"),
        () = arrived => {}
    }
    let quiet = tokio::time::timeout(Duration::from_millis(50), &mut call).await;
    assert!(quiet.is_err(), "it was answered before it was durable");
    assert_eq!(bench.provider.count("create"), 0, "asked before it was durable");
    bench.store.release();
    assert_eq!(call.await.expect("it is answered").outcome, Outcome::Created);
    running(&bench, "1").await;
}

#[actix::test]
async fn a_failed_commit_answers_so_and_leaves_nothing_behind() {
    let bench = EngineBench::new().await;
    bench.store.fail_next(CommitError::Failed("the disk is full".into()));
    let answer = bench.engine.ensure(&account(), ensure("1")).await;
    assert!(matches!(answer, Err(EngineError::StoreFailed(_))), "{answer:?}");
    assert_eq!(bench.provider.count("create"), 0);
    let again = bench.engine.ensure(&account(), ensure("1")).await.expect("it works again");
    assert_eq!(again.outcome, Outcome::Created);
}

#[actix::test]
async fn a_fenced_commit_builds_the_actor_again_from_the_store() {
    let bench = EngineBench::new().await;
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    let before = running(&bench, "1").await;
    bench.store.fail_next(CommitError::Fenced);
    let stopped = bench
        .engine
        .command(&account(), &named("1"), Command::Stop, Cause::Service("test"))
        .await
        .expect("the retry does it");
    assert_eq!(stopped.sandbox.id, before.id);
    let waited =
        bench.engine.wait(&account(), &named("1"), WaitFor::Settled, Duration::from_secs(5)).await;
    let phase = waited.expect("it is known").sandbox.expect("a sandbox").phase;
    assert_eq!(phase, Some(Phase::Stopped));
}

#[actix::test]
async fn a_delivery_counts_once_in_flight_and_afterwards() {
    let bench = EngineBench::new().await;
    bench.store.hold();
    let account = account();
    let deliver = || bench.engine.deliver(&account, issue_delivery("same", 7));
    let twice = async { <[_; 2]>::from(tokio::join!(deliver(), deliver())) };
    let release = async {
        eventually("it is handed in", async || bench.store.deliveries() == 1).await;
        bench.store.release();
    };
    let (twice, ()) = tokio::join!(twice, release);
    assert_eq!(bench.store.deliveries(), 1);
    let twice = twice.map(|delivery| delivery.expect("it is answered").status);
    assert_eq!(twice, [DeliveredStatus::Accepted, DeliveredStatus::Duplicate]);
    let done =
        bench.engine.deliver(&account, issue_delivery("same", 7)).await.expect("it is answered");
    assert_eq!(done.status, DeliveredStatus::Duplicate);
    running(&bench, "7").await;
    assert_eq!(bench.provider.count("create"), 1);
}

#[actix::test]
async fn a_repetition_that_its_actor_has_forgotten_is_a_duplicate_all_the_same() {
    const DELIVERIES: usize = 20;
    let bench = EngineBench::new().await;
    let delivery = |n: usize| issue_delivery(&format!("guid-{n}"), 7);
    for n in 0..DELIVERIES {
        let delivered = bench.engine.deliver(&account(), delivery(n)).await;
        assert_eq!(delivered.expect("it is answered").status, DeliveredStatus::Accepted);
    }
    running(&bench, "7").await;
    let parts = &bench.engine.parts;
    let id = Alias::Issue(IssueId::from_github(7));
    let home = parts.directory.find(&account(), &id).await.expect("a look").expect("a home");
    // Each was looked up before the first of its kind was durable: its actor decides, or the store.
    for n in [DELIVERIES - 1, 0] {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let event = Box::new(IssueEvent::Delivery {
            issue_delivery: delivery(n),
            claims: Vec::new(),
            takes: Vec::new(),
            place_elsewhere: false,
        });
        let message = ActorMessage::Event { event, reply: Some(reply), held: None };
        assert!(parts.registry.try_send(home, Activation::default(), message).is_ok());
        let answered = answer.await.expect("it is answered").expect("no error");
        assert!(answered.duplicate, "{n}");
    }
    assert_eq!(bench.store.deliveries(), DELIVERIES);
    assert_eq!(bench.provider.count("create"), 1);
}

#[actix::test]
async fn who_comes_behind_a_refused_first_commit_claims_the_issues_names_too() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    let key = IssueKey {
        id: Some(IssueId::from_github(7)),
        numbered: Some((Repository::trusted("octo/hello"), IssueNumber(7))),
    };
    let place = async || {
        let names = parts.directory.look(&account(), &key, None).await.expect("a look").0;
        parts.directory.place(&account(), &key, Some(1), names).expect("a place")
    };
    let (first, second) = (place().await, place().await);
    assert_eq!((second.home, &second.claims), (first.home, &first.claims));
    // The one that brought the issue is refused; the one that was routed behind it comes after.
    bench.store.fail_next(CommitError::DuplicateDelivery);
    for place in [first, second] {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let event = Box::new(IssueEvent::Delivery {
            issue_delivery: issue_delivery("guid", 7),
            claims: place.claims,
            takes: Vec::new(),
            place_elsewhere: false,
        });
        let message = ActorMessage::Event { event, reply: Some(reply), held: None };
        let sent = parts.registry.try_send(place.home, place.activation, message);
        assert!(sent.is_ok());
        assert!(answer.await.expect("it is answered").is_ok());
    }
    let made = running(&bench, "7").await;
    let by_caller = bench.engine.ensure(&account(), ensure("7")).await.expect("it is answered");
    assert_eq!((by_caller.outcome, by_caller.sandbox.id), (Outcome::Existing, made.id));
    assert_eq!((bench.provider.count("create"), bench.provider.objects()), (1, 1));
}

#[actix::test]
async fn a_caller_by_number_and_a_webhook_meet_in_one_home() {
    let bench = EngineBench::new().await;
    let mut ask = ensure("my-own-word");
    ask.issue.numbered = Some((Repository::trusted("Octo/Hello"), IssueNumber(7)));
    let first = bench.engine.ensure(&account(), ask).await.expect("it is answered");
    bench.engine.deliver(&account(), issue_delivery("guid", 7)).await.expect("it is answered");
    let second = bench.engine.ensure(&account(), ensure("7")).await.expect("it is answered");
    assert_eq!(first.sandbox.id, second.sandbox.id);
    assert_eq!(second.outcome, Outcome::Existing);
    bench.engine.ensure(&account(), ensure("8")).await.expect("another issue");
    let mut conflict = ensure("8");
    conflict.issue.numbered = Some((Repository::trusted("octo/hello"), IssueNumber(7)));
    let conflict = bench.engine.ensure(&account(), conflict).await;
    assert_eq!(conflict, Err(EngineError::IssueIdConflict));
    let mut moved = ensure("my-own-word");
    moved.issue.numbered = Some((Repository::trusted("octo/hello"), IssueNumber(9)));
    let moved = bench.engine.ensure(&account(), moved).await;
    assert_eq!(moved, Err(EngineError::IssueIdConflict), "a known issue has one place");
    bench.engine.deliver(&account(), issue_delivery("guid-9", 9)).await.expect("it is answered");
    let nine = bench.engine.ensure(&account(), ensure("9")).await.expect("it is answered");
    assert_ne!(nine.sandbox.id, first.sandbox.id, "the refused claim left nothing behind");
}

#[actix::test]
async fn delete_then_ensure_at_once_is_generation_two_and_never_two_objects() {
    let bench = EngineBench::new().await;
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    let first = running(&bench, "1").await;
    let deleted = bench
        .engine
        .command(&account(), &named("1"), Command::Delete, Cause::Service("test"))
        .await
        .expect("it is accepted");
    assert_eq!(deleted.sandbox.phase, Some(Phase::Deleting));
    let queued = bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    assert_eq!(queued.outcome, Outcome::Queued);
    let second = running(&bench, "1").await;
    assert_eq!(second.generation, Generation(2));
    assert_ne!(second.id, first.id);
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn a_lost_answer_is_looked_for_by_the_scheduler() {
    let bench = EngineBench::new().await;
    bench.provider.lose_next();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    running(&bench, "1").await;
    assert_eq!(bench.provider.count("create"), 1, "looked for, not asked again");
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn a_crash_in_the_middle_of_a_create_is_followed_by_a_look() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("the create is asked", async || bench.provider.count("create") == 1).await;
    let (store, provider) = bench.crash();
    provider.release();
    let bench = EngineBench::on(store, provider).await;
    running(&bench, "1").await;
    assert!(bench.provider.count("find") >= 1, "it looks first");
    assert_eq!(bench.provider.objects(), 1);
    let issue = bench.store.issue(1).expect("it is stored");
    assert!(matches!(issue.state, IssueState::Running { .. }));
}

#[actix::test]
async fn a_delivery_behind_a_failed_commit_is_judged_again() {
    let bench = EngineBench::new().await;
    bench.engine.deliver(&account(), issue_delivery("guid-0", 7)).await.expect("taken in");
    running(&bench, "7").await;
    let cause = Cause::Service("test");
    bench.engine.command(&account(), &named("7"), Command::Stop, cause).await.expect("stops");
    let until = WaitFor::Phase(Phase::Stopped);
    bench.engine.wait(&account(), &named("7"), until, Duration::from_secs(5)).await.expect("ok");
    bench.store.fail_next(CommitError::Overloaded);
    bench.store.hold();
    let deliver = |guid| {
        let engine = bench.engine.clone();
        tokio::spawn(async move { engine.deliver(&account(), issue_delivery(guid, 7)).await })
    };
    let first = deliver("guid-1");
    eventually("the first is refused", async || bench.store.has_failed()).await;
    let second = deliver("guid-2");
    eventually("the second waits", async || bench.store.waiting() == 2).await;
    bench.store.release();
    // Refused, or tried again if the refusal of the second was seen first.
    drop(first.await.expect("no panic"));
    second.await.expect("no panic").expect("it is judged again");
    let phase = bench.store.issue(1).and_then(|issue| issue.state.phase());
    assert_ne!(phase, Some(Phase::Stopped), "acknowledged and not applied");
}
