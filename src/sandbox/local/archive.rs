//! Whole directories of a workspace, on the server's side. The sandbox writes and reads the
//! archive; the server only copies its bytes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;

use super::files::TREE_WAIT;
use super::frame::{Answer, FileWork, Request};
use super::link::{AnswerWithFd, Call, Link, broken, ends, pipe};
use crate::sandbox::confined::note_left_out;
use crate::sandbox::confined::transfer::{CHUNK_LEN_MAX, CHUNKS_LEN};
use crate::sandbox::{ChunkReceiver, WorkError, WorkspacePath};

/// Reads a directory as an archive.
///
/// # Errors
/// [`WorkError`].
pub async fn pack(link: &Arc<Link>, path: &WorkspacePath) -> Result<ChunkReceiver, WorkError> {
    let (reader, writer) = pipe()?;
    let work = FileWork::Pack { path: path.as_bytes().to_vec() };
    let mut call = link.call(|id| Request::Files { id, work }, &ends([&writer])).await?;
    drop(writer);
    let mut reader = Receiver::from_owned_fd(reader).map_err(broken)?;
    // An error within the first 64 KiB is returned before anything is sent.
    let first = piece(&mut reader).await?;
    if first.is_empty() {
        done(&mut call).await.map(note_left_out)?;
    }
    let (sender, chunks) = mpsc::channel(CHUNKS_LEN);
    tokio::spawn(async move {
        let mut next = Ok::<_, WorkError>(first);
        loop {
            let result = match next {
                // The pipe also ends if the sandbox aborted the archive.
                Ok(bytes) if bytes.is_empty() => match done(&mut call).await {
                    Ok(is_left_out) => {
                        note_left_out(is_left_out);
                        return;
                    }
                    Err(error) => Err(error.to_string()),
                },
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(error.to_string()),
            };
            let is_last = result.is_err();
            if sender.send(result).await.is_err() || is_last {
                return;
            }
            next = tokio::select! {
                biased;
                () = sender.closed() => return,
                next = piece(&mut reader) => next,
            };
        }
    });
    Ok(chunks)
}

/// The next bytes of a pipe; empty at its end. Its writer is a process of the sandbox, which any
/// other process there may have stopped.
async fn piece(pipe: &mut Receiver) -> Result<Bytes, WorkError> {
    let mut piece = BytesMut::with_capacity(CHUNK_LEN_MAX);
    let read = tokio::time::timeout(TREE_WAIT, pipe.read_buf(&mut piece)).await;
    read.map_err(|_| broken("the sandbox stopped sending the archive"))?.map_err(broken)?;
    Ok(piece.freeze())
}

/// Writes an archive into a directory.
///
/// # Errors
/// [`WorkError`].
pub async fn unpack(
    link: &Arc<Link>,
    path: &WorkspacePath,
    mut archive: ChunkReceiver,
) -> Result<(), WorkError> {
    let (reader, writer) = pipe()?;
    let work = FileWork::Unpack { path: path.as_bytes().to_vec() };
    let mut call = link.call(|id| Request::Files { id, work }, &ends([&reader])).await?;
    drop(reader);
    let mut writer = Sender::from_owned_fd(writer).map_err(broken)?;
    loop {
        let chunk = tokio::select! {
            biased;
            // It stops reading, whatever still arrives.
            answer = call.answer_at_last() => return is_done(answer).map(drop),
            chunk = archive.recv() => chunk,
        };
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|why| broken(format!("the archive was interrupted: {why}")))?;
        let written = tokio::time::timeout(TREE_WAIT, writer.write_all(&chunk)).await;
        // Its answer says why.
        if written.map_err(|_| broken("the sandbox stopped reading the archive"))?.is_err() {
            break;
        }
    }
    drop((writer, archive));
    done(&mut call).await.map(drop)
}

/// The flag of the last answer.
async fn done(call: &mut Call) -> Result<bool, WorkError> {
    is_done(call.answer_within(TREE_WAIT).await)
}

fn is_done(answer: Result<AnswerWithFd, WorkError>) -> Result<bool, WorkError> {
    match answer? {
        (Answer::Done { flag, .. }, _) => Ok(flag),
        _ => Err(broken("the sandbox gave an answer that makes no sense")),
    }
}
