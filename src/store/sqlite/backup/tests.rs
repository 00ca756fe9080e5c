//! Backups that are made and put back, and those that are refused.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::Store;
use crate::store::session::{SessionHash, SessionOrigin, SessionRow, SessionStore};
use crate::types::HoldScope;

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_000)
}

fn hold(reason: &str) -> Hold {
    let by = "a person".to_owned();
    Hold {
        scope: HoldScope::Server,
        reason: reason.to_owned(),
        since: now(),
        by,
        followed_to: None,
    }
}

/// A data directory whose database holds something, and its instance.
fn data() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(dir.path()).expect("opens");
    let instance = store.instance().to_string();
    (dir, instance)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("readable");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_backup_of_a_store_in_use_is_one_private_file_with_what_was_committed() {
    let (dir, instance) = data();
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("copy");
    let store = SqliteStore::open(dir.path()).expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(store.put_holds(vec![hold("in the log only")])).expect("writes");
    let size = SqliteStore::backup(dir.path(), &file).expect("copied");
    let metadata = fs::metadata(&file).expect("is there");
    assert_eq!((size, metadata.permissions().mode() & 0o777), (metadata.len(), 0o600));
    assert_eq!(names(to.path()), ["copy"], "nothing is left beside it");
    let conn = Connection::open(&file).expect("opens");
    let kept: String =
        conn.query_row("SELECT instance FROM meta", [], |row| row.get(0)).expect("reads");
    assert_eq!(kept, instance);
    let reasons: Vec<_> =
        holds::list(&conn).expect("reads").into_iter().map(|hold| hold.reason).collect();
    assert_eq!(reasons, ["in the log only"]);

    let again = SqliteStore::backup(dir.path(), &file).expect_err("is there already");
    assert!(matches!(again, BackupError::Exists(_)), "{again}");
    let none = SqliteStore::backup(to.path(), &to.path().join("x")).expect_err("has no database");
    assert!(matches!(none, BackupError::NoDatabase(_)), "{none}");
}

#[test]
fn a_restored_database_is_held_and_what_was_there_is_kept() {
    let (dir, instance) = data();
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("copy");
    SqliteStore::backup(dir.path(), &file).expect("copied");
    let (other, other_instance) = data();
    assert_ne!(instance, other_instance);
    let restored = SqliteStore::restore(other.path(), &file, &hold("restored"), now());
    let kept = restored.expect("restored").kept.expect("there was one");
    let store = SqliteStore::open(other.path()).expect("opens");
    assert_eq!(store.instance().to_string(), instance);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let holds = runtime.block_on(store.holds()).expect("reads");
    assert_eq!(holds.len(), 1);
    assert_eq!((&holds[0].scope, holds[0].reason.as_str()), (&HoldScope::Server, "restored"));
    let old = Connection::open(&kept).expect("opens");
    let kept: String =
        old.query_row("SELECT instance FROM meta", [], |row| row.get(0)).expect("reads");
    assert_eq!(kept, other_instance, "what was there is kept whole");

    let refused = SqliteStore::restore(other.path(), &file, &hold("x"), now());
    let refused = refused.expect_err("a server runs on it");
    assert!(matches!(refused, BackupError::Open(OpenError::InUse { .. })), "{refused}");
    drop(store);
    let new = to.path().join("new");
    let restored = SqliteStore::restore(&new, &file, &hold("x"), now()).expect("restored");
    assert_eq!(restored.kept, None);
    assert_eq!(fs::metadata(&new).expect("made").permissions().mode() & 0o777, 0o700);
}

#[test]
fn what_was_there_is_kept_whole_also_where_somebody_reads_it() {
    let (backed_up, _) = data();
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("copy");
    SqliteStore::backup(backed_up.path(), &file).expect("copied");
    let (dir, _) = data();
    let database = dir.path().join(DATABASE_FILE);
    let reader = Connection::open(&database).expect("opens");
    let reads = "BEGIN; SELECT COUNT(*) FROM hold;";
    reader.execute_batch(reads).expect("reads");
    let store = SqliteStore::open(dir.path()).expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(store.put_holds(vec![hold("in the log only")])).expect("writes");
    drop(store);
    let restored = SqliteStore::restore(dir.path(), &file, &hold("restored"), now());
    let kept = restored.expect("restored").kept.expect("there was one");
    drop(reader);
    let kept = Connection::open(kept).expect("opens");
    let reasons = holds::list(&kept).expect("reads").into_iter().map(|hold| hold.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), ["in the log only"]);
}

#[test]
fn nobody_is_logged_in_after_a_restore_and_no_link_is_followed() {
    let (dir, _) = data();
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("copy");
    let store = SqliteStore::open(dir.path()).expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (session, ends_at) = (SessionHash([7; 32]), Timestamp::from_unix_ms(i64::MAX));
    let row = SessionRow { ends_at, origin: SessionOrigin::Admin, account: None };
    runtime.block_on(store.put_session(session, row.clone(), now())).expect("writes");
    assert_eq!(runtime.block_on(store.session(session)).expect("reads"), Some(row));
    let victim = to.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    std::os::unix::fs::symlink(&victim, to.path().join("copy.unfinished")).expect("linked");
    SqliteStore::backup(dir.path(), &file).expect("copied");
    assert_eq!(fs::read_to_string(&victim).expect("reads"), "precious");
    let new = to.path().join("new");
    SqliteStore::restore(&new, &file, &hold("restored"), now()).expect("restored");
    let store = SqliteStore::open(&new).expect("opens");
    assert_eq!(runtime.block_on(store.session(session)).expect("reads"), None);
}

#[test]
fn an_older_layout_is_restored_to_the_newest() {
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("old");
    let mut conn = Connection::open(&file).expect("opens");
    schema::migrate(&mut conn, &file, &schema::MIGRATIONS[..1]).expect("makes version 1");
    drop(conn);
    let dir = to.path().join("data");
    SqliteStore::restore(&dir, &file, &hold("restored"), now()).expect("restored");
    assert_eq!(names(&dir), ["installation", "issuebox.db", "lock"], "no copy of a copy is left");
    drop(SqliteStore::open(&dir).expect("opens"));
}

#[test]
fn what_is_no_backup_is_refused_and_nothing_is_changed() {
    let (dir, _) = data();
    let to = tempfile::tempdir().expect("a directory");
    let refused = |file: &Path, why: &str| {
        let before = names(dir.path());
        let error = SqliteStore::restore(dir.path(), file, &hold("x"), now()).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(names(dir.path()), before);
    };
    refused(&to.path().join("nowhere"), "no such file");
    let text = to.path().join("text");
    fs::write(&text, "not a database at all, however long it is").expect("written");
    refused(&text, "not a database");
    let foreign = to.path().join("foreign");
    let conn = Connection::open(&foreign).expect("opens");
    conn.execute_batch("CREATE TABLE fruit (name TEXT)").expect("made");
    refused(&foreign, "something else");
    let newer = to.path().join("newer");
    SqliteStore::backup(dir.path(), &newer).expect("copied");
    let conn = Connection::open(&newer).expect("opens");
    conn.pragma_update(None, "user_version", 99).expect("written");
    drop(conn);
    refused(&newer, "layout 99");
    let cut = to.path().join("cut");
    SqliteStore::backup(dir.path(), &cut).expect("copied");
    let len = fs::metadata(&cut).expect("there").len();
    File::options().write(true).open(&cut).and_then(|file| file.set_len(len / 2)).expect("cut");
    refused(&cut, "is no backup");
}
