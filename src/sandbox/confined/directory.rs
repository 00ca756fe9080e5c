//! The files of a directory, reached in this process. For providers that keep workspaces as
//! directories of their own.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::files::Files;
use super::transfer::{CHUNK_LEN_MAX, CHUNKS_LEN, pass_on, receive};
use super::upload::fill;
use super::{RequestFailure, broken, pipe as new_pipe};
use crate::sandbox::walk::receive as receive_walk;
use crate::sandbox::{
    ChunkReceiver, FileContent, FileListing, FilePart, WalkedTree, WorkError, WorkspacePath,
    Written,
};

/// The longest file that can be written, in MiB.
const FILE_MB_MAX: u64 = 64 * 1024;

/// The files below one directory, which is made when it is missing.
pub struct DirectoryFiles(PathBuf);

impl DirectoryFiles {
    /// The files below `root`.
    pub fn below(root: PathBuf) -> Self {
        Self(root)
    }

    /// Does work that blocks, on a thread for that.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(Files) -> Result<T, RequestFailure> + Send + 'static,
    ) -> Result<T, WorkError> {
        let root = self.0.clone();
        let work = move || {
            fs::create_dir_all(&root).map_err(broken)?;
            Ok(work(Files::below(&root).map_err(broken)?)?)
        };
        tokio::task::spawn_blocking(work).await.map_err(broken)?
    }

    /// See [`list_files`](crate::sandbox::Workspace::list_files), as for all below.
    pub async fn list(&self, path: WorkspacePath, depth: u32) -> Result<FileListing, WorkError> {
        let (reader, writer) = new_pipe()?;
        let reader = pipe::Receiver::from_owned_fd(reader).map_err(broken)?;
        let asked = path.clone();
        let work = self.with(move |files| files.list(asked.as_bytes(), depth, &writer));
        let (received, is_cut) = tokio::join!(receive(reader, &path), work);
        let mut listing = received?;
        match is_cut {
            Ok(is_cut) => listing.truncated |= is_cut,
            // What is too long is not read to its end, so the work cannot write it.
            Err(_) if listing.truncated => {}
            Err(error) => return Err(error),
        }
        Ok(listing)
    }

    pub async fn walk(&self) -> Result<WalkedTree, WorkError> {
        let (reader, writer) = new_pipe()?;
        let reader = pipe::Receiver::from_owned_fd(reader).map_err(broken)?;
        let work = self.with(move |files| files.walk(b"", Some(writer)));
        let (received, walked) = tokio::join!(receive_walk(reader), work);
        let tree = received?;
        walked.map(|_| tree)
    }

    pub async fn read(
        &self,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        let mut file = self.with(move |files| Ok(File::from(files.read(path.as_bytes())?))).await?;
        let size = file.metadata().map_err(broken)?.len();
        let range = part.of(size).ok_or(WorkError::OutOfRange { size })?;
        file.seek(SeekFrom::Start(range.start)).map_err(broken)?;
        let len = range.end - range.start;
        let (sender, chunks) = mpsc::channel(CHUNKS_LEN);
        tokio::spawn(async move {
            pass_on(tokio::fs::File::from_std(file).take(len), &sender).await;
        });
        Ok(FileContent { size, range, chunks })
    }

    pub async fn write(
        &self,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        let opened = self.with(move |mut files| {
            let file = File::from(files.write(0, path.as_bytes())?);
            Ok((files, file))
        });
        // Dropped before its end, the new file goes.
        let (mut files, file) = opened.await?;
        fill(tokio::fs::File::from_std(file), content, FILE_MB_MAX).await?;
        let placed = self.with(move |_| files.finish(0, true)).await?;
        Ok(written(placed))
    }

    pub async fn delete(&self, path: WorkspacePath) -> Result<(), WorkError> {
        self.with(move |files| files.delete(path.as_bytes())).await
    }

    pub async fn make_directory(&self, path: WorkspacePath) -> Result<Written, WorkError> {
        self.with(move |files| files.make_directory(path.as_bytes())).await.map(written)
    }

    pub async fn relocate(
        &self,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        let work = move |files: Files| files.relocate(from.as_bytes(), to.as_bytes(), overwrite);
        self.with(work).await.map(written)
    }

    pub async fn set_mode(&self, path: WorkspacePath, mode: u32) -> Result<(), WorkError> {
        self.with(move |files| files.set_mode(path.as_bytes(), mode)).await.map(drop)
    }

    pub async fn pack(&self, path: WorkspacePath) -> Result<ChunkReceiver, WorkError> {
        let (reader, writer) = new_pipe()?;
        let mut reader = pipe::Receiver::from_owned_fd(reader).map_err(broken)?;
        let this = Self(self.0.clone());
        let mut work = Box::pin(async move {
            this.with(move |files| files.pack(path.as_bytes(), Some(writer))).await
        });
        // Work that fails before its first bytes fails as a whole.
        let mut first = BytesMut::with_capacity(CHUNK_LEN_MAX);
        let mut is_packed = tokio::select! {
            biased;
            read = reader.read_buf(&mut first) => {
                read.map_err(broken)?;
                false
            }
            packed = &mut work => packed.map(note_left_out)?,
        };
        if first.is_empty() && !is_packed {
            is_packed = work.as_mut().await.map(note_left_out)?;
        }
        let (sender, chunks) = mpsc::channel(CHUNKS_LEN);
        tokio::spawn(async move {
            let carry = async {
                if !first.is_empty() && sender.send(Ok(first.freeze())).await.is_err() {
                    return;
                }
                pass_on(reader, &sender).await;
            };
            let was_packed = is_packed;
            let work = async { if is_packed { Ok(true) } else { work.await } };
            // When the receiver is dropped, `carry` closes the reading end, and the work ends.
            let ((), packed) = tokio::join!(carry, work);
            match packed {
                Ok(is_left_out) => {
                    note_left_out(is_left_out && !was_packed);
                }
                // The receiver may be gone.
                Err(error) => drop(sender.send(Err(error.to_string())).await),
            }
        });
        Ok(chunks)
    }

    pub async fn unpack(
        &self,
        path: WorkspacePath,
        mut archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        let (reader, writer): (OwnedFd, OwnedFd) = new_pipe()?;
        let mut writer = pipe::Sender::from_owned_fd(writer).map_err(broken)?;
        let work = self.with(move |files| files.unpack(path.as_bytes(), Some(reader)));
        let feed = async move {
            while let Some(chunk) = archive.recv().await {
                let chunk = chunk.map_err(|why| broken(format!("the archive broke off: {why}")))?;
                // Nothing reads any more: the work's result says why.
                if writer.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        let (fed, unpacked) = tokio::join!(feed, work);
        fed.and(unpacked.map(drop))
    }
}

/// Logs that an archive lacks something; true, as it is packed.
pub fn note_left_out(is_left_out: bool) -> bool {
    if is_left_out {
        tracing::warn!(
            "an archive of a workspace lacks what could not be read; its last file names that"
        );
    }
    true
}

const fn written(was_there: bool) -> Written {
    if was_there { Written::Replaced } else { Written::Created }
}
