//! The master of a terminal, and the threads that read and write it.
//!
//! The other end can make reads block, by a flag that both ends share. So two threads per terminal read
//! and write it, and nothing else waits for them.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::sync::mpsc;

use super::confined::{broken, pipe};
use super::descriptors::signal_foreground;
use super::{TerminalEvent, TerminalSize, WorkError};

/// Longest piece of output, in bytes: the kernel's maximum per read of a terminal.
const PIECE_LEN_MAX: usize = 4096;

/// Most bytes of earlier output that are delivered after the end. A terminal holds less; a
/// background process that goes on writing must not delay the end.
const LEFT_LEN_MAX: usize = 256 * 1024;

/// The master, and the threads that read and write it. Dropping this ends both, and closes the
/// last descriptors of the master.
pub struct TerminalDevice {
    master: Arc<OwnedFd>,
    /// The slave.
    slave: OwnedFd,
    /// Takes the input.
    pub keys: mpsc::Sender<Bytes>,
    /// Closing it ends both threads; the reader first reads the buffered output.
    stop: OwnedFd,
    /// Disconnects once neither thread has the master any more.
    held: mpsc::Receiver<Infallible>,
}

impl TerminalDevice {
    /// Starts the threads. Output goes to `events`.
    ///
    /// # Errors
    /// [`WorkError::Broken`] if this process has no room.
    pub fn new(
        master: Arc<OwnedFd>,
        events: mpsc::Sender<TerminalEvent>,
    ) -> Result<Self, WorkError> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags).map_err(broken)?;
        let (stopped, stop) = pipe()?;
        let stopped = Arc::new(stopped);
        let (holds, held) = mpsc::channel::<Infallible>(1);
        let (keys, typed) = mpsc::channel(1);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(work).map_err(broken)
        };
        let own = || (Arc::clone(&master), Arc::clone(&stopped), holds.clone());
        let (of_reader, stop_reader, reader_holds) = own();
        spawn(
            "terminal-output",
            Box::new(move || {
                read_all(&of_reader, &stop_reader, &events);
                drop((events, of_reader));
                drop(reader_holds);
            }),
        )?;
        let (of_writer, stop_writer, writer_holds) = own();
        spawn(
            "terminal-input",
            Box::new(move || {
                write_all(&of_writer, &stop_writer, typed);
                drop(of_writer);
                drop(writer_holds);
            }),
        )?;
        Ok(Self { master, slave, keys, stop, held })
    }

    /// Reads the buffered output, and closes the terminal.
    pub async fn read_to_the_end(self) {
        let Self { master, slave, keys, stop, mut held } = self;
        drop((master, slave, keys, stop));
        held.recv().await;
    }

    /// Best effort: the command may have just ended.
    pub fn resize(&self, size: TerminalSize) {
        let (ws_col, ws_row) = (size.columns, size.rows);
        let _ = tcsetwinsize(&self.master, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
    }

    /// Sends a signal to the foreground process group, past any unread input.
    pub fn signal(&self, signal: Signal) {
        signal_foreground(&self.master, signal);
    }
}

/// Waits until the master is ready or the terminal is to end; returns whether it is to end.
fn wait(master: &OwnedFd, flags: PollFlags, stopped: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(master, flags), PollFd::new(stopped, PollFlags::IN)];
    match poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => !polled[1].revents().is_empty(),
        Err(_) => true,
    }
}

/// Reads until the receiver is gone, the slave is closed for good, or the terminal stops and its
/// output is read.
fn read_all(master: &OwnedFd, stopped: &OwnedFd, events: &mpsc::Sender<TerminalEvent>) {
    let mut left: Option<usize> = None;
    loop {
        if left.is_none() && wait(master, PollFlags::IN, stopped) {
            left = Some(LEFT_LEN_MAX);
        }
        let mut buffer = vec![0; PIECE_LEN_MAX];
        match rustix::io::read(master, &mut buffer) {
            Ok(len @ 1..) => {
                buffer.truncate(len);
                let event = TerminalEvent::Output(buffer.into());
                if events.blocking_send(event).is_err() {
                    return;
                }
                left = left.map(|left| left.saturating_sub(len));
                if left == Some(0) {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if left.is_none() => {}
            // EIO: the slave is closed everywhere.
            Ok(_) | Err(_) => return,
        }
    }
}

/// Writes the input until the sender is gone or the terminal stops.
fn write_all(master: &OwnedFd, stopped: &OwnedFd, mut typed: mpsc::Receiver<Bytes>) {
    while let Some(mut bytes) = typed.blocking_recv() {
        while !bytes.is_empty() {
            if wait(master, PollFlags::OUT, stopped) {
                return;
            }
            match rustix::io::write(master, &bytes) {
                Ok(len) => drop(bytes.split_to(len)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    }
}
