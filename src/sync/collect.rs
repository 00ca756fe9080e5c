//! Collects garbage: versions past retention, and contents that no version names any more.
//!
//! # Guarantees
//! - **A content that a whole version names stays.** Contents are listed before the versions are, so
//!   a version that appears meanwhile names only what an earlier one does, or what was written since.
//! - **A push under way loses nothing**, also one of another server: the version that it relies on and
//!   what it writes stay for [`GRACE`](super::retention::GRACE) after nothing else needs them.
//! - **A collection that is killed does no harm**: a version goes before its contents, and what is left
//!   of them is collected later.
//! - What cannot be read is believed to be needed: as long as a manifest is damaged, or of a later
//!   format, no content is removed.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt};

use super::manifest::ContentChecksum;
use super::retention::{ContentGarbage, SyncRetention, is_old};
use super::storage::SandboxStorage;
use super::{AT_ONCE, SyncError};
use crate::types::{SyncVersion, Timestamp};

/// Most contents that one collection removes: a push waits for its end.
const REMOVED_MAX: usize = 20_000;

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many versions were removed.
    pub versions: usize,
    /// How many contents were removed.
    pub contents: usize,
    /// Whether nothing is left that a later collection has to look at, unless there is a new version.
    pub is_done: bool,
}

/// Collects the garbage of one sandbox.
///
/// # Errors
/// [`SyncError::Storage`]; a later collection goes on.
pub async fn collect(
    storage: &SandboxStorage,
    retention: SyncRetention,
    now: Timestamp,
) -> Result<Collected, SyncError> {
    let listed = storage.contents().await?;
    let found = storage.versions().await?;
    let Some(newest) = newest_whole(storage, &found.versions).await? else {
        // Without a whole version nothing says what is garbage.
        return Ok(Collected { is_done: true, ..Collected::default() });
    };
    let past = retention.past(&found.versions, newest, now);
    // The oldest first: what is left of a killed collection is a list without gaps.
    for version in past.iter().rev() {
        storage.delete_version(*version).await?;
    }
    let mut collected = Collected { versions: past.len(), ..Collected::default() };
    let stay = found.versions.iter().filter(|version| !past.contains(version));
    let Some(named) = named(storage, stay).await? else { return Ok(collected) };
    let mut garbage = ContentGarbage::of(&listed, &named, now);
    let is_all = garbage.old.len() <= REMOVED_MAX;
    garbage.old.truncate(REMOVED_MAX);
    let removing = garbage.old.clone().into_iter().map(|checksum| remove(storage, checksum, now));
    let mut removing = futures_util::stream::iter(removing).buffer_unordered(AT_ONCE);
    while let Some(was_removed) = removing.try_next().await? {
        collected.contents += usize::from(was_removed);
    }
    collected.is_done = is_all && garbage.young == 0;
    if found.has_marks {
        for mark in storage.marks().await? {
            let is_gone = !listed.contains_key(&mark) || garbage.old.contains(&mark);
            if is_gone && !named.contains(&mark) {
                storage.unmark(mark).await?;
            }
        }
    }
    mark_missing(storage, newest, &listed.into_keys().collect()).await?;
    Ok(collected)
}

/// The newest version with a usable manifest.
async fn newest_whole(
    storage: &SandboxStorage,
    versions: &[SyncVersion],
) -> Result<Option<SyncVersion>, SyncError> {
    for version in versions {
        match storage.manifest(*version).await {
            Ok(_) => return Ok(Some(*version)),
            Err(SyncError::NoSuchVersion(_) | SyncError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The contents that versions name; `None` if the manifest of one is there and cannot be used.
async fn named(
    storage: &SandboxStorage,
    versions: impl Iterator<Item = &SyncVersion>,
) -> Result<Option<HashSet<ContentChecksum>>, SyncError> {
    let mut named = HashSet::new();
    for version in versions {
        match storage.manifest(*version).await {
            Ok(manifest) => named.extend(manifest.contents().map(|(checksum, _)| checksum)),
            Err(SyncError::NoSuchVersion(_)) => {}
            Err(error @ SyncError::Damaged { .. }) => {
                tracing::warn!(
                    %version,
                    %error,
                    "contents that no version needs are kept, because a manifest cannot be read"
                );
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(named))
}

/// Removes a content, unless it was written again meanwhile.
async fn remove(
    storage: &SandboxStorage,
    checksum: ContentChecksum,
    now: Timestamp,
) -> Result<bool, SyncError> {
    match storage.find(checksum).await? {
        Some(found) if is_old(found.written_at, now) => {
            storage.delete_content(checksum).await?;
            Ok(true)
        }
        Some(_) | None => Ok(false),
    }
}

/// Marks a content that the newest version names and that is missing, so that the next push looks
/// for all of them.
async fn mark_missing(
    storage: &SandboxStorage,
    newest: SyncVersion,
    listed: &HashSet<ContentChecksum>,
) -> Result<(), SyncError> {
    let manifest = storage.manifest(newest).await?;
    for (checksum, size) in manifest.contents().filter(|(one, _)| !listed.contains(one)) {
        // It may have been written after the list.
        if storage.find(checksum).await?.is_none_or(|found| found.size != size) {
            tracing::warn!(
                version = %newest,
                content = %checksum,
                "a content of a workspace's newest version is missing in the object storage; the next \
                 push stores it again, if its file is still there"
            );
            storage.mark(checksum).await;
            return Ok(());
        }
    }
    Ok(())
}
