//! The one thread that starts launchers, and keeps one in stock.
//!
//! It lives as long as the provider, because what the kernel ties to "the parent" it ties to the
//! *thread* that made the process. The launcher is started by `posix_spawn`, which does not copy
//! the server's memory map: it costs the same whatever the server holds.
//!
//! Executing and linking the program takes about as long as setting half of a sandbox up, and
//! needs to know nothing of it. So the next launcher is started as soon as one has been given
//! away, and waits for its order; where many are asked for at once, the others are started then.
//! One in stock knows nothing, holds nothing but its socket, and ends with it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::oneshot;

use super::inside::HIDDEN_COMMAND;

/// A launcher that waits for its order.
pub struct Waiting {
    /// The server's end of its socket, which does not block.
    pub socket: OwnedFd,
    /// Its process. Whoever drops this must wait for it, or leave a zombie.
    pub child: Child,
}

type Reply = oneshot::Sender<io::Result<Waiting>>;

/// A handle to the thread; the thread ends when the handle is dropped.
pub struct Spawner {
    orders: mpsc::Sender<Reply>,
}

impl Spawner {
    /// Starts the thread, which will start `launcher`.
    ///
    /// # Errors
    /// Where the system has no thread left.
    pub fn new(launcher: PathBuf) -> io::Result<Self> {
        let (orders, replies) = mpsc::channel();
        let run = move || serve(&launcher, &replies);
        thread::Builder::new().name("local-spawner".into()).spawn(run)?;
        Ok(Self { orders })
    }

    /// A launcher that waits for its order.
    ///
    /// # Errors
    /// What starting the process answers.
    pub async fn launcher(&self) -> io::Result<Waiting> {
        let (reply, answer) = oneshot::channel();
        let ended = || io::Error::other("the spawning thread has ended");
        self.orders.send(reply).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn serve(launcher: &Path, replies: &mpsc::Receiver<Reply>) {
    let mut stock: Option<Waiting> = None;
    for reply in replies {
        let waiting = match stock.take() {
            Some(waiting) if still_waits(&waiting) => Ok(waiting),
            Some(gone) => {
                end(gone);
                start(launcher)
            }
            None => start(launcher),
        };
        let works = waiting.is_ok();
        if let Err(Ok(unwanted)) = reply.send(waiting) {
            // Whoever asked has given up.
            stock = Some(unwanted);
        } else if works {
            // Where that fails the next one is told.
            stock = start(launcher).ok();
        }
    }
    if let Some(unused) = stock {
        end(unused);
    }
}

/// Whether nothing has ended it in the meantime, such as a machine out of memory.
fn still_waits(waiting: &Waiting) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::new(&waiting.socket, PollFlags::empty())];
    matches!(poll(&mut polled, Some(&now)), Ok(0))
}

/// Ends one that was given no order, which it does by itself once its socket closes.
fn end(waiting: Waiting) {
    let Waiting { socket, mut child } = waiting;
    drop(socket);
    if let Err(error) = child.wait() {
        tracing::debug!(%error, "a launcher in stock could not be waited for");
    }
}

fn start(launcher: &Path) -> io::Result<Waiting> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let child = Command::new(launcher)
        .arg(HIDDEN_COMMAND)
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Waiting { socket: ours, child })
}
