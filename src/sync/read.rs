//! Reads the files of a workspace for a push: hashes them, and stores what is not there yet.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::SyncError;
use super::manifest::{ContentChecksum, EntryContent, ManifestEntry};
use super::retention::GRACE;
use super::storage::{ListedContent, SINGLE_PUT_LEN_MAX, SandboxStorage};
use crate::sandbox::{
    FileContent, FilePart, Target, TreeEntry, WorkError, Workspace, WorkspacePath,
};
use crate::types::Timestamp;

/// Contents that are in memory at once, together, in KiB.
const MEMORY_KB_MAX: usize = 64 * 1024;

/// How often a long file is read again that changed between hashing and storing it.
const TRIES: usize = 3;

/// A workspace, and how it is reached.
#[derive(Clone)]
pub struct SyncPlace {
    /// The sandbox's files.
    pub workspace: Arc<dyn Workspace>,
    /// The object at the provider.
    pub target: Target,
}

/// Stores the files of one push.
pub struct FileUploads<'a> {
    place: &'a SyncPlace,
    storage: &'a SandboxStorage,
    /// The contents that are stored, or being stored by this push.
    stored: Mutex<HashSet<ContentChecksum>>,
    /// The contents that the storage may have, but not as they should be.
    lost: &'a HashSet<ContentChecksum>,
    began: Timestamp,
    memory: Semaphore,
}

/// What became of a file.
pub enum ReadFile {
    /// It is stored; so many bytes of it were not there before.
    Stored(ManifestEntry, Option<u64>),
    /// It cannot be read: not now, and not by a later try.
    LeftOut(Vec<u8>),
    /// It is gone.
    Gone,
}

/// A content's checksum and size, and how much of it was not there before.
type StoredContent = (ContentChecksum, u64, Option<u64>);

impl<'a> FileUploads<'a> {
    /// Of a push that began then, with the contents that the last version has and those that are lost.
    pub fn new(
        place: &'a SyncPlace,
        storage: &'a SandboxStorage,
        stored: HashSet<ContentChecksum>,
        lost: &'a HashSet<ContentChecksum>,
        began: Timestamp,
    ) -> Self {
        let memory = Semaphore::new(MEMORY_KB_MAX);
        Self { place, storage, stored: Mutex::new(stored), lost, began, memory }
    }

    /// Reads a file and stores its content, unless that is there.
    ///
    /// # Errors
    /// [`SyncError`]: the push ends.
    pub async fn file(&self, entry: TreeEntry) -> Result<ReadFile, SyncError> {
        let short =
            if entry.size <= SINGLE_PUT_LEN_MAX { self.short(&entry).await } else { Ok(None) };
        let stored = match short {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) => self.long(&entry).await,
            Err(error) => Err(error),
        };
        match stored {
            Ok((sha256, size, uploaded)) => {
                let TreeEntry { path, mode, modified_ns, .. } = entry;
                let content = EntryContent::File { sha256, size };
                let entry = ManifestEntry { path, mode: mode & 0o777, modified_ns, content };
                Ok(ReadFile::Stored(entry, uploaded))
            }
            Err(SyncError::Work(WorkError::NoSuchFile)) => Ok(ReadFile::Gone),
            Err(SyncError::Work(
                WorkError::Refused(_) | WorkError::WrongKind(_) | WorkError::PathNotAllowed(_),
            )) => Ok(ReadFile::LeftOut(entry.path)),
            Err(error) => Err(error),
        }
    }

    /// Marks a content as stored; false if it was already.
    fn claim(&self, checksum: ContentChecksum) -> bool {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).insert(checksum)
    }

    /// Whether a content is stored, or being stored by this push.
    pub fn is_stored(&self, checksum: &ContentChecksum) -> bool {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).contains(checksum)
    }

    /// Whether the storage has a content that no version need name, such as one of a push that was
    /// killed. An old one may be collected before this push ends.
    async fn is_left_over(&self, checksum: ContentChecksum, size: u64) -> Result<bool, SyncError> {
        if self.lost.contains(&checksum) {
            return Ok(false);
        }
        let is_usable = |found: ListedContent| {
            found.size == size && found.written_at > self.began.before(GRACE / 2)
        };
        Ok(self.storage.find(checksum).await?.is_some_and(is_usable))
    }

    /// `None` if the file is long meanwhile.
    async fn short(&self, entry: &TreeEntry) -> Result<Option<StoredContent>, SyncError> {
        let kb = u32::try_from(entry.size / 1024 + 1).expect("a short file");
        let _memory = self.memory.acquire_many(kb).await.expect("it is never closed");
        let mut opened = open(self.place, &entry.path).await?;
        if opened.size > SINGLE_PUT_LEN_MAX {
            return Ok(None);
        }
        let mut content = BytesMut::new();
        while let Some(chunk) = next(&mut opened).await? {
            content.extend_from_slice(&chunk);
        }
        let content = content.freeze();
        let (checksum, size) = (ContentChecksum::of(&content), content.len() as u64);
        // An empty content needs no object.
        if size == 0 || !self.claim(checksum) {
            return Ok(Some((checksum, size, None)));
        }
        self.storage.put(checksum, content).await?;
        Ok(Some((checksum, size, Some(size))))
    }

    /// A long file is read twice, since its object is named by its checksum.
    async fn long(&self, entry: &TreeEntry) -> Result<StoredContent, SyncError> {
        let kb = u32::try_from(MEMORY_KB_MAX / 2).expect("some MiB");
        let _memory = self.memory.acquire_many(kb).await.expect("it is never closed");
        for _ in 0..TRIES {
            let (mut hash, mut size) = (Sha256::new(), 0);
            let mut opened = open(self.place, &entry.path).await?;
            while let Some(chunk) = next(&mut opened).await? {
                hash.update(&chunk);
                size += chunk.len() as u64;
            }
            let checksum = ContentChecksum::finished(hash);
            if self.is_stored(&checksum) || self.is_left_over(checksum, size).await? {
                return Ok((checksum, size, None));
            }
            // Two equal files may both be stored: that does no harm, and none counts before it is.
            if self.upload(&entry.path, checksum).await? {
                self.claim(checksum);
                return Ok((checksum, size, Some(size)));
            }
        }
        Err(SyncError::Work(WorkError::Refused("the file changes while it is read".into())))
    }

    /// Stores a file in parts; false if it does not have this content any more.
    async fn upload(&self, path: &[u8], checksum: ContentChecksum) -> Result<bool, SyncError> {
        let mut opened = open(self.place, path).await?;
        let (mut upload, mut hash) = (self.storage.begin(checksum).await?, Sha256::new());
        let result = async {
            while let Some(chunk) = next(&mut opened).await? {
                hash.update(&chunk);
                upload.add(chunk).await?;
            }
            Ok::<_, SyncError>(ContentChecksum::finished(hash) == checksum)
        };
        match result.await {
            Ok(true) => upload.finish().await.map(|()| true),
            result => {
                upload.abandon().await;
                result
            }
        }
    }
}

/// Opens a file of the workspace.
pub async fn open(place: &SyncPlace, path: &[u8]) -> Result<FileContent, SyncError> {
    let path = WorkspacePath::parse(path)
        .map_err(|why| SyncError::Work(WorkError::PathNotAllowed(why)))?;
    Ok(place.workspace.read_file(place.target.clone(), path, FilePart::Whole).await?)
}

/// The next bytes of a file.
pub async fn next(opened: &mut FileContent) -> Result<Option<Bytes>, SyncError> {
    match opened.chunks.recv().await {
        None => Ok(None),
        Some(Ok(chunk)) => Ok(Some(chunk)),
        Some(Err(why)) => Err(SyncError::Work(WorkError::Broken(why))),
    }
}

/// The checksum of a file of the workspace; `None` if it cannot be read.
///
/// # Errors
/// [`SyncError`]: the sync ends.
pub async fn checksum(
    place: &SyncPlace,
    path: &[u8],
) -> Result<Option<ContentChecksum>, SyncError> {
    let mut opened = match open(place, path).await {
        Ok(opened) => opened,
        Err(SyncError::Work(
            WorkError::NoSuchFile
            | WorkError::Refused(_)
            | WorkError::WrongKind(_)
            | WorkError::PathNotAllowed(_),
        )) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut hash = Sha256::new();
    while let Some(chunk) = next(&mut opened).await? {
        hash.update(&chunk);
    }
    Ok(Some(ContentChecksum::finished(hash)))
}
