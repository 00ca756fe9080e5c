//! Backing a server's records up, and putting them back.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::clock::{Clock, SystemClock};
use crate::store::sqlite::SqliteStore;
use crate::types::{Hold, HoldScope};

/// Writes what the server on this data directory has recorded to a file; its size, in bytes. The
/// server may run meanwhile.
///
/// # Errors
/// What is in the way, and what to do about it.
pub fn backup(data: &Path, file: &Path) -> anyhow::Result<u64> {
    Ok(SqliteStore::backup(data, file)?)
}

/// Whether there are records in a data directory.
pub fn has_records(data: &Path) -> bool {
    SqliteStore::is_in(data)
}

/// Puts a backup back into a data directory that no server runs on, with a hold on the whole
/// server; where the records that were there before are kept.
///
/// # Errors
/// What is in the way, and what to do about it.
pub fn restore(data: &Path, file: &Path) -> anyhow::Result<Option<PathBuf>> {
    let now = SystemClock.now();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let hold = Hold {
        scope: HoldScope::Server,
        reason: format!("restored from the backup {name}; look at issuebox drift before releasing"),
        since: now,
        by: "issuebox restore".to_owned(),
        followed_to: None,
    };
    let restored = SqliteStore::restore(data, file, &hold, now);
    Ok(restored.context("nothing was restored")?.kept)
}
