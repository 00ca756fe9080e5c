//! Standard output at the pace of whoever takes it, without waiting for them.
//!
//! A pipe that nobody reads, or a terminal that was told to stop, holds a write up for as long as it
//! likes. So a thread of its own writes: the program goes on hearing signals and the server
//! meanwhile, and the thread ends with the process.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_tungstenite::tungstenite::Bytes;

/// Most bytes that wait to be taken: more than a connection holds on its way, so that the end of a
/// command whose output nobody takes is heard, unless it had written more than this.
const WAITING_LEN_MAX: u32 = 8 << 20;

/// The same where a person looks on, who waits for what was shown before they pressed Ctrl-C.
const WATCHED_LEN_MAX: u32 = 256 << 10;

/// What is left when all else has ended is given up once nothing of it was taken for so long.
const TAKEN_WAIT: Duration = Duration::from_secs(2);

/// Bytes to be written, and the room that they take until then.
type Piece = (Bytes, OwnedSemaphorePermit);

/// Standard output, or what stands for it.
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
    /// Where there are no threads or descriptors left.
    pub fn stdout() -> io::Result<Self> {
        // Without the buffer and the lock of `Stdout`, which the end of the program would wait for.
        let stdout = rustix::io::dup(rustix::stdio::stdout())?;
        let len_max = if stdout.is_terminal() { WATCHED_LEN_MAX } else { WAITING_LEN_MAX };
        Self::new(File::from(stdout), len_max)
    }

    fn new(mut to: impl Write + Send + 'static, len_max: u32) -> io::Result<Self> {
        let (pieces, mut waiting) = mpsc::unbounded_channel::<Piece>();
        let (tell, ended) = oneshot::channel();
        let mut write = move || {
            while let Some((bytes, _room)) = waiting.blocking_recv() {
                to.write_all(&bytes)?;
            }
            to.flush()
        };
        // Whoever would hear it may have gone.
        let write = move || drop(tell.send(write()));
        std::thread::Builder::new().name("output".into()).spawn(write)?;
        let room = Arc::new(Semaphore::new(len_max as usize));
        Ok(Self { pieces, room, len_max, ended, is_full: Rc::default() })
    }

    /// Has bytes written, once there is room for them.
    ///
    /// # Errors
    /// Where they can't be: it was closed, or its disk is full.
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

    /// Whether nothing more is taken in until something was taken out.
    pub fn is_full(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.is_full)
    }

    /// Returns once all of it has been written.
    ///
    /// # Errors
    /// Where it can't be.
    pub async fn finish(self) -> io::Result<()> {
        let Self { pieces, ended, .. } = self;
        drop(pieces);
        ended.await.unwrap_or(Ok(()))
    }

    /// The same for as long as some of it is taken now and then.
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
            // That it fails is no news any more.
            _ = self.finish() => {}
            () = stuck => {}
        }
    }
}

/// Why nothing is written any more.
fn failure(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> io::Error {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) | Err(_) => io::Error::other("standard output is not written any more"),
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
    async fn what_nobody_takes_waits_up_to_a_bound_and_comes_in_the_end() {
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
        // The pipe itself holds 64 KiB, and what is being written has its room until it has been.
        assert!((max - 60_000..=max + 128 * 1024).contains(&written), "{written}");
        let taken = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all.len())
        });
        outlet.finish().await.expect("written");
        assert_eq!(taken.join().expect("no panic").expect("read"), written);
    }

    #[tokio::test]
    async fn what_is_never_taken_is_given_up_and_what_is_closed_is_told() {
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
