//! A backup that is restored: everything that was recorded is there, and nothing is under way.

use crate::store_issues;
use futures_util::future::join_all;
use issuebox::issue::state::Goal;
use issuebox::issue::{Cleanup, CleanupAction, Effect, Issue, IssueState};
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::{NewEffect, PageAsk, Store, Write};
use issuebox::types::{ExternalId, Hold, HoldScope, HomeId, ProviderName, SandboxId};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Whether a server that starts with it would make or start something by itself.
fn would_go_on(state: &IssueState) -> bool {
    match state {
        IssueState::Creating { .. } | IssueState::Starting { .. } => true,
        IssueState::Stopping { goal, .. } => *goal == Goal::Running,
        IssueState::Deleting { next, .. } => next.is_some(),
        IssueState::Absent
        | IssueState::Running { .. }
        | IssueState::Stopped { .. }
        | IssueState::Failed { .. } => false,
    }
}

/// Issues of every kind, each with a sandbox id of its own.
fn issues() -> Vec<Issue> {
    let mut runner = TestRunner::deterministic();
    let made = (1..=200).map(|home| {
        let made = store_issues::any_issue().new_tree(&mut runner).expect("a strategy");
        let mut issue = Issue { home: HomeId(home), ..made.current() };
        if let Some(record) = issue.state.record_mut() {
            record.id = SandboxId::trusted(format!("sandbox-{home}"));
        }
        issue
    });
    made.collect()
}

#[tokio::test]
async fn nothing_is_under_way_after_a_restore_and_all_else_is_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, file, new) = (dir.path().join("a"), dir.path().join("f"), dir.path().join("b"));
    let before = issues();
    let under_way = before.iter().filter(|issue| would_go_on(&issue.state)).count();
    assert!((50..150).contains(&under_way), "{under_way} of 200");
    let store = SqliteStore::open(&data).expect("opens");
    let writes = before.iter().map(|issue| store.commit(store_issues::only(issue.clone())));
    assert!(join_all(writes).await.into_iter().all(|written| written.is_ok()));
    let cleanup = Cleanup {
        provider: ProviderName::trusted("simulated"),
        external_id: ExternalId::trusted("orphan"),
        expected: SandboxId::trusted("gone"),
        action: CleanupAction::Remove,
    };
    let effect = NewEffect {
        home: HomeId(1),
        effect: Effect::CleanUp(cleanup),
        due_at: store_issues::at(1),
    };
    let write = Write { effects: vec![effect], ..Write::default() };
    assert_eq!(store.commit(write).await, Ok(()));
    SqliteStore::backup(&data, &file).expect("copied");
    let now = store_issues::at(5_000);
    let (reason, by) = ("restored".to_owned(), "a person".to_owned());
    let hold = Hold { scope: HoldScope::Server, reason, since: now, by, followed_to: None };
    SqliteStore::restore(&new, &file, &hold, now).expect("restored");
    let store = SqliteStore::open(&new).expect("opens");
    assert_eq!(store.effect_counts().await, Ok(vec![]), "what was to be done may be wrong by now");
    for issue in before {
        let after = store.load(issue.home).await.expect("reads").expect("is there");
        let ask = PageAsk { limit: 9, cursor: None };
        let entries = store.timeline(issue.home, &ask).await.expect("reads").items;
        if !would_go_on(&issue.state) {
            assert_eq!((after, entries.len()), (issue, 0));
            continue;
        }
        assert!(!would_go_on(&after.state), "{after:?}");
        let id = |issue: &Issue| issue.state.record().map(|record| record.id.clone());
        assert_eq!((id(&after), after.version), (id(&issue), issue.version + 1));
        assert_eq!(
            (entries[0].entry.from, entries[0].entry.to),
            (issue.state.phase(), after.state.phase())
        );
        assert_eq!(entries[0].entry.cause, "restore");
    }
}
