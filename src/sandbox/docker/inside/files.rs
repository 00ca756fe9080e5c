//! Work on files: the same confined access as every provider's, from inside.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::super::mux::MuxStream;
use super::super::wire::{self, FileChunk, HelperReply, HelperRequest, MESSAGE_LEN_MAX, WirePart};
use super::WORKSPACE;
use super::commands::open_workspace;
use super::serve::{failed, path};
use crate::sandbox::confined::files::Files;
use crate::sandbox::confined::{DirectoryFiles, RequestFailure, broken, pipe as new_pipe};
use crate::sandbox::{ChunkReceiver, FilePart, WorkError, Written};

/// Longest piece of a listing, in bytes.
const PIECE_LEN: usize = 32 * 1024;

/// Answers a request about files.
pub async fn answer(request: HelperRequest, call: &mut MuxStream) -> io::Result<()> {
    open_workspace();
    let files = DirectoryFiles::below(WORKSPACE.into());
    let done = match request {
        HelperRequest::List { path: at, depth } => {
            let list = move |files: Files, at: &[u8], to: OwnedFd| files.list(at, depth, &to);
            return entries(&at, list, call).await;
        }
        HelperRequest::Walk => {
            let walk = |files: Files, at: &[u8], to| files.walk(at, Some(to)).map(|_| false);
            return entries(b"", walk, call).await;
        }
        HelperRequest::Read { path, part } => return read(&files, &path, part, call).await,
        HelperRequest::Pack { path } => return pack(&files, &path, call).await,
        HelperRequest::Write { path: at } => {
            take(call, async |chunks| Ok(written(files.write(path(&at)?, chunks).await?))).await?
        }
        HelperRequest::Unpack { path: at } => {
            take(call, async |chunks| {
                files.unpack(path(&at)?, chunks).await?;
                Ok(HelperReply::Done)
            })
            .await?
        }
        HelperRequest::Delete { path: at } => match path(&at) {
            Ok(at) => files.delete(at).await.map(|()| HelperReply::Done),
            Err(error) => Err(error),
        },
        HelperRequest::MakeDirectory { path: at } => match path(&at) {
            Ok(at) => files.make_directory(at).await.map(written),
            Err(error) => Err(error),
        },
        HelperRequest::Move { from, to, overwrite } => match (path(&from), path(&to)) {
            (Ok(from), Ok(to)) => files.relocate(from, to, overwrite).await.map(written),
            (Err(error), _) | (_, Err(error)) => Err(error),
        },
        HelperRequest::SetMode { path: at, mode } => match path(&at) {
            Ok(at) => files.set_mode(at, mode).await.map(|()| HelperReply::Done),
            Err(error) => Err(error),
        },
        // Those are answered elsewhere.
        other => Err(broken(format!("the request is not about files: {other:?}"))),
    };
    wire::send(call, &done.unwrap_or_else(failed)).await
}

const fn written(written: Written) -> HelperReply {
    HelperReply::Written { was_there: matches!(written, Written::Replaced) }
}

/// Sends what a listing or a walk writes into a pipe.
async fn entries(
    at: &[u8],
    write: impl FnOnce(Files, &[u8], OwnedFd) -> Result<bool, RequestFailure> + Send + 'static,
    call: &mut MuxStream,
) -> io::Result<()> {
    let opened = path(at).and_then(|at| Ok((at, new_pipe()?)));
    let (at, (reader, writer)) = match opened {
        Ok(opened) => opened,
        Err(error) => return wire::send(call, &failed(error)).await,
    };
    let mut reader = pipe::Receiver::from_owned_fd(reader)?;
    let mut work = tokio::task::spawn_blocking(move || -> Result<bool, WorkError> {
        let files = Files::below(Path::new(WORKSPACE)).map_err(broken)?;
        Ok(write(files, at.as_bytes(), writer)?)
    });
    let mut piece = BytesMut::with_capacity(PIECE_LEN);
    // Work that fails before its first bytes fails as a whole.
    let mut got = reader.read_buf(&mut piece).await?;
    let mut is_cut = false;
    if got == 0 {
        match (&mut work).await.map_err(io::Error::other)? {
            Ok(is_listed_in_part) => is_cut = is_listed_in_part,
            Err(error) => return wire::send(call, &failed(error)).await,
        }
        wire::send(call, &HelperReply::Done).await?;
        return wire::send(call, &FileChunk::End { is_cut }).await;
    }
    wire::send(call, &HelperReply::Done).await?;
    while got > 0 {
        wire::send(call, &FileChunk::Bytes(piece.split().freeze())).await?;
        piece.reserve(PIECE_LEN);
        got = reader.read_buf(&mut piece).await?;
    }
    let end = match work.await.map_err(io::Error::other)? {
        Ok(is_listed_in_part) => {
            is_cut |= is_listed_in_part;
            FileChunk::End { is_cut }
        }
        Err(error) => FileChunk::Broken(error.to_string()),
    };
    wire::send(call, &end).await
}

async fn read(
    files: &DirectoryFiles,
    at: &[u8],
    part: WirePart,
    call: &mut MuxStream,
) -> io::Result<()> {
    let part = match part {
        WirePart::Whole => FilePart::Whole,
        WirePart::From(first) => FilePart::From(first),
        WirePart::Between(first, last) => FilePart::Between(first, last),
        WirePart::Last(len) => FilePart::Last(len),
    };
    let opened = match path(at) {
        Ok(at) => files.read(at, part).await,
        Err(error) => Err(error),
    };
    match opened {
        Err(error) => wire::send(call, &failed(error)).await,
        Ok(content) => {
            let (start, end) = (content.range.start, content.range.end);
            wire::send(call, &HelperReply::Content { size: content.size, start, end }).await?;
            give(call, content.chunks).await
        }
    }
}

async fn pack(files: &DirectoryFiles, at: &[u8], call: &mut MuxStream) -> io::Result<()> {
    let packed = match path(at) {
        Ok(at) => files.pack(at).await,
        Err(error) => Err(error),
    };
    match packed {
        Err(error) => wire::send(call, &failed(error)).await,
        Ok(chunks) => {
            wire::send(call, &HelperReply::Done).await?;
            give(call, chunks).await
        }
    }
}

/// Sends chunks until their end.
async fn give(call: &mut MuxStream, mut chunks: ChunkReceiver) -> io::Result<()> {
    while let Some(chunk) = chunks.recv().await {
        match chunk {
            Ok(bytes) => wire::send(call, &FileChunk::Bytes(bytes)).await?,
            Err(why) => return wire::send(call, &FileChunk::Broken(why)).await,
        }
    }
    wire::send(call, &FileChunk::End { is_cut: false }).await
}

/// Has work take the chunks that the server sends.
async fn take(
    call: &mut MuxStream,
    work: impl AsyncFnOnce(ChunkReceiver) -> Result<HelperReply, WorkError>,
) -> io::Result<Result<HelperReply, WorkError>> {
    let (sender, chunks) = mpsc::channel::<Result<Bytes, String>>(1);
    let feed = async move {
        loop {
            let chunk = match wire::receive(call, MESSAGE_LEN_MAX).await {
                Ok(Some(FileChunk::Bytes(bytes))) => Ok(bytes),
                Ok(Some(FileChunk::End { .. })) => return,
                Ok(Some(FileChunk::Broken(why))) => Err(why),
                Ok(None) | Err(_) => Err("the server went away".to_owned()),
            };
            let is_last = chunk.is_err();
            // Work that has failed takes no more.
            if sender.send(chunk).await.is_err() || is_last {
                return;
            }
        }
    };
    let mut work = std::pin::pin!(work(chunks));
    // It drops the sender at its end.
    let mut feed = Some(Box::pin(feed));
    // The work's answer may come before all chunks have.
    loop {
        match &mut feed {
            Some(feeding) => tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = feeding => feed = None,
            },
            None => return Ok(work.await),
        }
    }
}
