//! Files in a sandbox's workspace.

use async_trait::async_trait;

use super::{
    Capability, ChunkReceiver, FileContent, FileListing, FilePart, Target, WalkedTree, WorkError,
    WorkspacePath, Written,
};

/// Most entries that one [`Workspace::list_files`] returns; more sets `truncated`.
pub const LIST_ENTRIES_MAX: usize = 10_000;

/// Reads and changes files in the workspace of a running object.
///
/// # Guarantees
/// Every call checks that the external id carries the expected sandbox id. A path never leads out
/// of the workspace, whatever links are in it. A call may be dropped at any time; only
/// `unpack_directory` and `delete_file` of a directory can then be half done.
///
/// # Errors
/// Every call can fail with [`WorkError::NotRunning`] when the object is not up (or not the expected
/// one) and with [`WorkError::Broken`] when the provider fails.
#[async_trait]
pub trait Workspace: Send + Sync + 'static {
    /// Lists what is at `path` in the workspace: the entry itself for a file, its entries down to
    /// `depth` levels for a directory, at most [`LIST_ENTRIES_MAX`].
    ///
    /// # Errors
    /// [`WorkError`].
    async fn list_files(
        &self,
        target: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError>;

    /// Opens a regular file in the workspace for reading, whole or a part of it.
    ///
    /// # Errors
    /// [`WorkError`]; `OutOfRange` where nothing of the part is there.
    async fn read_file(
        &self,
        target: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError>;

    /// Writes a regular file in the workspace whole: it replaces what was there once `content`
    /// has ended; an `Err` chunk leaves the old file as it was. Missing directories are made.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn write_file(
        &self,
        target: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError>;

    /// Deletes a file, a link (not what it points at) or a directory with all that is in it.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn delete_file(&self, target: Target, path: WorkspacePath) -> Result<(), WorkError>;

    /// Makes a directory and what is missing above it. One that is there already is success.
    ///
    /// # Errors
    /// [`WorkError`]; `Exists` where something else is there.
    async fn make_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<Written, WorkError>;

    /// Moves a file, a link (not what it points at) or a directory within the workspace, in one
    /// step. Missing directories above the new place are made. What is at the new place gives way
    /// only if `overwrite` says so, and a directory only if it is empty.
    ///
    /// # Errors
    /// [`WorkError`]; `Exists` where something is there that does not give way.
    async fn move_file(
        &self,
        target: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError>;

    /// Sets the permission bits (`0o777` at most) of a file or directory; a link is followed
    /// within the workspace.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn set_file_mode(
        &self,
        target: Target,
        path: WorkspacePath,
        mode: u32,
    ) -> Result<(), WorkError>;

    /// A directory of the workspace as a tar archive: links as links, sockets, FIFOs and devices
    /// left out. An `Err` chunk breaks it off.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn pack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError>;

    /// Takes a tar archive into a directory of the workspace, which is made if it is missing.
    /// Files and links that are there give way; nothing outside of the directory is touched. It
    /// is not one step: an archive that is refused or breaks off leaves what came before.
    ///
    /// # Errors
    /// [`WorkError`]; `BadArchive` names the entry and what is wrong with it.
    async fn unpack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError>;

    /// Walks through the whole workspace in one call: what the system says of each entry, without
    /// contents. Belongs to [`Capability::Archives`].
    ///
    /// # Errors
    /// [`WorkError`]; `Refused` for more than
    /// [`WALK_ENTRIES_MAX`](super::WALK_ENTRIES_MAX) entries.
    async fn walk(&self, target: Target) -> Result<WalkedTree, WorkError> {
        let _ = target;
        Err(WorkError::Unsupported(Capability::Archives))
    }
}
