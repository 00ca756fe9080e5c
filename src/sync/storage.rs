//! The object storage: where versions and contents are, and how they are read and written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart,
};

use super::SyncError;
use super::cache::{LoadedManifest, ManifestCache, SharedManifest};
use super::manifest::{
    ContentChecksum, MANIFEST_LEN_MAX, Manifest, ManifestError, ManifestHead, ManifestTooLong,
};
use crate::sandbox::WorkError;
use crate::types::{AccountName, SandboxId, SyncVersion, Timestamp};

/// The name of a version's manifest.
const MANIFEST_NAME: &str = ".sandbox-state";

/// The directory of contents.
const CONTENTS: &str = "objects";

/// The directory of marks: of contents that a reader found missing or damaged.
const MARKS: &str = "damaged";

/// What a mark has.
const MARK: &[u8] = b"missing or damaged: the next push does not rely on it\n";

/// How many bytes of a manifest are read for its head.
const HEAD_LEN: u64 = 4096;

/// A manifest as long as this is decoded on a thread of its own, in bytes.
const LONG_DECODE_LEN: usize = 256 * 1024;

/// Longest content that is written in one request, in bytes.
pub const SINGLE_PUT_LEN_MAX: u64 = 16 * 1024 * 1024;

/// Length of a part of a longer one, in bytes.
const PART_LEN: usize = 16 * 1024 * 1024;

/// Parts of one content that are under way at once.
const PARTS_AT_ONCE: usize = 2;

/// The part of an object storage that belongs to one sandbox.
#[derive(Clone)]
pub struct SandboxStorage {
    store: Arc<dyn ObjectStore>,
    root: Path,
    manifests: ManifestCache,
}

/// What there is of a sandbox.
#[derive(Debug, Default)]
pub struct FoundVersions {
    /// The versions that may be whole, newest first: a broken push can leave a directory without a
    /// manifest.
    pub versions: Vec<SyncVersion>,
    /// Whether a content was found missing or damaged.
    pub has_marks: bool,
}

/// What a push begins with.
#[derive(Default)]
pub struct NewestVersion {
    /// The newest version with a usable manifest.
    pub manifest: Option<SharedManifest>,
    /// The newest name that is taken.
    pub taken: Option<SyncVersion>,
    /// Whether a content was found missing or damaged.
    pub has_marks: bool,
}

/// A content as the storage lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedContent {
    /// Its length, in bytes.
    pub size: u64,
    /// When it was written last.
    pub written_at: Timestamp,
}

impl SandboxStorage {
    /// The part below `prefix` for a sandbox of an account.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &Path,
        account: &AccountName,
        sandbox: &SandboxId,
        manifests: ManifestCache,
    ) -> Self {
        // `join` encodes what would be a separator.
        let root = prefix.clone().join(account.as_str()).join(sandbox.as_str());
        Self { store, root, manifests }
    }

    fn manifest_path(&self, version: SyncVersion) -> Path {
        self.root.clone().join(version.to_string()).join(MANIFEST_NAME)
    }

    fn content_path(&self, checksum: ContentChecksum) -> Path {
        let name = checksum.to_string();
        let (first, rest) = name.split_at(2);
        self.root.clone().join(CONTENTS).join(first).join(rest)
    }

    fn mark_path(&self, checksum: ContentChecksum) -> Path {
        self.root.clone().join(MARKS).join(checksum.to_string())
    }

    /// What there is of the sandbox, in one request.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn versions(&self) -> Result<FoundVersions, SyncError> {
        let listed = self.store.list_with_delimiter(Some(&self.root)).await?;
        let mut found = FoundVersions::default();
        for name in listed.common_prefixes.iter().filter_map(|path| path.filename()) {
            found.has_marks |= name == MARKS;
            found.versions.extend(SyncVersion::parse(name));
        }
        found.versions.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Reads a version's manifest.
    ///
    /// # Errors
    /// [`SyncError::NoSuchVersion`], [`SyncError::Damaged`] or [`SyncError::Storage`].
    pub async fn manifest(&self, version: SyncVersion) -> Result<SharedManifest, SyncError> {
        let path = self.manifest_path(version);
        self.manifests.get(&path, self.load(version, &path)).await
    }

    async fn load(&self, version: SyncVersion, path: &Path) -> Result<LoadedManifest, SyncError> {
        let damaged = |error: ManifestError| SyncError::Damaged { version, error };
        let got = match self.store.get(path).await {
            Ok(got) if got.meta.size <= MANIFEST_LEN_MAX => got,
            Ok(got) => return Err(damaged(ManifestError::TooLong(got.meta.size))),
            Err(object_store::Error::NotFound { .. }) => {
                return Err(SyncError::NoSuchVersion(version));
            }
            Err(error) => return Err(error.into()),
        };
        let room = self.manifests.room(got.meta.size).await;
        let bytes = got.bytes().await?;
        let decoded = if bytes.len() < LONG_DECODE_LEN {
            Manifest::decode(&bytes)
        } else {
            let decoding = tokio::task::spawn_blocking(move || Manifest::decode(&bytes));
            decoding.await.map_err(|_| SyncError::Ended)?
        };
        let manifest = decoded.map_err(damaged)?;
        if manifest.version != version {
            let why = format!("it is that of {}", manifest.version);
            return Err(damaged(ManifestError::Damaged(why)));
        }
        Ok(room.fill(manifest))
    }

    /// What a list shows of a version, from the first bytes of its manifest.
    ///
    /// # Errors
    /// As [`SandboxStorage::manifest`].
    pub async fn head(&self, version: SyncVersion) -> Result<ManifestHead, SyncError> {
        match self.store.get_range(&self.manifest_path(version), 0..HEAD_LEN).await {
            Ok(bytes) => match ManifestHead::decode(&bytes) {
                Some(head) if head.version == version => Ok(head),
                Some(_) | None => Ok(ManifestHead::from(&**self.manifest(version).await?)),
            },
            Err(object_store::Error::NotFound { .. }) => Err(SyncError::NoSuchVersion(version)),
            // An empty object has no range.
            Err(_) => Ok(ManifestHead::from(&**self.manifest(version).await?)),
        }
    }

    /// The newest version with a usable manifest, and the newest name that is taken.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn newest(&self) -> Result<NewestVersion, SyncError> {
        let FoundVersions { versions, has_marks } = self.versions().await?;
        let taken = versions.first().copied();
        for version in versions {
            match self.manifest(version).await {
                Ok(manifest) => {
                    return Ok(NewestVersion { manifest: Some(manifest), taken, has_marks });
                }
                Err(SyncError::NoSuchVersion(_)) => {}
                Err(error @ SyncError::Damaged { .. }) => {
                    tracing::warn!(%version, %error, "a version of a workspace is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(NewestVersion { manifest: None, taken, has_marks })
    }

    /// Writes a version's manifest; the version is there from then on.
    ///
    /// # Errors
    /// [`SyncError::Storage`]; [`WorkError::Refused`] for more entries than a manifest takes.
    pub async fn put_manifest(&self, manifest: Manifest) -> Result<(), SyncError> {
        let bytes = Bytes::from(manifest.encode().map_err(|ManifestTooLong(entries)| {
            SyncError::Work(WorkError::Refused(format!(
                "the workspace has {entries} entries, and their list is longer than {} MiB; name \
                 what need not be kept in .issueboxignore",
                MANIFEST_LEN_MAX / (1024 * 1024)
            )))
        })?);
        let (path, len) = (self.manifest_path(manifest.version), bytes.len() as u64);
        self.store.put(&path, PutPayload::from(bytes)).await?;
        self.manifests.keep(path, manifest, len);
        Ok(())
    }

    /// A content, if it is there.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn find(
        &self,
        checksum: ContentChecksum,
    ) -> Result<Option<ListedContent>, SyncError> {
        match self.store.head(&self.content_path(checksum)).await {
            Ok(meta) => Ok(Some(ListedContent::of(&meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Every content that is there.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn contents(&self) -> Result<HashMap<ContentChecksum, ListedContent>, SyncError> {
        let directory = self.root.clone().join(CONTENTS);
        let (mut listed, mut found) = (self.store.list(Some(&directory)), HashMap::new());
        while let Some(meta) = listed.try_next().await? {
            let parts = meta.location.prefix_match(&directory).into_iter().flatten();
            let name: String = parts.map(|part| part.as_ref().to_owned()).collect();
            if let Some(checksum) = ContentChecksum::parse(&name) {
                found.insert(checksum, ListedContent::of(&meta));
            }
        }
        Ok(found)
    }

    /// Removes a content, if it is there.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn delete_content(&self, checksum: ContentChecksum) -> Result<(), SyncError> {
        self.delete(&self.content_path(checksum)).await
    }

    /// Removes a version, if it is there. Its contents stay.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn delete_version(&self, version: SyncVersion) -> Result<(), SyncError> {
        let path = self.manifest_path(version);
        self.manifests.forget(&path);
        self.delete(&path).await
    }

    async fn delete(&self, path: &Path) -> Result<(), SyncError> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks a content as missing or damaged, so that the next push does not rely on it.
    pub async fn mark(&self, checksum: ContentChecksum) {
        let payload = PutPayload::from_static(MARK);
        if let Err(error) = self.store.put(&self.mark_path(checksum), payload).await {
            tracing::warn!(
                content = %checksum,
                %error,
                "cannot mark a missing or damaged content, so a push may still rely on it"
            );
        }
    }

    /// The contents that are marked.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn marks(&self) -> Result<HashSet<ContentChecksum>, SyncError> {
        let directory = self.root.clone().join(MARKS);
        let listed: Vec<_> = self.store.list(Some(&directory)).try_collect().await?;
        let names = listed.iter().filter_map(|meta| meta.location.filename());
        Ok(names.filter_map(ContentChecksum::parse).collect())
    }

    /// Takes a mark away.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn unmark(&self, checksum: ContentChecksum) -> Result<(), SyncError> {
        self.delete(&self.mark_path(checksum)).await
    }

    /// Writes a content in one request.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn put(&self, checksum: ContentChecksum, content: Bytes) -> Result<(), SyncError> {
        self.store.put(&self.content_path(checksum), PutPayload::from(content)).await?;
        Ok(())
    }

    /// Begins to write a long content in parts.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn begin(&self, checksum: ContentChecksum) -> Result<PartsUpload, SyncError> {
        let upload = self.store.put_multipart(&self.content_path(checksum)).await?;
        Ok(PartsUpload(WriteMultipart::new_with_chunk_size(upload, PART_LEN)))
    }

    /// Reads a content with this length, or some of its bytes. One that is missing or has another
    /// length is marked.
    ///
    /// # Errors
    /// [`SyncError::ContentMissing`], [`SyncError::ContentDamaged`] or [`SyncError::Storage`].
    pub async fn content(
        &self,
        checksum: ContentChecksum,
        size: u64,
        range: Option<std::ops::Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes, SyncError>>, SyncError> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        match self.store.get_opts(&self.content_path(checksum), options).await {
            Ok(got) if got.meta.size == size => {
                Ok(got.into_stream().map_err(SyncError::from).boxed())
            }
            Ok(_) => Err(self.damaged(checksum).await),
            Err(object_store::Error::NotFound { .. }) => {
                self.mark(checksum).await;
                Err(SyncError::ContentMissing(checksum))
            }
            // A shorter one may not have the range.
            Err(error) => match self.find(checksum).await {
                Ok(Some(found)) if found.size != size => Err(self.damaged(checksum).await),
                Ok(_) | Err(_) => Err(error.into()),
            },
        }
    }

    /// Marks a content that is not the one that it was stored as.
    pub async fn damaged(&self, checksum: ContentChecksum) -> SyncError {
        self.mark(checksum).await;
        SyncError::ContentDamaged(checksum)
    }
}

impl ListedContent {
    fn of(meta: &ObjectMeta) -> Self {
        let written_at = Timestamp::from_unix_ms(meta.last_modified.timestamp_millis());
        Self { size: meta.size, written_at }
    }
}

/// A content that is being written in parts. Nothing of it is there before [`PartsUpload::finish`].
pub struct PartsUpload(WriteMultipart);

impl PartsUpload {
    /// Adds bytes, and waits while enough parts are under way.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn add(&mut self, bytes: Bytes) -> Result<(), SyncError> {
        self.0.wait_for_capacity(PARTS_AT_ONCE).await?;
        self.0.put(bytes);
        Ok(())
    }

    /// Ends it: the content is there.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn finish(self) -> Result<(), SyncError> {
        self.0.finish().await?;
        Ok(())
    }

    /// Gives it up.
    pub async fn abandon(self) {
        if let Err(error) = self.0.abort().await {
            tracing::debug!(%error, "parts of an upload that was given up may be left");
        }
    }
}
