//! Whether a data directory was used before, and whether its database is the one that it had.
//!
//! The file `installation` names the installation that the directory belongs to. It is made durable
//! after the database, and before anything is recorded there. So a database that is missing, empty or
//! another one is found at the start. A new one in its place would forget every issue, and leave its
//! sandboxes at the providers.
//!
//! # What is accepted
//! A directory of a version that wrote no such file counts as used if it has what only a server with a
//! database leaves there. The two secrets do not count: they come before the database, and a person may
//! put them there. An empty directory counts as new, so a volume that is not mounted is not
//! noticed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::OpenError;
use super::open::{DATABASE_FILE, private_file};
use super::schema::with_ending;

/// The file in the data directory that names its installation.
const MARKER_FILE: &str = "installation";
/// What a server leaves in its data directory once it has a database.
const TRACES: [&str; 3] = ["logs", "address", "local/objects"];
/// How the names of copies begin that are kept beside a database: before a migration, and before a
/// restore.
const COPIES: [&str; 2] = ["issuebox.db.v", "issuebox.db.before-restore-"];

/// What a data directory has.
#[derive(Debug)]
pub(super) struct DataDirectory {
    dir: PathBuf,
    /// The instance in the marker; `None` if there is no marker.
    pub(super) marked: Option<String>,
    /// How long the database's file is; `None` if there is none.
    database_len: Option<u64>,
    /// Something that shows that the directory was used.
    trace: Option<PathBuf>,
}

impl DataDirectory {
    /// Looks, and changes nothing.
    ///
    /// # Errors
    /// Where something is there and cannot be looked at.
    pub(super) fn look(dir: &Path) -> io::Result<Self> {
        let marker = dir.join(MARKER_FILE);
        let marked = found(fs::read(&marker))?;
        let log = with_ending(&dir.join(DATABASE_FILE), "-wal");
        let trace = if marked.is_some() {
            Some(marker)
        } else if len(&log)?.is_some_and(|len| len > 0) {
            Some(log)
        } else {
            trace(dir)?
        };
        Ok(Self {
            dir: dir.to_owned(),
            marked: marked.map(|text| String::from_utf8_lossy(&text).trim().to_owned()),
            database_len: len(&dir.join(DATABASE_FILE))?,
            trace,
        })
    }

    /// Whether the database's file has anything in it.
    pub(super) fn has_database(&self) -> bool {
        self.database_len.is_some_and(|len| len > 0)
    }

    /// Whether an empty database may be made here. `is_new` says that a person wants a new
    /// installation.
    ///
    /// # Errors
    /// [`OpenError::Gone`] if there was one; [`OpenError::LogLeft`] if there is a write-ahead log,
    /// which SQLite removes where the database is empty.
    pub(super) fn check_empty(&self, is_new: bool) -> Result<(), OpenError> {
        let Some(trace) = &self.trace else { return Ok(()) };
        let database = self.dir.join(DATABASE_FILE);
        let log = with_ending(&database, "-wal");
        let log_len = len(&log).map_err(|source| OpenError::from_io(&self.dir, source))?;
        let is_log_left = log_len.is_some_and(|len| len > 0);
        match is_new {
            true if is_log_left && !self.has_database() => Err(OpenError::LogLeft { log }),
            true => Ok(()),
            false => Err(OpenError::Gone {
                database,
                state: match self.database_len {
                    None => "is missing",
                    Some(0) => "is empty",
                    Some(_) => "has no tables",
                },
                trace: trace.clone(),
                dir: self.dir.clone(),
            }),
        }
    }

    /// Whether the database that was found is the one of this directory.
    ///
    /// # Errors
    /// [`OpenError::Foreign`].
    pub(super) fn check_instance(&self, instance: &str) -> Result<(), OpenError> {
        match &self.marked {
            Some(marked) if marked != instance => Err(OpenError::Foreign {
                database: self.dir.join(DATABASE_FILE),
                why: format!(
                    "it is of the installation {instance:?}, and {} names {marked:?}",
                    self.dir.join(MARKER_FILE).display()
                ),
                dir: self.dir.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether this open database has records, and is the one of this directory; `false` if it has no
    /// tables, and there never was one.
    ///
    /// # Errors
    /// [`OpenError::Gone`], [`OpenError::Foreign`].
    pub(super) fn has_records(&self, conn: &Connection) -> Result<bool, OpenError> {
        match instance_of(conn, &self.dir)? {
            Some(instance) => self.check_instance(&instance).map(|()| true),
            None => self.check_empty(false).map(|()| false),
        }
    }

    /// Writes, durably, that the directory belongs to this instance.
    pub(super) fn mark(&self, instance: &str) -> io::Result<()> {
        if self.marked.as_deref() == Some(instance) {
            return Ok(());
        }
        let marker = self.dir.join(MARKER_FILE);
        let unfinished = with_ending(&marker, ".unfinished");
        found(fs::remove_file(&unfinished))?;
        let mut file = private_file(&unfinished)?;
        file.write_all(format!("{instance}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &marker)?;
        sync(&self.dir)
    }

    /// Removes the marker, durably, before the database becomes that of another instance: what breaks
    /// off in between leaves a directory without one, which takes the database that is there.
    pub(super) fn unmark_other(&mut self, instance: Option<&str>) -> io::Result<()> {
        if self.marked.is_none() || self.marked.as_deref() == instance {
            return Ok(());
        }
        found(fs::remove_file(self.dir.join(MARKER_FILE)))?;
        self.marked = None;
        sync(&self.dir)
    }

    /// What shows that the directory was used.
    pub(super) fn trace(&self) -> Option<&Path> {
        self.trace.as_deref()
    }
}

/// The instance of a database; `None` if it has no tables at all.
///
/// # Errors
/// [`OpenError::Foreign`] if its tables are not those of an issuebox.
pub(super) fn instance_of(conn: &Connection, dir: &Path) -> Result<Option<String>, OpenError> {
    let database = dir.join(DATABASE_FILE);
    let failed = |source| OpenError::from_sqlite(&database, source);
    let is_ours = conn.table_exists(None, "meta").map_err(failed)?
        && conn.table_exists(None, "issue").map_err(failed)?;
    if is_ours {
        let instance = conn.query_row("SELECT instance FROM meta", [], |row| row.get(0));
        return instance.map(Some).map_err(failed);
    }
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if tables > 0 {
        let why = "it is a database of something else".to_owned();
        return Err(OpenError::Foreign { database, why, dir: dir.to_owned() });
    }
    Ok(None)
}

fn trace(dir: &Path) -> io::Result<Option<PathBuf>> {
    for name in TRACES {
        let path = dir.join(name);
        let is_used = match found(fs::read_dir(&path)) {
            // A provider may make its directories before there is an object.
            Ok(Some(mut entries)) => name == "logs" || entries.next().is_some(),
            Ok(None) => false,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => true,
            Err(error) => return Err(error),
        };
        if is_used {
            return Ok(Some(path));
        }
    }
    for entry in found(fs::read_dir(dir))?.into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name();
        if COPIES.iter().any(|copy| name.as_encoded_bytes().starts_with(copy.as_bytes())) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// The length of a file; `None` if there is none.
fn len(path: &Path) -> io::Result<Option<u64>> {
    Ok(found(path.metadata())?.map(|metadata| metadata.len()))
}

/// `None` for what is not there.
fn found<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests;
