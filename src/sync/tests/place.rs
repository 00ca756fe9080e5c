//! A directory of a test as a workspace.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;

use crate::sandbox::confined::DirectoryFiles;
use crate::sandbox::{
    ChunkReceiver, FileContent, FileListing, FilePart, Target, WalkedTree, WorkError, Workspace,
    WorkspacePath, Written,
};
use crate::sync::SyncPlace;
use crate::types::{ExternalId, SandboxId};

/// A directory that goes with its test.
pub struct TestPlace {
    dir: TempDir,
    reads: Arc<AtomicUsize>,
    /// How reading a file fails, by its name.
    failures: Arc<Mutex<HashMap<Vec<u8>, WorkError>>>,
}

impl TestPlace {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir, reads: Arc::default(), failures: Arc::default() }
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Reading this file fails from now on.
    pub fn fail(&self, path: &str, error: WorkError) {
        self.failures.lock().expect("not poisoned").insert(path.into(), error);
    }

    /// How many files were read so far.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    pub fn place(&self) -> SyncPlace {
        let files = DirectoryFiles::below(self.dir.path().to_owned());
        let (reads, failures) = (Arc::clone(&self.reads), Arc::clone(&self.failures));
        let workspace = Arc::new(DirectoryWorkspace { files, reads, failures });
        let (external_id, expected) = (ExternalId::trusted("x"), SandboxId::trusted("sb-1"));
        SyncPlace { workspace, target: Target { external_id, expected } }
    }
}

/// Everything below a directory, by path: mode, and content or target.
pub fn shown(root: &Path) -> BTreeMap<Vec<u8>, (u32, Vec<u8>)> {
    let (mut all, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("readable") {
            let path = entry.expect("an entry").path();
            let facts = path.symlink_metadata().expect("there");
            let mode = facts.permissions().mode();
            let content = if facts.is_symlink() {
                fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()
            } else if facts.is_dir() {
                Vec::new()
            } else {
                fs::read(&path).expect("readable")
            };
            let relative = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            all.insert(relative, (mode, content));
            if facts.is_dir() {
                open.push(path);
            }
        }
    }
    all
}

struct DirectoryWorkspace {
    files: DirectoryFiles,
    reads: Arc<AtomicUsize>,
    failures: Arc<Mutex<HashMap<Vec<u8>, WorkError>>>,
}

#[async_trait]
impl Workspace for DirectoryWorkspace {
    async fn list_files(
        &self,
        _: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError> {
        self.files.list(path, depth).await
    }

    async fn read_file(
        &self,
        _: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.failures.lock().expect("not poisoned").get(path.as_bytes()) {
            return Err(error.clone());
        }
        self.files.read(path, part).await
    }

    async fn write_file(
        &self,
        _: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        self.files.write(path, content).await
    }

    async fn delete_file(&self, _: Target, path: WorkspacePath) -> Result<(), WorkError> {
        self.files.delete(path).await
    }

    async fn make_directory(&self, _: Target, path: WorkspacePath) -> Result<Written, WorkError> {
        self.files.make_directory(path).await
    }

    async fn move_file(
        &self,
        _: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        self.files.relocate(from, to, overwrite).await
    }

    async fn set_file_mode(
        &self,
        _: Target,
        path: WorkspacePath,
        mode: u32,
    ) -> Result<(), WorkError> {
        self.files.set_mode(path, mode).await
    }

    async fn pack_directory(
        &self,
        _: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        self.files.pack(path).await
    }

    async fn unpack_directory(
        &self,
        _: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        self.files.unpack(path, archive).await
    }

    async fn walk(&self, _: Target) -> Result<WalkedTree, WorkError> {
        self.files.walk().await
    }
}
