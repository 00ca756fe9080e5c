//! Pushes a workspace: one walk, the files that changed, and the manifest last.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt};

use super::cache::SharedManifest;
use super::ignored::{IGNORE_FILE, IGNORE_LEN_MAX, IgnoreRules};
use super::manifest::{ContentChecksum, Manifest, ManifestEntry};
use super::read::{FileUploads, ReadFile, SyncPlace, next, open};
use super::storage::{NewestVersion, SandboxStorage};
use super::{AT_ONCE, SyncError, plan};
use crate::clock::Clock;
use crate::sandbox::{FileKind, WalkedTree, WorkError, by_parts};
use crate::types::{SyncStats, SyncVersion, Timestamp};

/// A push that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The new version; the last one if nothing had changed and no new one was wanted then.
    pub version: SyncVersion,
    /// What the push did.
    pub stats: SyncStats,
}

/// Whether a workspace that has not changed gets a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// It gets one.
    NewVersion,
    /// The last version stands for it.
    LastVersion,
}

/// Pushes a workspace.
///
/// # Errors
/// [`SyncError`]; there is no new version then.
pub async fn push(
    place: &SyncPlace,
    storage: &SandboxStorage,
    clock: &dyn Clock,
    unchanged: Unchanged,
) -> Result<Pushed, SyncError> {
    let walked_at = clock.now();
    let walk = async { Ok(place.workspace.walk(place.target.clone()).await?) };
    let known = async {
        let newest = storage.newest().await?;
        let lost = LostContents::find(storage, &newest).await?;
        Ok::<_, SyncError>((newest, lost))
    };
    let (tree, (NewestVersion { manifest: last, taken, .. }, lost)) =
        tokio::try_join!(walk, known)?;
    let last: Option<&Manifest> = last.as_deref().map(|last| &**last);
    let rules = [rules(place, &tree).await?];
    let plan = plan::push(last, tree, &rules, &lost.all);
    if let Some(last) = last
        && unchanged == Unchanged::LastVersion
        && !plan::has_changed(last, &plan)
    {
        let files = plan.known.iter().filter(|entry| !plan::is_directory(entry)).count() as u64;
        let duration_ms = millis_since(walked_at, clock);
        let stats = SyncStats {
            files_processed: files,
            files_skipped: files,
            duration_ms,
            ..SyncStats::default()
        };
        return Ok(Pushed { version: last.version, stats });
    }
    let stored = last.into_iter().flat_map(|last| last.contents());
    let stored = stored.map(|(sha256, _)| sha256).filter(|sha256| !lost.all.contains(sha256));
    let uploads = FileUploads::new(place, storage, stored.collect(), &lost.all, walked_at);
    let ReadEntries { mut entries, mut left_out, mut stats } = read(&uploads, plan).await?;
    entries.sort_unstable_by(|one, other| by_parts(&one.path, &other.path));
    left_out.sort_unstable();
    if !left_out.is_empty() {
        tracing::warn!(
            count = left_out.len(),
            "a version of a workspace lacks what could not be read; its manifest names that"
        );
    }
    let files = entries.iter().filter(|entry| !plan::is_directory(entry));
    stats.files_processed = files.count() as u64;
    stats.files_skipped = stats.files_processed - stats.files_uploaded;
    stats.files_deleted = plan::deleted(last, &entries);
    stats.duration_ms = millis_since(walked_at, clock);
    let seconds = u64::try_from(clock.now().unix_ms() / 1_000).unwrap_or(0);
    let version = SyncVersion::next(taken, seconds);
    storage.put_manifest(Manifest { version, walked_at, stats, left_out, entries }).await?;
    lost.note_restored(storage, &uploads).await;
    Ok(Pushed { version, stats })
}

fn millis_since(began: Timestamp, clock: &dyn Clock) -> u64 {
    u64::try_from(clock.now().since(began).as_millis()).unwrap_or(u64::MAX)
}

/// What a version gets.
struct ReadEntries {
    entries: Vec<ManifestEntry>,
    left_out: Vec<Vec<u8>>,
    stats: SyncStats,
}

/// Reads and stores the files that the plan says.
async fn read(uploads: &FileUploads<'_>, plan: plan::PushPlan) -> Result<ReadEntries, SyncError> {
    let plan::PushPlan { known: entries, read, left_out, new_links } = plan;
    let stats = SyncStats { files_uploaded: new_links, ..SyncStats::default() };
    let mut done = ReadEntries { entries, left_out, stats };
    let reading = read.into_iter().map(|entry| uploads.file(entry));
    let mut reading = futures_util::stream::iter(reading).buffer_unordered(AT_ONCE);
    while let Some(read) = reading.try_next().await? {
        match read {
            ReadFile::Stored(entry, uploaded) => {
                done.stats.files_uploaded += u64::from(uploaded.is_some());
                done.stats.bytes_transferred += uploaded.unwrap_or(0);
                done.entries.push(entry);
            }
            ReadFile::LeftOut(path) => done.left_out.push(path),
            ReadFile::Gone => {}
        }
    }
    Ok(done)
}

/// Contents that the last version names and that a push does not rely on.
///
/// A reader that finds a content missing or damaged marks it. If the last version names one of
/// those, the storage has lost something, and perhaps more than was met: each of its contents is
/// looked for then.
struct LostContents {
    all: HashSet<ContentChecksum>,
    marked: HashSet<ContentChecksum>,
}

impl LostContents {
    async fn find(storage: &SandboxStorage, newest: &NewestVersion) -> Result<Self, SyncError> {
        if !newest.has_marks {
            return Ok(Self { all: HashSet::new(), marked: HashSet::new() });
        }
        let marked = storage.marks().await?;
        let mut all = marked.clone();
        let is_named =
            |last: &&SharedManifest| last.contents().any(|(sha256, _)| marked.contains(&sha256));
        if let Some(last) = newest.manifest.as_ref().filter(is_named) {
            let found = storage.contents().await?;
            let is_there = |(sha256, size): &(ContentChecksum, u64)| {
                found.get(sha256).is_some_and(|found| found.size == *size)
            };
            all.extend(last.contents().filter(|one| !is_there(one)).map(|(sha256, _)| sha256));
            tracing::warn!(
                version = %last.version,
                count = all.len(),
                "contents of a workspace are missing or damaged in the object storage; their files \
                 are read and stored again"
            );
        }
        Ok(Self { all, marked })
    }

    /// Takes the marks of what is stored again away.
    async fn note_restored(&self, storage: &SandboxStorage, uploads: &FileUploads<'_>) {
        for checksum in self.marked.iter().filter(|marked| uploads.is_stored(marked)) {
            if let Err(error) = storage.unmark(*checksum).await {
                tracing::warn!(content = %checksum, %error, "cannot take the mark of a content away");
            }
        }
    }
}

/// Reads the rules of a workspace, if it has any.
///
/// # Errors
/// [`SyncError`].
pub async fn rules(place: &SyncPlace, tree: &WalkedTree) -> Result<IgnoreRules, SyncError> {
    let has_rules = |entry: &&crate::sandbox::TreeEntry| {
        entry.path == IGNORE_FILE.as_bytes() && entry.kind == FileKind::File
    };
    let Some(entry) = tree.entries.iter().find(has_rules) else { return Ok(IgnoreRules::none()) };
    if entry.size > IGNORE_LEN_MAX {
        let why = format!("{IGNORE_FILE} is longer than 1 MiB; shorten it");
        return Err(SyncError::Work(WorkError::Refused(why)));
    }
    let mut opened = match open(place, &entry.path).await {
        Ok(opened) => opened,
        Err(SyncError::Work(WorkError::NoSuchFile)) => return Ok(IgnoreRules::none()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    while let Some(chunk) = next(&mut opened).await? {
        text.extend_from_slice(&chunk);
    }
    Ok(IgnoreRules::parse(&text))
}
