//! A directory of a workspace as an archive: a walk says what is in it, and the toolbox carries the content
//! of each file.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use reqwest::Response;
use tar::EntryType;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::DaytonaProvider;
use super::toolbox::Toolbox;
use super::walk::DirectoryWalk;
use crate::sandbox::confined::archive_form::{ARCHIVE_END, ArchiveFacts, fill_up, head};
use crate::sandbox::confined::files::LeftOutEntries;
use crate::sandbox::confined::note_left_out;
use crate::sandbox::{ChunkReceiver, FileKind, Target, TreeEntry, WalkedTree, WorkError};

/// Files whose contents are asked for at once.
const AT_ONCE: usize = 8;
/// Longest content that is fetched ahead of its turn, in bytes.
const AHEAD_LEN_MAX: u64 = 256 * 1024;
/// Pieces that wait for a reader.
const CHUNKS_LEN: usize = 2;

/// Packs one directory.
struct Packing {
    source: Arc<PackingSource>,
    chunks: mpsc::Sender<Result<Bytes, String>>,
}

/// Where contents come from.
struct PackingSource {
    provider: DaytonaProvider,
    target: Target,
    toolbox: Toolbox,
    /// Where the directory is in the sandbox.
    at: Vec<u8>,
}

/// Why an archive is not finished.
enum Unfinished {
    /// The reader has gone.
    ReaderGone,
    /// Something failed; the reader gets the reason.
    Failed(String),
}

/// The content of an entry.
enum Content {
    /// A short one.
    Whole(Bytes),
    /// It has none, or a long one.
    Later,
    /// The file is gone.
    Gone,
    /// The toolbox does not give it.
    Refused(String),
}

/// Begins to pack what a walk found.
pub(super) fn pack(
    provider: DaytonaProvider,
    target: Target,
    toolbox: Toolbox,
    walk: DirectoryWalk,
) -> ChunkReceiver {
    let (chunks, reader) = mpsc::channel(CHUNKS_LEN);
    let DirectoryWalk { at, tree } = walk;
    let source = Arc::new(PackingSource { provider, target, toolbox, at });
    let packing = Packing { source, chunks };
    tokio::spawn(async move {
        if let Err(Unfinished::Failed(why)) = packing.write(&tree).await {
            // The reader may be gone, too.
            let _ = packing.chunks.send(Err(why)).await;
        }
    });
    reader
}

impl Packing {
    async fn write(&self, tree: &WalkedTree) -> Result<(), Unfinished> {
        let mut left_out = LeftOutEntries::default();
        for path in &tree.left_out {
            left_out.add(path, "permission denied");
        }
        let unreadable: HashSet<&[u8]> = tree.left_out.iter().map(Vec::as_slice).collect();
        let is_packed = |entry: &&TreeEntry| {
            entry.kind != FileKind::Other
                && (entry.kind != FileKind::File || !unreadable.contains(&*entry.path))
        };
        let packed: Vec<&TreeEntry> = tree.entries.iter().filter(is_packed).collect();
        // Each in a task of its own, which goes on while an entry before it is sent.
        let contents = (0..packed.len()).map(|at| {
            let entry = packed[at];
            let (source, path, size) = (Arc::clone(&self.source), entry.path.clone(), entry.size);
            let is_short = entry.kind == FileKind::File && (1..=AHEAD_LEN_MAX).contains(&size);
            AbortOnDropHandle::new(tokio::spawn(async move {
                if is_short { source.whole(&path, size).await } else { Ok(Content::Later) }
            }))
        });
        let mut contents = futures_util::stream::iter(contents).buffered(AT_ONCE);
        let mut entries = packed.iter();
        while let (Some(content), Some(entry)) = (contents.next().await, entries.next()) {
            let ended = |_| Unfinished::Failed("the server is shutting down".into());
            let content = match content.map_err(ended)?? {
                Content::Later if entry.kind == FileKind::File && entry.size > 0 => {
                    self.long(entry).await?
                }
                content => content,
            };
            match content {
                Content::Whole(content) => {
                    self.send_head(entry).await?;
                    let sent = content.len() as u64;
                    self.send(content).await?;
                    self.fill_up(entry.size, sent).await?;
                }
                Content::Later if entry.kind == FileKind::File && entry.size > 0 => {}
                Content::Later => self.send_head(entry).await?,
                Content::Gone => {}
                Content::Refused(why) => left_out.add(&entry.path, &why),
            }
        }
        if !left_out.is_empty() {
            let is_taken =
                |name: &str| tree.entries.iter().any(|entry| entry.path == name.as_bytes());
            let (name, text) = left_out.file(is_taken);
            let facts = ArchiveFacts { mode: 0o644, modified_seconds: 0, size: text.len() as u64 };
            let mut out = Vec::new();
            let in_memory = "memory takes it";
            head(&mut out, name.as_bytes(), EntryType::Regular, &facts, None).expect(in_memory);
            out.extend_from_slice(text.as_bytes());
            fill_up(&mut out, facts.size).expect(in_memory);
            self.send(out.into()).await?;
            note_left_out(true);
        }
        self.send(Bytes::from_static(&ARCHIVE_END)).await
    }

    /// Sends a file with a long content; answers `Later` once that is done.
    async fn long(&self, entry: &TreeEntry) -> Result<Content, Unfinished> {
        let mut answer = match self.source.begin(&entry.path).await? {
            Ok(answer) => answer,
            Err(without) => return Ok(without),
        };
        self.send_head(entry).await?;
        let mut left = entry.size;
        while let Some(chunk) = next(&mut answer, left).await? {
            left -= chunk.len() as u64;
            self.send(chunk).await?;
        }
        self.fill_up(entry.size, entry.size - left).await?;
        Ok(Content::Later)
    }

    /// Fills a file up that has become shorter, and the last block of any.
    async fn fill_up(&self, size: u64, sent: u64) -> Result<(), Unfinished> {
        const ZEROS: &[u8] = &[0; 64 * 1024];
        let mut left = size - sent;
        while left > 0 {
            let len = left.min(ZEROS.len() as u64);
            left -= len;
            self.send(Bytes::from_static(&ZEROS[..usize::try_from(len).unwrap_or(0)])).await?;
        }
        let mut rest = Vec::new();
        fill_up(&mut rest, size).expect("memory takes it");
        if rest.is_empty() { Ok(()) } else { self.send(rest.into()).await }
    }

    async fn send_head(&self, entry: &TreeEntry) -> Result<(), Unfinished> {
        let (kind, size, link) = match entry.kind {
            FileKind::Directory => (EntryType::Directory, 0, None),
            FileKind::Link => (EntryType::Symlink, 0, Some(entry.link_target.as_slice())),
            FileKind::File | FileKind::Other => (EntryType::Regular, entry.size, None),
        };
        let seconds = entry.modified_ns.div_euclid(1_000_000_000);
        let modified_seconds = u64::try_from(seconds).unwrap_or(0);
        let facts = ArchiveFacts { mode: entry.mode, modified_seconds, size };
        let mut out = Vec::new();
        head(&mut out, &entry.path, kind, &facts, link).expect("memory takes it");
        self.send(out.into()).await
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Unfinished> {
        self.chunks.send(Ok(bytes)).await.map_err(|_| Unfinished::ReaderGone)
    }
}

impl PackingSource {
    /// Fetches a short content, with at most the length that the walk found.
    async fn whole(&self, path: &[u8], size: u64) -> Result<Content, Unfinished> {
        let mut answer = match self.begin(path).await? {
            Ok(answer) => answer,
            Err(without) => return Ok(without),
        };
        let mut content = BytesMut::new();
        while let Some(chunk) = next(&mut answer, size - content.len() as u64).await? {
            content.extend_from_slice(&chunk);
        }
        Ok(Content::Whole(content.freeze()))
    }

    /// Asks for the content of a file. The inner error says what the archive has in its place.
    async fn begin(&self, path: &[u8]) -> Result<Result<Response, Content>, Unfinished> {
        let path = [&self.at, &b"/"[..], path].concat();
        let failure = match self.toolbox.download(&path).await {
            Ok(answer) => return Ok(Ok(answer)),
            Err(failure) => failure,
        };
        let (is_gone, is_forbidden) = (failure.is_absence(), failure.is_forbidden());
        let words = failure.words();
        match self.provider.work_error(&self.target, failure).await {
            WorkError::NotRunning => Err(Unfinished::Failed(WorkError::NotRunning.to_string())),
            _ if is_gone => Ok(Err(Content::Gone)),
            _ if is_forbidden => Ok(Err(Content::Refused(words))),
            error => Err(Unfinished::Failed(error.to_string())),
        }
    }
}

/// The next piece of a content of which so much is left; `None` at its end.
async fn next(answer: &mut Response, left: u64) -> Result<Option<Bytes>, Unfinished> {
    if left == 0 {
        return Ok(None);
    }
    let broke_off = |_| Unfinished::Failed("the connection broke off".into());
    let chunk = answer.chunk().await.map_err(broke_off)?;
    Ok(chunk.map(|mut chunk| {
        chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        chunk
    }))
}
