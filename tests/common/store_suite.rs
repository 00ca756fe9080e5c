//! The contract of `issuebox::store`, as tests that every store must pass.
//!
//! Each function gets a fresh [`World`]. A store's own test file runs all of them; one that it
//! forgets is dead code, which the compiler reports.

use std::collections::HashSet;

use futures_util::future::join_all;
use issuebox::issue::state::Goal;
use issuebox::issue::{Issue, IssueState, Step, StoppedBy, Verb};
use issuebox::store::{
    CommitError, Look, LookAsk, NumberedHome, Page, PageAsk, PruneAsk, SandboxFilter, Store,
    TimelineListRow, Write,
};
use issuebox::types::{
    AccountName, Alias, DeliveryId, ExternalId, Failure, FailureCode, Generation, Hold, HoldScope,
    HomeId, IssueId, IssueNumber, Phase, ProviderName, ProviderStep, Repository, Sandbox,
    SandboxId,
};
use proptest::test_runner::{Config, TestRunner};

use crate::store_issues::{
    any_issue, at, creating, delivery, entry, first, guid, issue_id, next, numbered, only,
    only_delivery, record, running,
};

/// Something durable that stores are opened on, one at a time.
pub trait World {
    /// Opens the store as a server's start does.
    fn open(&self) -> Box<dyn Store>;

    /// Begins a newer epoch behind the back of the store that is open.
    fn overtake(&self);
}

pub fn account() -> AccountName {
    AccountName::default_account()
}

pub fn ask(limit: usize, cursor: Option<&str>) -> PageAsk {
    PageAsk { limit, cursor: cursor.map(Into::into) }
}

pub async fn store_first(store: &dyn Store) -> Issue {
    let write = first(&account(), store.next_home());
    let issue = write.issue.clone().expect("has one");
    assert_eq!(store.commit(write).await, Ok(()));
    issue
}

pub async fn list(store: &dyn Store, filter: SandboxFilter) -> Vec<SandboxId> {
    let page = store.sandboxes(&account(), &filter, &ask(200, None)).await.expect("lists");
    assert_eq!(page.total, page.items.len() as u64, "all are on one page");
    page.items.into_iter().map(|sandbox| sandbox.id).collect()
}

/// The end of a home's sandbox, and the sandbox as history keeps it.
pub fn ended(before: &Issue) -> (Issue, Sandbox) {
    let sandbox = before.sandbox().expect("a sandbox");
    let sandbox = Sandbox { phase: None, agent: None, deleted_at: Some(at(9_999)), ..sandbox };
    (next(before, IssueState::Absent), sandbox)
}

pub async fn what_was_stored_is_found_in_every_way(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let home = issue.home;
    let sandbox = issue.sandbox();

    assert_eq!(store.load(home).await, Ok(Some(issue.clone())));
    for alias in [Alias::Issue(issue_id(home)), numbered(home)] {
        assert_eq!(store.resolve(&account(), &alias).await, Ok(Some(home)), "by {alias}");
    }
    let other_case = Alias::Numbered(Repository::trusted("oCTO/hELLO"), IssueNumber(1));
    assert_eq!(store.resolve(&account(), &other_case).await, Ok(Some(home)));
    let row = delivery(home.0, Some(home));
    assert_eq!(store.delivery(&row.id).await, Ok(Some(row)));
    let id = &sandbox.as_ref().expect("one").id;
    assert_eq!(store.sandbox(&account(), id).await, Ok(sandbox.clone()));
    assert_eq!(store.newest_sandbox(home).await, Ok(sandbox));
    let timeline = store.timeline(home, &ask(10, None)).await;
    let items = vec![TimelineListRow { entry: entry(&issue, None), instruction: None }];
    assert_eq!(timeline, Ok(Page { items, next: None, total: 1 }));
}

pub async fn one_look_answers_what_single_reads_do(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let home = issue.home;
    let (id, row) = (issue_id(home), delivery(home.0, Some(home)));
    let other_case = Repository::trusted("oCTO/hELLO");
    let numbered = Some((&other_case, IssueNumber(1)));
    let all = LookAsk { delivery: Some(&row.id), issue: Some(&id), numbered };
    let by_number = Some(NumberedHome { home, repository_id: None });
    let found = Look { delivery: Some(row.clone()), by_issue: Some(home), by_number };
    assert_eq!(store.look(&account(), all).await, Ok(found.clone()));

    let names = LookAsk { delivery: None, ..all };
    let without = Look { delivery: None, ..found.clone() };
    assert_eq!(store.look(&account(), names).await, Ok(without));
    let only_number = LookAsk { numbered, ..LookAsk::default() };
    let only = Look { by_number, ..Look::default() };
    assert_eq!(store.look(&account(), only_number).await, Ok(only));

    // Deliveries have no account; names are those of one.
    let elsewhere = Look { delivery: Some(row.clone()), ..Look::default() };
    assert_eq!(store.look(&AccountName::trusted("other"), all).await, Ok(elsewhere));
    let (unknown, unknown_id) = (guid(7_777), issue_id(HomeId(7_777)));
    let never = LookAsk {
        delivery: Some(&unknown),
        issue: Some(&unknown_id),
        numbered: Some((&other_case, IssueNumber(7_777))),
    };
    assert_eq!(store.look(&account(), never).await, Ok(Look::default()));
}

pub async fn what_was_never_stored_is_none(world: &dyn World) {
    let store = world.open();
    let empty = || Page { items: Vec::new(), next: None, total: 0 };
    assert_eq!(store.load(HomeId(7)).await, Ok(None));
    assert_eq!(store.resolve(&account(), &numbered(HomeId(7))).await, Ok(None));
    assert_eq!(store.delivery(&guid(7)).await, Ok(None));
    assert_eq!(store.sandbox(&account(), &SandboxId::trusted("x")).await, Ok(None));
    assert_eq!(store.newest_sandbox(HomeId(7)).await, Ok(None));
    assert_eq!(store.due(at(i64::from(u32::MAX)), 10).await, Ok(Vec::new()));
    assert_eq!(store.next_due().await, Ok(None));
    assert_eq!(store.live(None, 10).await, Ok(Vec::new()));
    assert_eq!(store.counts(&account()).await, Ok(Vec::new()));
    let filter = SandboxFilter { include_deleted: true, ..SandboxFilter::default() };
    assert_eq!(store.sandboxes(&account(), &filter, &ask(10, None)).await.map(|p| p.total), Ok(0));
    assert_eq!(store.timeline(HomeId(7), &ask(10, None)).await, Ok(empty()));
}

pub async fn writing_can_be_checked(world: &dyn World) {
    let store = world.open();
    assert_eq!(store.check().await, Ok(()));
}

pub async fn a_repeated_delivery_is_refused_whole(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let again = Write { delivery: Some(delivery(issue.home.0, None)), ..only(running(&issue)) };
    assert_eq!(store.commit(again).await, Err(CommitError::DuplicateDelivery));
    assert_eq!(store.load(issue.home).await, Ok(Some(issue.clone())));
    let kept = store.delivery(&guid(issue.home.0)).await.expect("reads").expect("is there");
    assert!(kept.applied, "the first one stays");
}

pub async fn a_delivery_that_changed_nothing_is_recorded_alone(world: &dyn World) {
    let store = world.open();
    let row = delivery(5, None);
    assert_eq!(store.commit(only_delivery(row.clone())).await, Ok(()));
    assert_eq!(store.delivery(&row.id).await, Ok(Some(row.clone())));
    let again = store.commit(only_delivery(row)).await;
    assert_eq!(again, Err(CommitError::DuplicateDelivery));
}

pub async fn delivery_ids_are_compared_letter_by_letter(world: &dyn World) {
    let store = world.open();
    let spellings = [
        "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "72D3162E-CC78-11E3-81AB-4C9367DC0958",
        "72d3162ecc7811e381ab4c9367dc0958",
        "x",
    ];
    for (n, id) in spellings.iter().enumerate() {
        let id = DeliveryId::trusted(*id);
        let row = issuebox::store::DeliveryRow { id, ..delivery(n as i64, None) };
        assert_eq!(store.commit(only_delivery(row.clone())).await, Ok(()), "{id}", id = row.id);
        assert_eq!(store.delivery(&row.id).await, Ok(Some(row)));
    }
}

pub async fn a_name_belongs_to_one_home(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    for taken in [Alias::Issue(issue_id(issue.home)), numbered(issue.home)] {
        let home = store.next_home();
        let mut write = first(&account(), home);
        write.aliases.push(taken.clone());
        assert_eq!(store.commit(write).await, Err(CommitError::AliasTaken), "{taken}");
        assert_eq!(store.load(home).await, Ok(None), "nothing of it stays: the state");
        assert_eq!(store.delivery(&guid(home.0)).await, Ok(None), "the delivery");
        assert_eq!(store.resolve(&account(), &numbered(home)).await, Ok(None), "other names");
        let timeline = store.timeline(home, &ask(10, None)).await.expect("reads");
        assert_eq!(timeline.total, 0, "the timeline");
        assert_eq!(store.resolve(&account(), &taken).await, Ok(Some(issue.home)));
    }
}

pub async fn a_home_may_be_given_its_names_again_and_new_ones(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let transferred = Alias::Issue(IssueId::trusted("999"));
    let aliases =
        vec![Alias::Issue(issue_id(issue.home)), numbered(issue.home), transferred.clone()];
    let write = Write { aliases, ..only(running(&issue)) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(store.resolve(&account(), &transferred).await, Ok(Some(issue.home)));
}

pub async fn accounts_share_nothing(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let other = AccountName::trusted("other");
    let home = store.next_home();
    let mut write = first(&other, home);
    write.aliases = vec![Alias::Issue(issue_id(issue.home)), numbered(issue.home)];
    assert_eq!(store.commit(write).await, Ok(()), "the same names, in another account");

    assert_eq!(store.resolve(&other, &numbered(issue.home)).await, Ok(Some(home)));
    assert_eq!(store.resolve(&account(), &numbered(issue.home)).await, Ok(Some(issue.home)));
    let id = issue.sandbox().expect("one").id;
    assert_eq!(store.sandbox(&other, &id).await, Ok(None));
    assert_eq!(list(&*store, SandboxFilter::default()).await, [id]);
    assert_eq!(store.counts(&other).await, Ok(vec![(Phase::Creating, 1)]));
}

pub async fn versions_must_follow_each_other(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let at_version = |version| only(Issue { version, ..issue.clone() });
    for version in [0, 1, 3, u64::MAX] {
        let verdict = store.commit(at_version(version)).await;
        assert_eq!(verdict, Err(CommitError::Fenced), "version {version} after 1");
    }
    let home = store.next_home();
    for version in [0, 2] {
        let unknown = Issue { home, version, ..issue.clone() };
        let verdict = store.commit(only(unknown)).await;
        assert_eq!(verdict, Err(CommitError::Fenced), "version {version} of an unknown home");
    }
    assert_eq!(store.commit(at_version(2)).await, Ok(()));
}

pub async fn a_fenced_write_leaves_no_trace(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let late = Write {
        aliases: vec![Alias::Issue(IssueId::trusted("late"))],
        ended: Some(ended(&issue).1),
        timeline: vec![entry(&issue, None)],
        delivery: Some(delivery(77, None)),
        ..only(issue.clone())
    };
    assert_eq!(store.commit(late).await, Err(CommitError::Fenced));
    assert_eq!(store.delivery(&guid(77)).await, Ok(None));
    let alias = Alias::Issue(IssueId::trusted("late"));
    assert_eq!(store.resolve(&account(), &alias).await, Ok(None));
    assert_eq!(store.timeline(issue.home, &ask(9, None)).await.map(|page| page.total), Ok(1));
    assert_eq!(store.newest_sandbox(issue.home).await, Ok(issue.sandbox()));
}

pub async fn writes_of_one_home_are_applied_in_call_order(world: &dyn World) {
    let store = world.open();
    let home = store.next_home();
    let mut issue = creating(&account(), home);
    let mut verdicts = vec![store.commit(first(&account(), home))];
    for _ in 0..300 {
        issue = running(&issue);
        let timeline = vec![entry(&issue, None)];
        verdicts.push(store.commit(Write { timeline, ..only(issue.clone()) }));
    }
    for verdict in join_all(verdicts).await {
        assert_eq!(verdict, Ok(()));
    }
    assert_eq!(store.load(home).await, Ok(Some(issue)));
    let timeline = store.timeline(home, &ask(400, None)).await.expect("reads");
    let reasons: Vec<_> = timeline.items.into_iter().map(|row| row.entry.reason).collect();
    let expected: Vec<_> = (1..=301).rev().map(|version| format!("step {version}")).collect();
    assert_eq!(reasons, expected);
}

pub async fn a_refusal_does_not_undo_its_neighbours(world: &dyn World) {
    let store = world.open();
    let taken = store_first(&*store).await;
    let homes: Vec<_> = (0..200).map(|_| store.next_home()).collect();
    let verdicts = join_all(homes.iter().enumerate().map(|(n, home)| {
        // A new account each, so that what is made beside the state is put to the test too.
        let mut write = first(&AccountName::trusted(format!("account-{}", n % 7)), *home);
        match n % 4 {
            1 => write.delivery = Some(delivery(taken.home.0, None)),
            2 => {
                write.issue = Some(creating(&account(), *home));
                write.aliases.push(numbered(taken.home));
            }
            3 => write.issue.as_mut().expect("has one").version = 5,
            _ => {}
        }
        store.commit(write)
    }))
    .await;
    for (n, (verdict, home)) in verdicts.into_iter().zip(homes).enumerate() {
        let expected = match n % 4 {
            1 => Err(CommitError::DuplicateDelivery),
            2 => Err(CommitError::AliasTaken),
            3 => Err(CommitError::Fenced),
            _ => Ok(()),
        };
        let stored = store.load(home).await.expect("reads");
        assert_eq!(stored.is_some(), expected.is_ok(), "write {n}");
        if let Some(issue) = stored {
            assert_eq!(issue.account.as_str(), format!("account-{}", n % 7), "write {n}");
        }
        assert_eq!(verdict, expected, "write {n}");
    }
}

pub async fn a_write_whose_future_is_dropped_still_stands(world: &dyn World) {
    let store = world.open();
    let home = store.next_home();
    drop(store.commit(first(&account(), home)));
    // The next write of the same home can only be applied after it.
    let up = running(&creating(&account(), home));
    assert_eq!(store.commit(only(up)).await, Ok(()));
}

pub async fn a_newer_epoch_fences_every_write(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    world.overtake();
    assert_eq!(store.commit(only(running(&issue))).await, Err(CommitError::Fenced));
    let home = store.next_home();
    assert_eq!(store.commit(first(&account(), home)).await, Err(CommitError::Fenced));
    let row = delivery(999, None);
    assert_eq!(store.commit(only_delivery(row)).await, Err(CommitError::Fenced));
    let fenced = Err(CommitError::Fenced);
    let (id, scope) = (guid(998), HoldScope::Server);
    let hold = Hold {
        scope: scope.clone(),
        reason: String::new(),
        since: at(0),
        by: String::new(),
        followed_to: None,
    };
    let provider = ProviderName::trusted("docker");
    let orphan = (provider.clone(), ExternalId::trusted("x"));
    let ask_to_prune = PruneAsk {
        now: at(0),
        deliveries_before: Some(at(0)),
        timeline_before: Some(at(0)),
        deleted_before: Some(at(0)),
        limit: 1,
    };
    assert_eq!(store.put_holds(vec![hold]).await, fenced);
    assert_eq!(store.remove_hold(&scope).await, Err(CommitError::Fenced));
    assert_eq!(store.put_orphans(Vec::new()).await, fenced);
    assert_eq!(store.remove_orphans(&[orphan]).await, fenced);
    assert_eq!(store.put_identity(&provider, "one").await, fenced);
    assert_eq!(store.reserve_homes(HomeId(9)).await, fenced);
    assert_eq!(store.advance_pending(&id, home).await, fenced);
    assert_eq!(store.finish_pending(&id, true, String::new()).await, fenced);
    assert_eq!(store.fail_pending(&id, String::new()).await, fenced);
    assert_eq!(store.prune(ask_to_prune).await, Err(CommitError::Fenced));
    assert!(store.check().await.is_err(), "the readiness check reports it");
    assert_eq!(store.load(issue.home).await, Ok(Some(issue)));
    assert_eq!(store.load(home).await, Ok(None));
}

pub async fn what_was_acknowledged_survives_a_reopening(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let (epoch, instance) = (store.epoch(), store.instance());
    drop(store);

    let store = world.open();
    assert_eq!(store.load(issue.home).await, Ok(Some(issue.clone())));
    assert_eq!(store.resolve(&account(), &numbered(issue.home)).await, Ok(Some(issue.home)));
    assert!(store.epoch() > epoch, "each opening begins an epoch");
    assert_eq!(store.instance(), instance, "it is the same installation");
    assert_eq!(store.commit(only(running(&issue))).await, Ok(()), "the account is known again");
}

pub async fn home_numbers_are_never_given_twice(world: &dyn World) {
    let store = world.open();
    let mut seen: HashSet<_> = (0..100).map(|_| store.next_home()).collect();
    assert_eq!(seen.len(), 100);
    let stored = store_first(&*store).await.home;
    assert!(seen.insert(stored));
    // Handed out and never stored: an object may carry the number of what was lost.
    seen.extend((0..100).map(|_| store.next_home()));
    drop(store);
    for _ in 0..3 {
        let next = world.open().next_home();
        assert!(seen.iter().all(|home| *home < next), "{next} was handed out before");
        seen.insert(next);
    }
}

pub async fn ended_sandboxes_stay_as_history(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let (home, up) = (issue.home, running(&issue));
    assert_eq!(store.commit(only(up.clone())).await, Ok(()));
    let (absent, old) = ended(&up);
    let write = Write { ended: Some(old.clone()), ..only(absent.clone()) };
    assert_eq!(store.commit(write).await, Ok(()));

    assert_eq!(store.load(home).await, Ok(Some(absent.clone())));
    assert_eq!(store.newest_sandbox(home).await, Ok(Some(old.clone())));
    assert_eq!(store.sandbox(&account(), &old.id).await, Ok(Some(old.clone())));
    assert_eq!(store.live(None, 10).await, Ok(Vec::new()));
    assert_eq!(store.counts(&account()).await, Ok(Vec::new()));
    assert_eq!(list(&*store, SandboxFilter::default()).await, []);

    // A second generation ends and a third begins in one step.
    let generation = |before: &Issue, n| {
        let step = Step::Waiting { verb: Verb::Look, due: at(0), tries_left: 1 };
        let record = record(home, n);
        let state = IssueState::Creating { record, goal: Goal::Running, step, giving_up: None };
        Issue { generation: Generation(n), ..next(before, state) }
    };
    let second = generation(&absent, 2);
    assert_eq!(store.commit(only(second.clone())).await, Ok(()));
    let third = generation(&second, 3);
    let write = Write { ended: Some(ended(&second).1), ..only(third.clone()) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(store.newest_sandbox(home).await, Ok(third.sandbox()));
    assert_eq!(store.sandbox(&account(), &old.id).await, Ok(Some(old)), "the first one too");
    let (absent, old) = ended(&third);
    let write = Write { ended: Some(old.clone()), ..only(absent) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(store.newest_sandbox(home).await, Ok(Some(old)), "the last of three past ones");
    let everything = SandboxFilter { include_deleted: true, ..SandboxFilter::default() };
    let ids = [3, 2, 1].map(|n| record(home, n).id);
    assert_eq!(list(&*store, everything).await, ids);
}

/// Blocking, for the runner of properties: it brings its own runtime.
pub fn every_state_comes_back_as_it_was(world: &dyn World) {
    let store = world.open();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // One store for all cases: they also must not disturb each other.
    let mut runner = TestRunner::new(Config { cases: 500, ..Config::default() });
    let property = |(mut first, mut second): (Issue, Issue)| {
        runtime.block_on(async {
            first.home = store.next_home();
            assert_eq!(store.commit(only(first.clone())).await, Ok(()));
            assert_eq!(store.load(first.home).await, Ok(Some(first.clone())));
            // Whatever follows replaces all of it.
            second =
                Issue { home: first.home, account: first.account.clone(), version: 2, ..second };
            assert_eq!(store.commit(only(second.clone())).await, Ok(()));
            assert_eq!(store.load(first.home).await, Ok(Some(second.clone())));
            let Some(sandbox) = second.sandbox() else { return };
            assert_eq!(
                store.sandbox(&second.account, &sandbox.id).await,
                Ok(Some(sandbox.clone()))
            );
            // And as history.
            let (absent, mut old) = ended(&second);
            old.phase = sandbox.phase.filter(|_| sandbox.attempt.0 % 2 == 0);
            let write = Write { ended: Some(old.clone()), ..only(absent) };
            assert_eq!(store.commit(write).await, Ok(()));
            assert_eq!(store.newest_sandbox(second.home).await, Ok(Some(old)));
        });
        Ok(())
    };
    runner.run(&(any_issue(), any_issue()), property).expect("holds for every state");
}

/// The states that the tables above never pass through, so that none is left to the property.
pub async fn stopped_and_failed_sandboxes_are_live(world: &dyn World) {
    let store = world.open();
    let issue = running(&store_first(&*store).await);
    assert_eq!(store.commit(only(issue.clone())).await, Ok(()));
    let record = issue.state.record().expect("one").clone();
    let external_id = issue.state.external_id().expect("one").clone();
    let stopped = next(
        &issue,
        IssueState::Stopped {
            record: record.clone(),
            external_id: external_id.clone(),
            by: StoppedBy::Person,
        },
    );
    let failure = Failure {
        code: FailureCode::ObjectLost,
        step: ProviderStep::Look,
        message: "gone".into(),
        retryable: true,
    };
    let failed = next(
        &stopped,
        IssueState::Failed { record, external_id: Some(external_id), goal: Goal::Running, failure },
    );
    for state in [stopped, failed] {
        assert_eq!(store.commit(only(state.clone())).await, Ok(()));
        assert_eq!(store.live(None, 9).await, Ok(vec![state.clone()]));
        let phase = state.state.phase().expect("is live");
        assert_eq!(store.counts(&account()).await, Ok(vec![(phase, 1)]));
    }
}
