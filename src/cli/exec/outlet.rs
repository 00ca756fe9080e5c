//! Non-blocking standard output.
//!
//! A pipe whose reader is slow, or a stopped terminal, blocks a write for any length of time. So a
//! thread writes, while the program still handles signals and the server. The thread ends with the
//! process.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_tungstenite::tungstenite::Bytes;

/// Most bytes that wait to be written. This is more than a connection buffers, so the end of a command
/// whose output is not read still arrives, unless the command wrote more.
const WAITING_LEN_MAX: u32 = 8 << 20;

/// The same on a terminal, where a person who presses Ctrl-C waits for all of it to be printed.
const WATCHED_LEN_MAX: u32 = 256 << 10;

/// After everything else has ended, waiting bytes are dropped if none is written for this long.
const TAKEN_WAIT: Duration = Duration::from_secs(2);

/// Bytes to write, and their share of the buffer.
type Piece = (Bytes, OwnedSemaphorePermit);

/// Standard output or standard error, or a replacement in a test.
pub(super) struct Outlet {
    pieces: mpsc::UnboundedSender<Piece>,
    room: Arc<Semaphore>,
    len_max: u32,
    ended: oneshot::Receiver<io::Result<()>>,
    is_full: Rc<Cell<bool>>,
}

impl Outlet {
    /// Standard output.
    ///
    /// # Errors
    /// If there are no threads or file descriptors left.
    pub fn stdout() -> io::Result<Self> {
        Self::of(rustix::stdio::stdout())
    }

    /// Standard error.
    ///
    /// # Errors
    /// If there are no threads or file descriptors left.
    pub fn stderr() -> io::Result<Self> {
        Self::of(rustix::stdio::stderr())
    }

    fn of(output: BorrowedFd<'_>) -> io::Result<Self> {
        // Not `Stdout`: the program would wait for its lock and buffer when it ends.
        let output = rustix::io::dup(output)?;
        let len_max = if output.is_terminal() { WATCHED_LEN_MAX } else { WAITING_LEN_MAX };
        Self::new(File::from(output), len_max)
    }

    fn new(mut to: impl Write + Send + 'static, len_max: u32) -> io::Result<Self> {
        let (pieces, mut waiting) = mpsc::unbounded_channel::<Piece>();
        let (result, ended) = oneshot::channel();
        let mut write = move || {
            while let Some((bytes, _room)) = waiting.blocking_recv() {
                to.write_all(&bytes)?;
            }
            to.flush()
        };
        // The receiver may be gone.
        let write = move || drop(result.send(write()));
        std::thread::Builder::new().name("output".into()).spawn(write)?;
        let room = Arc::new(Semaphore::new(len_max as usize));
        Ok(Self { pieces, room, len_max, ended, is_full: Rc::default() })
    }

    /// Queues bytes, once there is room for them.
    ///
    /// # Errors
    /// If standard output is closed, or its disk is full.
    pub async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(self.len_max);
        let room = match Arc::clone(&self.room).try_acquire_many_owned(len) {
            Ok(room) => room,
            Err(_full) => {
                self.is_full.set(true);
                let room = tokio::select! {
                    biased;
                    ended = &mut self.ended => return Err(failure(ended)),
                    room = Arc::clone(&self.room).acquire_many_owned(len) => room,
                };
                self.is_full.set(false);
                room.map_err(io::Error::other)?
            }
        };
        match self.pieces.send((bytes, room)) {
            Ok(()) => Ok(()),
            Err(_) => Err(failure((&mut self.ended).await)),
        }
    }

    /// Whether the buffer is full.
    pub fn is_full(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.is_full)
    }

    /// Waits until all of it is written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn finish(self) -> io::Result<()> {
        let Self { pieces, ended, .. } = self;
        drop(pieces);
        ended.await.unwrap_or(Ok(()))
    }

    /// Waits until all of it is written, or no byte was written for `TAKEN_WAIT`.
    pub async fn finish_while_taken(self) {
        let room = Arc::clone(&self.room);
        let stuck = async {
            loop {
                let before = room.available_permits();
                tokio::time::sleep(TAKEN_WAIT).await;
                if room.available_permits() == before {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
                // An error does not matter any more.
            _ = self.finish() => {}
            () = stuck => {}
        }
    }
}

/// Why the writer ended.
fn failure(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> io::Error {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) | Err(_) => io::Error::other("the writer of standard output has ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn pipe() -> (File, Outlet) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        (File::from(reader), Outlet::new(File::from(writer), WAITING_LEN_MAX).expect("a thread"))
    }

    #[tokio::test]
    async fn unread_output_waits_up_to_a_bound_and_is_written_in_the_end() {
        let (mut reader, mut outlet) = pipe();
        let is_full = outlet.is_full();
        let piece = Bytes::from(vec![b'x'; 60_000]);
        let mut written = 0;
        let fill = async {
            loop {
                outlet.write(piece.clone()).await.expect("written");
                written += piece.len();
            }
        };
        let full = async {
            while !is_full.get() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; () = fill => {}, () = full => {} }
        let max = WAITING_LEN_MAX as usize;
        // The pipe itself holds 64 KiB, and a piece keeps its room until it is written.
        assert!((max - 60_000..=max + 128 * 1024).contains(&written), "{written}");
        let taken = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all.len())
        });
        outlet.finish().await.expect("written");
        assert_eq!(taken.join().expect("no panic").expect("read"), written);
    }

    #[tokio::test]
    async fn output_that_is_never_read_is_dropped_and_a_closed_pipe_is_an_error() {
        let (reader, mut outlet) = pipe();
        outlet.write(Bytes::from(vec![0; 1 << 20])).await.expect("it has room");
        outlet.finish_while_taken().await;
        drop(reader);
        let (reader, mut outlet) = pipe();
        drop(reader);
        let error = loop {
            if let Err(error) = outlet.write(Bytes::from_static(b"x")).await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
