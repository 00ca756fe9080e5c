//! The layout's versions, and how an older database becomes the newest.
//!
//! `user_version` counts the migrations that were applied. Each runs in a transaction together
//! with its count, so a migration that is broken off leaves the version before. Before the first
//! of them a copy of an existing database is kept beside it, named after its version. A database
//! of a newer version is refused: an older binary would not know what it destroys.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::OpenError;

/// Every migration in order; the first makes version 1. Released ones are never changed.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_first.sql"),
    include_str!("../../../migrations/sqlite/0002_around.sql"),
    include_str!("../../../migrations/sqlite/0003_sessions.sql"),
    include_str!("../../../migrations/sqlite/0004_holds.sql"),
    include_str!("../../../migrations/sqlite/0005_instructions.sql"),
    include_str!("../../../migrations/sqlite/0006_outbox.sql"),
    include_str!("../../../migrations/sqlite/0007_instruction_texts.sql"),
    include_str!("../../../migrations/sqlite/0008_github.sql"),
    include_str!("../../../migrations/sqlite/0009_checkouts.sql"),
    include_str!("../../../migrations/sqlite/0010_recovered.sql"),
    include_str!("../../../migrations/sqlite/0011_waiting.sql"),
    include_str!("../../../migrations/sqlite/0012_publish.sql"),
    include_str!("../../../migrations/sqlite/0013_models.sql"),
    include_str!("../../../migrations/sqlite/0014_conversations.sql"),
    include_str!("../../../migrations/sqlite/0015_follow_ups.sql"),
    include_str!("../../../migrations/sqlite/0016_access.sql"),
    include_str!("../../../migrations/sqlite/0017_sync.sql"),
    include_str!("../../../migrations/sqlite/0018_people.sql"),
    include_str!("../../../migrations/sqlite/0019_remote_ids.sql"),
];

/// Brings the database at `path` to the version of `migrations`.
pub(super) fn migrate(
    conn: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), OpenError> {
    let failed = |source| OpenError::from_sqlite(path, source);
    let found: u32 =
        conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let known = u32::try_from(migrations.len()).expect("migrations are few");
    if (1..known).contains(&found) {
        keep_copy(conn, path, found)?;
    }
    migrate_without_copy(conn, path, migrations)
}

/// The same for a database that is a copy itself.
pub(super) fn migrate_without_copy(
    conn: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), OpenError> {
    let failed = |source| OpenError::from_sqlite(path, source);
    let found: u32 =
        conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let todo = (1..).zip(migrations).filter(|(version, _)| *version > found);
    let known = u32::try_from(migrations.len()).expect("migrations are few");
    if found > known {
        return Err(OpenError::NewerSchema { path: path.to_owned(), found, known });
    }
    for (version, sql) in todo {
        let transaction = conn.transaction().map_err(failed)?;
        transaction.execute_batch(sql).map_err(failed)?;
        transaction.pragma_update(None, "user_version", version).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// Where the copy of a database of this version is kept.
fn copy_path(path: &Path, version: u32) -> PathBuf {
    with_ending(path, &format!(".v{version}"))
}

pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Keeps a copy under [`copy_path`]. It is written under another name first, so that a copy that
/// was broken off never replaces a whole one of an earlier try.
fn keep_copy(conn: &Connection, path: &Path, version: u32) -> Result<(), OpenError> {
    let to = copy_path(path, version);
    let unfinished = with_ending(&to, ".unfinished");
    let write = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        // VACUUM INTO takes an empty file as it is: so the copy is as private as the database.
        let file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let name = unfinished.to_str().ok_or("the path is not UTF-8")?;
        conn.execute("VACUUM INTO ?1", [name])?;
        file.sync_all()?;
        fs::rename(&unfinished, &to)?;
        Ok(())
    };
    write().map_err(|source| OpenError::Copy { path: to.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "CREATE TABLE fruit (name TEXT); INSERT INTO fruit VALUES ('apple');";
    const TWO: &str = "ALTER TABLE fruit ADD COLUMN colour TEXT;";
    const BROKEN: &str = "ALTER TABLE fruit ADD COLUMN size TEXT; SELECT * FROM nowhere;";

    fn fruits(path: &Path) -> Vec<String> {
        let conn = Connection::open(path).expect("opens");
        let mut all = conn.prepare("SELECT name FROM fruit").expect("has the table");
        let names = all.query_map([], |row| row.get(0)).expect("reads");
        names.map(|name| name.expect("text")).collect()
    }

    #[test]
    fn a_copy_is_kept_before_an_existing_database_is_migrated() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("db");
        let mut conn = Connection::open(&path).expect("opens");
        migrate(&mut conn, &path, &[ONE]).expect("makes version 1");
        assert!(!copy_path(&path, 0).exists(), "a new database needs no copy");

        migrate(&mut conn, &path, &[ONE, TWO]).expect("makes version 2");
        let copy = copy_path(&path, 1);
        assert_eq!(fruits(&copy), ["apple"]);
        let copied = Connection::open(&copy).expect("opens");
        assert!(copied.prepare("SELECT colour FROM fruit").is_err(), "it is the older layout");
        assert!(conn.prepare("SELECT colour FROM fruit").is_ok(), "this is the newer one");

        fs::remove_file(&copy).expect("can be removed");
        migrate(&mut conn, &path, &[ONE, TWO]).expect("has nothing to do");
        assert!(!copy.exists(), "nothing was migrated, so nothing was copied");
    }

    #[test]
    fn a_broken_migration_leaves_the_version_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("db");
        let mut conn = Connection::open(&path).expect("opens");
        migrate(&mut conn, &path, &[ONE]).expect("makes version 1");
        migrate(&mut conn, &path, &[ONE, BROKEN]).expect_err("cannot work");
        migrate(&mut conn, &path, &[ONE]).expect("is still at version 1");
        assert!(conn.prepare("SELECT size FROM fruit").is_err(), "no half of it is left");
        migrate(&mut conn, &path, &[ONE, TWO]).expect("a later try replaces the copy");
    }

    #[test]
    fn a_newer_version_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("db");
        let mut conn = Connection::open(&path).expect("opens");
        migrate(&mut conn, &path, &[ONE, TWO]).expect("makes version 2");
        let refusal = migrate(&mut conn, &path, &[ONE]).expect_err("is too old");
        assert!(matches!(refusal, OpenError::NewerSchema { found: 2, known: 1, .. }));
        assert_eq!(fruits(&path), ["apple"]);
    }
}
