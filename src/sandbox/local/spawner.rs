//! The thread that starts launchers and keeps one in stock.
//!
//! It lives as long as the provider, because the kernel ties a child to the *thread* that made it.
//! It uses `posix_spawn`, which does not copy the server's memory map, so the cost does not depend
//! on the server's size.
//!
//! Executing and linking the program takes half as long as setting a sandbox up, and depends on
//! nothing of it. So when a launcher is taken the thread starts the next one, which waits for its
//! order. Concurrent requests start further ones. A launcher in stock holds only its socket, and
//! ends with it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::oneshot;

use super::launching::LaunchError;
use super::read_only::ReadOnlyCopies;

/// A launcher that waits for its order. Dropping it ends and reaps it.
pub struct IdleLauncher(Option<(OwnedFd, Child)>);

impl IdleLauncher {
    /// The server's end of its socket, which does not block, and its process, which the caller
    /// must reap.
    pub fn into_parts(mut self) -> (OwnedFd, Child) {
        self.0.take().expect("only this takes them")
    }

    /// Whether it still runs: the kernel may have killed it for memory.
    fn still_waits(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.0.as_ref().is_some_and(|(socket, _)| {
            let mut polled = [PollFd::new(socket, PollFlags::empty())];
            matches!(poll(&mut polled, Some(&now)), Ok(0))
        })
    }
}

impl Drop for IdleLauncher {
    fn drop(&mut self) {
        let Some((socket, mut child)) = self.0.take() else { return };
        // Without an order it ends by itself within a moment after this closes.
        drop(socket);
        if let Err(error) = child.wait() {
            tracing::debug!(%error, "failed to reap an unused launcher");
        }
    }
}

type LauncherReply = oneshot::Sender<Result<IdleLauncher, LaunchError>>;

/// A handle to the thread, which ends when the handle is dropped.
pub struct LauncherSpawner {
    orders: mpsc::Sender<LauncherReply>,
    /// Made for the first launcher.
    copies: Arc<OnceLock<ReadOnlyCopies>>,
}

impl LauncherSpawner {
    /// Starts the thread, which will start `launcher` for objects below `dir`.
    ///
    /// # Errors
    /// Fails if no thread can start.
    pub fn new(launcher: PathBuf, dir: PathBuf) -> io::Result<Self> {
        let (orders, replies) = mpsc::channel();
        let copies = Arc::default();
        let made = Arc::clone(&copies);
        let run = move || serve(|| ReadOnlyCopies::make(&launcher, &dir), &made, &replies);
        thread::Builder::new().name("local-spawner".into()).spawn(run)?;
        Ok(Self { orders, copies })
    }

    /// A launcher that waits for its order.
    ///
    /// # Errors
    /// The error of starting the process.
    pub async fn launcher(&self) -> Result<IdleLauncher, LaunchError> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(reply).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Opens the lock of an object for its launcher, which can't change it.
    ///
    /// # Errors
    /// The file system's error; `NotFound` before the first launcher.
    pub fn lock(&self, object: &OwnedFd) -> io::Result<OwnedFd> {
        let copies = self.copies.get().ok_or(io::ErrorKind::NotFound)?;
        copies.lock(object)
    }
}

fn ended() -> LaunchError {
    LaunchError::new("start the launcher", &io::ErrorKind::BrokenPipe.into())
}

fn serve(
    make: impl Fn() -> Result<ReadOnlyCopies, LaunchError>,
    copies: &OnceLock<ReadOnlyCopies>,
    replies: &mpsc::Receiver<LauncherReply>,
) {
    let command = || {
        let copies = match copies.get() {
            Some(copies) => copies,
            None => {
                let made = make()?;
                copies.get_or_init(|| made)
            }
        };
        Ok(copies.launcher())
    };
    let mut stock = Stock { command, next: None };
    for reply in replies {
        match reply.send(stock.take()) {
            Ok(()) => stock.fill(),
            // The caller has given up.
            Err(unwanted) => stock.next = unwanted.ok(),
        }
    }
}

/// The source of launchers.
struct Stock<C: FnMut() -> Result<Command, LaunchError>> {
    command: C,
    next: Option<IdleLauncher>,
}

impl<C: FnMut() -> Result<Command, LaunchError>> Stock<C> {
    /// The one in stock, or a new one.
    fn take(&mut self) -> Result<IdleLauncher, LaunchError> {
        match self.next.take() {
            Some(waiting) if waiting.still_waits() => Ok(waiting),
            Some(_) | None => start((self.command)()?),
        }
    }

    /// Starts one for the next call. If that fails, the next call retries and gets the error.
    fn fill(&mut self) {
        if self.next.is_none() {
            self.next = (self.command)().and_then(start).ok();
        }
    }
}

fn start(mut command: Command) -> Result<IdleLauncher, LaunchError> {
    let mut start = || {
        let (ours, theirs) = socket_pair()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(IdleLauncher(Some((ours, command.spawn()?))))
    };
    start().map_err(|error| LaunchError::new("start the launcher", &error))
}

/// The server's end and the other end of a socket for packets.
///
/// # Errors
/// The system's error.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Ends when its socket closes, like a launcher without an order.
    fn cat() -> Result<Command, LaunchError> {
        Ok(Command::new("cat"))
    }

    fn is_there(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    fn pid(waiting: Option<&IdleLauncher>) -> u32 {
        waiting.and_then(|waiting| waiting.0.as_ref()).map(|(_, child)| child.id()).expect("waits")
    }

    #[test]
    fn one_waits_for_the_next_and_ends_with_the_stock() {
        let mut stock = Stock { command: cat, next: None };
        let first = stock.take().expect("started");
        stock.fill();
        let waiting = pid(stock.next.as_ref());
        stock.fill();
        let second = stock.take().expect("in stock");
        assert_eq!(pid(Some(&second)), waiting, "no other one was started");
        assert_ne!(pid(Some(&second)), pid(Some(&first)));
        stock.fill();
        let left = pid(stock.next.as_ref());
        assert!(is_there(left));
        drop(stock);
        assert!(!is_there(left), "it was reaped");
        drop(second);
        assert!(!is_there(waiting), "and so was an unused one");
    }

    #[test]
    fn a_launcher_that_has_ended_is_not_handed_out() {
        let mut stock = Stock { command: cat, next: None };
        stock.fill();
        let gone = pid(stock.next.as_ref());
        let (_, child) = stock.next.as_mut().and_then(|next| next.0.as_mut()).expect("in stock");
        child.kill().expect("killed");
        child.wait().expect("ended");
        let given = stock.take().expect("started");
        assert!(pid(Some(&given)) != gone && given.still_waits());
        let mut stock = Stock { command: || Ok(Command::new("/nowhere/at/all")), next: None };
        stock.fill();
        assert!(stock.take().is_err(), "the caller gets the error");
    }
}
