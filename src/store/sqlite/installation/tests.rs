//! Databases that are missing, empty or foreign in a data directory that was used.

use super::super::SqliteStore;
use super::*;

fn database(dir: &Path) -> PathBuf {
    dir.join(DATABASE_FILE)
}

/// A data directory whose server has ended, and its instance.
fn used() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let instance = SqliteStore::open(dir.path()).expect("opens").instance_text();
    (dir, instance)
}

impl SqliteStore {
    fn instance_text(&self) -> String {
        crate::store::Store::instance(self).to_string()
    }
}

fn refused(dir: &Path) -> String {
    SqliteStore::open(dir).expect_err("must be refused").to_string()
}

/// Asserts that a start is refused with both ways out, and changes nothing.
fn is_gone(dir: &Path, state: &str, trace: &str) {
    let names = || {
        let entries = fs::read_dir(dir).expect("readable").map(|entry| entry.expect("an entry"));
        let mut names: Vec<_> =
            entries.map(|e| (e.path(), e.metadata().expect("there").len())).collect();
        // A reader of a database in WAL mode leaves its index and an empty log.
        let is_readers = |path: &Path, len: u64| {
            let ends = |end: &str| path.to_string_lossy().ends_with(end);
            ends("-shm") || ends("-wal") && len == 0
        };
        names.retain(|(path, len)| !is_readers(path, *len));
        names.sort();
        names
    };
    File::create(dir.join("lock")).expect("made");
    let before = names();
    let error = refused(dir);
    let place = dir.display();
    for words in [
        format!("{} {state}", database(dir).display()),
        dir.join(trace).display().to_string(),
        format!("issuebox --data {place} restore FILE"),
        format!("issuebox --data {place} serve --new"),
    ] {
        assert!(error.contains(&words), "{words} is not in: {error}");
    }
    assert_eq!(names(), before);
    let inspected = SqliteStore::inspect(dir).expect_err("the doctor says so too").to_string();
    assert_eq!(inspected, error);
    let backup = SqliteStore::backup(dir, &dir.join("copy")).expect_err("there is nothing to copy");
    assert_eq!(backup.to_string(), error);
    assert_eq!(names(), before);
}

#[test]
fn a_database_that_is_gone_is_not_made_anew_until_a_person_says_so() {
    let (dir, instance) = used();
    let kept = dir.path().join("kept");
    fs::rename(database(dir.path()), &kept).expect("moved");
    is_gone(dir.path(), "is missing", MARKER_FILE);
    fs::write(database(dir.path()), "").expect("written");
    is_gone(dir.path(), "is empty", MARKER_FILE);
    // What is left of a first start that was killed before it made a table.
    fs::remove_file(database(dir.path())).expect("removed");
    let conn = Connection::open(database(dir.path())).expect("opens");
    conn.execute_batch("PRAGMA journal_mode = WAL").expect("writes the header");
    drop(conn);
    is_gone(dir.path(), "has no tables", MARKER_FILE);

    // The right one brings everything back.
    fs::rename(&kept, database(dir.path())).expect("moved back");
    assert_eq!(SqliteStore::open(dir.path()).expect("opens").instance_text(), instance);
    let not_new = SqliteStore::open_new(dir.path()).expect_err("there is a database");
    assert!(matches!(not_new, OpenError::NotNew { .. }), "{not_new}");

    fs::remove_file(database(dir.path())).expect("removed");
    let new = SqliteStore::open_new(dir.path()).expect("a new installation").instance_text();
    assert_ne!(new, instance);
    assert_eq!(SqliteStore::open(dir.path()).expect("goes on").instance_text(), new);
}

#[test]
fn an_empty_database_beside_its_log_keeps_the_log() {
    let (dir, _) = used();
    fs::write(database(dir.path()), "").expect("written");
    let log = dir.path().join("issuebox.db-wal");
    fs::write(&log, "records").expect("written");
    is_gone(dir.path(), "is empty", MARKER_FILE);
    let error = SqliteStore::open_new(dir.path()).expect_err("SQLite would remove the log");
    assert!(matches!(error, OpenError::LogLeft { .. }), "{error}");
    // A directory of before there was a marker.
    fs::remove_file(dir.path().join(MARKER_FILE)).expect("removed");
    is_gone(dir.path(), "is empty", "issuebox.db-wal");
    assert_eq!(fs::read_to_string(&log).expect("kept"), "records");
    fs::remove_file(&log).expect("removed");
    drop(SqliteStore::open(dir.path()).expect("an empty directory is a new one"));
}

#[test]
fn a_directory_without_a_marker_was_used_if_it_has_what_a_server_leaves() {
    for trace in
        ["logs", "address", "local/objects", "issuebox.db.v5", "issuebox.db.before-restore-1"]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(trace);
        let is_dir = matches!(trace, "logs" | "local/objects");
        if is_dir {
            fs::create_dir_all(path.join("one")).expect("made");
        } else {
            fs::write(&path, "x").expect("written");
        }
        is_gone(dir.path(), "is missing", trace);
    }
    // What is there before a first start, or before a first start has made its database.
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(dir.path().join("local/objects")).expect("made");
    for secret in ["admin-token", "webhook-secret"] {
        fs::write(dir.path().join(secret), "a secret").expect("written");
    }
    fs::write(database(dir.path()), "").expect("written");
    assert!(SqliteStore::inspect(dir.path()).expect("nothing is wrong").is_none());
    drop(SqliteStore::open(dir.path()).expect("the first start"));
    assert!(dir.path().join(MARKER_FILE).exists());
}

#[test]
fn a_foreign_database_is_refused_and_left_alone() {
    let (dir, instance) = used();
    let (other, _) = used();
    fs::remove_file(database(dir.path())).expect("removed");
    fs::copy(database(other.path()), database(dir.path())).expect("copied");
    let error = refused(dir.path());
    assert!(error.contains(&instance) && error.contains("restore FILE"), "{error}");
    assert_eq!(SqliteStore::inspect(dir.path()).expect_err("refused").to_string(), error);

    for dir in [dir.path(), tempfile::tempdir().expect("a directory").path()] {
        fs::create_dir_all(dir).expect("made");
        drop(fs::remove_file(database(dir)));
        let conn = Connection::open(database(dir)).expect("opens");
        conn.execute_batch("CREATE TABLE fruit (name TEXT)").expect("made");
        drop(conn);
        let error = refused(dir);
        assert!(error.contains("a database of something else"), "{error}");
        assert!(error.contains("serve --new"), "{error}");
        let conn = Connection::open(database(dir)).expect("opens");
        assert!(!conn.table_exists(None, "meta").expect("reads"), "nothing was added to it");
    }
}

#[test]
fn a_restore_brings_its_installation_with_it() {
    let (backed_up, instance) = used();
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("copy");
    SqliteStore::backup(backed_up.path(), &file).expect("copied");
    let hold = crate::types::Hold {
        scope: crate::types::HoldScope::Server,
        reason: "restored".into(),
        since: crate::types::Timestamp::from_unix_ms(0),
        by: "a person".into(),
        followed_to: None,
    };
    let (dir, _) = used();
    fs::remove_file(database(dir.path())).expect("removed");
    let log = dir.path().join("issuebox.db-wal");
    fs::write(&log, "records of the database that is gone").expect("written");
    let restored = SqliteStore::restore(dir.path(), &file, &hold, hold.since).expect("restored");
    assert!(!log.exists(), "the log is not read into the restored database");
    let kept = with_ending(&restored.kept.expect("the log is kept"), "-wal");
    assert!(fs::read_to_string(kept).expect("kept").starts_with("records"));
    assert_eq!(SqliteStore::open(dir.path()).expect("opens").instance_text(), instance);
}
