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
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::oneshot;

use super::inside::HIDDEN_COMMAND;

/// A launcher that waits for its order. One that is dropped ends, and is waited for.
pub struct IdleLauncher(Option<(OwnedFd, Child)>);

impl IdleLauncher {
    /// The server's end of its socket, which does not block, and its process, which whoever has it
    /// must wait for.
    pub fn into_parts(mut self) -> (OwnedFd, Child) {
        self.0.take().expect("only this takes them")
    }

    /// Whether nothing has ended it in the meantime, such as a machine out of memory.
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
        // Without an order it ends by itself once this closes, which takes it a moment.
        drop(socket);
        if let Err(error) = child.wait() {
            tracing::debug!(%error, "a launcher in stock could not be waited for");
        }
    }
}

type LauncherReply = oneshot::Sender<io::Result<IdleLauncher>>;

/// A handle to the thread; the thread ends when the handle is dropped.
pub struct Spawner {
    orders: mpsc::Sender<LauncherReply>,
}

impl Spawner {
    /// Starts the thread, which will start `launcher`.
    ///
    /// # Errors
    /// Where the system has no thread left.
    pub fn new(launcher: PathBuf) -> io::Result<Self> {
        let (orders, replies) = mpsc::channel();
        let run = move || serve(launcher, &replies);
        thread::Builder::new().name("local-spawner".into()).spawn(run)?;
        Ok(Self { orders })
    }

    /// A launcher that waits for its order.
    ///
    /// # Errors
    /// What starting the process answers.
    pub async fn launcher(&self) -> io::Result<IdleLauncher> {
        let (reply, answer) = oneshot::channel();
        let ended = || io::Error::other("the spawning thread has ended");
        self.orders.send(reply).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn serve(launcher: PathBuf, replies: &mpsc::Receiver<LauncherReply>) {
    let command = move || {
        let mut command = Command::new(&launcher);
        command.arg(HIDDEN_COMMAND);
        command
    };
    let mut stock = Stock { command, next: None };
    for reply in replies {
        match reply.send(stock.take()) {
            Ok(()) => stock.fill(),
            // Whoever asked has given up.
            Err(unwanted) => stock.next = unwanted.ok(),
        }
    }
}

/// Where launchers come from.
struct Stock<C: FnMut() -> Command> {
    command: C,
    next: Option<IdleLauncher>,
}

impl<C: FnMut() -> Command> Stock<C> {
    /// The one that waits, or a new one.
    fn take(&mut self) -> io::Result<IdleLauncher> {
        match self.next.take() {
            Some(waiting) if waiting.still_waits() => Ok(waiting),
            Some(_) | None => start((self.command)()),
        }
    }

    /// Starts one for the next. Where that fails the next is told, who tries again.
    fn fill(&mut self) {
        if self.next.is_none() {
            self.next = start((self.command)()).ok();
        }
    }
}

fn start(mut command: Command) -> io::Result<IdleLauncher> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let child = command
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(IdleLauncher(Some((ours, child))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Waits for its socket's end, as a launcher without an order does.
    fn cat() -> Command {
        Command::new("cat")
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
        assert_eq!(pid(Some(&second)), waiting, "and none was started beside it");
        assert_ne!(pid(Some(&second)), pid(Some(&first)));
        stock.fill();
        let left = pid(stock.next.as_ref());
        assert!(is_there(left));
        drop(stock);
        assert!(!is_there(left), "it has been waited for");
        drop(second);
        assert!(!is_there(waiting), "and so has one that nobody took up");
    }

    #[test]
    fn one_that_ended_in_the_meantime_is_not_given_away() {
        let mut stock = Stock { command: cat, next: None };
        stock.fill();
        let gone = pid(stock.next.as_ref());
        let (_, child) = stock.next.as_mut().and_then(|next| next.0.as_mut()).expect("in stock");
        child.kill().expect("killed");
        child.wait().expect("ended");
        let given = stock.take().expect("started");
        assert!(pid(Some(&given)) != gone && given.still_waits());
        let mut stock = Stock { command: || Command::new("/nowhere/at/all"), next: None };
        stock.fill();
        assert!(stock.take().is_err(), "whoever asks is told");
    }
}
