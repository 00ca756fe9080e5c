//! What models cost: reserved at most once, settled exactly once, and kept through every end.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use issuebox::models::budget::BudgetScope;
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::usage::{
    ModelRequestId, NewModelRequest, Reserved, SettledRequest, UsageAsk, UsageBy, UsageKey,
    UsageStore, UsageSum,
};
use issuebox::store::{Store, Write};
use issuebox::types::{
    AccountName, Alias, HomeId, IssueId, ModelBudgets, Money, Repository, RunId, SandboxId,
    Timestamp, Tokens,
};
use rusqlite::Connection;

use crate::store_issues::{first, only, running};

const HOME: HomeId = HomeId(1);
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

const fn at(unix_ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(unix_ms)
}

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir).expect("opens")
}

fn cents(cents: u64) -> Money {
    Money::from_nano_dollars(cents * 10_000_000)
}

fn run(number: u8) -> RunId {
    let text = format!("019392f0-5b7e-7a3c-8c55-3c1a0b6a1f{number:02x}");
    RunId::parse(&text).expect("an id")
}

fn request(worst: u64) -> NewModelRequest {
    NewModelRequest {
        run: run(1),
        home: HOME,
        sandbox: SandboxId::trusted("0190-one"),
        account: AccountName::default_account(),
        repository: Some(Repository::trusted("Octo/Hello")),
        model: "claude-x".into(),
        begun_at: at(5 * DAY),
        worst: cents(worst),
        input_cost: cents(1),
    }
}

fn settled(cost: u64) -> SettledRequest {
    let tokens = Tokens { input: 1, output: 2, cache_read: 3, cache_write: 4 };
    SettledRequest { status: 200, duration: Duration::from_millis(9), tokens, cost: cents(cost) }
}

fn budgets(run: u64, issue: u64, day: u64) -> ModelBudgets {
    ModelBudgets { run: cents(run), issue: cents(issue), account_per_day: cents(day) }
}

async fn reserve(store: &SqliteStore, request: NewModelRequest, of: ModelBudgets) -> Reserved {
    store.reserve_request(request, of).await.expect("stored")
}

async fn granted(store: &SqliteStore, request: NewModelRequest) -> ModelRequestId {
    match reserve(store, request, ModelBudgets::default()).await {
        Reserved::Granted(id) => id,
        other => panic!("it is not granted: {other:?}"),
    }
}

async fn spend(store: &SqliteStore, request: NewModelRequest, cost: u64) {
    let id = granted(store, request).await;
    store.settle_request(id, settled(cost)).await.expect("stored");
}

/// What was spent and reserved by run, issue and account, in cents.
async fn uses(store: &SqliteStore, now: Timestamp) -> [(u64, u64); 3] {
    let account = AccountName::default_account();
    let uses = store.budget_uses(run(1), HOME, &account, now).await.expect("reads");
    [uses.run, uses.issue, uses.account_day]
        .map(|of| (of.spent.nano_dollars() / 10_000_000, of.reserved.nano_dollars() / 10_000_000))
}

#[tokio::test]
async fn a_request_is_spent_once_it_is_settled_and_only_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let now = at(5 * DAY + HOUR);
    let id = granted(&store, request(50)).await;
    assert_eq!(uses(&store, now).await, [(0, 50); 3]);
    store.settle_request(id, settled(7)).await.expect("stored");
    assert_eq!(uses(&store, now).await, [(7, 0); 3]);
    store.settle_request(id, settled(7)).await.expect("no harm");
    store.settle_request(ModelRequestId(99), settled(7)).await.expect("no harm");
    assert_eq!(uses(&store, now).await, [(7, 0); 3]);
    // Others have their own.
    spend(&store, NewModelRequest { run: run(2), ..request(50) }, 10).await;
    spend(&store, NewModelRequest { run: run(3), home: HomeId(2), ..request(50) }, 20).await;
    let other = AccountName::trusted("other");
    spend(
        &store,
        NewModelRequest { run: run(4), home: HomeId(3), account: other, ..request(5) },
        1,
    )
    .await;
    let yesterday = at(5 * DAY - 1);
    spend(&store, NewModelRequest { begun_at: yesterday, ..request(50) }, 40).await;
    assert_eq!(uses(&store, now).await, [(47, 0), (57, 0), (37, 0)]);
    assert_eq!(uses(&store, yesterday).await, [(47, 0), (57, 0), (40, 0)]);
}

#[tokio::test]
async fn two_requests_at_once_never_get_the_same_cent() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let of = budgets(0, 100, 0);
    let asked = join_all((0..40).map(|_| reserve(&store, request(30), of))).await;
    let granted = |it: &&Reserved| matches!(it, Reserved::Granted(_));
    assert_eq!(asked.iter().filter(granted).count(), 3, "three times 30 of 100");
    assert!(asked.iter().all(|it| granted(&it) || *it == Reserved::Waits));
    assert_eq!(uses(&store, at(5 * DAY)).await[1], (0, 90));
}

#[tokio::test]
async fn each_budget_refuses_once_it_is_spent() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    spend(&store, request(50), 20).await;
    for (of, scope) in [
        (budgets(20, 0, 0), BudgetScope::Run),
        (budgets(0, 15, 99), BudgetScope::Issue),
        (budgets(99, 99, 20), BudgetScope::AccountDay),
    ] {
        let Reserved::UsedUp(used_up) = reserve(&store, request(1), of).await else {
            panic!("{scope:?} is spent")
        };
        assert_eq!((used_up.scope, used_up.spent), (scope, cents(20)));
    }
    let last = reserve(&store, request(90), budgets(21, 21, 21)).await;
    assert!(matches!(last, Reserved::Granted(_)), "one may take the last cent: {last:?}");
    assert_eq!(reserve(&store, request(1), budgets(0, 0, 21)).await, Reserved::Waits);
}

#[tokio::test]
async fn what_an_earlier_server_left_open_is_spent_until_an_hour_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let id = granted(&store, request(50)).await;
    spend(&store, request(50), 3).await;
    drop(store);
    let store = open(dir.path());
    let now = at(5 * DAY + 1);
    assert_eq!(uses(&store, now).await, [(53, 0); 3]);
    let ours = granted(&store, NewModelRequest { begun_at: now, ..request(9) }).await;
    assert_eq!(uses(&store, now).await, [(53, 9); 3]);
    assert_eq!(store.settle_abandoned(at(5 * DAY)).await, Ok(0), "not before its time");
    assert_eq!(store.settle_abandoned(at(5 * DAY + 2)).await, Ok(1));
    assert_eq!(uses(&store, now).await, [(4, 9); 3], "its input is paid");
    store.settle_request(id, settled(50)).await.expect("no harm");
    assert_eq!(uses(&store, now).await, [(4, 9); 3]);
    // What this server has in flight has an hour more.
    assert_eq!(store.settle_abandoned(at(5 * DAY + 1 + HOUR)).await, Ok(0));
    assert_eq!(store.settle_abandoned(at(5 * DAY + 2 + HOUR)).await, Ok(1));
    store.settle_request(ours, settled(9)).await.expect("no harm");
    assert_eq!(uses(&store, now).await, [(5, 0); 3]);
}

#[tokio::test]
async fn a_server_whose_epoch_is_over_reserves_and_settles_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let id = granted(&store, request(50)).await;
    let conn = Connection::open(dir.path().join("issuebox.db")).expect("opens");
    conn.execute("UPDATE meta SET epoch = epoch + 1", []).expect("writes");
    assert!(store.reserve_request(request(1), ModelBudgets::default()).await.is_err());
    assert!(store.settle_request(id, settled(1)).await.is_err());
    assert_eq!(uses(&store, at(5 * DAY)).await, [(0, 50); 3]);
}

#[tokio::test]
async fn sums_are_made_by_everything_that_people_ask_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    spend(&store, request(50), 10).await;
    spend(&store, NewModelRequest { model: "gpt-y".into(), ..request(50) }, 20).await;
    let other = NewModelRequest { run: run(2), home: HomeId(2), repository: None, ..request(50) };
    spend(&store, NewModelRequest { begun_at: at(6 * DAY + 5), ..other }, 40).await;
    let sums = async |ask: UsageAsk| {
        let rows = store.usage(ask).await.expect("reads");
        let of = |(key, sum): (UsageKey, UsageSum)| {
            assert_eq!(sum.tokens.output, 2 * sum.requests);
            (key, sum.cost.nano_dollars() / 10_000_000)
        };
        rows.into_iter().map(of).collect::<Vec<_>>()
    };
    let account = AccountName::default_account();
    for (by, expected) in [
        (UsageBy::Run, vec![(UsageKey::Run(run(2)), 40), (UsageKey::Run(run(1)), 30)]),
        (UsageBy::Issue, vec![(UsageKey::Issue(HomeId(2)), 40), (UsageKey::Issue(HOME), 30)]),
        (
            UsageBy::Repository,
            vec![
                (UsageKey::Repository(None), 40),
                (UsageKey::Repository(Some(Repository::trusted("Octo/Hello"))), 30),
            ],
        ),
        (UsageBy::Account, vec![(UsageKey::Account(account.clone()), 70)]),
        (
            UsageBy::Model,
            vec![(UsageKey::Model("claude-x".into()), 50), (UsageKey::Model("gpt-y".into()), 20)],
        ),
        (UsageBy::Day, vec![(UsageKey::Day(at(5 * DAY)), 30), (UsageKey::Day(at(6 * DAY)), 40)]),
    ] {
        assert_eq!(sums(UsageAsk::all(by)).await, expected, "{by:?}");
    }
    let of_run = UsageAsk { run: Some(run(1)), ..UsageAsk::all(UsageBy::Issue) };
    assert_eq!(sums(of_run).await, [(UsageKey::Issue(HOME), 30)]);
    let later = UsageAsk { since: Some(at(6 * DAY + 7)), ..UsageAsk::all(UsageBy::Issue) };
    assert_eq!(sums(later).await, [(UsageKey::Issue(HomeId(2)), 40)]);
    let of_other =
        UsageAsk { account: Some(AccountName::trusted("x")), ..UsageAsk::all(UsageBy::Day) };
    assert_eq!(sums(of_other).await, []);
    assert_eq!(sums(UsageAsk { limit: 1, ..UsageAsk::all(UsageBy::Run) }).await.len(), 1);
}

#[tokio::test]
async fn old_requests_go_and_their_sums_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for _ in 0..3 {
        spend(&store, request(50), 10).await;
    }
    granted(&store, request(50)).await;
    assert_eq!(store.prune_requests(at(5 * DAY), 10).await, Ok(0));
    assert_eq!(store.prune_requests(at(5 * DAY + 1), 2).await, Ok(2));
    assert_eq!(store.prune_requests(at(5 * DAY + 1), 10).await, Ok(1), "what is open stays");
    assert_eq!(uses(&store, at(5 * DAY)).await, [(30, 50); 3]);
}

#[tokio::test]
async fn a_home_that_gives_way_leaves_what_it_used_to_the_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let account = AccountName::default_account();
    for home in [HOME, HomeId(2)] {
        store.commit(first(&account, home)).await.expect("stored");
    }
    let of_other = NewModelRequest { home: HomeId(2), ..request(50) };
    spend(&store, of_other.clone(), 10).await;
    let open = granted(&store, of_other).await;
    let other = store.load(HomeId(2)).await.expect("reads").expect("is there");
    let write = Write { names_go_to: Some(HOME), ..only(running(&other)) };
    store.commit(write).await.expect("stored");
    assert_eq!(uses(&store, at(5 * DAY)).await[1], (10, 50));
    store.settle_request(open, settled(5)).await.expect("stored");
    assert_eq!(uses(&store, at(5 * DAY)).await[1], (15, 0));
    let by_id = store.resolve(&account, &Alias::Issue(IssueId::trusted("x"))).await;
    assert_eq!(by_id, Ok(None));
}
