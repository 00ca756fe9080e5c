//! A database of an older layout becomes the newest one with everything in it, and a copy of how it
//! was stays beside it. The rows are those that the older layout's own version wrote.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::store_issues::{delivery, numbered, only, running};
use issuebox::issue::instruction::InstructionSource;
use issuebox::issue::{Cleanup, CleanupAction, Effect, Instruction, IssueState, Scope};
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::{
    DeliveryFilter, DeliveryRow, DeliveryState, LookAsk, NewEffect, NumberedHome, PageAsk, Store,
    Write,
};
use issuebox::types::{
    AccountName, Alias, DeliveryId, ExternalId, HomeId, IssueId, IssueNumber, Phase, ProviderName,
    Repository, SandboxId, Timestamp, Wanted,
};
use rusqlite::Connection;

const FIRST_LAYOUT: &str = include_str!("../../migrations/sqlite/0001_first.sql");

/// Three homes: a running sandbox, one that is gone, one that only a caller named. The last alias
/// is the first home's name before its repository was renamed.
const ROWS: &str = r#"
INSERT INTO account (id, name) VALUES (1, 'default');
INSERT INTO issue (home, account, version, due_at, phase, sandbox_id, provider, external_id,
                   created_at, repository, search, body)
VALUES
(1, 1, 4, NULL, 'running', '0190-one', 'simulated', 'sim-1', 1770000000000, 'octo/hello',
 'claude-issue-444000001
fix it
octo/hello
0190-one
',
 '{"facts":{"issue_id":"444000001","repository":"Octo/Hello","repository_id":5000000001,"number":1,"title":["Fix it",1770000000000],"open":[true,1770000000000]},"generation":1,"record":{"name":"claude-issue-444000001","object":"claude-issue-444000001","generation":1,"template":{"name":"default","mode":"strong","cpu":"1","memory_mb":1024,"processes":256,"disk_mb":2048},"mode":"strong","phase_since":1770000001000,"last_activity_at":1770000001000,"reason":"the provider brought it up","attempt":1}}'),
(2, 1, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 '{"facts":{"issue_id":"444000002","repository":"Octo/Hello","repository_id":5000000001,"number":2,"ended_by_person_at":1770000003000},"generation":1}'),
(3, 1, 1, 1770000120000, 'creating', '0190-three', 'simulated', NULL, 1770000000000, NULL,
 'claude-issue-test-3
0190-three
',
 '{"facts":{"issue_id":"test-3"},"generation":1,"record":{"name":"claude-issue-test-3","object":"claude-issue-test-3","generation":1,"template":{"name":"default","mode":"strong","cpu":"1","memory_mb":1024,"processes":256,"disk_mb":2048},"mode":"strong","phase_since":1770000000000,"last_activity_at":1770000000000,"reason":"asked for","attempt":1},"step":{"asked":{"verb":"create","until":1770000110000,"tries_left":2}},"goal":"running"}');
INSERT INTO ended (account, home, generation, sandbox_id, provider, external_id, created_at,
                   repository, search, body)
VALUES (1, 2, 1, '0190-two', 'simulated', 'sim-2', 1770000000000, 'octo/hello', 'claude-issue-444000002
0190-two
',
 '{"name":"claude-issue-444000002","issue_id":"444000002","template":"default","mode":"strong","wanted":"deleted","attempt":2,"reason":"deleted","phase_since":1770000002000,"last_activity_at":1770000002000,"deleted_at":1770000003000}');
INSERT INTO issue_alias (account, issue_id, home)
VALUES (1, '444000001', 1), (1, '444000002', 2), (1, 'test-3', 3);
INSERT INTO numbered_alias (account, repository, number, home)
VALUES (1, 'octo/hello', 1, 1), (1, 'octo/hello', 2, 2), (1, 'octo/before', 1, 1);
INSERT INTO timeline (home, at, generation, phase_from, phase_to, reason, cause)
VALUES (1, 1770000000000, 1, NULL, 'creating', 'asked for', 'delivery x');
INSERT INTO delivery (guid, received_at, event, action, home, applied, reason)
VALUES (x'72d3162ecc7811e381ab4c9367dc0958', 1770000000000, 'issues', 'labeled', 1, 1, 'applied'),
       ('not-a-guid', 1770000000001, 'ping', '', NULL, 0, 'GitHub says hello');
UPDATE meta SET epoch = 9;
PRAGMA user_version = 1;
"#;

/// The layouts up to version 6, whose instructions had their text in the body.
const TO_VERSION_6: [&str; 5] = [
    include_str!("../../migrations/sqlite/0002_around.sql"),
    include_str!("../../migrations/sqlite/0003_sessions.sql"),
    include_str!("../../migrations/sqlite/0004_holds.sql"),
    include_str!("../../migrations/sqlite/0005_instructions.sql"),
    include_str!("../../migrations/sqlite/0006_outbox.sql"),
];

const INSTRUCTIONS_OF_VERSION_6: &str = r#"
INSERT INTO instruction (home, number, guid, body) VALUES
(1, 2, 'second', '{"comment":8,"as_of":1770000000008,"text":"a \u0000 and\n\"two\""}'),
(1, 1, x'72d3162ecc7811e381ab4c9367dc0958',
 '{"author":{"id":7,"login":"ada"},"as_of":1770000000000,"title":"Fix it","text":""}'),
(2, 1, 'third', '{"as_of":1770000000009,"text":"three"}');
PRAGMA user_version = 6;
"#;

fn database_of_version_1(dir: &Path) {
    let conn = Connection::open(dir.join("issuebox.db")).expect("opens");
    conn.execute_batch(FIRST_LAYOUT).expect("makes the first layout");
    conn.execute_batch(ROWS).expect("fills it");
}

#[tokio::test]
async fn a_database_of_version_1_keeps_all_it_has() {
    let dir = tempfile::tempdir().expect("a directory");
    database_of_version_1(dir.path());
    let store = SqliteStore::open(dir.path()).expect("migrates");
    let account = AccountName::default_account();

    let one = store.load(HomeId(1)).await.expect("reads").expect("is there");
    assert_eq!((one.version, one.facts.repository_id), (4, Some(5_000_000_001)));
    assert!(matches!(one.state, IssueState::Running { .. }), "{one:?}");
    assert_eq!((&one.pending_start, one.life_due, one.merged_into), (&None, None, None));
    assert_eq!(one.state.record().expect("one").deadline, None);
    let three = store.load(HomeId(3)).await.expect("reads").expect("is there");
    assert_eq!(three.state.phase(), Some(Phase::Creating));
    let gone = store.newest_sandbox(HomeId(2)).await.expect("reads").expect("is there");
    assert_eq!(gone.id, SandboxId::trusted("0190-two"));
    assert_eq!(store.deleted(std::slice::from_ref(&gone.id)).await.map(|ids| ids.len()), Ok(1));

    // What the new columns are for works for rows that were there before.
    let of_repository = Scope::Repositories(vec![5_000_000_001]);
    let concerned = store.homes(&of_repository, None, 10).await;
    assert_eq!(concerned, Ok(vec![HomeId(1), HomeId(2)]), "live or not");
    assert_eq!(store.homes(&Scope::Installation(1), None, 10).await, Ok(vec![]));
    assert_eq!(store.pending_starts(0, 10).await, Ok(vec![]));
    for (name, number, home, repository_id) in [
        ("Octo/Hello", 1, 1, Some(5_000_000_001)),
        ("Octo/Hello", 2, 2, Some(5_000_000_001)),
        ("octo/before", 1, 1, None),
    ] {
        let repository = Repository::trusted(name);
        let numbered = Some((&repository, IssueNumber(number)));
        let look = store.look(&account, LookAsk { numbered, ..LookAsk::default() }).await;
        let found = look.expect("reads").by_number;
        assert_eq!(found, Some(NumberedHome { home: HomeId(home), repository_id }), "{name}");
    }
    let by_id = store.resolve(&account, &Alias::Issue(IssueId::trusted("test-3"))).await;
    assert_eq!(by_id, Ok(Some(HomeId(3))));

    let id = DeliveryId::trusted("72d3162e-cc78-11e3-81ab-4c9367dc0958");
    let row = DeliveryRow {
        account: AccountName::default_account(),
        id: id.clone(),
        received_at: Timestamp::from_unix_ms(1_770_000_000_000),
        recovered: false,
        event: "issues".into(),
        action: "labeled".into(),
        home: Some(HomeId(1)),
        applied: true,
        reason: "applied".into(),
        state: DeliveryState::Done,
    };
    assert_eq!(store.delivery(&id).await, Ok(Some(row)));
    let ask = PageAsk { limit: 10, cursor: None };
    let listed = store.deliveries(&DeliveryFilter::default(), &ask).await.expect("lists");
    let ids: Vec<_> = listed.items.iter().map(|one| one.row.id.as_str()).collect();
    assert_eq!(ids, ["not-a-guid", id.as_str()]);
    assert_eq!(listed.items[1].sandbox_name.as_deref(), Some("claude-issue-444000001"));
    assert_eq!(store.timeline(HomeId(1), &ask).await.map(|page| page.total), Ok(1));

    // And it goes on from there.
    assert_eq!(store.epoch().0, 10);
    assert!(store.next_home() > HomeId(3));
    assert_eq!(store.holds().await, Ok(vec![]));
    let mut next = running(&one);
    next.facts.repository_id = Some(6);
    let mut write = only(next);
    write.aliases = vec![numbered(HomeId(1))];
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(store.homes(&of_repository, None, 10).await, Ok(vec![HomeId(2)]));
}

#[tokio::test]
async fn a_database_of_version_1_knows_what_runs_and_what_a_person_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    database_of_version_1(dir.path());
    let store = SqliteStore::open(dir.path()).expect("migrates");
    let one = store.load(HomeId(1)).await.expect("reads").expect("is there");
    assert_eq!(one.facts.acts.verdict().wanted, Wanted::Running);
    let two = store.load(HomeId(2)).await.expect("reads").expect("is there");
    let ended = Timestamp::from_unix_ms(1_770_000_003_000);
    assert_eq!(two.facts.acts.deleted, Some(ended), "no older trigger starts it");
    assert_eq!(two.facts.acts.verdict().wanted, Wanted::Deleted);
}

#[tokio::test]
async fn a_database_of_version_1_takes_instructions_and_effects() {
    let dir = tempfile::tempdir().expect("a directory");
    database_of_version_1(dir.path());
    let store = SqliteStore::open(dir.path()).expect("migrates");
    assert_eq!(store.instructions(HomeId(1), 0, 10).await, Ok(vec![]));
    assert_eq!(store.effect_counts().await, Ok(vec![]));
    let one = store.load(HomeId(1)).await.expect("reads").expect("is there");
    let at = Timestamp::from_unix_ms(0);
    let instruction = Instruction {
        source: InstructionSource::Issue,
        author: None,
        sender: None,
        as_of: at,
        title: None,
        text: "fix it".into(),
    };
    let effect = Effect::CleanUp(Cleanup {
        provider: ProviderName::trusted("simulated"),
        external_id: ExternalId::trusted("sim-9"),
        expected: SandboxId::trusted("0190-nine"),
        action: CleanupAction::Stop,
    });
    let write = Write {
        delivery: Some(delivery(77, Some(HomeId(1)))),
        instruction: Some(instruction.clone()),
        effects: vec![NewEffect { home: HomeId(1), effect: effect.clone(), due_at: at }],
        ..only(running(&one))
    };
    assert_eq!(store.commit(write).await, Ok(()));
    let instructions = store.instructions(HomeId(1), 0, 10).await.expect("reads");
    let instructions = instructions.into_iter().map(|row| row.instruction);
    assert_eq!(instructions.collect::<Vec<_>>(), [instruction]);
    let effects = store.effects(at, 10).await.expect("reads");
    assert_eq!(effects.into_iter().map(|row| row.effect).collect::<Vec<_>>(), [effect]);
}

#[tokio::test]
async fn instructions_of_version_6_keep_their_texts_and_new_ones_have_theirs_raw() {
    let dir = tempfile::tempdir().expect("a directory");
    database_of_version_1(dir.path());
    let conn = Connection::open(dir.path().join("issuebox.db")).expect("opens");
    for layout in TO_VERSION_6.into_iter().chain([INSTRUCTIONS_OF_VERSION_6]) {
        conn.execute_batch(layout).expect("makes the next layout");
    }
    let store = SqliteStore::open(dir.path()).expect("migrates");
    let texts = async |home| {
        let kept = store.instructions(HomeId(home), 0, 10).await.expect("reads");
        kept.into_iter().map(|row| (row.delivery.to_string(), row.instruction.text)).collect()
    };
    let kept: Vec<(String, String)> = texts(1).await;
    let first = "72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned();
    let second = ("second".to_owned(), "a \u{0} and\n\"two\"".to_owned());
    assert_eq!(kept, [(first, String::new()), second.clone()]);

    // A new one comes behind them, and its text is kept as it is.
    let one = store.load(HomeId(1)).await.expect("reads").expect("is there");
    let text = "new \u{0}\n\"words\" \u{1F600}";
    let instruction = Instruction {
        source: InstructionSource::Issue,
        author: None,
        sender: None,
        as_of: Timestamp::from_unix_ms(0),
        title: None,
        text: text.into(),
    };
    let next = running(&one);
    let write = Write {
        delivery: Some(delivery(77, Some(HomeId(1)))),
        instruction: Some(instruction),
        ..only(next.clone())
    };
    assert_eq!(store.commit(write).await, Ok(()));
    let kept: Vec<(String, String)> = texts(1).await;
    assert_eq!((&kept[1], kept[2].1.as_str()), (&second, text));
    let sql = "SELECT body, text FROM instruction ORDER BY id DESC LIMIT 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (body, raw): (String, String) = conn.query_row(sql, [], read).expect("reads");
    assert_eq!((raw.as_str(), body.contains("words")), (text, false));

    // With its owner, its texts are gone.
    let mut gone = running(&next);
    gone.facts.deleted = true;
    assert_eq!(store.commit(only(gone)).await, Ok(()));
    let left = conn.prepare("SELECT home, coalesce(text, body) FROM instruction");
    let mut left = left.expect("has the table");
    let left = left.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
    let left: Vec<(i64, String)> = left.collect::<Result<_, _>>().expect("reads");
    assert_eq!(left, [(2, r#"{"as_of":1770000000009,"text":"three"}"#.to_owned())]);
}

#[tokio::test]
async fn a_copy_of_version_1_stays_beside_it() {
    let dir = tempfile::tempdir().expect("a directory");
    database_of_version_1(dir.path());
    drop(SqliteStore::open(dir.path()).expect("migrates"));

    let copy = dir.path().join("issuebox.db.v1");
    let mode = std::fs::metadata(&copy).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let conn = Connection::open(&copy).expect("opens");
    let version: u32 =
        conn.pragma_query_value(None, "user_version", |row| row.get(0)).expect("reads");
    assert_eq!(version, 1);
    let homes: i64 =
        conn.query_row("SELECT count(*) FROM issue", [], |row| row.get(0)).expect("reads");
    assert_eq!(homes, 3);
    assert!(conn.prepare("SELECT repository_id FROM issue").is_err(), "it is the older layout");
    drop(conn);

    // A second start has nothing to migrate and leaves the copy alone.
    std::fs::remove_file(&copy).expect("can be removed");
    drop(SqliteStore::open(dir.path()).expect("opens"));
    assert!(!copy.exists());
}
