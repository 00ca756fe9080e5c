//! Work in running containers: files, commands, ports, by calls to their helpers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::io::StreamReader;

use super::DockerProvider;
use super::link::{
    HelperCall, HelperLink, LinkLost, Links, RECONNECT_FIRST, RECONNECT_MAX, nonsense, refusal,
};
use super::wire::{
    self, CommandOrder, FileChunk, HelperReply, HelperRequest, MESSAGE_LEN_MAX, OutputPiece,
    WirePart,
};
use crate::sandbox::command_pipes::check;
use crate::sandbox::confined::transfer::{CHUNKS_LEN, receive as receive_listing};
use crate::sandbox::walk::receive as receive_walk;
use crate::sandbox::{
    ChunkReceiver, ExecRequest, Execution, FileContent, FileListing, FilePart, Offset,
    OutputStream, Overflow, PortAccess, ProcessEvent, ProcessExit, ProcessId, ProcessOutput,
    ProcessSpec, Processes, Signal, StdinMode, Target, Terminal, TerminalRequest, WalkedTree,
    WorkError, Workspace, WorkspacePath, Written, exec_by_spawn,
};

/// Pieces of output that wait for one reader.
const EVENTS_LEN: usize = 4;

/// Longest piece of a file that is sent, in bytes.
const CHUNK_LEN: usize = 64 * 1024;

impl Links {
    /// Makes a call; returns it with the helper's answer, if that is no failure.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn call(
        self: &Arc<Self>,
        target: &Target,
        request: &HelperRequest,
    ) -> Result<(HelperCall, HelperReply), WorkError> {
        let link = self.get(target).await?;
        self.call_by(&link, target, request).await
    }

    /// The same by a connection that is there.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn call_by(
        self: &Arc<Self>,
        link: &HelperLink,
        target: &Target,
        request: &HelperRequest,
    ) -> Result<(HelperCall, HelperReply), WorkError> {
        let mut call = match link.send(request).await {
            Ok(call) => call,
            // It had just ended. What was not sent whole was not begun.
            Err(LinkLost) => match self.get(target).await?.send(request).await {
                Ok(call) => call,
                Err(LinkLost) => return Err(self.lost(target).await),
            },
        };
        match call.reply().await {
            Err(LinkLost) => Err(self.lost(target).await),
            Ok(
                reply @ (HelperReply::Done
                | HelperReply::Spawned { .. }
                | HelperReply::Found { .. }
                | HelperReply::Exited { .. }
                | HelperReply::Content { .. }
                | HelperReply::Written { .. }),
            ) => Ok((call, reply)),
            Ok(failure) => Err(refusal(failure)),
        }
    }

    /// A call that is answered by *done*.
    async fn done(
        self: &Arc<Self>,
        target: &Target,
        request: &HelperRequest,
    ) -> Result<HelperCall, WorkError> {
        match self.call(target, request).await? {
            (call, HelperReply::Done) => Ok(call),
            _ => Err(nonsense()),
        }
    }

    /// A call that is answered by what was there before.
    async fn written(
        self: &Arc<Self>,
        target: &Target,
        request: &HelperRequest,
    ) -> Result<Written, WorkError> {
        written(self.call(target, request).await?.1)
    }

    /// A call that is answered after it has taken chunks.
    async fn feed(
        self: &Arc<Self>,
        target: &Target,
        request: &HelperRequest,
        mut chunks: ChunkReceiver,
    ) -> Result<HelperReply, WorkError> {
        let link = self.get(target).await?;
        let Ok(call) = link.send(request).await else { return Err(self.lost(target).await) };
        let (mut from_helper, mut to_helper) = tokio::io::split(call.stream);
        let send = async {
            loop {
                let chunk = match chunks.recv().await {
                    Some(Ok(mut bytes)) => {
                        while bytes.len() > CHUNK_LEN {
                            let piece = FileChunk::Bytes(bytes.split_to(CHUNK_LEN));
                            wire::send(&mut to_helper, &piece).await?;
                        }
                        FileChunk::Bytes(bytes)
                    }
                    Some(Err(why)) => FileChunk::Broken(why),
                    None => FileChunk::End { is_cut: false },
                };
                let is_last = !matches!(chunk, FileChunk::Bytes(_));
                wire::send(&mut to_helper, &chunk).await?;
                if is_last {
                    return Ok::<(), io::Error>(());
                }
            }
        };
        let mut reply = std::pin::pin!(wire::receive(&mut from_helper, MESSAGE_LEN_MAX));
        // An answer may come before all chunks have been taken.
        let answered = tokio::select! {
            biased;
            answered = &mut reply => answered,
            // A helper that takes no more has answered.
            _ = send => reply.await,
        };
        match answered {
            Ok(Some(reply @ (HelperReply::Done | HelperReply::Written { .. }))) => Ok(reply),
            Ok(Some(failure)) => Err(refusal(failure)),
            Ok(None) | Err(_) => Err(self.lost(target).await),
        }
    }
}

fn written(reply: HelperReply) -> Result<Written, WorkError> {
    match reply {
        HelperReply::Written { was_there: true } => Ok(Written::Replaced),
        HelperReply::Written { was_there: false } => Ok(Written::Created),
        _ => Err(nonsense()),
    }
}

/// Passes the chunks of a call on until their end; returns whether there would have been more.
async fn take_chunks(call: &mut HelperCall, to: &mpsc::Sender<Result<Bytes, String>>) -> bool {
    loop {
        let chunk = match wire::receive(&mut call.stream, MESSAGE_LEN_MAX).await {
            Ok(Some(FileChunk::Bytes(bytes))) => Ok(bytes),
            Ok(Some(FileChunk::End { is_cut })) => return is_cut,
            Ok(Some(FileChunk::Broken(why))) => Err(why),
            Ok(None) | Err(_) => Err("the connection to the sandbox broke".to_owned()),
        };
        let is_last = chunk.is_err();
        if to.send(chunk).await.is_err() || is_last {
            return false;
        }
    }
}

/// The chunks of a call.
fn chunks(mut call: HelperCall) -> ChunkReceiver {
    let (sender, chunks) = mpsc::channel(CHUNKS_LEN);
    tokio::spawn(async move {
        tokio::select! {
            _ = take_chunks(&mut call, &sender) => {}
            // Dropping the call closes its stream, and the helper stops sending.
            () = sender.closed() => {}
        }
    });
    chunks
}

/// What the chunks of a call are read by.
type ChunkReader = StreamReader<Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>, Bytes>;

/// Reads the entries that a call sends; also whether there would have been more.
async fn read_entries<T, R: Future<Output = Result<T, WorkError>>>(
    mut call: HelperCall,
    receive: impl FnOnce(ChunkReader) -> R,
) -> (Result<T, WorkError>, bool) {
    let (sender, received) = mpsc::channel(CHUNKS_LEN);
    let pieces = ReceiverStream::new(received)
        .map(|piece: Result<Bytes, String>| piece.map_err(io::Error::other));
    let give = async {
        let is_cut = take_chunks(&mut call, &sender).await;
        drop(sender);
        is_cut
    };
    tokio::join!(receive(StreamReader::new(Box::pin(pieces))), give)
}

fn bytes(path: &WorkspacePath) -> Bytes {
    Bytes::copy_from_slice(path.as_bytes())
}

#[async_trait]
impl Workspace for DockerProvider {
    async fn list_files(
        &self,
        target: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError> {
        let request = HelperRequest::List { path: bytes(&path), depth };
        let call = self.links().done(&target, &request).await?;
        let (listing, is_cut) = read_entries(call, |reader| receive_listing(reader, &path)).await;
        let mut listing = listing?;
        listing.truncated |= is_cut;
        Ok(listing)
    }

    async fn read_file(
        &self,
        target: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        let part = match part {
            FilePart::Whole => WirePart::Whole,
            FilePart::From(first) => WirePart::From(first),
            FilePart::Between(first, last) => WirePart::Between(first, last),
            FilePart::Last(len) => WirePart::Last(len),
        };
        let request = HelperRequest::Read { path: bytes(&path), part };
        match self.links().call(&target, &request).await? {
            (call, HelperReply::Content { size, start, end }) if start <= end && end <= size => {
                Ok(FileContent { size, range: start..end, chunks: chunks(call) })
            }
            _ => Err(nonsense()),
        }
    }

    async fn write_file(
        &self,
        target: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        let request = HelperRequest::Write { path: bytes(&path) };
        written(self.links().feed(&target, &request, content).await?)
    }

    async fn delete_file(&self, target: Target, path: WorkspacePath) -> Result<(), WorkError> {
        let request = HelperRequest::Delete { path: bytes(&path) };
        self.links().done(&target, &request).await.map(drop)
    }

    async fn make_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<Written, WorkError> {
        let request = HelperRequest::MakeDirectory { path: bytes(&path) };
        self.links().written(&target, &request).await
    }

    async fn move_file(
        &self,
        target: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        let request = HelperRequest::Move { from: bytes(&from), to: bytes(&to), overwrite };
        self.links().written(&target, &request).await
    }

    async fn set_file_mode(
        &self,
        target: Target,
        path: WorkspacePath,
        mode: u32,
    ) -> Result<(), WorkError> {
        let request = HelperRequest::SetMode { path: bytes(&path), mode };
        self.links().done(&target, &request).await.map(drop)
    }

    async fn pack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        let request = HelperRequest::Pack { path: bytes(&path) };
        Ok(chunks(self.links().done(&target, &request).await?))
    }

    async fn unpack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        let request = HelperRequest::Unpack { path: bytes(&path) };
        match self.links().feed(&target, &request, archive).await? {
            HelperReply::Done => Ok(()),
            _ => Err(nonsense()),
        }
    }

    async fn walk(&self, target: Target) -> Result<WalkedTree, WorkError> {
        let call = self.links().done(&target, &HelperRequest::Walk).await?;
        read_entries(call, receive_walk).await.0
    }
}

/// What a command is started with: its template's part comes from the connection.
pub fn order(
    link: &HelperLink,
    command: Vec<String>,
    cwd: Option<&str>,
    env: &[(String, String)],
) -> Result<CommandOrder, WorkError> {
    check(&command, cwd, env)?;
    Ok(CommandOrder {
        env: link.defaults.env(env)?,
        cwd: link.defaults.cwd(cwd),
        argv: command.into_iter().map(Bytes::from).collect(),
    })
}

impl Links {
    /// The number of a process, if the target runs and the id names one of its processes.
    async fn number(self: &Arc<Self>, target: &Target, id: &ProcessId) -> Result<u64, WorkError> {
        self.get(target).await?;
        if id.sandbox == target.expected { Ok(id.number) } else { Err(WorkError::NoSuchProcess) }
    }
}

#[async_trait]
impl Processes for DockerProvider {
    async fn spawn(&self, target: Target, spec: ProcessSpec) -> Result<ProcessId, WorkError> {
        let ProcessSpec { command, cwd, env, stdin, timeout, keep, overflow, tag } = spec;
        let links = self.links();
        let link = links.get(&target).await?;
        let request = HelperRequest::Spawn {
            order: order(&link, command, cwd.as_deref(), &env)?,
            has_stdin: stdin == StdinMode::Open,
            timeout_ms: timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            keep,
            waits: overflow == Overflow::Wait,
            tag,
        };
        match links.call_by(&link, &target, &request).await? {
            (_, HelperReply::Spawned { number }) => {
                Ok(ProcessId { sandbox: target.expected, number })
            }
            _ => Err(nonsense()),
        }
    }

    async fn tagged(&self, target: Target, tag: &str) -> Result<Option<ProcessId>, WorkError> {
        let request = HelperRequest::Tagged { tag: tag.to_owned() };
        match self.links().call(&target, &request).await? {
            (_, HelperReply::Found { number }) => {
                Ok(number.map(|number| ProcessId { sandbox: target.expected, number }))
            }
            _ => Err(nonsense()),
        }
    }

    async fn attach(
        &self,
        target: Target,
        id: ProcessId,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError> {
        let links = Arc::clone(self.links());
        let number = links.number(&target, &id).await?;
        let call = links.done(&target, &HelperRequest::Attach { number, from: from.0 }).await?;
        let (sender, events) = mpsc::channel(EVENTS_LEN);
        tokio::spawn(async move {
            tokio::select! {
                () = follow(&links, &target, number, call, from.0, &sender) => {}
                // Dropping the call closes its stream, and the helper stops sending.
                () = sender.closed() => {}
            }
        });
        Ok(ProcessOutput { events })
    }

    async fn write_stdin(
        &self,
        target: Target,
        id: ProcessId,
        bytes: Bytes,
    ) -> Result<(), WorkError> {
        let number = self.links().number(&target, &id).await?;
        let request = HelperRequest::WriteStdin { number, bytes };
        self.links().done(&target, &request).await.map(drop)
    }

    async fn close_stdin(&self, target: Target, id: ProcessId) -> Result<(), WorkError> {
        let number = self.links().number(&target, &id).await?;
        let request = HelperRequest::CloseStdin { number };
        self.links().done(&target, &request).await.map(drop)
    }

    async fn signal(&self, target: Target, id: ProcessId, signal: Signal) -> Result<(), WorkError> {
        let number = self.links().number(&target, &id).await?;
        let request = HelperRequest::Signal { number, signal: signal.number() };
        self.links().done(&target, &request).await.map(drop)
    }

    async fn wait(&self, target: Target, id: ProcessId) -> Result<ProcessExit, WorkError> {
        let number = self.links().number(&target, &id).await?;
        let request = HelperRequest::Wait { number };
        match self.links().call(&target, &request).await? {
            (_, HelperReply::Exited { code, timed_out }) => Ok(ProcessExit { code, timed_out }),
            _ => Err(nonsense()),
        }
    }

    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError> {
        exec_by_spawn(Arc::new(self.clone()), target, request).await
    }

    async fn terminal(
        &self,
        target: Target,
        request: TerminalRequest,
    ) -> Result<Terminal, WorkError> {
        super::terminal::open(self.links(), target, request).await
    }

    async fn port(&self, target: Target, port: u16) -> Result<PortAccess, WorkError> {
        let mut call = self.links().done(&target, &HelperRequest::Connect { port }).await?;
        // Two tasks carry the bytes, so that the place of the call ends with the connection.
        let (near, mut far) = tokio::io::duplex(CHUNK_LEN);
        tokio::spawn(async move {
            // An error concerns only the two ends.
            let _ = tokio::io::copy_bidirectional(&mut call.stream, &mut far).await;
            let _ = call.stream.shutdown().await;
        });
        Ok(PortAccess::Stream(Box::new(near)))
    }
}

/// Passes the output of a process on. When the connection breaks while the container runs on, it goes on
/// over the next one, where it was.
async fn follow(
    links: &Arc<Links>,
    target: &Target,
    number: u64,
    mut call: HelperCall,
    mut at: u64,
    events: &mpsc::Sender<ProcessEvent>,
) {
    loop {
        match wire::receive(&mut call.stream, MESSAGE_LEN_MAX).await {
            Ok(Some(piece)) => {
                let Some((event, next)) = event_of(piece, at) else {
                    tracing::warn!(sandbox = %target.expected, "the helper's output has a hole");
                    return;
                };
                at = next;
                let is_exit = matches!(event, ProcessEvent::Exit(_));
                if events.send(event).await.is_err() || is_exit {
                    return;
                }
            }
            Ok(None) | Err(_) => {
                let Some(next) = attach_again(links, target, number, at).await else { return };
                call = next;
            }
        }
    }
}

/// Attaches to a process over the next connection. That one may break, too: it is tried for some seconds.
async fn attach_again(
    links: &Arc<Links>,
    target: &Target,
    number: u64,
    from: u64,
) -> Option<HelperCall> {
    let again = HelperRequest::Attach { number, from };
    let mut pause = RECONNECT_FIRST;
    loop {
        match links.done(target, &again).await {
            Ok(call) => return Some(call),
            Err(WorkError::Broken(_)) if pause <= RECONNECT_MAX => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            // The reader learns the reason when it attaches again.
            Err(error) => {
                tracing::debug!(%error, "the output of a process ended before its end");
                return None;
            }
        }
    }
}

/// The event of a piece, and the offset that follows; `None` if it does not follow `at`.
fn event_of(piece: OutputPiece, at: u64) -> Option<(ProcessEvent, u64)> {
    match piece {
        OutputPiece::Output { from, is_stderr, bytes } => {
            let next = from.checked_add(bytes.len() as u64)?;
            let stream = if is_stderr { OutputStream::Stderr } else { OutputStream::Stdout };
            let event = ProcessEvent::Output { from: Offset(from), stream, bytes };
            (from == at && next > at).then_some((event, next))
        }
        OutputPiece::Gap { from, to } => {
            let event = ProcessEvent::Gap { from: Offset(from), to: Offset(to) };
            (from == at && to > from).then_some((event, to))
        }
        OutputPiece::Exit { code, timed_out } => {
            Some((ProcessEvent::Exit(ProcessExit { code, timed_out }), at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_hostile_helper_has_no_hole_and_no_repeat() {
        let output = |from, len: usize| OutputPiece::Output {
            from,
            is_stderr: false,
            bytes: vec![0; len].into(),
        };
        assert_eq!(event_of(output(5, 3), 5).map(|(_, next)| next), Some(8));
        assert_eq!(event_of(OutputPiece::Gap { from: 5, to: 9 }, 5).map(|(_, next)| next), Some(9));
        for wrong in [
            output(4, 3),
            output(6, 3),
            output(5, 0),
            OutputPiece::Gap { from: 5, to: 5 },
            OutputPiece::Gap { from: 4, to: 9 },
        ] {
            assert_eq!(event_of(wrong.clone(), 5), None, "{wrong:?}");
        }
        assert_eq!(event_of(output(u64::MAX, 1), u64::MAX), None);
    }
}
