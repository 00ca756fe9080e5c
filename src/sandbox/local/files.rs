//! The workspace's files, on the server's side.
//!
//! PID 1 opens a file; the server reads and writes it, and trusts nothing about it. The file must
//! be regular and on the workspace's device, so that a hostile PID 1 can't make the server block
//! on a FIFO or write with its own rights into the likes of `/proc`. The kernel's limit on a
//! file's length holds only for the sandbox's processes, so the server checks it too. It closes a
//! file when the sandbox ends, because an open file keeps the workspace mounted.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

use super::frame::{Answer, FileWork, Request};
use super::link::{Call, Link, broken, ends, pipe};
use crate::sandbox::confined::transfer::{CHUNKS_LEN, pass_on, receive};
use crate::sandbox::confined::upload;
use crate::sandbox::walk::receive as receive_walk;
use crate::sandbox::{
    ChunkReceiver, FileContent, FileListing, FilePart, WalkedTree, WorkError, WorkspacePath,
    Written,
};

/// The timeout of listing or deleting; the sandbox may go on with it.
pub(super) const TREE_WAIT: Duration = Duration::from_secs(120);

/// Lists a path. See [`Workspace::list_files`](crate::sandbox::Workspace::list_files).
///
/// # Errors
/// [`WorkError`].
pub async fn list(
    link: &Arc<Link>,
    path: &WorkspacePath,
    depth: u32,
) -> Result<FileListing, WorkError> {
    let (reader, writer) = pipe()?;
    let order = |id| Request::List { id, path: path.as_bytes().to_vec(), depth };
    let mut call = link.call(order, &ends([&writer])).await?;
    drop(writer);
    let reader = Receiver::from_owned_fd(reader).map_err(broken)?;
    let received = tokio::time::timeout(TREE_WAIT, receive(reader, path)).await;
    let mut listing = received.map_err(|_| broken("the listing took too long"))??;
    match call.answer().await {
        Ok((Answer::Done { flag, .. }, _)) => {
            listing.truncated |= flag;
            Ok(listing)
        }
        // What is too long is not read to its end, so the worker cannot write it.
        Err(_) if listing.truncated => Ok(listing),
        Err(error) => Err(error),
        Ok(_) => Err(broken("the sandbox gave an answer that makes no sense")),
    }
}

/// Walks through the workspace. See [`Workspace::walk`](crate::sandbox::Workspace::walk).
///
/// # Errors
/// [`WorkError`].
pub async fn walk(link: &Arc<Link>) -> Result<WalkedTree, WorkError> {
    let (reader, writer) = pipe()?;
    let work = FileWork::Walk { path: Vec::new() };
    let mut call = link.call(|id| Request::Files { id, work }, &ends([&writer])).await?;
    drop(writer);
    let reader = Receiver::from_owned_fd(reader).map_err(broken)?;
    let received = tokio::time::timeout(TREE_WAIT, receive_walk(reader)).await;
    let tree = received.map_err(|_| broken("the walk took too long"))?;
    match call.answer().await {
        Ok((Answer::Done { .. }, _)) => tree,
        // The worker cannot write what is not read to its end.
        Err(error) => tree.and(Err(error)),
        Ok(_) => Err(broken("the sandbox gave an answer that makes no sense")),
    }
}

/// Opens a file for reading.
///
/// # Errors
/// [`WorkError`].
pub async fn read(
    link: &Arc<Link>,
    path: &WorkspacePath,
    part: FilePart,
) -> Result<FileContent, WorkError> {
    let order = |id| Request::Read { id, path: path.as_bytes().to_vec() };
    let mut call = link.call(order, &[]).await?;
    let (mut file, size) = opened(&mut call).await?;
    let range = part.of(size).ok_or(WorkError::OutOfRange { size })?;
    file.seek(SeekFrom::Start(range.start)).map_err(broken)?;
    let len = range.end - range.start;
    let (sender, chunks) = mpsc::channel(CHUNKS_LEN);
    tokio::spawn(async move {
        // No more than the reported size, however fast the file grows.
        let file = tokio::fs::File::from_std(file).take(len);
        let is_ending = tokio::select! {
            biased;
            () = call.ending() => true,
            () = pass_on(file, &sender) => false,
        };
        if is_ending {
            // The reader may have gone too.
            let _ = sender.send(Err(WorkError::NotRunning.to_string())).await;
        }
    });
    Ok(FileContent { size, range, chunks })
}

/// Writes a file as a whole.
///
/// # Errors
/// [`WorkError`].
pub async fn write(
    link: &Arc<Link>,
    path: &WorkspacePath,
    content: ChunkReceiver,
) -> Result<Written, WorkError> {
    let order = |id| Request::Write { id, path: path.as_bytes().to_vec() };
    let mut call = link.call(order, &[]).await?;
    let mut write = PendingWrite { link: Arc::clone(link), id: call.id, is_over: false };
    let (file, _) = opened(&mut call).await?;
    let file = tokio::fs::File::from_std(file);
    tokio::select! {
        biased;
        () = call.ending() => return Err(WorkError::NotRunning),
        filled = upload::fill(file, content, link.disk_mb_max) => filled?,
    }
    write.is_over = true;
    let order = |id| Request::Finish { id, write: write.id, keep: true };
    match link.call(order, &[]).await?.answer().await? {
        (Answer::Done { flag: true, .. }, _) => Ok(Written::Replaced),
        (Answer::Done { flag: false, .. }, _) => Ok(Written::Created),
        _ => Err(broken("the sandbox gave an answer that makes no sense")),
    }
}

/// A write under way; dropping it discards the new file.
struct PendingWrite {
    link: Arc<Link>,
    id: u64,
    is_over: bool,
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (link, write) = (Arc::clone(&self.link), self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let order = |id| Request::Finish { id, write, keep: false };
                if let Ok(mut call) = link.call(order, &[]).await {
                    // Without an opened file there is nothing to discard.
                    let _ = call.answer().await;
                }
            });
        }
    }
}

/// Deletes a file, link or directory.
///
/// # Errors
/// [`WorkError`].
pub async fn delete(link: &Arc<Link>, path: &WorkspacePath) -> Result<(), WorkError> {
    let order = |id| Request::Delete { id, path: path.as_bytes().to_vec() };
    match link.call(order, &[]).await?.answer_within(TREE_WAIT).await? {
        (Answer::Done { .. }, _) => Ok(()),
        _ => Err(broken("the sandbox gave an answer that makes no sense")),
    }
}

/// Makes a directory.
///
/// # Errors
/// [`WorkError`].
pub async fn make_directory(link: &Arc<Link>, path: &WorkspacePath) -> Result<Written, WorkError> {
    change(link, FileWork::MakeDirectory { path: path.as_bytes().to_vec() }).await
}

/// Moves a file, link or directory.
///
/// # Errors
/// [`WorkError`].
pub async fn relocate(
    link: &Arc<Link>,
    from: &WorkspacePath,
    to: &WorkspacePath,
    overwrite: bool,
) -> Result<Written, WorkError> {
    let (from, to) = (from.as_bytes().to_vec(), to.as_bytes().to_vec());
    change(link, FileWork::Move { from, to, overwrite }).await
}

/// Sets permission bits.
///
/// # Errors
/// [`WorkError`].
pub async fn set_mode(link: &Arc<Link>, path: &WorkspacePath, mode: u32) -> Result<(), WorkError> {
    let path = path.as_bytes().to_vec();
    change(link, FileWork::SetMode { path, mode }).await.map(drop)
}

/// Makes a quick change; returns whether something was there before.
async fn change(link: &Arc<Link>, work: FileWork) -> Result<Written, WorkError> {
    match link.call(|id| Request::Files { id, work }, &[]).await?.answer().await? {
        (Answer::Done { flag: true, .. }, _) => Ok(Written::Replaced),
        (Answer::Done { flag: false, .. }, _) => Ok(Written::Created),
        _ => Err(broken("the sandbox gave an answer that makes no sense")),
    }
}

/// The file that PID 1 has opened, and its size.
async fn opened(call: &mut Call) -> Result<(File, u64), WorkError> {
    let (Answer::Opened { .. }, Some(descriptor)) = call.answer().await? else {
        return Err(broken("the sandbox gave an answer that makes no sense"));
    };
    check_opened(descriptor, call.link.device)
}

fn check_opened(descriptor: OwnedFd, device: u64) -> Result<(File, u64), WorkError> {
    let file = File::from(descriptor);
    let metadata = file.metadata().map_err(broken)?;
    if !metadata.is_file() || metadata.dev() != device {
        return Err(broken("the sandbox opened something other than a file of its workspace"));
    }
    Ok((file, metadata.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_file_of_the_workspace_is_not_touched() {
        let open = |path: &str| File::open(path).expect("exists").into();
        let device = |path: &str| std::fs::metadata(path).expect("exists").dev();
        let own = std::env::current_exe().expect("known");
        let own = own.to_str().expect("text");
        assert!(check_opened(open(own), device(own)).is_ok());
        assert!(check_opened(open("/proc/self/status"), device(own)).is_err());
        assert!(check_opened(open("/dev/null"), device("/dev/null")).is_err());
        assert!(check_opened(open("/"), device("/")).is_err());
    }
}
