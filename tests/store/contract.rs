//! `SqliteStore` keeps the store's contract, and what only an embedded store must do: it keeps a
//! second server out, refuses what it does not understand, and says when it is overloaded.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::store_suite::World;
use crate::{
    store_deliveries_suite, store_instructions_suite, store_issues, store_lists_suite,
    store_outbox_suite, store_scope_suite, store_suite,
};
use futures_util::future::join_all;
use issuebox::store::sqlite::{OpenError, SqliteStore};
use issuebox::store::{CommitError, Store};
use issuebox::types::AccountName;
use rusqlite::Connection;
use tempfile::TempDir;

struct SqliteWorld {
    dir: TempDir,
}

impl SqliteWorld {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("issuebox.db")
    }
}

impl World for SqliteWorld {
    fn open(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::open(self.dir.path()).expect("opens"))
    }

    fn overtake(&self) {
        let conn = Connection::open(self.database()).expect("opens");
        conn.execute("UPDATE meta SET epoch = epoch + 1", []).expect("writes");
    }
}

macro_rules! keeps_the_contract {
    ($suite:ident: $($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            $suite::$name(&SqliteWorld::new()).await;
        }
    )*};
}

keeps_the_contract! {
    store_suite:
    what_was_stored_is_found_in_every_way,
    one_look_answers_what_single_reads_do,
    what_was_never_stored_is_none,
    writing_can_be_checked,
    a_repeated_delivery_is_refused_whole,
    a_delivery_that_changed_nothing_is_recorded_alone,
    delivery_ids_are_compared_letter_by_letter,
    a_name_belongs_to_one_home,
    a_home_may_be_given_its_names_again_and_new_ones,
    accounts_share_nothing,
    versions_must_follow_each_other,
    a_fenced_write_leaves_no_trace,
    writes_of_one_home_are_applied_in_call_order,
    a_refusal_does_not_undo_its_neighbours,
    a_write_whose_future_is_dropped_still_stands,
    a_newer_epoch_fences_every_write,
    what_was_acknowledged_survives_a_reopening,
    home_numbers_are_never_given_twice,
    ended_sandboxes_stay_as_history,
    stopped_and_failed_sandboxes_are_live,
}

keeps_the_contract! {
    store_lists_suite:
    what_is_due_comes_earliest_first,
    live_sandboxes_come_in_pages_by_home,
    sandboxes_are_listed_newest_first_in_pages,
    a_page_keeps_its_place_while_others_come_and_go,
    an_exact_page_is_the_last_one,
    every_filter_must_hold,
    text_is_found_whatever_its_case_and_taken_as_it_is,
    a_timeline_comes_newest_first_in_pages,
    cursors_of_others_are_refused,
    live_sandboxes_are_counted_by_phase,
    old_records_of_deleted_sandboxes_are_pruned,
}

keeps_the_contract! {
    store_scope_suite:
    a_name_can_be_taken_over,
    all_names_of_a_home_can_go_to_another,
    a_numbered_name_knows_the_repository_it_was_given_for,
    a_name_in_another_repository_is_another_name,
    issues_are_found_by_what_is_around_them,
    pending_starts_take_turns_by_repository,
    holds_are_kept_until_they_are_released,
    orphans_keep_when_they_were_first_seen,
    a_provider_has_one_identity,
    deleted_sandboxes_are_distinguished_from_others,
    reserved_numbers_are_not_given_to_homes,
}

keeps_the_contract! {
    store_deliveries_suite:
    a_pending_delivery_waits_until_it_is_done,
    a_pending_delivery_that_fails_too_often_is_set_aside,
    a_delivery_is_pending_once,
    every_kind_of_news_comes_back_as_it_was,
    deliveries_are_listed_newest_first_in_pages,
    old_deliveries_are_pruned_and_young_or_pending_ones_never,
    many_are_pruned_in_bites,
    old_rows_of_timelines_are_pruned,
}

keeps_the_contract! {
    store_instructions_suite:
    instructions_come_back_as_they_were_in_order,
    an_instruction_is_stored_with_its_delivery_or_not_at_all,
    instructions_outlive_their_deliveries_until_the_issue_is_deleted,
    a_home_that_gives_way_leaves_its_instructions_to_the_other,
    a_timeline_shows_the_beginning_of_what_each_delivery_brought,
}

keeps_the_contract! {
    store_outbox_suite:
    an_effect_is_recorded_with_its_state_or_not_at_all,
    effects_of_a_home_come_one_after_the_other,
    a_newer_effect_of_the_same_key_takes_the_place_of_the_older,
    an_effect_stays_until_it_is_done,
    a_newer_epoch_fences_the_outbox,
}

#[test]
fn every_state_comes_back_as_it_was() {
    store_suite::every_state_comes_back_as_it_was(&SqliteWorld::new());
}

fn refusal(dir: &Path) -> OpenError {
    SqliteStore::open(dir).expect_err("must be refused")
}

#[test]
fn a_second_server_on_one_directory_is_refused_until_the_first_ends() {
    let world = SqliteWorld::new();
    let first = world.open();
    let second = refusal(world.dir.path());
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains(&*world.dir.path().to_string_lossy()), "{second}");
    drop(first);
    drop(world.open());
}

#[test]
fn a_newer_layout_is_refused_with_what_to_do() {
    let world = SqliteWorld::new();
    drop(world.open());
    let conn = Connection::open(world.database()).expect("opens");
    conn.pragma_update(None, "user_version", 999).expect("writes");
    drop(conn);
    let newer = refusal(world.dir.path());
    assert!(matches!(newer, OpenError::NewerSchema { found: 999, .. }), "{newer:?}");
    assert!(newer.to_string().contains("run the newer version again"), "{newer}");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let world = SqliteWorld::new();
    let junk = b"this is no database ".repeat(400);
    fs::write(world.database(), &junk).expect("writes");
    let corrupt = refusal(world.dir.path());
    assert!(matches!(corrupt, OpenError::Corrupt { .. }), "{corrupt:?}");
    assert!(corrupt.to_string().contains("issuebox.db"), "{corrupt}");
    assert_eq!(fs::read(world.database()).expect("reads"), junk);
}

#[test]
fn a_damaged_database_is_refused() {
    let world = SqliteWorld::new();
    drop(world.open());
    let mut bytes = fs::read(world.database()).expect("reads");
    // The root page of the schema follows the file's header of 100 bytes.
    bytes[100..].fill(0xA5);
    fs::write(world.database(), bytes).expect("writes");
    let corrupt = refusal(world.dir.path());
    assert!(matches!(corrupt, OpenError::Corrupt { .. }), "{corrupt:?}");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let world = SqliteWorld::new();
    let file = world.dir.path().join("file");
    fs::write(&file, "").expect("writes");
    let unusable = refusal(&file.join("data"));
    assert!(matches!(unusable, OpenError::Unusable { .. }), "{unusable:?}");
    assert!(unusable.to_string().contains("file/data"), "{unusable}");
    assert!(unusable.to_string().contains("--data"), "{unusable}");
}

#[test]
fn what_is_made_is_private() {
    let world = SqliteWorld::new();
    let dir = world.dir.path().join("a/b");
    let store = SqliteStore::open(&dir).expect("opens");
    let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in ["issuebox.db", "issuebox.db-wal", "issuebox.db-shm", "lock"] {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
    drop(store);
}

#[tokio::test]
async fn too_many_waiting_writes_are_refused_and_the_accepted_ones_stand() {
    let world = SqliteWorld::new();
    let store = world.open();
    // Holds SQLite's write lock, so that the writer waits and the queue fills.
    let blocker = Connection::open(world.database()).expect("opens");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("begins");
    let account = AccountName::default_account();
    let mut verdicts = Vec::new();
    for _ in 0..20_000 {
        verdicts.push(store.commit(store_issues::first(&account, store.next_home())));
    }
    blocker.execute_batch("ROLLBACK").expect("ends");
    let verdicts = join_all(verdicts).await;
    let accepted = verdicts.iter().take_while(|verdict| verdict.is_ok()).count();
    assert!((16_384..=16_384 + 1_024).contains(&accepted), "{accepted} were accepted");
    let refused = &verdicts[accepted..];
    assert!(refused.iter().all(|verdict| *verdict == Err(CommitError::Overloaded)));
    assert_eq!(store.live(None, 30_000).await.map(|all| all.len()), Ok(accepted));
    assert_eq!(store.check().await, Ok(()), "it works again");
}

/// Names the directory to the child process of the test below.
const CHILD_DIR: &str = "STORE_TEST_CHILD_DIR";

#[tokio::test]
#[ignore = "is the child process of the test below"]
async fn writes_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = SqliteStore::open(Path::new(&dir)).expect("opens");
    let account = AccountName::default_account();
    loop {
        let homes: Vec<_> = (0..8).map(|_| store.next_home()).collect();
        let writes = homes.iter().map(|home| store.commit(store_issues::first(&account, *home)));
        for (verdict, home) in join_all(writes).await.into_iter().zip(&homes) {
            assert_eq!(verdict, Ok(()));
            println!("\nstored {home}");
        }
    }
}

#[tokio::test]
async fn what_a_killed_process_acknowledged_is_there_at_once() {
    let world = SqliteWorld::new();
    let mut acknowledged = Vec::new();
    for round in 1..=3 {
        let mut child = Command::new(std::env::current_exe().expect("is a file"))
            .args(["--exact", "contract::writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(CHILD_DIR, world.dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let mut homes = lines.filter_map(|line| {
            let line = line.expect("is text");
            line.strip_prefix("stored ").map(|home| home.parse::<i64>().expect("a number"))
        });
        acknowledged.extend(homes.by_ref().take(50 * round));
        child.kill().expect("is killed");
        child.wait().expect("ends");
        // What it still said before it died counts as well.
        acknowledged.extend(homes);

        let store = world.open();
        for home in &acknowledged {
            let home = issuebox::types::HomeId(*home);
            assert!(store.load(home).await.expect("reads").is_some(), "home {home}");
            let delivery = store.delivery(&store_issues::guid(home.0)).await.expect("reads");
            assert!(delivery.is_some(), "the delivery of {home}");
        }
        assert!(store.next_home().0 > acknowledged.iter().copied().max().expect("some"));
    }
}

/// Not a check but a measurement: `cargo test --release --test store writes_a_second -- --ignored
/// --nocapture`.
#[tokio::test]
#[ignore = "measures; meaningful only in a release build on a quiet machine"]
async fn writes_a_second() {
    const ISSUES: usize = 200_000;
    const AT_ONCE: usize = 4_000;
    let world = SqliteWorld::new();
    let store = world.open();
    let account = AccountName::default_account();
    let begun = std::time::Instant::now();
    for _ in 0..ISSUES / AT_ONCE {
        let verdicts = join_all((0..AT_ONCE).map(|_| {
            let home = store.next_home();
            let mut write = store_issues::first(&account, home);
            // GitHub's GUIDs come in no order.
            let spread = (home.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            write.delivery.as_mut().expect("has one").id = issuebox::types::DeliveryId::trusted(
                format!("{:08x}-{:04x}-11e3-81ab-4c9367dc0958", spread >> 32, spread & 0xffff),
            );
            store.commit(write)
        }))
        .await;
        assert!(verdicts.iter().all(Result::is_ok));
    }
    let rate = ISSUES as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} new issues a second, written");

    let up = |home| store_issues::running(&store_issues::creating(&account, home));
    let begun = std::time::Instant::now();
    let homes: Vec<_> = (1..=ISSUES as i64).map(issuebox::types::HomeId).collect();
    for chunk in homes.chunks(AT_ONCE) {
        let writes = chunk.iter().map(|home| {
            let issue = up(*home);
            let timeline = vec![store_issues::entry(&issue, None)];
            issuebox::store::Write { timeline, ..store_issues::only(issue) }
        });
        let verdicts = join_all(writes.map(|write| store.commit(write))).await;
        assert!(verdicts.iter().all(Result::is_ok));
    }
    let rate = ISSUES as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} next steps a second, written");

    let begun = std::time::Instant::now();
    let (mut after, mut loaded) = (None, 0);
    while loaded < 20_000 {
        let page = store.live(after, 1_000).await.expect("reads");
        loaded += page.len();
        after = page.last().map(|issue| issue.home);
    }
    println!("20,000 live sandboxes loaded in {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    for n in 0..1_000 {
        store.load(homes[n * 7]).await.expect("reads");
    }
    println!("one state loaded in {:?}", begun.elapsed() / 1_000);
    let (filter, ask) = Default::default();
    let ask = issuebox::store::PageAsk { limit: 50, cursor: ask };
    let begun = std::time::Instant::now();
    store.sandboxes(&account, &filter, &ask).await.expect("lists");
    println!("a page of 50 out of {ISSUES} in {:?}", begun.elapsed());
}
