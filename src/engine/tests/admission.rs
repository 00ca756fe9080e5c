//! Quotas and holds with the whole engine: the last slot is given once, pending starts wait, and are
//! granted when a slot comes free or a hold is released, also after a restart.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::serial::{issue_delivery, running};
use super::{BenchSetup, EngineBench, account, ensure, eventually, named};
use crate::engine::{DeliveredStatus, EngineError, Quotas, WaitFor};
use crate::issue::{Command, DenialKind, FanOut, IssueDelivery, Scope, ScopeEvent};
use crate::store::Store;
use crate::types::{
    AccountName, Cause, DeliveryId, HoldScope, IssueId, Phase, Repository, Timestamp,
};

const TWO: Quotas = Quotas { account: 2, repository: 0, server: 0 };

async fn with(quotas: Quotas) -> EngineBench {
    let setting = BenchSetup { quotas, ..BenchSetup::default() };
    EngineBench::with(Arc::default(), Arc::default(), setting).await
}

fn kind<T>(result: &Result<T, EngineError>) -> Option<DenialKind> {
    match result {
        Err(EngineError::Denied(denial)) => Some(denial.kind),
        Ok(_) | Err(_) => None,
    }
}

async fn absent(bench: &EngineBench, issue: &str) {
    let until = WaitFor::Absent;
    let waited = bench.engine.wait(&account(), &named(issue), until, Duration::from_secs(10)).await;
    assert!(waited.expect("it is known").settled);
}

/// Waits until an issue whose start was pending has a sandbox that runs.
async fn granted(bench: &EngineBench, issue: &str) {
    let known = async || {
        let (account, named) = (account(), named(issue));
        bench.engine.wait(&account, &named, WaitFor::Settled, Duration::ZERO).await.is_ok()
    };
    eventually("the pending start is granted", known).await;
    running(bench, issue).await;
}

async fn delete(bench: &EngineBench, issue: &str) {
    let cause = Cause::Service("test");
    let deleted = bench.engine.command(&account(), &named(issue), Command::Delete, cause).await;
    deleted.expect("accepted");
    absent(bench, issue).await;
}

#[actix::test]
async fn of_many_at_once_as_many_get_a_sandbox_as_there_are_slots() {
    let bench = with(TWO).await;
    let account = account();
    let asks: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    let calls =
        join_all(asks.iter().map(|issue| bench.engine.ensure(&account, ensure(issue)))).await;
    let refused = calls.iter().filter(|call| kind(call) == Some(DenialKind::Quota)).count();
    assert_eq!((calls.iter().filter(|call| call.is_ok()).count(), refused), (2, 18));
    assert!(bench.provider.count("create") <= 2);
}

#[actix::test]
async fn a_deliverys_pending_start_waits_for_a_slot_and_gets_it() {
    let bench = with(TWO).await;
    for issue in ["1", "2"] {
        bench.engine.ensure(&account(), ensure(issue)).await.expect("there is room");
        running(&bench, issue).await;
    }
    let delivered =
        bench.engine.deliver(&account(), issue_delivery("third", 3)).await.expect("durable");
    assert_eq!(delivered.status, DeliveredStatus::Accepted);
    assert!(delivered.reason.contains("quota.live"), "{}", delivered.reason);
    assert_eq!(bench.provider.count("create"), 2);
    delete(&bench, "1").await;
    granted(&bench, "3").await;
    let refused = bench.engine.ensure(&account(), ensure("4")).await;
    assert_eq!(kind(&refused), Some(DenialKind::Quota), "the place is taken again");
}

#[actix::test]
async fn a_hold_stops_what_would_begin_until_it_is_released_also_over_a_restart() {
    let bench = with(Quotas::default()).await;
    let engine = &bench.engine;
    engine.ensure(&account(), ensure("1")).await.expect("nothing is held");
    running(&bench, "1").await;
    let scope = HoldScope::Server;
    let held = engine.hold(scope.clone(), "repairs".into(), "me".into()).await;
    held.expect("durable");
    assert_eq!(kind(&engine.ensure(&account(), ensure("2")).await), Some(DenialKind::Held));
    engine.ensure(&account(), ensure("1")).await.expect("what runs is given");
    let delivered = engine.deliver(&account(), issue_delivery("held", 3)).await.expect("durable");
    assert!(delivered.reason.contains("repairs"), "{}", delivered.reason);
    assert_eq!(bench.provider.count("create"), 1);

    let (store, provider) = bench.crash();
    let bench = EngineBench::on(store, provider).await;
    let engine = &bench.engine;
    assert_eq!(engine.holds().len(), 1, "a hold survives");
    assert_eq!(kind(&engine.ensure(&account(), ensure("2")).await), Some(DenialKind::Held));
    assert!(engine.release(&scope).await.expect("durable"));
    assert!(!engine.release(&scope).await.expect("nothing to release"), "once");
    granted(&bench, "3").await;
    engine.ensure(&account(), ensure("2")).await.expect("released");
}

/// More than are read at once.
#[actix::test]
async fn a_release_grants_all_that_wait_and_not_only_the_first_thousand() {
    let bench = with(Quotas::default()).await;
    let engine = &bench.engine;
    let scope = HoldScope::Server;
    let held = engine.hold(scope.clone(), "repairs".into(), "me".into()).await;
    held.expect("durable");
    for issue in 1..=1_100 {
        let delivery = issue_delivery(&format!("held-{issue}"), issue);
        engine.deliver(&account(), delivery).await.expect("durable");
    }
    assert_eq!(bench.provider.count("create"), 0);
    assert!(engine.release(&scope).await.expect("durable"));
    // Long before all that waits is looked at again.
    eventually("all begin", async || bench.provider.count("create") == 1_100).await;
}

#[actix::test]
async fn without_capacity_at_the_provider_nothing_begins_and_all_else_goes_on() {
    let bench = with(Quotas::default()).await;
    let engine = &bench.engine;
    for issue in ["1", "2"] {
        engine.ensure(&account(), ensure(issue)).await.expect("there is room");
        running(&bench, issue).await;
    }
    let cause = || Cause::Service("test");
    engine.command(&account(), &named("2"), Command::Stop, cause()).await.expect("accepted");
    let until = WaitFor::Phase(Phase::Stopped);
    let waited = engine.wait(&account(), &named("2"), until, Duration::from_secs(10)).await;
    assert!(waited.expect("it is known").settled);

    bench.provider.short_of(Some("the disk is nearly full"));
    for issue in ["2", "3"] {
        let refused = engine.ensure(&account(), ensure(issue)).await;
        assert_eq!(kind(&refused), Some(DenialKind::NoRoom), "{issue}");
    }
    engine.ensure(&account(), ensure("1")).await.expect("what runs is given");
    let delivered = engine.deliver(&account(), issue_delivery("waits", 4)).await.expect("durable");
    assert!(delivered.reason.contains("the disk is nearly full"), "{}", delivered.reason);
    delete(&bench, "1").await;
    assert_eq!(bench.provider.count("create"), 2);

    bench.provider.short_of(None);
    engine.ensure(&account(), ensure("2")).await.expect("there is room");
    running(&bench, "2").await;
    // What waits is looked at again when something else comes free, and once in a while.
    let scope = HoldScope::Server;
    engine.hold(scope.clone(), String::new(), "me".into()).await.expect("durable");
    assert!(engine.release(&scope).await.expect("durable"));
    granted(&bench, "4").await;
}

#[actix::test]
async fn holds_of_a_repository_and_of_an_issue_leave_others_alone() {
    let bench = with(Quotas::default()).await;
    let engine = &bench.engine;
    let of_issue = HoldScope::Issue(account(), IssueId::from_github(5));
    let of_repository = HoldScope::Repository(Repository::trusted("Octo/Hello"));
    for (scope, issue) in [(of_issue, 5), (of_repository, 6)] {
        engine.hold(scope.clone(), String::new(), "me".into()).await.expect("durable");
        let delivered =
            engine.deliver(&account(), issue_delivery(&format!("{issue}"), issue)).await;
        assert!(delivered.expect("durable").reason.contains("is held by me"));
        engine.ensure(&account(), ensure("99")).await.expect("of no repository");
        engine.release(&scope).await.expect("durable");
        granted(&bench, &issue.to_string()).await;
    }
}

/// The same issue as in [`issue_delivery`], in the repository's other name.
fn renamed_since(guid: &str, issue: u64) -> IssueDelivery {
    let mut issue_delivery = issue_delivery(guid, issue);
    issue_delivery.news.repository = Repository::trusted("octo/renamed");
    issue_delivery.news.as_of = issue_delivery.news.as_of.after(Duration::from_secs(60));
    issue_delivery
}

#[actix::test]
async fn a_repository_stays_held_under_a_new_name_also_over_a_restart() {
    let held = issue_delivery("held", 5).news.repository;
    for by_fan_out in [true, false] {
        let bench = with(Quotas::default()).await;
        let engine = &bench.engine;
        let scope = HoldScope::Repository(held.clone());
        engine.hold(scope, "repairs".into(), "me".into()).await.expect("durable");
        engine.deliver(&account(), issue_delivery("held", 5)).await.expect("durable");
        if by_fan_out {
            engine.deliver_scope_event(renaming(&held)).await.expect("durable");
        } else {
            engine.deliver(&account(), renamed_since("later", 5)).await.expect("durable");
        }
        let new = HoldScope::Repository(Repository::trusted("octo/renamed"));
        eventually("the hold has followed", async || {
            bench.store.holds().await.expect("read").iter().any(|hold| hold.scope == new)
        })
        .await;
        let (store, provider) = bench.crash();
        let bench = EngineBench::on(store, provider).await;
        let delivered = bench.engine.deliver(&account(), renamed_since("new", 6)).await;
        let reason = delivered.expect("durable").reason;
        assert!(reason.contains("octo/renamed is held by me"), "{reason}");
        assert_eq!(bench.provider.count("create"), 0);
        bench.engine.release(&new).await.expect("durable");
        granted(&bench, "6").await;
    }
}

fn renaming(formerly: &Repository) -> FanOut {
    let news = ScopeEvent::Renamed {
        repository: Repository::trusted("octo/renamed"),
        formerly: Some(formerly.clone()),
        as_of: issue_delivery("any", 5).news.as_of,
    };
    FanOut {
        account: AccountName::default_account(),
        delivery: DeliveryId::trusted("renamed"),
        received_at: Timestamp::from_unix_ms(0),
        recovered: false,
        event: "repository".into(),
        action: "renamed".into(),
        // Of a repository of which no issue is known.
        scope: Scope::Repositories(vec![0]),
        news,
    }
}

#[actix::test]
async fn a_stopped_sandbox_keeps_its_place_and_starts_again() {
    let bench = with(Quotas { account: 1, ..Quotas::default() }).await;
    bench.engine.ensure(&account(), ensure("1")).await.expect("there is room");
    running(&bench, "1").await;
    let cause = Cause::Service("test");
    let stop = bench.engine.command(&account(), &named("1"), Command::Stop, cause).await;
    stop.expect("accepted");
    let until = WaitFor::Phase(Phase::Stopped);
    let limit = Duration::from_secs(10);
    bench.engine.wait(&account(), &named("1"), until, limit).await.expect("it is known");
    assert_eq!(kind(&bench.engine.ensure(&account(), ensure("2")).await), Some(DenialKind::Quota));
    bench.engine.ensure(&account(), ensure("1")).await.expect("its own place");
    running(&bench, "1").await;
}
