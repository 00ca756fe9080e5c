//! Runs a command at a terminal: PID 1 makes the terminal and hands its master over.
//!
//! - The master is checked before use: a hostile PID 1 could send anything. PID 1 could also make
//!   reads block, by a flag that both ends share. So two threads per terminal read and write it,
//!   and nothing else waits for them; they end with the sandbox at the latest.
//! - Output is buffered in the terminal and in a queue of [`EVENTS_LEN`] pieces. When both are
//!   full, the command waits: an unread `yes` blocks only itself.
//! - The terminal ends when its command ends; output written before is still delivered. Until then
//!   the server keeps the slave open too: if it were closed between two programs, the master could
//!   not be polled for the next one.
//! - Dropping the [`Terminal`] closes the only master. The kernel then sends SIGHUP; after
//!   [`HANG_UP_GRACE`] the rest of the session is killed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat, major, minor};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::exec::{KILL_WAIT, RequestedCommand};
use super::frame::{Answer, Request};
use super::link::{Link, broken, nonsense};
use crate::sandbox::command_pipes::check;
use crate::sandbox::terminal_device::TerminalDevice;
use crate::sandbox::{
    Terminal, TerminalControl, TerminalEvent, TerminalRequest, TerminalSignal, WorkError,
};

/// Pieces of output in the queue; 64 KiB.
const EVENTS_LEN: usize = 16;

/// Pieces of input, and control requests, that wait.
const INPUT_LEN: usize = 4;

/// How long a session has between SIGHUP and SIGKILL.
const HANG_UP_GRACE: Duration = Duration::from_secs(2);

/// The device number of `ptmx` on every Linux, also within a devpts.
const PTMX: (u32, u32) = (5, 2);

/// Starts a command at a terminal.
///
/// # Errors
/// [`WorkError`].
pub async fn terminal(link: &Arc<Link>, request: TerminalRequest) -> Result<Terminal, WorkError> {
    let TerminalRequest { command, cwd, env, size } = request;
    check(&command, cwd.as_deref(), &env)?;
    let variables = link.defaults.env(&env)?;
    let order = |id| Request::Terminal {
        id,
        argv: command.into_iter().map(Bytes::from).collect(),
        cwd: link.defaults.cwd(cwd.as_deref()),
        env: variables,
        columns: size.columns,
        rows: size.rows,
    };
    // From here on, dropping this ends the command.
    let mut command = RequestedCommand { call: link.call(order, &[]).await?, is_over: false };
    let master = match command.answer().await? {
        (Answer::Opened { .. }, Some(master)) => checked(master)?,
        _ => return Err(nonsense()),
    };
    command.started().await?;

    let (sender, events) = mpsc::channel(EVENTS_LEN);
    let (input, typed) = mpsc::channel(INPUT_LEN);
    let (control, controls) = mpsc::channel(INPUT_LEN);
    let device = TerminalDevice::new(master, sender.clone())?;
    tokio::spawn(Attendant { command, events: sender, typed, controls, device }.run());
    Ok(Terminal { input, control, events })
}

/// Checks that a descriptor is the master of a terminal.
fn checked(master: OwnedFd) -> Result<Arc<OwnedFd>, WorkError> {
    let looked = || {
        let stat = fstat(&master)?;
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        let flags = fcntl_getfl(&master)?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        if !is_device || device != PTMX || flags.contains(OFlags::PATH) {
            return Ok(false);
        }
        fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        Ok::<_, Errno>(true)
    };
    match looked() {
        Ok(true) => Ok(Arc::new(master)),
        Ok(false) => Err(broken("the sandbox sent something that is not a terminal")),
        Err(errno) => Err(broken(errno)),
    }
}

/// How a session ended, for its listener.
enum SessionEnd {
    /// It ended, with this exit code.
    Exited(i32),
    /// The sandbox ended first.
    Lost,
    /// The listener is gone.
    HungUp,
}

/// Runs one terminal.
struct Attendant {
    command: RequestedCommand,
    events: mpsc::Sender<TerminalEvent>,
    typed: mpsc::Receiver<Bytes>,
    controls: mpsc::Receiver<TerminalControl>,
    device: TerminalDevice,
}

impl Attendant {
    async fn run(mut self) {
        match self.attend().await {
            SessionEnd::Exited(code) => {
                self.command.is_over = true;
                let Self { events, device, .. } = self;
                device.read_to_the_end().await;
                // The listener may be gone; the command has ended all the same.
                let _ = events.send(TerminalEvent::Exit { code }).await;
            }
            SessionEnd::Lost => self.device.read_to_the_end().await,
            SessionEnd::HungUp => self.hang_up().await,
        }
    }

    /// Closes the terminal of a running command, and ends its whole session.
    async fn hang_up(mut self) {
        let call = &mut self.command.call;
        // If it can't be sent, the sandbox is ending, and the command with it.
        let _ = call.link.send(&Request::HangUp { id: call.id }, &[]).await;
        // Closing waits for PID 1's confirmation. Otherwise a leader that ends by SIGHUP would end
        // the command first, and leave processes in its session that ignore SIGHUP.
        let known = timeout(KILL_WAIT, call.next()).await;
        drop(self.device);
        let is_over = match known {
            Ok(Some(Answer::Done { .. })) => {
                if timeout(HANG_UP_GRACE, call.next()).await.is_ok() {
                    true
                } else {
                    self.command.kill().await;
                    timeout(KILL_WAIT, self.command.call.next()).await.is_ok()
                }
            }
            // It had just ended, or the sandbox has.
            Ok(Some(_) | None) => true,
            Err(_elapsed) => false,
        };
        if !is_over {
            self.command.call.link.cut();
        }
        self.command.is_over = true;
    }

    async fn attend(&mut self) -> SessionEnd {
        let mut pending = None;
        let (mut types, mut controls) = (true, true);
        loop {
            tokio::select! {
                biased;
                () = self.events.closed() => return SessionEnd::HungUp,
                answer = self.command.call.next() => return match answer {
                    Some(Answer::Exited { code, .. }) => SessionEnd::Exited(code),
                    // The sandbox has ended, or sent an invalid answer.
                    _ => SessionEnd::Lost,
                },
                control = self.controls.recv(), if controls => match control {
                    None => controls = false,
                    Some(control) => self.control(control).await,
                },
                permit = self.device.keys.reserve(), if pending.is_some() => {
                    // Input is lost if the slave is closed, as on any terminal.
                    if let (Ok(permit), Some(bytes)) = (permit, pending.take()) {
                        permit.send(bytes);
                    }
                }
                bytes = self.typed.recv(), if types && pending.is_none() => {
                    types = bytes.is_some();
                    pending = bytes;
                }
            }
        }
    }

    async fn control(&self, control: TerminalControl) {
        match control {
            TerminalControl::Resize(size) => self.device.resize(size),
            TerminalControl::Signal(TerminalSignal::Interrupt) => {
                self.device.signal(Signal::INT);
            }
            TerminalControl::Signal(TerminalSignal::Quit) => {
                self.device.signal(Signal::QUIT);
            }
            TerminalControl::Signal(TerminalSignal::Kill) => self.command.kill().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, open, openat};
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

    use super::super::link::pipe;
    use super::*;

    #[test]
    fn only_a_master_is_accepted() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        unlockpt(&master).expect("it is ours");
        let slave = ioctl_tiocgptpeer(&master, flags).expect("its slave");
        let path = openat(CWD, "/dev/ptmx", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let read_only = |path| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        for (wrong, what) in [
            (slave, "the slave"),
            (path.expect("there is one"), "a path"),
            (read_only("/dev/null").expect("there is one"), "another device"),
            (read_only("/proc/self/stat").expect("there is one"), "a file"),
            (pipe().expect("a pipe").0, "a pipe"),
        ] {
            assert!(checked(wrong).is_err(), "{what} must be refused");
        }
        let master = checked(master).expect("a master");
        let flags = fcntl_getfl(&master).expect("its flags");
        assert!(flags.contains(OFlags::NONBLOCK), "reading it must not block");
    }
}
