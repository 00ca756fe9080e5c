//! A version as files: listed and read as those of a running sandbox are.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::SyncError;
use super::cache::SharedManifest;
use super::manifest::{ContentChecksum, EntryContent, ManifestEntry, ManifestHead};
use super::storage::SandboxStorage;
use crate::sandbox::{
    ChunkReceiver, FileContent, FileEntry, FileKind, FileListing, FilePart, InTree,
    LIST_ENTRIES_MAX, TreePage, TreePageAsk, WorkError, WorkspacePath, levels_below,
};
use crate::types::{SyncVersion, Timestamp};

/// Pieces of a content that wait for a reader.
const CHUNKS_LEN: usize = 2;

/// One version in a list.
pub type SyncedVersion = ManifestHead;

/// Some of a sandbox's versions, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncedVersions {
    /// The versions of this page.
    pub versions: Vec<SyncedVersion>,
    /// The last of them, if there are older ones.
    pub next: Option<SyncVersion>,
    /// How many there are in all.
    pub total: usize,
}

/// What a version has.
#[derive(Clone)]
pub struct SyncedTree {
    storage: SandboxStorage,
    manifest: SharedManifest,
}

impl SyncedTree {
    /// Of a manifest.
    pub(super) const fn new(storage: SandboxStorage, manifest: SharedManifest) -> Self {
        Self { storage, manifest }
    }

    /// A page of the version's tree.
    ///
    /// # Errors
    /// [`WorkError::NoSuchFile`].
    pub fn page(&self, ask: TreePageAsk<'_>) -> Result<TreePage, WorkError> {
        TreePage::of(&self.manifest.entries, &self.manifest.left_out, ask)
    }

    /// What could not be read when the version was made.
    pub fn left_out(&self) -> &[Vec<u8>] {
        &self.manifest.left_out
    }

    /// As [`list_files`](crate::sandbox::Workspace::list_files).
    ///
    /// # Errors
    /// [`WorkError::NoSuchFile`].
    pub fn list(&self, path: &WorkspacePath, depth: u32) -> Result<FileListing, WorkError> {
        if !path.is_root() {
            let entry = self.entry(path.as_bytes())?;
            if entry.content != EntryContent::Directory {
                return Ok(FileListing { entries: vec![shown(entry)], truncated: false });
            }
        }
        let below = self.manifest.entries.iter().filter(|entry| {
            levels_below(&entry.path, path).is_some_and(|levels| levels <= depth as usize)
        });
        let mut entries: Vec<FileEntry> = below.take(LIST_ENTRIES_MAX + 1).map(shown).collect();
        let truncated = entries.len() > LIST_ENTRIES_MAX;
        entries.truncate(LIST_ENTRIES_MAX);
        Ok(FileListing { entries, truncated })
    }

    /// As [`read_file`](crate::sandbox::Workspace::read_file). A link is not followed. A whole content
    /// is compared with its checksum before its reader has the end of it.
    ///
    /// # Errors
    /// [`SyncError`]; of the path or the part as [`SyncError::Work`].
    pub async fn read(
        &self,
        path: &WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, SyncError> {
        let wrong = |what: &str| SyncError::Work(WorkError::WrongKind(what.to_owned()));
        let (sha256, size) = match self.entry(path.as_bytes())?.content {
            EntryContent::File { sha256, size } => (sha256, size),
            EntryContent::Directory => return Err(wrong("it is a directory")),
            EntryContent::Link { .. } => return Err(wrong("it is a link")),
        };
        let range = part.of(size).ok_or(WorkError::OutOfRange { size })?;
        if range.is_empty() {
            let (_, chunks) = mpsc::channel(1);
            return Ok(FileContent { size, range, chunks });
        }
        let is_whole = range == (0..size);
        let part = (!is_whole).then(|| range.clone());
        let coming = self.storage.content(sha256, size, part).await?;
        let reading = ContentReading {
            coming,
            left: range.end - range.start,
            hash: is_whole.then(Sha256::new),
            sha256,
            storage: self.storage.clone(),
        };
        Ok(FileContent { size, chunks: reading.start(), range })
    }

    fn entry(&self, path: &[u8]) -> Result<&ManifestEntry, WorkError> {
        let mut entries = self.manifest.entries.iter();
        entries.find(|entry| entry.path == path).ok_or(WorkError::NoSuchFile)
    }
}

/// A content on its way to a reader.
struct ContentReading {
    coming: BoxStream<'static, Result<Bytes, SyncError>>,
    /// How many bytes the reader does not have yet.
    left: u64,
    /// Of all that came, if all is asked for.
    hash: Option<Sha256>,
    sha256: ContentChecksum,
    storage: SandboxStorage,
}

impl ContentReading {
    /// Passes the bytes of a range on, no more and no less.
    fn start(mut self) -> ChunkReceiver {
        let (sender, chunks) = mpsc::channel(CHUNKS_LEN);
        tokio::spawn(async move {
            while self.left > 0 {
                let piece = self.next().await.map_err(|error| error.to_string());
                let is_last = piece.is_err();
                if sender.send(piece).await.is_err() || is_last {
                    return;
                }
            }
        });
        chunks
    }

    async fn next(&mut self) -> Result<Bytes, SyncError> {
        let Some(piece) = self.coming.next().await else {
            return Err(self.storage.damaged(self.sha256).await);
        };
        let mut piece = piece?;
        piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= piece.len() as u64;
        let Some(hash) = &mut self.hash else { return Ok(piece) };
        hash.update(&piece);
        if self.left == 0
            && let Some(hash) = self.hash.take()
            && ContentChecksum::finished(hash) != self.sha256
        {
            return Err(self.storage.damaged(self.sha256).await);
        }
        Ok(piece)
    }
}

impl InTree for ManifestEntry {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn shown(&self) -> FileEntry {
        shown(self)
    }
}

fn shown(entry: &ManifestEntry) -> FileEntry {
    let (kind, size) = match &entry.content {
        EntryContent::File { size, .. } => (FileKind::File, *size),
        EntryContent::Directory => (FileKind::Directory, 0),
        EntryContent::Link { target } => (FileKind::Link, target.len() as u64),
    };
    FileEntry {
        path: entry.path.clone(),
        kind,
        size,
        mode: entry.mode,
        modified_at: Timestamp::from_unix_ms(entry.modified_ns.div_euclid(1_000_000)),
        is_unreadable: false,
    }
}
