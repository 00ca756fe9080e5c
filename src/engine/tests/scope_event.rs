//! Deliveries that concern many issues: applied to each, whatever fails or crashes in between.

use super::transfers::{Called, delivery, labelled};
use super::*;
use crate::engine::{Delivered, DeliveredStatus, WaitFor};
use crate::issue::event::DeliveryEffect;
use crate::issue::{FanOut, Scope, ScopeEvent};
use crate::store::{CommitError, DeliveryRow, DeliveryState, Store};
use crate::types::{DeliveryId, Phase, Repository, Timestamp};

const REPOSITORY: u64 = 7;

/// An issue of the repository, by number.
const fn issue(number: u64) -> Called {
    (1000 + number, "garden/orchard", REPOSITORY, number)
}

fn scope_event(guid: &str, news: ScopeEvent) -> FanOut {
    FanOut {
        account: AccountName::default_account(),
        delivery: DeliveryId::trusted(guid),
        received_at: Timestamp::from_unix_ms(0),
        recovered: false,
        event: "repository".into(),
        action: "archived".into(),
        scope: Scope::Repositories(vec![REPOSITORY]),
        news,
    }
}

fn stop() -> ScopeEvent {
    ScopeEvent::Stop("the repository was archived".into())
}

impl EngineBench {
    async fn scope_delivery(&self, fan_out: FanOut) -> Delivered {
        self.engine.deliver_scope_event(fan_out).await.expect("it is taken in")
    }

    async fn row(&self, guid: &str) -> DeliveryRow {
        let id = DeliveryId::trusted(guid);
        self.store.delivery(&id).await.expect("it can be read").expect("it is stored")
    }

    /// What came of a delivery, once it is not pending any more.
    async fn outcome(&self, guid: &str) -> DeliveryRow {
        let left = async || self.row(guid).await.state != DeliveryState::Pending;
        eventually("it is applied or set aside", left).await;
        self.row(guid).await
    }

    async fn stopped(&self, issue: Called) {
        let meant = named(&issue.0.to_string());
        let until = WaitFor::Phase(Phase::Stopped);
        let waited = self.engine.wait(&account(), &meant, until, Duration::from_secs(10)).await;
        let phase = waited.expect("it is known").sandbox.expect("a sandbox").phase;
        assert_eq!(phase, Some(Phase::Stopped), "{issue:?}");
    }

    /// Issues 1 to `live` with a sandbox each, and one more without.
    async fn garden(&self, live: u64) {
        for number in 1..=live {
            self.deliver(labelled(&format!("label-{number}"), issue(number), 1)).await;
            self.settled(issue(number)).await;
        }
        self.deliver(delivery("known", issue(live + 1), 1, DeliveryEffect::Update)).await;
    }
}

#[actix::test]
async fn an_archived_repository_stops_each_of_its_sandboxes_and_no_other() {
    let bench = EngineBench::new().await;
    bench.garden(3).await;
    let other = (5, "garden/press", 8, 1);
    bench.deliver(labelled("other", other, 1)).await;
    bench.settled(other).await;
    let taken = bench.scope_delivery(scope_event("archived", stop())).await;
    assert_eq!(taken.status, DeliveredStatus::Accepted);
    let row = bench.outcome("archived").await;
    assert!(row.applied && row.state == DeliveryState::Done, "{row:?}");
    assert_eq!(row.reason, "the repository was archived: stopped 3 sandboxes of 4 issues");
    for number in 1..=3 {
        assert_eq!(bench.settled(issue(number)).await.phase, Some(Phase::Stopped));
    }
    assert_eq!(bench.settled(other).await.phase, Some(Phase::Running));
    let again = bench.scope_delivery(scope_event("archived", stop())).await;
    assert_eq!(again.status, DeliveredStatus::Duplicate);
}

#[actix::test]
async fn what_only_is_noted_is_done_at_once() {
    let bench = EngineBench::new().await;
    bench.garden(1).await;
    let noted = || scope_event("noted", ScopeEvent::Noted("the App was installed".into()));
    assert_eq!(bench.scope_delivery(noted()).await.status, DeliveredStatus::Accepted);
    let row = bench.row("noted").await;
    assert_eq!((row.state, row.reason.as_str()), (DeliveryState::Done, "the App was installed"));
    assert_eq!(bench.scope_delivery(noted()).await.status, DeliveredStatus::Duplicate);
}

#[actix::test]
async fn a_delivery_that_is_pending_is_accepted_again_and_taken_up_after_a_crash() {
    let bench = EngineBench::new().await;
    bench.garden(2).await;
    // Events reach issues, and their commits never end.
    bench.store.hold();
    bench.scope_delivery(scope_event("archived", stop())).await;
    let again = bench.scope_delivery(scope_event("archived", stop())).await;
    assert_eq!(again.status, DeliveredStatus::Accepted, "seen is not done");
    assert_eq!(bench.row("archived").await.state, DeliveryState::Pending);
    let (store, provider) = bench.crash();
    store.release();
    let bench = EngineBench::on(store, provider).await;
    assert_eq!(bench.outcome("archived").await.state, DeliveryState::Done);
    for number in 1..=2 {
        assert_eq!(bench.settled(issue(number)).await.phase, Some(Phase::Stopped));
    }
}

#[actix::test]
async fn a_broken_issue_holds_up_neither_the_rest_nor_other_deliveries() {
    let bench = EngineBench::new().await;
    // More than one page.
    bench.garden(34).await;
    let broken = bench.settled(issue(2)).await.home;
    bench.store.break_home(Some(broken));
    bench.scope_delivery(scope_event("archived", stop())).await;
    bench.scope_delivery(scope_event("label", ScopeEvent::LabelGone)).await;
    for number in (1..=34).filter(|number| *number != 2) {
        bench.stopped(issue(number)).await;
    }
    assert_eq!(bench.row("archived").await.state, DeliveryState::Pending, "it is tried again");
    bench.store.break_home(None);
    let row = bench.outcome("archived").await;
    assert_eq!(row.state, DeliveryState::Done);
    assert_eq!(row.reason, "the repository was archived: stopped 34 sandboxes of 35 issues");
    assert_eq!(bench.settled(issue(2)).await.phase, Some(Phase::Stopped));
    assert_eq!(bench.outcome("label").await.state, DeliveryState::Done);
}

#[actix::test]
async fn after_three_tries_a_delivery_is_set_aside_with_its_error() {
    let bench = EngineBench::new().await;
    bench.garden(2).await;
    let broken = bench.settled(issue(1)).await.home;
    bench.store.break_home(Some(broken));
    bench.scope_delivery(scope_event("archived", stop())).await;
    let row = bench.outcome("archived").await;
    assert_eq!(row.state, DeliveryState::SetAside);
    assert!(!row.applied && row.reason.contains("the disk is full"), "{}", row.reason);
    bench.stopped(issue(2)).await;
    let again = bench.scope_delivery(scope_event("archived", stop())).await;
    assert_eq!(again.status, DeliveredStatus::Duplicate);
}

#[actix::test]
async fn a_renamed_repository_s_issues_are_found_under_its_new_name() {
    let bench = EngineBench::new().await;
    bench.garden(1).await;
    // Another repository had the name before, and an issue of the same number.
    let squatter = (5, "garden/meadow", 8, 1);
    bench.deliver(labelled("squatter", squatter, 1)).await;
    bench.settled(squatter).await;
    let renamed = ScopeEvent::Renamed {
        repository: Repository::trusted("garden/meadow"),
        formerly: None,
        as_of: Timestamp::from_unix_ms(1_800_000_009_000),
    };
    bench.scope_delivery(scope_event("renamed", renamed)).await;
    let row = bench.outcome("renamed").await;
    assert_eq!(row.reason, "it is garden/meadow now: 2 of 2 issues are there");
    let sandbox = bench.settled(issue(1)).await;
    assert_eq!(sandbox.repository, Some(Repository::trusted("garden/meadow")));
    assert_eq!(bench.home_at((0, "garden/meadow", 0, 1)).await, Some(sandbox.home));
    assert_eq!(bench.home_at(issue(1)).await, Some(sandbox.home), "and under the old one");
}

#[actix::test]
async fn an_overloaded_store_is_reported_before_anything_is_stored() {
    let bench = EngineBench::new().await;
    bench.store.fail_next(CommitError::Overloaded);
    let noted = scope_event("noted", ScopeEvent::Noted("the App was installed".into()));
    let refused = bench.engine.deliver_scope_event(noted).await;
    assert_eq!(refused, Err(crate::engine::EngineError::Overloaded));
    assert_eq!(bench.store.deliveries(), 0);
}
