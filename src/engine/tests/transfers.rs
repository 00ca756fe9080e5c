//! Names that turn out to be of one issue: transfers in every order, ids and numbers that were
//! given apart, and a name that a repository got again.

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::engine::{Delivered, DeliveredStatus, EngineError, WaitFor};
use crate::issue::event::{DeliveryEffect, News, TriggerKind};
use crate::issue::{Command, IssueDelivery, IssueEvent, IssueName};
use crate::types::{
    Alias, DeliveryId, HomeId, IssueNumber, Phase, Repository, Sandbox, Timestamp, Wanted,
};

/// An issue as GitHub names it: its id, its repository's name and id, its number.
pub(super) type Called = (u64, &'static str, u64, u64);

const HERE: Called = (16, "garden/orchard", 1, 6);
const THERE: Called = (108, "garden/press", 2, 8);

pub(super) fn name((issue, repository, repository_id, number): Called) -> IssueName {
    IssueName {
        issue_id: IssueId::from_github(issue),
        repository: Repository::trusted(repository),
        repository_id,
        number: IssueNumber(number),
    }
}

/// A second of a story that began an hour ago.
fn as_of_second(second: i64) -> Timestamp {
    static BEGIN: LazyLock<i64> = LazyLock::new(|| SystemClock.now().unix_ms() / 1000 - 3600);
    Timestamp::from_unix_ms((*BEGIN + second) * 1000)
}

/// A delivery of that second about an issue.
pub(super) fn delivery(
    guid: &str,
    issue: Called,
    seconds: i64,
    effect: DeliveryEffect,
) -> IssueDelivery {
    let IssueName { issue_id, repository, repository_id, number } = name(issue);
    IssueDelivery {
        delivery: DeliveryId::trusted(guid),
        received_at: Timestamp::from_unix_ms(0),
        recovered: false,
        event: "issues".into(),
        action: "labeled".into(),
        news: News {
            issue_id,
            repository,
            repository_id,
            number,
            title: "a title".into(),
            url: None,
            open: Some(true),
            labelled: Some(true),
            assigned: None,
            as_of: as_of_second(seconds),
        },
        acted_at: as_of_second(seconds),
        formerly: None,
        comment: None,
        installation: None,
        effect,
        instruction: None,
    }
}

pub(super) fn labelled(guid: &str, issue: Called, seconds: i64) -> IssueDelivery {
    delivery(guid, issue, seconds, DeliveryEffect::Trigger(TriggerKind::Label))
}

/// Either side of the transfer from here to there.
fn transfer(guid: &str) -> IssueDelivery {
    IssueDelivery {
        formerly: Some(name(HERE)),
        ..delivery(guid, THERE, 10, DeliveryEffect::Update)
    }
}

/// Until what is made next is newer: sandboxes have their time in milliseconds.
async fn time_passes(older: &Sandbox) {
    eventually("time passes", async || SystemClock.now() > older.created_at).await;
}

impl EngineBench {
    pub(super) async fn deliver(&self, issue_delivery: IssueDelivery) -> Delivered {
        self.engine.deliver(&account(), issue_delivery).await.expect("it is taken in")
    }

    async fn home_of(&self, issue: Called) -> Option<HomeId> {
        let id = Alias::Issue(name(issue).issue_id);
        self.engine.parts.directory.find(&account(), &id).await.expect("read")
    }

    pub(super) async fn home_at(&self, issue: Called) -> Option<HomeId> {
        let IssueName { repository, number, .. } = name(issue);
        let place = Alias::Numbered(repository, number);
        self.engine.parts.directory.find(&account(), &place).await.expect("read")
    }

    /// The sandbox that an issue id finds, once nothing is under way there.
    pub(super) async fn settled(&self, issue: Called) -> Sandbox {
        let meant = named(&issue.0.to_string());
        let waited =
            self.engine.wait(&account(), &meant, WaitFor::Settled, Duration::from_secs(10)).await;
        waited.expect("it is known").sandbox.expect("it has had a sandbox")
    }

    /// All four names lead to one home, which has the one object that there is.
    async fn is_one_issue(&self, sandbox: &Sandbox) {
        for issue in [HERE, THERE] {
            assert_eq!(self.home_of(issue).await, Some(sandbox.home), "{issue:?}");
            assert_eq!(self.home_at(issue).await, Some(sandbox.home), "{issue:?}");
            let ensured = self.engine.ensure(&account(), ensure(&issue.0.to_string())).await;
            assert_eq!(ensured.expect("it is answered").sandbox.id, sandbox.id);
        }
        eventually("one object is left", async || self.provider.objects() == 1).await;
    }
}

#[actix::test]
async fn a_transfer_is_followed_from_either_side_or_both() {
    for sides in [vec!["left"], vec!["left", "came"]] {
        let bench = EngineBench::new().await;
        bench.deliver(labelled("first", HERE, 1)).await;
        let before = bench.settled(HERE).await;
        for side in &sides {
            bench.deliver(transfer(side)).await;
        }
        let after = bench.settled(THERE).await;
        assert_eq!(after.id, before.id, "it keeps its sandbox");
        assert_eq!(after.repository, Some(Repository::trusted(THERE.1)));
        assert_eq!(after.issue_number, Some(IssueNumber(THERE.3)));
        bench.is_one_issue(&before).await;
        // From then on both names lead there.
        bench.deliver(labelled("there", THERE, 20)).await;
        bench.deliver(labelled("late", HERE, 2)).await;
        bench.is_one_issue(&before).await;
        assert_eq!(bench.provider.count("create"), 1);
    }
}

#[actix::test]
async fn a_transfer_that_comes_before_all_else_brings_both_names_together() {
    let bench = EngineBench::new().await;
    bench.deliver(transfer("left")).await;
    let home = bench.home_of(THERE).await.expect("it is known");
    assert_eq!(bench.home_of(HERE).await, Some(home));
    bench.deliver(labelled("late", HERE, 1)).await;
    bench.deliver(labelled("there", THERE, 20)).await;
    let sandbox = bench.settled(THERE).await;
    assert_eq!(sandbox.home, home);
    bench.is_one_issue(&sandbox).await;
    assert_eq!(bench.provider.count("create"), 1);
}

#[actix::test]
async fn both_sides_and_triggers_of_both_names_at_once_come_to_one_sandbox() {
    for round in 0..20 {
        let bench = EngineBench::new().await;
        let mut all = vec![
            transfer("left"),
            labelled("here", HERE, 1),
            transfer("came"),
            labelled("there", THERE, 12),
            labelled("again", HERE, 2),
            labelled("and again", THERE, 13),
        ];
        all.rotate_left(round % 6);
        let account = account();
        let delivered =
            all.into_iter().map(|issue_delivery| bench.engine.deliver(&account, issue_delivery));
        for delivered in join_all(delivered).await {
            // Two retries may not be enough if a name changes hands twice: it is sent again.
            drop(delivered);
        }
        bench.deliver(transfer("redelivered")).await;
        let sandbox = bench.settled(THERE).await;
        assert_eq!(sandbox.phase, Some(Phase::Running), "{}", sandbox.reason);
        bench.is_one_issue(&sandbox).await;
    }
}

#[actix::test]
async fn where_both_names_triggered_the_older_sandbox_stays() {
    for first in [HERE, THERE] {
        let second = if first == HERE { THERE } else { HERE };
        let bench = EngineBench::new().await;
        bench.deliver(labelled("first", first, 1)).await;
        let older = bench.settled(first).await;
        time_passes(&older).await;
        bench.deliver(labelled("second", second, 12)).await;
        let newer = bench.settled(second).await;
        assert_ne!(older.id, newer.id);
        assert_eq!(bench.provider.objects(), 2, "no delivery has said so yet");
        bench.deliver(transfer("left")).await;
        bench.is_one_issue(&older).await;
        let gone = SandboxRef::Id(newer.id.clone());
        let until = WaitFor::Absent;
        let waited = bench.engine.wait(&account(), &gone, until, Duration::from_secs(10)).await;
        assert!(waited.expect("it is known").settled, "the newer one is deleted");
    }
}

#[actix::test]
async fn what_was_asked_for_under_the_name_that_gives_way_is_not_lost() {
    let bench = EngineBench::new().await;
    bench.deliver(labelled("first", HERE, 1)).await;
    let older = bench.settled(HERE).await;
    time_passes(&older).await;
    bench
        .deliver(delivery("unlabelled", HERE, 2, DeliveryEffect::Stop("the bot was unassigned")))
        .await;
    assert_eq!(bench.settled(HERE).await.phase, Some(Phase::Stopped));
    bench.deliver(labelled("second", THERE, 12)).await;
    bench.settled(THERE).await;
    let merged = bench.deliver(transfer("came")).await;
    assert_eq!(merged.status, DeliveredStatus::Accepted);
    let now = bench.settled(THERE).await;
    assert_eq!((now.id, now.wanted), (older.id, Wanted::Running), "{}", merged.reason);
}

#[actix::test]
async fn what_was_delivered_under_the_name_that_gives_way_is_known_afterwards() {
    let bench = EngineBench::new().await;
    bench.deliver(labelled("first", HERE, 1)).await;
    let older = bench.settled(HERE).await;
    time_passes(&older).await;
    bench.deliver(labelled("second", THERE, 12)).await;
    bench.settled(THERE).await;
    let mut closed = delivery("closed", THERE, 20, DeliveryEffect::Stop("the issue was closed"));
    (closed.action, closed.news.open) = ("closed".into(), Some(false));
    bench.deliver(closed).await;
    // As of before that.
    bench.deliver(transfer("late")).await;
    let now = bench.settled(THERE).await;
    assert_eq!((now.id, now.wanted), (older.id, Wanted::Stopped), "{}", now.reason);
    let late = bench.deliver(labelled("later", THERE, 15)).await;
    assert_eq!(late.reason, "the issue is closed");
}

#[actix::test]
async fn a_caller_that_found_a_home_which_then_gave_way_must_look_again() {
    let bench = EngineBench::new().await;
    bench.deliver(labelled("first", HERE, 1)).await;
    let older = bench.settled(HERE).await;
    time_passes(&older).await;
    bench.deliver(labelled("second", THERE, 12)).await;
    let newer = bench.settled(THERE).await;
    bench.deliver(transfer("left")).await;
    let gone = SandboxRef::Id(newer.id.clone());
    bench
        .engine
        .wait(&account(), &gone, WaitFor::Absent, Duration::from_secs(10))
        .await
        .expect("it is known");
    let event = IssueEvent::Delivery {
        issue_delivery: labelled("straggler", THERE, 14),
        claims: Vec::new(),
        takes: Vec::new(),
        place_elsewhere: false,
    };
    let asked = bench.engine.parts.actors.ask(newer.home, Default::default(), event).await;
    assert!(asked.is_err(), "nothing is made if an issue gave way");
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn an_id_and_a_number_that_callers_gave_apart_become_one_issue() {
    let bench = EngineBench::new().await;
    let mut by_number = ensure("my-own-word");
    let IssueName { repository, number, .. } = name(HERE);
    by_number.issue.numbered = Some((repository, number));
    let older = bench.engine.ensure(&account(), by_number).await.expect("it is answered").sandbox;
    time_passes(&older).await;
    let newer = bench.engine.ensure(&account(), ensure("16")).await.expect("it is answered");
    assert_ne!(older.id, newer.sandbox.id);
    bench.settled(HERE).await;
    bench.deliver(labelled("both", HERE, 1)).await;
    let now = bench.settled(HERE).await;
    assert_eq!(now.id, older.id);
    eventually("one object is left", async || bench.provider.objects() == 1).await;
    let by_word = bench.engine.ensure(&account(), ensure("my-own-word")).await;
    assert_eq!(by_word.expect("it is answered").sandbox.id, older.id);
}

#[actix::test]
async fn a_repository_made_again_under_its_name_has_issues_of_its_own() {
    const OLD: Called = (16, "garden/orchard", 1, 6);
    const NEW: Called = (70, "garden/orchard", 9, 6);
    let bench = EngineBench::new().await;
    bench.deliver(labelled("first", OLD, 1)).await;
    let old = bench.settled(OLD).await;
    let account = account();
    let deliveries =
        ["a", "b", "c"].map(|guid| bench.engine.deliver(&account, labelled(guid, NEW, 10)));
    for delivered in join_all(deliveries).await {
        assert_eq!(delivered.expect("it is taken in").status, DeliveredStatus::Accepted);
    }
    let new = bench.settled(NEW).await;
    assert_ne!((&old.id, old.home), (&new.id, new.home));
    assert_eq!(bench.home_at(NEW).await, Some(new.home), "the name is the new one's");
    assert_eq!(bench.home_of(OLD).await, Some(old.home));
    // What was under way from the old repository takes nothing back.
    let late = bench
        .deliver(delivery("late", OLD, 2, DeliveryEffect::Stop("the bot was unassigned")))
        .await;
    assert!(late.reason.contains("belong to another issue here"), "{}", late.reason);
    assert_eq!(bench.home_at(NEW).await, Some(new.home));
    assert_eq!(bench.settled(OLD).await.phase, Some(Phase::Stopped), "and is applied all the same");
    assert_eq!(bench.settled(NEW).await.phase, Some(Phase::Running));
    assert_eq!(bench.provider.objects(), 2);
}

#[actix::test]
async fn a_transfer_into_a_repository_made_again_takes_the_number_from_the_one_before() {
    // What had the place before, in a repository that is gone.
    const GONE: Called = (70, "garden/press", 9, 8);
    let bench = EngineBench::new().await;
    bench.deliver(labelled("gone", GONE, 1)).await;
    let gone = bench.settled(GONE).await;
    bench.deliver(labelled("first", HERE, 2)).await;
    let before = bench.settled(HERE).await;
    bench.deliver(transfer("left")).await;
    let after = bench.settled(THERE).await;
    assert_eq!(after.id, before.id);
    assert_eq!(bench.home_at(THERE).await, Some(before.home));
    assert_eq!(bench.home_of(GONE).await, Some(gone.home));
    assert_eq!(bench.settled(GONE).await.id, gone.id, "it was another issue and stays");
    assert_eq!(bench.provider.objects(), 2);
}

#[actix::test]
async fn a_transfer_survives_a_crash_at_each_of_its_commits() {
    // How many commits the store takes before the server is killed: the merge, then the delivery.
    for failing in 0..2 {
        let bench = EngineBench::new().await;
        bench.deliver(labelled("first", HERE, 1)).await;
        let older = bench.settled(HERE).await;
        time_passes(&older).await;
        bench.deliver(labelled("second", THERE, 12)).await;
        bench.settled(THERE).await;
        bench.provider.hold();
        bench.store.fail_after(failing, crate::store::CommitError::Failed("killed".into()));
        let failed = bench.engine.deliver(&account(), transfer("left")).await;
        assert!(matches!(failed, Err(EngineError::StoreFailed(_))), "{failing}: {failed:?}");
        let (store, provider) = bench.crash();
        provider.release();
        let bench = EngineBench::on(store, provider).await;
        bench.deliver(transfer("left")).await;
        bench.is_one_issue(&older).await;
    }
}

#[actix::test]
async fn commands_to_the_sandbox_that_gave_way_are_refused_or_done() {
    let bench = EngineBench::new().await;
    bench.deliver(labelled("first", HERE, 1)).await;
    let older = bench.settled(HERE).await;
    time_passes(&older).await;
    bench.deliver(labelled("second", THERE, 12)).await;
    let newer = bench.settled(THERE).await;
    bench.provider.hold();
    bench.deliver(transfer("left")).await;
    let cause = Cause::Service("test");
    let meant = SandboxRef::Id(newer.id);
    let started = bench.engine.command(&account(), &meant, Command::Start, cause).await;
    assert!(matches!(started, Err(EngineError::Refused(_))), "{started:?}");
    bench.provider.release();
    bench.is_one_issue(&older).await;
}
