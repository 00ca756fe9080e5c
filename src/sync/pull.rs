//! Brings a workspace to a version: what differs is written, what the version lacks is deleted.

use futures_util::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::archive::ArchiveWriter;
use super::cache::SharedManifest;
use super::ignored::{IGNORE_FILE, IGNORE_LEN_MAX, IgnoreRules};
use super::manifest::{EntryContent, Manifest, ManifestEntry};
use super::read::{SyncPlace, checksum};
use super::storage::SandboxStorage;
use super::{AT_ONCE, SyncError, plan, push};
use crate::clock::Clock;
use crate::sandbox::{WorkError, WorkspacePath};
use crate::types::{SyncStats, SyncVersion};

/// Most entries of one archive into a workspace.
const ARCHIVE_ENTRIES_MAX: usize = 100_000;

/// Brings a workspace to a version, or to the newest whole one.
///
/// # Errors
/// [`SyncError`]; the workspace may have a part of the version then, and another pull goes on.
pub async fn pull(
    place: &SyncPlace,
    storage: &SandboxStorage,
    version: Option<SyncVersion>,
    clock: &dyn Clock,
) -> Result<(SharedManifest, SyncStats), SyncError> {
    let began = clock.now();
    let wanted = async {
        match version {
            Some(version) => storage.manifest(version).await,
            None => storage.newest().await?.manifest.ok_or(SyncError::NoVersion),
        }
    };
    let walk = async { Ok(place.workspace.walk(place.target.clone()).await?) };
    let (wanted, tree) = tokio::try_join!(wanted, walk)?;
    let rules = [push::rules(place, &tree).await?, stored_rules(storage, &wanted).await?];
    let mut plan = plan::pull(&wanted, &tree, &rules);
    compare(place, &wanted, &mut plan).await?;
    let pulling = Pulling { place, storage, wanted: &wanted };
    let bytes = pulling.carry_out(&plan).await?;
    let files = |places: &[usize]| {
        let entries = places.iter().map(|at| &wanted.entries[*at]);
        entries.filter(|entry| !plan::is_directory(entry)).count() as u64
    };
    let (downloaded, skipped) = (files(&plan.write), plan.skipped);
    let stats = SyncStats {
        files_processed: downloaded + skipped,
        files_downloaded: downloaded,
        files_deleted: plan.deleted,
        files_skipped: skipped,
        files_uploaded: 0,
        bytes_transferred: bytes,
        duration_ms: u64::try_from(clock.now().since(began).as_millis()).unwrap_or(u64::MAX),
    };
    Ok((wanted, stats))
}

/// The rules that a version has.
async fn stored_rules(
    storage: &SandboxStorage,
    wanted: &Manifest,
) -> Result<IgnoreRules, SyncError> {
    let mut entries = wanted.entries.iter();
    let entry = entries.find(|entry| entry.path == IGNORE_FILE.as_bytes());
    match entry.map(|entry| &entry.content) {
        Some(EntryContent::File { sha256, size }) if (1..=IGNORE_LEN_MAX).contains(size) => {
            let chunks: Vec<_> = storage.content(*sha256, *size, None).await?.try_collect().await?;
            Ok(IgnoreRules::parse(&chunks.concat()))
        }
        _ => Ok(IgnoreRules::none()),
    }
}

/// Compares the files of which only the content can say whether they are as they should be.
async fn compare(
    place: &SyncPlace,
    wanted: &Manifest,
    plan: &mut plan::PullPlan,
) -> Result<(), SyncError> {
    let compared = std::mem::take(&mut plan.compare).into_iter();
    let compared = compared.map(|(at, has_mode)| is_same(place, wanted, at, has_mode));
    let mut compared = futures_util::stream::iter(compared).buffer_unordered(AT_ONCE);
    while let Some((at, has_mode, is_same)) = compared.try_next().await? {
        if !is_same {
            plan.write.push(at);
            continue;
        }
        plan.skipped += 1;
        if !has_mode {
            plan.set_mode.push(at);
        }
    }
    plan.write.sort_unstable();
    Ok(())
}

/// Whether a file of the workspace has the content that a version says.
async fn is_same(
    place: &SyncPlace,
    wanted: &Manifest,
    at: usize,
    has_mode: bool,
) -> Result<(usize, bool, bool), SyncError> {
    let entry = &wanted.entries[at];
    let found = checksum(place, &entry.path).await?;
    let is_same = match entry.content {
        EntryContent::File { sha256, .. } => found == Some(sha256),
        EntryContent::Directory | EntryContent::Link { .. } => false,
    };
    Ok((at, has_mode, is_same))
}

struct Pulling<'a> {
    place: &'a SyncPlace,
    storage: &'a SandboxStorage,
    wanted: &'a Manifest,
}

impl Pulling<'_> {
    /// Returns how many bytes were downloaded.
    async fn carry_out(&self, plan: &plan::PullPlan) -> Result<u64, SyncError> {
        for (path, mode) in &plan.open {
            self.set_mode(path, *mode).await?;
        }
        self.delete(&plan.in_the_way).await?;
        let entry = |at: &usize| &self.wanted.entries[*at];
        let written: Vec<&ManifestEntry> = plan.write.iter().map(entry).collect();
        let mut bytes = 0;
        for part in written.chunks(ARCHIVE_ENTRIES_MAX) {
            bytes += self.unpack(part, 0o700).await?;
        }
        for at in &plan.set_mode {
            let entry = entry(at);
            self.set_mode(&entry.path, entry.mode).await?;
        }
        self.delete(&plan.delete).await?;
        let closed: Vec<&ManifestEntry> = written
            .into_iter()
            .filter(|entry| plan::is_directory(entry) && entry.mode & 0o700 != 0o700)
            .collect();
        if !closed.is_empty() {
            self.unpack(&closed, 0).await?;
        }
        Ok(bytes)
    }

    /// Writes entries; directories with these permission bits more.
    async fn unpack(&self, entries: &[&ManifestEntry], opened_by: u32) -> Result<u64, SyncError> {
        let (sender, chunks) = mpsc::channel(4);
        let writer = ArchiveWriter::new(self.storage, sender, opened_by);
        let root = WorkspacePath::parse(b"").expect("the workspace itself");
        let unpacking =
            self.place.workspace.unpack_directory(self.place.target.clone(), root, chunks);
        let (written, unpacked) = tokio::join!(writer.write(entries), unpacking);
        // What broke off the archive is the cause of what the sandbox says of it.
        let bytes = written?;
        unpacked?;
        Ok(bytes)
    }

    async fn set_mode(&self, path: &[u8], mode: u32) -> Result<(), SyncError> {
        let target = self.place.target.clone();
        let set = self.place.workspace.set_file_mode(target, parsed(path)?, mode).await;
        gone_is_fine(set)
    }

    async fn delete(&self, paths: &[Vec<u8>]) -> Result<(), SyncError> {
        let deleting = (0..paths.len()).map(|at| self.delete_one(&paths[at]));
        futures_util::stream::iter(deleting).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn delete_one(&self, path: &[u8]) -> Result<(), SyncError> {
        let target = self.place.target.clone();
        gone_is_fine(self.place.workspace.delete_file(target, parsed(path)?).await)
    }
}

fn parsed(path: &[u8]) -> Result<WorkspacePath, SyncError> {
    WorkspacePath::parse(path).map_err(|why| SyncError::Work(WorkError::PathNotAllowed(why)))
}

fn gone_is_fine(done: Result<(), WorkError>) -> Result<(), SyncError> {
    match done {
        Ok(()) | Err(WorkError::NoSuchFile) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
