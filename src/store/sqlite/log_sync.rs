//! When a transaction is synced to disk, and the write-ahead log as the file that is synced.

use std::fs::File;
use std::io;
use std::path::Path;

use rusqlite::Connection;

use super::schema::with_ending;

/// When a transaction is synced. Either way the death of the process takes nothing of it: what was
/// written to the log is in the kernel's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogSync {
    /// Before it is answered: a machine that loses its power forgets nothing that was answered.
    BeforeAnswer,
    /// Right after: such a machine may forget what was answered in its last milliseconds.
    AfterAnswer,
}

impl LogSync {
    /// Has the commits of this connection keep to it: with NORMAL, SQLite syncs the log only when
    /// it folds it back (<https://sqlite.org/pragma.html#pragma_synchronous>).
    pub(super) fn apply(self, conn: &Connection) -> rusqlite::Result<()> {
        let synchronous = match self {
            Self::BeforeAnswer => "FULL",
            Self::AfterAnswer => "NORMAL",
        };
        conn.pragma_update(None, "synchronous", synchronous)
    }
}

/// The write-ahead log of a database. SQLite locks the database and the index, never this file, so
/// closing it ends no lock ("How To Corrupt An SQLite Database File", 2.2).
#[derive(Debug)]
pub(super) struct LogFile(File);

impl LogFile {
    /// Opens the log of the database at `path`, which is there once something was written.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(with_ending(path, "-wal")).map(Self)
    }

    /// Syncs all that was written to it.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
