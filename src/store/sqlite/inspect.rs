//! Looking into a data directory from outside, beside a server or without one.
//!
//! # Races it accepts
//! Whether the lock is free can only be found out by taking it. A server that starts in the same
//! microseconds is refused and has to be started again.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row, ffi};

use super::installation::DataDirectory;
use super::open::{DATABASE_FILE, LOCK_FILE, connect};
use super::read::readable;
use super::schema::MIGRATIONS;
use super::trouble::Troubles;
use super::{OpenError, SqliteStore, columns};
use crate::store::StoreError;
use crate::types::Timestamp;

/// What a database is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its layout; an older one is brought up to `known` at the next start.
    pub layout: u32,
    /// The newest layout that is known.
    pub known: u32,
    /// How large it is without its log, in bytes.
    pub size: u64,
    /// When something was recorded last; `None` if nothing ever was.
    pub newest_at: Option<Timestamp>,
}

impl SqliteStore {
    /// Whether a server has the store in this data directory open.
    ///
    /// # Errors
    /// Where the lock's file cannot be opened or locks do not work there.
    pub fn is_in_use(dir: &Path) -> io::Result<bool> {
        let lock = match File::open(dir.join(LOCK_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Looks through the whole database in this data directory; `None` if there is none and never was.
    ///
    /// # Errors
    /// As for [`SqliteStore::open`], without anything being made or changed.
    pub fn inspect(dir: &Path) -> Result<Option<Inspected>, OpenError> {
        let path = dir.join(DATABASE_FILE);
        let unusable = |source| OpenError::from_io(dir, source);
        let installation = DataDirectory::look(dir).map_err(unusable)?;
        if !installation.has_database() {
            installation.check_empty(false)?;
            return Ok(None);
        }
        let size = path.metadata().map_err(unusable)?.len();
        let failed = |source| OpenError::from_sqlite(&path, source);
        let conn = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
        installation.has_records(&conn)?;
        let layout: u32 =
            conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
        let known = u32::try_from(MIGRATIONS.len()).expect("migrations are few");
        if layout > known {
            return Err(OpenError::NewerSchema { path, found: layout, known });
        }
        let damage: String =
            conn.pragma_query_value(None, "quick_check", |row| row.get(0)).map_err(failed)?;
        if damage != "ok" {
            let code = ffi::Error::new(ffi::SQLITE_CORRUPT);
            return Err(failed(rusqlite::Error::SqliteFailure(code, Some(damage))));
        }
        if layout > 0
            && let Some(what) = unreadable(&conn)
        {
            let code = ffi::Error::new(ffi::SQLITE_CORRUPT);
            return Err(failed(rusqlite::Error::SqliteFailure(code, Some(what))));
        }
        let newest_at = match layout {
            0 => None,
            _ => conn
                .query_row(
                    "SELECT max(coalesce((SELECT at FROM timeline ORDER BY id DESC LIMIT 1), 0),
                                coalesce((SELECT received_at FROM delivery
                                          ORDER BY id DESC LIMIT 1), 0))",
                    [],
                    |row| row.get::<_, i64>(0),
                )
                .map_err(failed)
                .map(|ms| (ms > 0).then(|| Timestamp::from_unix_ms(ms)))?,
        };
        Ok(Some(Inspected { layout, known, size, newest_at }))
    }
}

/// What is wrong with the first issue or ended sandbox that cannot be read; `None` if all can.
fn unreadable(conn: &Connection) -> Option<String> {
    let troubles = Troubles::default();
    let issues = format!(
        "SELECT {} FROM issue AS i JOIN account AS a ON a.id = i.account",
        columns::ISSUE_COLUMNS
    );
    let ended = format!(
        "SELECT {} FROM ended AS i JOIN account AS a ON a.id = i.account",
        columns::ENDED_COLUMNS
    );
    let rows = |sql: &str, read: fn(&Row<'_>) -> rusqlite::Result<()>| {
        let read = readable(conn, &troubles, sql, [], usize::MAX, read);
        read.err().or_else(|| troubles.list().into_iter().next())
    };
    let first = rows(&issues, |row| columns::issue(row).map(drop));
    let first = first.or_else(|| rows(&ended, |row| columns::ended(row).map(drop)))?;
    match first {
        StoreError::Damaged { what, .. } => Some(what),
        StoreError::BadCursor | StoreError::Replaced { .. } | StoreError::Failed(_) => None,
    }
}
