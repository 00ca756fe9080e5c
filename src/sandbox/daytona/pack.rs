//! A directory of a workspace as an archive: a walk says what is in it, and the toolbox carries the content
//! of each file.

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::Response;
use tar::EntryType;
use tokio::sync::mpsc;

use super::DaytonaProvider;
use super::toolbox::Toolbox;
use super::walk::DirectoryWalk;
use crate::sandbox::confined::archive_form::{ARCHIVE_END, ArchiveFacts, fill_up, head};
use crate::sandbox::confined::files::LeftOutEntries;
use crate::sandbox::confined::note_left_out;
use crate::sandbox::{ChunkReceiver, FileKind, Target, TreeEntry, WalkedTree};

/// Files whose contents are asked for at once.
const AT_ONCE: usize = 8;
/// Pieces that wait for a reader.
const CHUNKS_LEN: usize = 2;

/// Packs one directory.
struct Packing {
    provider: DaytonaProvider,
    target: Target,
    toolbox: Toolbox,
    /// Where the directory is in the sandbox.
    at: Vec<u8>,
    chunks: mpsc::Sender<Result<Bytes, String>>,
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
    /// A file's.
    Coming(Response),
    /// It has none.
    None,
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
    let packing = Packing { provider, target, toolbox, at, chunks };
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
        let unreadable = |entry: &&TreeEntry| !tree.left_out.contains(&entry.path);
        let packed = tree.entries.iter().filter(|entry| entry.kind != FileKind::Other);
        let packed: Vec<&TreeEntry> = packed.filter(unreadable).collect();
        let contents = (0..packed.len()).map(|at| self.begin(packed[at]));
        let mut contents = futures_util::stream::iter(contents).buffered(AT_ONCE);
        let mut entries = packed.iter();
        while let (Some(content), Some(entry)) = (contents.next().await, entries.next()) {
            match content? {
                Content::Coming(answer) => self.file(entry, answer).await?,
                Content::None => self.send_head(entry).await?,
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

    /// Asks for the content of an entry.
    async fn begin(&self, entry: &TreeEntry) -> Result<Content, Unfinished> {
        if entry.kind != FileKind::File || entry.size == 0 {
            return Ok(Content::None);
        }
        let path = [&self.at, &b"/"[..], &entry.path].concat();
        match self.toolbox.download(&path).await {
            Ok(answer) => Ok(Content::Coming(answer)),
            Err(failure) if failure.is_absence() => Ok(Content::Gone),
            Err(failure) if failure.is_forbidden() => Ok(Content::Refused(failure.words())),
            Err(failure) => {
                let error = self.provider.work_error(&self.target, failure).await;
                Err(Unfinished::Failed(error.to_string()))
            }
        }
    }

    /// Sends a file with the length that the walk found: what grew is cut, what shrank is filled up.
    async fn file(&self, entry: &TreeEntry, mut answer: Response) -> Result<(), Unfinished> {
        self.send_head(entry).await?;
        let mut left = entry.size;
        while left > 0 {
            let chunk = answer.chunk().await;
            let broke_off = |_| Unfinished::Failed("the connection broke off".into());
            let Some(mut chunk) = chunk.map_err(broke_off)? else { break };
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= chunk.len() as u64;
            self.send(chunk).await?;
        }
        const ZEROS: &[u8] = &[0; 64 * 1024];
        while left > 0 {
            let len = left.min(ZEROS.len() as u64);
            left -= len;
            self.send(Bytes::from_static(&ZEROS[..usize::try_from(len).unwrap_or(0)])).await?;
        }
        let mut rest = Vec::new();
        fill_up(&mut rest, entry.size).expect("memory takes it");
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
