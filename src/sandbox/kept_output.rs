//! The output of one process, kept in a file without a name: the newest bytes, up to a bound.
//!
//! The file is two rings of the same length. The first has the bytes, the second says of each
//! byte which output it came from. So the order of the two outputs is kept however often they alternate,
//! and none of it is in memory.
//!
//! A byte's place in a ring is its offset modulo the ring's length. The writer moves
//! [`OutputState::start`] past bytes before it overwrites them; a reader looks at it again after it has
//! read, and drops what may have been overwritten meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::sandbox::{
    Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, ProcessOutput, WorkError,
};

/// Longest piece that a reader receives, in bytes.
const PIECE_LEN_MAX: u64 = 32 * 1024;

/// Pieces that wait for one reader.
const EVENTS_LEN: usize = 4;

/// Room beyond what is to be kept, in bytes: for [`REREAD_LEN`](crate::sandbox::REREAD_LEN), and for the
/// output that a process which waited for its readers had in its pipes and in the queue behind them when
/// it ended (at most 0.7 MiB).
const ROOM_BEYOND: u64 = 1 << 20;

/// What is kept of a process's output.
pub struct KeptOutput {
    file: File,
    keep: u64,
    overflow: Overflow,
    state: watch::Sender<OutputState>,
}

/// How far the output has come. Numbers are offsets.
#[derive(Clone, Default)]
struct OutputState {
    /// The first byte that is kept.
    start: u64,
    /// The first byte that is not there yet.
    end: u64,
    /// The first byte that no reader has been given.
    given: u64,
    /// How the process ended; `None` while it runs.
    ended: Option<Result<ProcessExit, WorkError>>,
}

impl KeptOutput {
    /// Keeps at least the newest `keep` bytes in `file`, which is empty.
    pub fn new(file: File, keep: u64, overflow: Overflow) -> Self {
        Self { file, keep, overflow, state: watch::Sender::default() }
    }

    /// Adds what the process wrote. With [`Overflow::Wait`] it first waits until enough has been given
    /// to a reader, or the process is `over`.
    ///
    /// # Errors
    /// What the file system answers.
    pub async fn append(
        self: &Arc<Self>,
        stream: OutputStream,
        bytes: Bytes,
        over: &CancellationToken,
    ) -> io::Result<()> {
        let len = bytes.len() as u64;
        if self.overflow == Overflow::Wait {
            let mut state = self.state.subscribe();
            tokio::select! {
                _ = state.wait_for(|state| state.end + len <= state.given + self.keep.max(len)) => {}
                () = over.cancelled() => {}
            }
        }
        let mut at = 0;
        self.state.send_modify(|state| {
            at = state.end;
            state.start = state.start.max((at + len).saturating_sub(self.room()));
        });
        let output = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || output.write(at, stream, &bytes));
        written.await.map_err(io::Error::other)??;
        self.state.send_modify(|state| state.end = at + len);
        Ok(())
    }

    /// Notes how the process ended. Nothing is appended afterwards.
    pub fn end(&self, ended: Result<ProcessExit, WorkError>) {
        self.state.send_modify(|state| state.ended = Some(ended));
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// Why it is not known how the process ended.
    pub async fn ended(&self) -> Result<ProcessExit, WorkError> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| state.ended.is_some()).await;
        state.ok().and_then(|state| state.ended.clone()).unwrap_or(Err(WorkError::NotRunning))
    }

    /// The output from an offset on.
    ///
    /// # Errors
    /// [`WorkError::OutOfRange`].
    pub fn follow(self: Arc<Self>, Offset(from): Offset) -> Result<ProcessOutput, WorkError> {
        let size = self.state.borrow().end;
        if from > size {
            return Err(WorkError::OutOfRange { size });
        }
        let (sender, events) = mpsc::channel(EVENTS_LEN);
        tokio::spawn(async move { self.send(from, &sender).await });
        Ok(ProcessOutput { events })
    }

    /// Sends output to one reader until the process has ended or the reader has gone.
    async fn send(self: Arc<Self>, mut from: u64, events: &mpsc::Sender<ProcessEvent>) {
        let mut state = self.state.subscribe();
        loop {
            let OutputState { start, end, ended, .. } = state.borrow_and_update().clone();
            let event = if from < start {
                ProcessEvent::Gap { from: Offset(from), to: Offset(start) }
            } else if from < end {
                let output = Arc::clone(&self);
                let read = tokio::task::spawn_blocking(move || output.read(from, end)).await;
                let (stream, bytes) = match read {
                    // Overwritten while it was read.
                    Ok(_) if self.state.borrow().start > from => continue,
                    Ok(Ok(read)) => read,
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "cannot read the output that was kept of a process");
                        return;
                    }
                    // The server is shutting down.
                    Err(_) => return,
                };
                ProcessEvent::Output { from: Offset(from), stream, bytes }
            } else {
                match ended {
                    Some(Ok(exit)) => return drop(events.send(ProcessEvent::Exit(exit)).await),
                    Some(Err(_)) => return,
                    None => {}
                }
                tokio::select! {
                    _ = state.changed() => continue,
                    () = events.closed() => return,
                }
            };
            from = match &event {
                ProcessEvent::Output { bytes, .. } => from + bytes.len() as u64,
                ProcessEvent::Gap { .. } | ProcessEvent::Exit(_) => start,
            };
            if events.send(event).await.is_err() {
                return;
            }
            self.state.send_if_modified(|state| {
                let is_first = from > state.given;
                state.given = state.given.max(from);
                is_first
            });
        }
    }

    /// How many bytes a ring has room for. A piece always fits.
    fn room(&self) -> u64 {
        self.keep + ROOM_BEYOND
    }

    fn write(&self, at: u64, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        let streams = vec![byte_of(stream); bytes.len()];
        let place = at % self.room();
        for (ring, bytes) in [(0, bytes), (self.room(), &streams)] {
            let (head, tail) = bytes.split_at(self.until_wrap(place, bytes.len()));
            self.file.write_all_at(head, ring + place)?;
            self.file.write_all_at(tail, ring)?;
        }
        Ok(())
    }

    /// The bytes from an offset on that came from one output, some of those before `end`.
    fn read(&self, from: u64, end: u64) -> io::Result<(OutputStream, Bytes)> {
        let place = from % self.room();
        let len = usize::try_from((end - from).min(PIECE_LEN_MAX)).unwrap_or(usize::MAX);
        let len = self.until_wrap(place, len);
        let (mut bytes, mut streams) = (vec![0; len], vec![0; len]);
        self.file.read_exact_at(&mut bytes, place)?;
        self.file.read_exact_at(&mut streams, self.room() + place)?;
        let first = streams[0];
        bytes.truncate(streams.iter().position(|stream| *stream != first).unwrap_or(len));
        let stream = match first {
            0 => OutputStream::Stdout,
            _ => OutputStream::Stderr,
        };
        Ok((stream, bytes.into()))
    }

    /// How many of so many bytes come before the end of a ring.
    fn until_wrap(&self, place: u64, len: usize) -> usize {
        len.min(usize::try_from(self.room() - place).unwrap_or(usize::MAX))
    }
}

fn byte_of(stream: OutputStream) -> u8 {
    match stream {
        OutputStream::Stdout => 0,
        OutputStream::Stderr => 1,
    }
}
