//! What is known to be wrong with the database, and what SQLite says sorted into it.
//!
//! # Bounds
//! At most [`DAMAGES_MAX`] damages are kept, the first ones; the log has each of them once.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, ErrorCode};

use crate::store::{CommitError, StoreError};

/// Most damages that are kept.
const DAMAGES_MAX: usize = 8;

/// What was noticed since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    replaced: Option<StoreError>,
    damages: Vec<StoreError>,
}

impl Troubles {
    /// All of it. What keeps everything from being stored comes first.
    pub(super) fn list(&self) -> Vec<StoreError> {
        let known = self.known();
        known.replaced.iter().chain(&known.damages).cloned().collect()
    }

    /// What was done to the files, if they are not those that were opened.
    pub(super) fn replaced(&self) -> Option<StoreError> {
        self.known().replaced.clone()
    }

    /// Keeps a damage; others are not kept.
    pub(super) fn note(&self, error: &StoreError) {
        let StoreError::Damaged { .. } = error else { return };
        let mut known = self.known();
        if known.damages.len() < DAMAGES_MAX && !known.damages.contains(error) {
            tracing::error!("{error}");
            known.damages.push(error.clone());
        }
    }

    /// The same of a write.
    pub(super) fn note_write(&self, error: &CommitError) {
        if let CommitError::Damaged { path, what } = error {
            self.note(&StoreError::Damaged { path: path.clone(), what: what.clone() });
        }
    }

    /// Keeps whether the files are still those that were opened.
    pub(super) fn note_presence(&self, looked: &Result<(), StoreError>) {
        let mut known = self.known();
        let now = looked.as_ref().err();
        match (&known.replaced, now) {
            (before, Some(error)) if before.as_ref() != Some(error) => tracing::error!("{error}"),
            (Some(before), None) => {
                tracing::info!(before = %before, "the database's files are back")
            }
            (Some(_) | None, Some(_)) | (None, None) => {}
        }
        known.replaced = now.cloned();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What SQLite says, with what is behind it: a row that cannot be read is named only there.
pub(super) fn text_of(error: &rusqlite::Error) -> String {
    // What could not be converted says more than that it could not be.
    let mut cause: Option<&dyn std::error::Error> = match error {
        rusqlite::Error::FromSqlConversionFailure(_, _, inner) => Some(inner.as_ref()),
        other => Some(other),
    };
    let mut text = String::new();
    while let Some(deeper) = cause {
        let words = deeper.to_string();
        // SQLite's own words are there twice.
        if !text.contains(&words) {
            let gap = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{gap}{words}");
        }
        cause = deeper.source();
    }
    text
}

/// Whether the file or a row of it is not what was written.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..) => true,
        other => matches!(
            other.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        ),
    }
}

/// Sorts what a read of the database at `path` said.
pub(super) fn read_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let what = text_of(error);
    match is_damage(error) {
        true => StoreError::Damaged { path: path.to_owned(), what },
        false => StoreError::Failed(what),
    }
}

/// Sorts what a write said.
pub(super) fn write_error(conn: &Connection, error: &rusqlite::Error) -> CommitError {
    match read_error(&path_of(conn), error) {
        StoreError::Damaged { path, what } => CommitError::Damaged { path, what },
        StoreError::BadCursor | StoreError::Replaced { .. } | StoreError::Failed(_) => {
            CommitError::Failed(error.to_string())
        }
    }
}

/// The database of a connection.
pub(super) fn path_of(conn: &Connection) -> PathBuf {
    conn.path().unwrap_or_default().into()
}
