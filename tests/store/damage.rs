//! Damage inside the database: what it is about is named, and nothing else is held up.

use crate::store_issues::{at, creating, delivery, next, only, running};
use issuebox::issue::{Cleanup, CleanupAction, Effect, IssueState};
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::{CommitError, NewEffect, PageAsk, SandboxFilter, Store, StoreError, Write};
use issuebox::types::{AccountName, ExternalId, HomeId, ProviderName, SandboxId, TimelineEntry};
use rusqlite::Connection;
use std::path::Path;

/// A store with five homes that run.
async fn filled(dir: &Path) -> (SqliteStore, Vec<HomeId>) {
    let store = SqliteStore::open(dir).expect("opens");
    let account = AccountName::default_account();
    let mut homes = Vec::new();
    for _ in 0..5 {
        let issue = creating(&account, store.next_home());
        assert_eq!(store.commit(only(issue.clone())).await, Ok(()));
        assert_eq!(store.commit(only(running(&issue))).await, Ok(()));
        homes.push(issue.home);
    }
    (store, homes)
}

fn change(dir: &Path, sql: &str) {
    let conn = Connection::open(dir.join("issuebox.db")).expect("opens");
    conn.execute_batch(sql).expect("changes it");
}

#[tokio::test]
async fn an_issue_that_cannot_be_read_is_named_and_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, homes) = filled(dir.path()).await;
    let account = AccountName::default_account();
    for (home, damage, words) in [
        (homes[0], "body = CAST(x'7b22ff' AS TEXT)", "column body: invalid utf-8"),
        (homes[1], "body = '{}'", "missing field `facts`"),
        (homes[2], "external_id = NULL", "no external id"),
        (homes[4], "phase = 'walking'", "unknown word \"walking\""),
    ] {
        change(dir.path(), &format!("UPDATE issue SET {damage} WHERE home = {home}"));
        let error = store.load(home).await.expect_err("it is damaged");
        let said = error.to_string();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        let place = format!("the row of home {home} in the table issue");
        let path = dir.path().join("issuebox.db").display().to_string();
        for words in [&*place, words, &*path, "restore FILE"] {
            assert!(said.contains(words), "{words} is not in: {said}");
        }
        assert!(store.troubles().contains(&error), "{:?}", store.troubles());
    }
    let troubles = store.troubles();
    assert_eq!(troubles.len(), 4, "each is listed once: {troubles:#?}");

    // A page is not shorter for it, and none ends the list before its end.
    let live = store.live(None, 1).await.expect("reads");
    assert_eq!(live.iter().map(|issue| issue.home).collect::<Vec<_>>(), [homes[3]]);
    assert_eq!(store.live(Some(homes[3]), 1).await, Ok(vec![]));
    let ask = PageAsk { limit: 1, cursor: None };
    let page = store.sandboxes(&account, &SandboxFilter::default(), &ask).await.expect("lists");
    assert_eq!(page.items.iter().map(|one| one.home).collect::<Vec<_>>(), [homes[3]]);
    assert_eq!((page.next, page.total), (None, 5));
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(store.troubles(), troubles, "what is known is not listed again");
    let said = SqliteStore::inspect(dir.path()).expect_err("the doctor finds it").to_string();
    assert!(said.contains("restore FILE"), "{said}");
}

#[tokio::test]
async fn an_effect_that_cannot_be_read_holds_up_its_home_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, homes) = filled(dir.path()).await;
    for home in [homes[0], homes[1]] {
        let effect = Effect::CleanUp(Cleanup {
            provider: ProviderName::trusted("simulated"),
            external_id: ExternalId::trusted("object"),
            expected: SandboxId::trusted("sandbox"),
            action: CleanupAction::Stop,
        });
        let effects = vec![NewEffect { home, effect, due_at: at(0) }];
        assert_eq!(store.commit(Write { effects, ..Write::default() }).await, Ok(()));
    }
    change(dir.path(), &format!("UPDATE effect SET body = '[' WHERE home = {}", homes[0]));
    let effects = store.effects(at(1), 1).await.expect("reads");
    assert_eq!(effects.iter().map(|row| row.home).collect::<Vec<_>>(), [homes[1]]);
    assert_eq!(store.troubles().len(), 1);
}

#[tokio::test]
async fn damage_that_a_write_meets_is_the_error_of_the_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, homes) = filled(dir.path()).await;
    let issue = store.load(homes[0]).await.expect("reads").expect("is there");
    drop(store);
    let path = dir.path().join("issuebox.db");
    let conn = Connection::open(&path).expect("opens");
    let read = "SELECT rootpage, (SELECT page_size FROM pragma_page_size()) FROM sqlite_schema
                WHERE name = 'timeline'";
    let number = |row: &rusqlite::Row<'_>, column| row.get::<_, u32>(column).map(|n| n as usize);
    let (page, size) =
        conn.query_row(read, [], |row| Ok((number(row, 0)?, number(row, 1)?))).expect("reads");
    drop(conn);
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes[(page - 1) * size..page * size].fill(0xA5);
    std::fs::write(&path, bytes).expect("writes");

    let store = SqliteStore::open(dir.path()).expect("opens: nothing has read that page yet");
    let IssueState::Running { record, external_id } = issue.state.clone() else { unreachable!() };
    let mut after = next(&issue, IssueState::Running { record, external_id });
    after.life_due = None;
    let timeline = vec![TimelineEntry {
        at: at(1),
        generation: issue.generation,
        from: None,
        to: None,
        reason: "it is so".into(),
        cause: "a test".into(),
    }];
    let write = Write { timeline, delivery: Some(delivery(9, Some(homes[0]))), ..only(after) };
    let refused = store.commit(write).await.expect_err("the page is damaged");
    assert!(matches!(refused, CommitError::Damaged { .. }), "{refused:?}");
    assert!(refused.to_string().contains("issuebox.db"), "{refused}");
    assert_eq!(store.troubles().len(), 1);
    assert_eq!(store.troubles()[0].to_string(), refused.to_string());
    // What does not need the page goes on.
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(store.load(homes[0]).await, Ok(Some(issue)));
}
