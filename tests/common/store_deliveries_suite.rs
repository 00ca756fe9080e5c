//! The fourth part of the store's contract: deliveries that wait, lists of deliveries, and how long
//! things are kept.
//!
//! As in `store_suite`, each function gets a fresh world.

use std::time::Duration;

use issuebox::issue::{FanOut, Scope, ScopeEvent};
use issuebox::store::{
    CommitError, DeliveryFilter, DeliveryListRow, DeliveryRow, DeliveryState, LookAsk,
    PENDING_TRIES_MAX, PendingRow, PruneAsk, Store, StoreError, Write,
};
use issuebox::types::{AccountName, HomeId, IssueId, Repository, TimelineEntry, Timestamp};

use crate::store_issues::{at, delivery, entry, guid, only, only_delivery, running};
use crate::store_suite::{World, account, ask, ended, store_first};

fn fan_out(n: i64) -> FanOut {
    FanOut {
        account: AccountName::default_account(),
        delivery: guid(n),
        received_at: at(n),
        recovered: false,
        event: "repository".into(),
        action: "renamed".into(),
        scope: Scope::Repositories(vec![n.unsigned_abs(), u64::MAX]),
        news: renamed(None),
    }
}

fn renamed(formerly: Option<&str>) -> ScopeEvent {
    ScopeEvent::Renamed {
        repository: Repository::trusted("Octo/New"),
        formerly: formerly.map(Repository::trusted),
        as_of: at(7),
    }
}

async fn state_of(store: &dyn Store, n: i64) -> (DeliveryState, bool, String) {
    let row = store.delivery(&guid(n)).await.expect("reads").expect("is there");
    (row.state, row.applied, row.reason)
}

async fn pending(store: &dyn Store) -> Vec<PendingRow> {
    store.pending(100).await.expect("reads")
}

pub async fn a_pending_delivery_waits_until_it_is_done(world: &dyn World) {
    let store = world.open();
    assert_eq!(pending(&*store).await, []);
    let row = |n| PendingRow { fan_out: fan_out(n), tries: 0, done_to: None };
    // In the order of storing, whatever their times and ids.
    for n in [2, 3, 1] {
        assert_eq!(store.put_pending(fan_out(n)).await, Ok(()));
    }
    assert_eq!(pending(&*store).await, [row(2), row(3), row(1)]);
    assert_eq!(store.pending(2).await, Ok(vec![row(2), row(3)]));
    let known = store.delivery(&guid(3)).await.expect("reads").expect("is there");
    assert_eq!((known.state, known.applied, known.home), (DeliveryState::Pending, false, None));
    assert_eq!((&*known.event, &*known.action), ("repository", "renamed"));
    assert_eq!(known.received_at, at(3));
    let id = guid(3);
    let look = store.look(&account(), LookAsk { delivery: Some(&id), ..LookAsk::default() }).await;
    assert_eq!(look.map(|look| look.delivery), Ok(Some(known)), "a look says the same");

    for (done_to, expected) in [(7, 7), (9, 9), (4, 9)] {
        assert_eq!(store.advance_pending(&guid(3), HomeId(done_to)).await, Ok(()));
        let now = pending(&*store).await;
        assert_eq!(now[1].done_to, Some(HomeId(expected)), "never back");
        assert_eq!((now[0].done_to, now[2].done_to), (None, None), "no other");
    }
    drop(store);
    let store = world.open();
    let third = PendingRow { done_to: Some(HomeId(9)), ..row(3) };
    assert_eq!(pending(&*store).await, [row(2), third, row(1)], "also after a reopening");

    let done = store.finish_pending(&guid(3), true, "12 issues were renamed".into()).await;
    assert_eq!(done, Ok(()));
    assert_eq!(pending(&*store).await, [row(2), row(1)]);
    let expected = (DeliveryState::Done, true, "12 issues were renamed".to_owned());
    assert_eq!(state_of(&*store, 3).await, expected);

    // What is not pending is left alone.
    for n in [3, 77] {
        assert_eq!(store.advance_pending(&guid(n), HomeId(1)).await, Ok(()));
        assert_eq!(store.finish_pending(&guid(n), false, "again".into()).await, Ok(()));
        for _ in 0..PENDING_TRIES_MAX {
            assert_eq!(store.fail_pending(&guid(n), "late".into()).await, Ok(()));
        }
    }
    assert_eq!(state_of(&*store, 3).await, expected);
    assert_eq!(store.delivery(&guid(77)).await, Ok(None));
    assert_eq!(pending(&*store).await, [row(2), row(1)]);
}

pub async fn a_pending_delivery_that_fails_too_often_is_set_aside(world: &dyn World) {
    let store = world.open();
    for n in [1, 2] {
        assert_eq!(store.put_pending(fan_out(n)).await, Ok(()));
    }
    for tries in 1..PENDING_TRIES_MAX {
        assert_eq!(store.fail_pending(&guid(1), format!("error {tries}")).await, Ok(()));
        assert_eq!(pending(&*store).await[0].tries, tries);
        assert_eq!(state_of(&*store, 1).await.0, DeliveryState::Pending);
    }
    assert_eq!(store.fail_pending(&guid(1), "the last error".into()).await, Ok(()));
    let aside = (DeliveryState::SetAside, false, "the last error".to_owned());
    assert_eq!(state_of(&*store, 1).await, aside);
    let left = pending(&*store).await;
    assert_eq!(left, [PendingRow { fan_out: fan_out(2), tries: 0, done_to: None }]);
    assert_eq!(store.finish_pending(&guid(1), true, "late".into()).await, Ok(()));
    assert_eq!(state_of(&*store, 1).await, aside, "late news change nothing");
}

pub async fn a_delivery_is_pending_once(world: &dyn World) {
    let store = world.open();
    assert_eq!(store.commit(only_delivery(delivery(1, None))).await, Ok(()));
    for n in [2, 3, 4] {
        assert_eq!(store.put_pending(fan_out(n)).await, Ok(()));
    }
    assert_eq!(store.finish_pending(&guid(3), true, "done".into()).await, Ok(()));
    for _ in 0..PENDING_TRIES_MAX {
        assert_eq!(store.fail_pending(&guid(4), "fails".into()).await, Ok(()));
    }
    for n in 1..=4 {
        let (before, waiting) = (state_of(&*store, n).await, pending(&*store).await);
        let again = store.put_pending(fan_out(n)).await;
        assert_eq!(again, Err(CommitError::DuplicateDelivery), "{n}");
        let again = store.commit(only_delivery(delivery(n, None))).await;
        assert_eq!(again, Err(CommitError::DuplicateDelivery), "{n}");
        assert_eq!((state_of(&*store, n).await, pending(&*store).await), (before, waiting));
    }
    // A step's delivery is done by being stored: nothing would ever take up one that is not.
    let row = DeliveryRow { state: DeliveryState::Pending, ..delivery(5, None) };
    let verdict = store.commit(only_delivery(row)).await;
    assert!(matches!(verdict, Err(CommitError::Failed(_))), "{verdict:?}");
}

pub async fn every_kind_of_news_comes_back_as_it_was(world: &dyn World) {
    let store = world.open();
    let text = "it's \"quoted\"\n\t\\ \u{1b}[31m % _ \u{1F600}";
    let news = [
        renamed(None),
        renamed(Some("Octo/Hello.World")),
        ScopeEvent::Stop(text.into()),
        ScopeEvent::LabelGone,
        ScopeEvent::Noted(text.into()),
    ];
    let scopes = [
        Scope::Repositories(vec![]),
        Scope::Repositories(vec![1, 2, u64::MAX]),
        Scope::Installation(u64::MAX),
    ];
    let mut expected = Vec::new();
    for news in news {
        for scope in scopes.clone() {
            let n = expected.len() as i64;
            let fan_out = FanOut {
                scope,
                news: news.clone(),
                recovered: n % 2 == 0,
                action: if n % 2 == 0 { String::new() } else { text.into() },
                ..fan_out(n)
            };
            assert_eq!(store.put_pending(fan_out.clone()).await, Ok(()));
            expected.push(PendingRow { fan_out, tries: 0, done_to: None });
        }
    }
    assert_eq!(pending(&*store).await, expected);
}

/// A delivery as a list shows it, beside its cursor.
type Listed = (DeliveryRow, Option<IssueId>, Option<String>);

/// Stores one delivery of each kind that a list distinguishes, and returns them newest first: an unheard
/// one, one that was set aside, one that waits, a ping, one of an issue that has ended (its home is
/// returned, too), and one of a live issue.
async fn store_each_kind(store: &dyn Store) -> (Vec<Listed>, HomeId) {
    let (live, gone) = (store_first(store).await, store_first(store).await);
    let (absent, old) = ended(&gone);
    assert_eq!(store.commit(Write { ended: Some(old), ..only(absent) }).await, Ok(()));
    let mut ping = delivery(10, None);
    ping.event = "ping".into();
    ping.action = String::new();
    assert_eq!(store.commit(only_delivery(ping.clone())).await, Ok(()));
    for n in [11, 12] {
        assert_eq!(store.put_pending(fan_out(n)).await, Ok(()));
    }
    for _ in 0..PENDING_TRIES_MAX {
        assert_eq!(store.fail_pending(&guid(12), "fails".into()).await, Ok(()));
    }
    let unheard = DeliveryRow { home: Some(HomeId(999)), applied: true, ..delivery(13, None) };
    assert_eq!(store.commit(only_delivery(unheard)).await, Ok(()));

    let mut listed = Vec::new();
    for n in [13, 12, 11, 10, gone.home.0, live.home.0] {
        let row = store.delivery(&guid(n)).await.expect("reads").expect("is there");
        let issue = [&live, &gone].into_iter().find(|issue| Some(issue.home) == row.home);
        listed.push((
            row,
            issue.map(|issue| issue.facts.issue_id.clone()),
            issue.map(|issue| issue.sandbox().expect("one").name),
        ));
    }
    (listed, gone.home)
}

/// Each filter, and the positions of what it picks out of [`store_each_kind`].
fn filters(gone: HomeId) -> [(DeliveryFilter, &'static [usize]); 13] {
    let all = DeliveryFilter::default;
    [
        (all(), &[0, 1, 2, 3, 4, 5]),
        (DeliveryFilter { home: Some(gone), ..all() }, &[4]),
        (DeliveryFilter { home: Some(HomeId(12_345)), ..all() }, &[]),
        (DeliveryFilter { applied: Some(true), ..all() }, &[0, 4, 5]),
        (DeliveryFilter { applied: Some(false), ..all() }, &[1, 2, 3]),
        (DeliveryFilter { event: Some("ping".into()), ..all() }, &[3]),
        (DeliveryFilter { action: Some("no-such-action".into()), ..all() }, &[]),
        (DeliveryFilter { state: Some(DeliveryState::Done), ..all() }, &[0, 3, 4, 5]),
        (DeliveryFilter { state: Some(DeliveryState::Pending), ..all() }, &[2]),
        (DeliveryFilter { state: Some(DeliveryState::SetAside), ..all() }, &[1]),
        (DeliveryFilter { sample: Some(false), ..all() }, &[0, 1, 2, 3, 4, 5]),
        (DeliveryFilter { sample: Some(true), ..all() }, &[]),
        (
            DeliveryFilter {
                state: Some(DeliveryState::Done),
                applied: Some(false),
                event: Some("issues".into()),
                ..all()
            },
            &[],
        ),
    ]
}

/// Reads a list to its end, two deliveries at a time, and checks its total and its cursors.
async fn read_pages(store: &dyn Store, filter: &DeliveryFilter, total: usize) -> Vec<Listed> {
    let (mut cursor, mut seen) = (None, Vec::new());
    loop {
        let page = store.deliveries(filter, &ask(2, cursor.as_deref())).await.expect("lists");
        assert_eq!(page.total, total as u64, "{filter:?}");
        if let (Some(next), Some(last)) = (&page.next, page.items.last()) {
            assert_eq!(*next, last.cursor, "{filter:?}");
        }
        let parts = |one: DeliveryListRow| (one.row, one.issue_id, one.sandbox_name);
        seen.extend(page.items.into_iter().map(parts));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return seen,
        }
    }
}

pub async fn deliveries_are_listed_newest_first_in_pages(world: &dyn World) {
    let store = world.open();
    let (listed, gone) = store_each_kind(&*store).await;
    for (filter, picked) in filters(gone) {
        let expected: Vec<_> = picked.iter().map(|n| listed[*n].clone()).collect();
        assert_eq!(read_pages(&*store, &filter, picked.len()).await, expected, "{filter:?}");
    }
    let all = DeliveryFilter::default();
    let page = store.deliveries(&all, &ask(9, None)).await.expect("lists");
    let rest = store.deliveries(&all, &ask(9, Some(&page.items[1].cursor))).await;
    assert_eq!(rest.expect("lists").items, page.items[2..], "a page may begin behind any row");
    for bad in ["", "x", "dDox", "ZDp4"] {
        let page = store.deliveries(&all, &ask(2, Some(bad))).await;
        assert_eq!(page, Err(StoreError::BadCursor), "{bad:?}");
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn kept(store: &dyn Store) -> Vec<Timestamp> {
    let page = store.deliveries(&DeliveryFilter::default(), &ask(10_000, None)).await;
    page.expect("lists").items.into_iter().rev().map(|one| one.row.received_at).collect()
}

pub async fn old_deliveries_are_pruned_and_young_or_pending_ones_never(world: &dyn World) {
    let store = world.open();
    let now = at(0).after(DAY * 100);
    let days_ago = |days| now.before(DAY * days);
    // The first one came while the clock was wrong; the pending one is older than all others.
    for (n, days) in [(1, 0), (2, 50), (4, 40), (5, 31), (6, 29), (7, 4), (8, 2), (9, 1)] {
        let row = DeliveryRow { received_at: days_ago(days), ..delivery(n, None) };
        assert_eq!(store.commit(only_delivery(row)).await, Ok(()));
        if n == 2 {
            let waits = FanOut { received_at: days_ago(60), ..fan_out(3) };
            assert_eq!(store.put_pending(waits).await, Ok(()));
        }
    }
    let prune = async |days: Option<u32>, limit| {
        store.prune(PruneAsk { deliveries_before: days.map(days_ago), ..pruning(now, limit) }).await
    };
    assert_eq!(prune(None, 100).await, Ok(0), "nothing is to go");
    assert_eq!(prune(Some(30), 2).await, Ok(2), "no more than was asked");
    let ages = async || {
        let times = kept(&*store).await;
        times.into_iter().map(|time| now.since(time).as_secs() / DAY.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(ages().await, [0, 60, 31, 29, 4, 2, 1]);
    assert_eq!(prune(Some(30), 100).await, Ok(1));
    assert_eq!(prune(Some(30), 100).await, Ok(0));
    assert_eq!(prune(Some(0), 100).await, Ok(2), "three days at least, whatever was asked");
    assert_eq!(ages().await, [0, 60, 2, 1]);

    let row = DeliveryRow { received_at: days_ago(2), ..delivery(8, None) };
    let again = store.commit(only_delivery(row)).await;
    assert_eq!(again, Err(CommitError::DuplicateDelivery), "it is still known");
    assert_eq!(pending(&*store).await.len(), 1);
    assert_eq!(store.finish_pending(&guid(3), true, "done".into()).await, Ok(()));
    assert_eq!(prune(Some(30), 100).await, Ok(1), "now it may go");
}

/// What removes nothing.
pub fn pruning(now: Timestamp, limit: usize) -> PruneAsk {
    let (deliveries_before, timeline_before, deleted_before) = (None, None, None);
    PruneAsk { now, deliveries_before, timeline_before, deleted_before, limit }
}

pub async fn many_are_pruned_in_bites(world: &dyn World) {
    let store = world.open();
    let now = at(0).after(DAY * 100);
    for n in 0..1_000 {
        drop(store.commit(only_delivery(delivery(n, None))));
    }
    let young = DeliveryRow { received_at: now, ..delivery(5_000, None) };
    assert_eq!(store.commit(only_delivery(young)).await, Ok(()));
    let deliveries_before = Some(now);
    let timeline_before = deliveries_before;
    let ask = PruneAsk { deliveries_before, timeline_before, ..pruning(now, 700) };
    assert_eq!(store.prune(ask).await, Ok(700));
    assert_eq!(store.prune(ask).await, Ok(300));
    assert_eq!(kept(&*store).await, [now]);
}

pub async fn old_rows_of_timelines_are_pruned(world: &dyn World) {
    let store = world.open();
    let mut issue = store_first(&*store).await;
    let now = at(0).after(DAY * 100);
    for days in [91, 10, 95, 89] {
        issue = running(&issue);
        let row = TimelineEntry { at: now.before(DAY * days), ..entry(&issue, None) };
        let write = Write { timeline: vec![row], ..only(issue.clone()) };
        assert_eq!(store.commit(write).await, Ok(()));
    }
    let ask_to =
        |days| PruneAsk { timeline_before: Some(now.before(DAY * days)), ..pruning(now, 100) };
    assert_eq!(store.prune(ask_to(90)).await, Ok(3), "the first step's row too");
    let left = store.timeline(issue.home, &ask(10, None)).await.expect("reads");
    let left: Vec<_> =
        left.items.iter().map(|row| now.since(row.entry.at).as_secs() / 86_400).collect();
    assert_eq!(left, [89, 10]);
    assert_eq!(store.prune(ask_to(1)).await, Ok(2), "no three days here");
    assert_eq!(store.load(issue.home).await, Ok(Some(issue)), "the state stays");
    assert_eq!(kept(&*store).await.len(), 1, "deliveries too");
}
