//! The entries of a version as a tar archive, with contents from the object storage. A content is
//! compared with its checksum before the workspace has the end of it.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tar::EntryType;
use tokio::sync::mpsc;

use super::manifest::{ContentChecksum, EntryContent, ManifestEntry};
use super::storage::SandboxStorage;
use super::{AT_ONCE, SyncError};
use crate::sandbox::confined::archive_form::{
    ARCHIVE_END, ArchiveFacts, exact_time, fill_up, head,
};

/// Longest content that is fetched ahead of its turn, in bytes.
const AHEAD_LEN_MAX: u64 = 1024 * 1024;

/// Writes an archive into a channel.
pub struct ArchiveWriter<'a> {
    storage: &'a SandboxStorage,
    chunks: mpsc::Sender<Result<Bytes, String>>,
    /// Permission bits that directories get beside their own.
    opened_by: u32,
}

/// The reader has gone; it says why.
struct ReaderGone;

impl<'a> ArchiveWriter<'a> {
    /// With permission bits that directories get beside their own.
    pub const fn new(
        storage: &'a SandboxStorage,
        chunks: mpsc::Sender<Result<Bytes, String>>,
        opened_by: u32,
    ) -> Self {
        Self { storage, chunks, opened_by }
    }

    /// Writes entries, parents before children; returns how many bytes of contents came.
    ///
    /// # Errors
    /// [`SyncError`] of the storage; the archive is broken off then.
    pub async fn write(self, entries: &[&ManifestEntry]) -> Result<u64, SyncError> {
        let fetching = (0..entries.len()).map(|at| self.ahead(entries[at]));
        let mut fetching = futures_util::stream::iter(fetching).buffered(AT_ONCE);
        let (mut bytes, mut at) = (0, 0);
        while let Some(ahead) = fetching.next().await {
            let entry = entries[at];
            at += 1;
            let written = match ahead {
                Ok(ahead) => self.entry(entry, ahead).await,
                Err(error) => Err(error),
            };
            match written {
                Ok(Ok(len)) => bytes += len,
                Ok(Err(ReaderGone)) => return Ok(bytes),
                Err(error) => {
                    // The reader may be gone, too.
                    let _ = self.chunks.send(Err(error.to_string())).await;
                    return Err(error);
                }
            }
        }
        let _ = self.chunks.send(Ok(Bytes::from_static(&ARCHIVE_END))).await;
        Ok(bytes)
    }

    /// Fetches a short content; `None` for what has none, or a long one.
    async fn ahead(&self, entry: &ManifestEntry) -> Result<Option<Bytes>, SyncError> {
        let EntryContent::File { sha256, size } = entry.content else { return Ok(None) };
        if size == 0 || size > AHEAD_LEN_MAX {
            return Ok(None);
        }
        let (mut content, mut coming) =
            (BytesMut::new(), self.storage.content(sha256, size, None).await?);
        while let Some(chunk) = coming.next().await {
            content.extend_from_slice(&chunk?);
            if content.len() as u64 > size {
                return Err(self.storage.damaged(sha256).await);
            }
        }
        if content.len() as u64 == size && ContentChecksum::of(&content) == sha256 {
            return Ok(Some(content.freeze()));
        }
        Err(self.storage.damaged(sha256).await)
    }

    async fn entry(
        &self,
        entry: &ManifestEntry,
        ahead: Option<Bytes>,
    ) -> Result<Result<u64, ReaderGone>, SyncError> {
        let (kind, mode, size, link) = match &entry.content {
            EntryContent::File { size, .. } => (EntryType::Regular, entry.mode, *size, None),
            EntryContent::Directory => (EntryType::Directory, entry.mode | self.opened_by, 0, None),
            EntryContent::Link { target } => {
                (EntryType::Symlink, entry.mode, 0, Some(target.as_slice()))
            }
        };
        let seconds = entry.modified_ns.div_euclid(1_000_000_000);
        let modified_seconds = u64::try_from(seconds).unwrap_or(0);
        let mut out = Vec::with_capacity(2048);
        let facts = ArchiveFacts { mode, modified_seconds, size };
        let in_memory = "memory takes it";
        if kind == EntryType::Regular {
            // The next push reads no file whose time is as the version has it.
            exact_time(&mut out, entry.modified_ns).expect(in_memory);
        }
        head(&mut out, &entry.path, kind, &facts, link).expect(in_memory);
        if self.send(out.into()).await.is_err() {
            return Ok(Err(ReaderGone));
        }
        match (&entry.content, ahead) {
            (_, Some(content)) => {
                if self.send(content).await.is_err() {
                    return Ok(Err(ReaderGone));
                }
            }
            (EntryContent::File { sha256, size }, None) if *size > 0 => {
                if self.long(*sha256, *size).await?.is_err() {
                    return Ok(Err(ReaderGone));
                }
            }
            (_, None) => return Ok(Ok(0)),
        }
        let mut rest = Vec::new();
        fill_up(&mut rest, size).expect(in_memory);
        Ok(if rest.is_empty() { Ok(()) } else { self.send(rest.into()).await }.map(|()| size))
    }

    /// Passes a long content on. Its last bytes are held back until its checksum is right.
    async fn long(
        &self,
        sha256: ContentChecksum,
        size: u64,
    ) -> Result<Result<(), ReaderGone>, SyncError> {
        let mut coming = self.storage.content(sha256, size, None).await?;
        let (mut hash, mut left, mut held) = (Sha256::new(), size, Bytes::new());
        while let Some(chunk) = coming.next().await {
            let chunk = chunk?;
            let Some(rest) = left.checked_sub(chunk.len() as u64) else {
                return Err(self.storage.damaged(sha256).await);
            };
            left = rest;
            hash.update(&chunk);
            let before = std::mem::replace(&mut held, chunk);
            if !before.is_empty() && self.send(before).await.is_err() {
                return Ok(Err(ReaderGone));
            }
        }
        if left > 0 || ContentChecksum::finished(hash) != sha256 {
            return Err(self.storage.damaged(sha256).await);
        }
        Ok(self.send(held).await)
    }

    async fn send(&self, bytes: Bytes) -> Result<(), ReaderGone> {
        self.chunks.send(Ok(bytes)).await.map_err(|_| ReaderGone)
    }
}
