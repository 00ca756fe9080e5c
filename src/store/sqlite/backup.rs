//! Copies of the database: made while a server writes to it, looked through, put back.
//!
//! # Guarantees
//! - A backup is the state after one commit, whole, whatever is written meanwhile; writers are not
//!   kept waiting. It is one file, readable by its owner alone, without a log beside it.
//! - Under its name a backup is whole or not there: it is written under another one, looked
//!   through and synced first. So is a restored database.
//! - A restore holds the data directory's lock, so no server runs on it meanwhile; what was there
//!   is kept beside it. From the moment that the restored database is in place, everything is held
//!   and no create or start is under way.
//!
//! # Races it accepts
//! A backup that is written to a name which another process takes at the same moment replaces it.
//! Where a restore breaks off right after it set aside a log that could not be folded in, that log
//! stands beside the kept database alone, which is whole: restore again before a server starts.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::apply::{self, AccountNumbers};
use super::installation::DataDirectory;
use super::open::{DATABASE_FILE, LOCK_FILE, connect, private_file};
use super::schema::{self, with_ending};
use super::trouble::Troubles;
use super::{OpenError, SqliteStore, github, holds, read};
use crate::issue::restored;
use crate::store::{Write, directory_of};
use crate::types::{Hold, Timestamp};

/// Live issues that are looked at in one go.
const LIVE_PAGE_LEN: usize = 1_000;

/// Why a backup was not made or not put back. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no database to back up.
    #[error("there is no database in {}; name the server's data directory with --data", .0.display())]
    NoDatabase(PathBuf),
    /// The backup's file is there already.
    #[error("{} exists already; name another file, or remove it first", .0.display())]
    Exists(PathBuf),
    /// The file is no backup that this version can read.
    #[error("{} is no backup of issuebox: {why}", file.display())]
    NoBackup {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file or directory cannot be used.
    #[error("{} cannot be used", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite failed.
    #[error("{} could not be copied", path.display())]
    Sqlite {
        /// Which database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The data directory or its database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What a restore brought.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    /// Where the database that was there before is kept; `None` if there was none.
    pub kept: Option<PathBuf>,
}

impl SqliteStore {
    /// Writes a copy of the database in the data directory `dir`, which a server may be using, to
    /// `file`; its size, in bytes.
    ///
    /// # Errors
    /// [`BackupError`], whose message says what to do.
    pub fn backup(dir: &Path, file: &Path) -> Result<u64, BackupError> {
        let database = dir.join(DATABASE_FILE);
        let unusable = |source| OpenError::from_io(dir, source);
        let installation = DataDirectory::look(dir).map_err(unusable)?;
        if !installation.has_database() {
            installation.check_empty(false)?;
            return Err(BackupError::NoDatabase(dir.to_owned()));
        }
        let conn = connect(&database, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .map_err(|source| OpenError::from_sqlite(&database, source))?;
        if !installation.has_records(&conn)? {
            return Err(BackupError::NoDatabase(dir.to_owned()));
        }
        drop(conn);
        if file.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(file.to_owned()));
        }
        let unfinished = with_ending(file, ".unfinished");
        copy(&database, &unfinished)?;
        looked_through(&unfinished)?;
        fs::rename(&unfinished, file).map_err(|source| io_error(file, source))?;
        sync_directory_of(file)?;
        Ok(fs::metadata(file).map_err(|source| io_error(file, source))?.len())
    }

    /// Whether `dir` has a database.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(DATABASE_FILE).exists()
    }

    /// Puts a backup in place of the database in the data directory `dir`, brought to the newest
    /// layout and with `hold` on it. What was there is kept beside it, named after `now`.
    ///
    /// # Errors
    /// [`BackupError`]; among others if a server runs on the data directory.
    pub fn restore(
        dir: &Path,
        file: &Path,
        hold: &Hold,
        now: Timestamp,
    ) -> Result<Restored, BackupError> {
        looked_through(file)?;
        let _lock = lock(dir)?;
        let database = dir.join(DATABASE_FILE);
        let unfinished = with_ending(&database, ".restoring");
        copy(file, &unfinished)?;
        let instance = prepare(&unfinished, hold, now)?;
        let unusable = |source| OpenError::from_io(dir, source);
        let mut installation = DataDirectory::look(dir).map_err(unusable)?;
        let kept = keep(&database, now)?;
        installation.unmark_other(Some(&instance)).map_err(unusable)?;
        fs::rename(&unfinished, &database).map_err(|source| io_error(&database, source))?;
        sync_directory_of(&database)?;
        installation.mark(&instance).map_err(unusable)?;
        Ok(Restored { kept })
    }
}

/// The data directory's lock. The directory is made if it is missing.
fn lock(dir: &Path) -> Result<File, BackupError> {
    let unusable = |source| io_error(dir, source);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
    let lock = private_file(&dir.join(LOCK_FILE)).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }.into()),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// Copies a database as of now into a file of its own, synced.
fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(to, error)),
        Ok(()) | Err(_) => {}
    }
    let name = to.to_str().ok_or_else(|| {
        io_error(to, io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8"))
    })?;
    // VACUUM INTO takes an empty file as it is: so the copy is for its owner alone. A new one, so that
    // nothing is written through a link that was put in its place.
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(|source| io_error(to, source))?;
    let copied = connect(from, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|conn| conn.execute("VACUUM INTO ?1", [name]));
    if let Err(source) = copied {
        drop(fs::remove_file(to));
        return Err(BackupError::Sqlite { path: from.to_owned(), source });
    }
    made.sync_all().map_err(|source| io_error(to, source))
}

/// Looks whether a file is a whole database of ours, of a layout that is known.
fn looked_through(file: &Path) -> Result<(), BackupError> {
    let no = |why: String| BackupError::NoBackup { file: file.to_owned(), why };
    if !file.is_file() {
        return Err(no("there is no such file".to_owned()));
    }
    let look = || -> rusqlite::Result<(u32, bool, String)> {
        let conn = connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let layout = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let is_ours = conn.table_exists(None, "meta")? && conn.table_exists(None, "issue")?;
        let damage = conn.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        Ok((layout, is_ours, damage))
    };
    let (layout, is_ours, damage) = look().map_err(|error| no(error.to_string()))?;
    let known = schema::MIGRATIONS.len();
    if !is_ours || layout == 0 {
        return Err(no("it is a database of something else".to_owned()));
    }
    if layout as usize > known {
        let why = format!("it has the layout {layout}, and this version knows only up to {known}");
        return Err(no(why));
    }
    if damage != "ok" {
        return Err(no(format!("it is damaged: {damage}")));
    }
    Ok(())
}

/// Brings a copy to the newest layout, puts the hold on, and leaves nothing under way and no one
/// logged in: a session that was ended since must not begin again. Its instance.
fn prepare(path: &Path, hold: &Hold, now: Timestamp) -> Result<String, BackupError> {
    let failed = |source| BackupError::Sqlite { path: path.to_owned(), source };
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    // One file, also while it is written.
    conn.pragma_update(None, "journal_mode", "DELETE").map_err(failed)?;
    schema::migrate_without_copy(&mut conn, path, schema::MIGRATIONS)?;
    let io_failed = |error: String| io_error(path, io::Error::other(error));
    holds::put(&conn, std::slice::from_ref(hold)).map_err(|error| io_failed(error.to_string()))?;
    conn.execute("DELETE FROM session", []).map_err(failed)?;
    // Effects of before the backup may long be done, or be wrong by now. Sweeps find what is left.
    conn.execute("DELETE FROM effect", []).map_err(failed)?;
    conn.execute_batch(github::AFTER_RESTORE).map_err(failed)?;
    bring_to_rest(&conn, now).map_err(io_failed)?;
    let instance =
        conn.query_row("SELECT instance FROM meta", [], |row| row.get(0)).map_err(failed)?;
    conn.close().map_err(|(_conn, source)| failed(source))?;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|source| io_error(path, source))?;
    Ok(instance)
}

/// Leaves no create and no start under way, see [`restored`].
fn bring_to_rest(conn: &Connection, now: Timestamp) -> Result<(), String> {
    conn.execute_batch("BEGIN").map_err(|error| error.to_string())?;
    // An issue that cannot be read stays as it is, and the server says so of it.
    let (mut accounts, troubles) = (AccountNumbers::default(), Troubles::default());
    let mut after = None;
    loop {
        let page =
            read::live(conn, &troubles, after, LIVE_PAGE_LEN).map_err(|error| error.to_string())?;
        let Some(last) = page.last() else { break };
        after = Some(last.home);
        for mut issue in page {
            let Some(entry) = restored(&mut issue, now) else { continue };
            let write = Write { issue: Some(issue), timeline: vec![entry], ..Write::default() };
            apply::apply(conn, &mut accounts, &write).map_err(|error| error.to_string())?;
        }
    }
    conn.execute_batch("COMMIT").map_err(|error| error.to_string())
}

/// Keeps the database that is there under another name as well, its log folded in.
fn keep(database: &Path, now: Timestamp) -> Result<Option<PathBuf>, BackupError> {
    let is_there = database.exists();
    if !is_there && !with_ending(database, "-wal").exists() {
        return Ok(None);
    }
    let kept = with_ending(database, &format!(".before-restore-{}", now.unix_ms()));
    let mut is_folded = false;
    if is_there {
        // One that is damaged, or that another process reads just now, cannot be folded whole; its log is
        // then kept beside it. So is that of an empty one: SQLite would remove the log when it opens the
        // file.
        let len = fs::metadata(database).map_err(|source| io_error(database, source))?.len();
        let fold = |conn: Connection| {
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        };
        is_folded = len > 0 && matches!(Connection::open(database).and_then(fold), Ok(0));
        fs::hard_link(database, &kept).map_err(|source| io_error(&kept, source))?;
    }
    // A log of the old database must not be read into the new one.
    for ending in ["-wal", "-shm"] {
        let beside = with_ending(database, ending);
        let moved = match is_folded {
            true => fs::remove_file(&beside),
            false => fs::rename(&beside, with_ending(&kept, ending)),
        };
        match moved {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error(&beside, error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(Some(kept))
}

fn sync_directory_of(file: &Path) -> Result<(), BackupError> {
    let dir = directory_of(file);
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| io_error(dir, source))
}

fn io_error(path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
