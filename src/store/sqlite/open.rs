//! Opening: the directory, the lock that keeps a second server out, the connections.
//!
//! The lock is the kernel's (`flock` on `<dir>/lock`), so it ends with the process however that
//! ends; the file itself stays and means nothing. File systems without such locks are found out
//! here and refused rather than trusted.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::installation::{self, DataDirectory};
use super::log_sync::LogSync;
use super::schema;
use crate::store::directory_of;
use crate::types::{Epoch, InstanceId};

/// The database's file in the data directory.
pub(super) const DATABASE_FILE: &str = "issuebox.db";
/// The file in the data directory that the server holds locked.
pub(super) const LOCK_FILE: &str = "lock";
/// How many distinct statements a connection keeps prepared; more than this adapter has.
const STATEMENTS_MAX: usize = 128;
/// When the write-ahead log is folded back, in bytes. SQLite's own 4 MiB would rewrite the same pages
/// of the indexes many times a second under load.
const CHECKPOINT_LEN: u32 = 32 * 1024 * 1024;
/// The page of a new database, in bytes; one that is there keeps its own. Of the words of a trigger,
/// some 2.4 KB, a page of 4 KiB would hold one row and be half empty. Each page costs two system calls
/// in the log and two when that is folded back.
const PAGE_LEN: u32 = 8 * 1024;
/// Pages that the writer keeps in memory, in KiB.
const WRITER_CACHE_KIB: i32 = 16 * 1024;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be made, or not be written.
    #[error(
        "the data directory {dir} cannot be used; make it writable for the user that runs the \
         server, or name another one with --data",
        dir = dir.display()
    )]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the store open.
    #[error(
        "another server runs on the data directory {dir}; stop it, or name another directory \
         with --data",
        dir = dir.display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The database was written by a newer version of the program.
    #[error(
        "the database {path} has the layout {found}, and this version knows only up to {known}; \
         run the newer version again, or restore the copy that it kept beside the database",
        path = path.display()
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The newest known one.
        known: u32,
    },
    /// The file is not a whole SQLite database.
    #[error(
        "{path} is damaged or is no database; restore it from a backup with `issuebox --data {dir} \
         restore FILE`, or move it away and start a new installation with `issuebox --data {dir} \
         serve --new`",
        path = path.display(), dir = directory_of(path).display()
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The database is not there any more, and the data directory was used.
    #[error(
        "the database {database} {state}, although {trace} shows that this data directory was used; \
         restore it with `issuebox --data {dir} restore FILE`, or start a new installation, which \
         knows no issue and no sandbox, with `issuebox --data {dir} serve --new`",
        database = database.display(), trace = trace.display(), dir = dir.display()
    )]
    Gone {
        /// The database.
        database: PathBuf,
        /// What is wrong with it.
        state: &'static str,
        /// What shows that there was one.
        trace: PathBuf,
        /// The data directory.
        dir: PathBuf,
    },
    /// A new installation was asked for where a write-ahead log still has records.
    #[error(
        "the write-ahead log {log} has records of a database that is gone; move it away to start a \
         new installation",
        log = log.display()
    )]
    LogLeft {
        /// The log.
        log: PathBuf,
    },
    /// The database is not the one of this data directory.
    #[error(
        "{database} is not the database of this data directory: {why}; restore the right one with \
         `issuebox --data {dir} restore FILE`, or move it away and start a new installation with \
         `issuebox --data {dir} serve --new`",
        database = database.display(), dir = dir.display()
    )]
    Foreign {
        /// The database.
        database: PathBuf,
        /// Why it is not this directory's.
        why: String,
        /// The data directory.
        dir: PathBuf,
    },
    /// A new installation was asked for where there is one.
    #[error(
        "{database} has the records of an installation, so no new one was started; start without \
         --new to go on with it, or move it away first",
        database = database.display()
    )]
    NotNew {
        /// The database.
        database: PathBuf,
    },
    /// The copy that is kept before a migration could not be written; nothing was migrated.
    #[error(
        "the copy {path} that is kept before the layout changes could not be written; make room \
         there and start again",
        path = path.display()
    )]
    Copy {
        /// The copy.
        path: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no room to write to the data directory or the database.
    #[error(
        "{path} could not be written to: its disk or quota is full; free space there and start again",
        path = path.display()
    )]
    Full {
        /// The directory or the database.
        path: PathBuf,
        /// What the system or SQLite said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file system does not let SQLite keep a write-ahead log.
    #[error(
        "the database {path} cannot keep a write-ahead log on its file system (SQLite took the \
         journal mode {mode}); use a local file system, or name another directory with --data",
        path = path.display()
    )]
    NoLog {
        /// The database.
        path: PathBuf,
        /// The journal mode that SQLite took.
        mode: String,
    },
    /// SQLite failed in another way.
    #[error("the database {path} could not be opened", path = path.display())]
    Failed {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The system gave no thread for the writer.
    #[error("the store's writer could not be started")]
    NoThread(#[source] io::Error),
}

impl OpenError {
    /// Sorts what SQLite says of the database at `path`.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Corrupt { path, source }
            }
            Some(ErrorCode::DiskFull) => Self::Full { path, source: source.into() },
            // SQLite's codes are its own enum, which grows.
            Some(_) | None => Self::Failed { path, source },
        }
    }

    /// Sorts what the system says of the data directory `dir`.
    pub(super) fn from_io(dir: &Path, source: io::Error) -> Self {
        let dir = dir.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path: dir, source: source.into() }
            }
            // All other kinds have the same remedy.
            _ => Self::Unusable { dir, source },
        }
    }
}

/// How many homes one process may number before the next one has to begin further on. A number is
/// handed out before its home is stored, and in fast mode an object may carry it by then. Where the
/// process is killed in between, no row has it, and it must not become another issue's.
pub(super) const HOMES_AHEAD: i64 = 1 << 20;

/// Begins an epoch, and sets aside the numbers that this process hands out. The last one set aside
/// before is lower than a stored one only if a process handed out more than that.
const BEGIN: &str = "
    UPDATE meta SET epoch = epoch + 1, homes_reserved = ?1 + (
        SELECT CASE WHEN last > homes_reserved THEN last + ?1 ELSE homes_reserved END
        FROM (SELECT coalesce(max(home), 0) AS last FROM issue)
    )";

/// What opening brought.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) path: PathBuf,
    pub(super) epoch: Epoch,
    pub(super) instance: InstanceId,
    pub(super) next_home: i64,
    pub(super) lock: File,
}

/// Opens the database in `dir`, makes what is missing, and begins an epoch. With `is_new` there must be
/// no database yet.
pub(super) fn open(dir: &Path, is_new: bool) -> Result<Opened, OpenError> {
    let unusable = |source| OpenError::from_io(dir, source);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
    let lock = private_file(&dir.join(LOCK_FILE)).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => return Err(unusable(source)),
    }

    let mut installation = DataDirectory::look(dir).map_err(unusable)?;
    // Before SQLite opens an empty file, which would remove the log beside it.
    if !installation.has_database() {
        installation.check_empty(is_new)?;
    }
    // Made here and not by SQLite, which gives the log and the index beside it the same mode.
    let path = dir.join(DATABASE_FILE);
    private_file(&path).map_err(unusable)?;
    let failed = |source| OpenError::from_sqlite(&path, source);
    let mut writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    writer.pragma_update(None, "page_size", PAGE_LEN).map_err(failed)?;
    match installation::instance_of(&writer, dir)? {
        Some(_) if is_new => return Err(OpenError::NotNew { database: path }),
        Some(instance) => installation.check_instance(&instance)?,
        None => {
            installation.check_empty(is_new)?;
            if let Some(trace) = installation.trace() {
                tracing::warn!(
                    data = %dir.display(), trace = %trace.display(),
                    "a new installation begins in a data directory that was used; sandboxes of the one \
                     before stay at their providers"
                );
            }
            installation.unmark_other(None).map_err(unusable)?;
        }
    }
    let mode = journal_in_log(&writer).map_err(failed)?;
    if mode != "wal" {
        return Err(OpenError::NoLog { path, mode });
    }
    LogSync::BeforeAnswer.apply(&writer).map_err(failed)?;
    let pages = checkpoint_pages(&writer).map_err(failed)?;
    writer.pragma_update(None, "wal_autocheckpoint", pages).map_err(failed)?;
    writer.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).map_err(failed)?;
    schema::migrate(&mut writer, &path, schema::MIGRATIONS)?;
    // A new file is only as durable as its entry in the directory, which SQLite syncs only for a
    // file that it made itself.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(unusable)?;

    let instance = installation::instance_of(&writer, dir)?.unwrap_or_default();
    installation.mark(&instance).map_err(unusable)?;
    let (epoch, reserved) = begin_epoch(&mut writer).map_err(failed)?;
    Ok(Opened {
        writer,
        epoch: Epoch(epoch.cast_unsigned()),
        instance: InstanceId::trusted(instance),
        next_home: reserved - HOMES_AHEAD + 1,
        lock,
        path,
    })
}

/// Begins an epoch: this process has it once the commit has succeeded. A statement that changes a row
/// and returns it does so before the commit of its own, whose error `query_row` never asks for. With a
/// full disk the process would then believe in an epoch that is not stored, and be fenced for ever.
fn begin_epoch(conn: &mut Connection) -> rusqlite::Result<(i64, i64)> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(BEGIN, [HOMES_AHEAD])?;
    let sql = "SELECT epoch, homes_reserved FROM meta";
    let begun = transaction.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    transaction.commit()?;
    Ok(begun)
}

/// Has the database keep a write-ahead log; the journal mode that it has now. The mode is a row that
/// comes before the change of the file's header is committed, so the statement runs to its end.
fn journal_in_log(conn: &Connection) -> rusqlite::Result<String> {
    let mut statement = conn.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = statement.query([])?;
    let mut mode = String::new();
    while let Some(row) = rows.next()? {
        mode = row.get(0)?;
    }
    Ok(mode)
}

/// How many pages of this database the log has when it is folded back.
pub(super) fn checkpoint_pages(conn: &Connection) -> rusqlite::Result<u32> {
    let page_len: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
    Ok(CHECKPOINT_LEN / page_len)
}

/// A connection that only reads.
pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

pub(super) fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    // One thread at a time uses a connection, so SQLite needs no lock of its own around it.
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // A plan must not depend on what is bound: SQLite would prepare a statement again for each new
    // value, which was seen to take a quarter of a request's time.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Statement journals stay off the disk: they only serve to undo, never to survive.
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// Opens a file for writing, made with mode 0600 if it is missing.
pub(super) fn private_file(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::super::apply;
    use super::*;

    #[test]
    fn a_commit_is_synced_to_disk() {
        let dir = tempfile::tempdir().expect("a directory");
        let opened = open(dir.path(), false).expect("opens");
        let pragma = |conn: &Connection, name| {
            conn.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
                .expect("reads")
        };
        assert_eq!(pragma(&opened.writer, "journal_mode"), "wal".to_owned().into());
        assert_eq!(pragma(&opened.writer, "synchronous"), 2.into(), "FULL");
        let reader = reader(&opened.path).expect("opens");
        assert!(reader.execute("UPDATE meta SET probe = 1", []).is_err(), "it only reads");
    }

    /// Has every commit that begins an epoch fail, after its statement has succeeded: a deferred
    /// foreign key is checked by the commit alone.
    const TRAP: &str = "
        CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER unlucky AFTER UPDATE OF epoch ON meta BEGIN INSERT INTO child VALUES (1); END;";
    const NO_TRAP: &str = "DROP TRIGGER unlucky; DROP TABLE child; DROP TABLE parent;";

    #[test]
    fn an_epoch_begins_only_with_a_commit_that_succeeded() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = open(dir.path(), false).expect("opens").epoch;
        let path = dir.path().join(DATABASE_FILE);
        let change = |sql| {
            Connection::open(&path).and_then(|conn| conn.execute_batch(sql)).expect("changes it");
        };
        change(TRAP);
        let refused = open(dir.path(), false).map(|opened| opened.epoch);
        assert!(matches!(refused, Err(OpenError::Failed { .. })), "{refused:?}");
        change(NO_TRAP);
        let opened = open(dir.path(), false).expect("it opens again by itself");
        assert_eq!(opened.epoch.0, first.0 + 1, "the failed start took none");
        assert_eq!(apply::stored_epoch(&opened.writer), Ok(opened.epoch));
    }

    #[test]
    fn a_new_database_has_larger_pages_and_an_older_one_keeps_its_own() {
        let page_len = |dir: &Path| {
            let opened = open(dir, false).expect("opens");
            let pages = checkpoint_pages(&opened.writer).expect("reads");
            assert_eq!(reported(&opened.writer, "wal_autocheckpoint"), pages);
            let page_len = reported(&opened.writer, "page_size");
            assert_eq!(pages * page_len, CHECKPOINT_LEN);
            page_len
        };
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(page_len(dir.path()), PAGE_LEN);
        let path = dir.path().join(DATABASE_FILE);
        let conn = Connection::open(&path).expect("opens");
        conn.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 4096; VACUUM")
            .expect("makes its pages smaller");
        drop(conn);
        for _ in 0..2 {
            assert_eq!(page_len(dir.path()), 4096);
        }
    }

    fn reported(conn: &Connection, pragma: &str) -> u32 {
        conn.pragma_query_value(None, pragma, |row| row.get(0)).expect("reads")
    }

    #[test]
    fn plans_do_not_depend_on_what_is_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let opened = open(dir.path(), false).expect("opens");
        let reader = reader(&opened.path).expect("opens");
        for conn in [&opened.writer, &reader] {
            assert_eq!(conn.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG), Ok(true));
        }
    }
}
