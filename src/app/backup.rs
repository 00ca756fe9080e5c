//! Backs up a server's records, and restores them.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::clock::{Clock, SystemClock};
use crate::store::sqlite::SqliteStore;
use crate::types::{Hold, HoldScope};

/// Backs up the records of a data directory to a file and returns its size in bytes. The server may
/// run meanwhile.
///
/// # Errors
/// Why it failed, and what to do.
pub fn backup(data: &Path, file: &Path) -> anyhow::Result<u64> {
    Ok(SqliteStore::backup(data, file)?)
}

/// Whether a data directory has records.
pub fn has_records(data: &Path) -> bool {
    SqliteStore::is_in(data)
}

/// Restores a backup into a data directory on which no server runs, and holds the whole server.
/// Returns the path of the copy of the previous records.
///
/// # Errors
/// Why it failed, and what to do.
pub fn restore(data: &Path, file: &Path) -> anyhow::Result<Option<PathBuf>> {
    let now = SystemClock.now();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let hold = Hold {
        scope: HoldScope::Server,
        reason: format!("restored from the backup {name}; check issuebox drift before releasing"),
        since: now,
        by: "issuebox restore".to_owned(),
        followed_to: None,
    };
    let restored = SqliteStore::restore(data, file, &hold, now);
    Ok(restored.context("nothing was restored")?.kept)
}
