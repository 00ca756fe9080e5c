//! Read-only copies of two of the host's mounts: the program's and the provider's directory.
//!
//! A process inside can be made to execute its parent's program (`#!/proc/self/exe`), and then
//! reaches that file through its mount, which no namespace inside changes. So launchers run from a
//! copy of the program's mount that is read-only and attached nowhere, and PID 1 holds the
//! sandbox's lock through such a copy, too. A program file that is replaced while the server runs
//! stays the running one in the copy.
//!
//! Making them needs a mount namespace, which the server has threads too many for: a short helper
//! makes them ([`copies`](super::inside)).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::AtFlags;
use rustix::fs::{Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::frame::{Answer, PACKET_LEN_MAX};
use super::inside::{COPIES_COMMAND, HIDDEN_COMMAND};
use super::launching::LaunchError;
use super::packet;
use super::spawner::socket_pair;

/// How long the helper may take, which needs milliseconds.
const WAIT: Duration = Duration::from_secs(10);

/// The copies.
pub struct ReadOnlyCopies {
    program: OwnedFd,
    data: OwnedFd,
    /// The directory that `data` is a copy of, by its real path.
    dir: PathBuf,
}

impl ReadOnlyCopies {
    /// Has this program make a copy of its own mount and of the mount of `dir`.
    ///
    /// # Errors
    /// The step that failed.
    pub fn make(program: &Path, dir: &Path) -> Result<Self, LaunchError> {
        let mut command = Command::new(program);
        command.env_clear().arg(COPIES_COMMAND);
        Self::made_by(command, dir)
    }

    /// Has this command make them; it gets the directory as its last argument.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub(super) fn made_by(mut command: Command, dir: &Path) -> Result<Self, LaunchError> {
        let failed = |error: io::Error| LaunchError::new("start the launcher", &error);
        let dir = fs::canonicalize(dir).map_err(failed)?;
        let (ours, theirs) = socket_pair().map_err(failed)?;
        command.arg(&dir).stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        // Its end of the socket, so that its end shows.
        drop(command);
        let received = receive(&ours);
        drop(ours);
        if received.is_err() {
            // It may have ended by itself.
            let _ = child.kill();
        }
        child.wait().map_err(failed)?;
        let (program, data) = received?;
        Ok(Self { program, data, dir })
    }

    /// A command that runs the program from its copy, with no environment.
    pub fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command.arg0("issuebox").env_clear();
        command
    }

    /// A command that runs a launcher.
    pub fn launcher(&self) -> Command {
        let mut command = self.command();
        command.arg(HIDDEN_COMMAND);
        command
    }

    /// Opens the lock in an object's directory through the copy.
    ///
    /// # Errors
    /// The file system's error; `NotFound` if the directory is not below the provider's.
    pub fn lock(&self, object: &OwnedFd) -> io::Result<OwnedFd> {
        let path = fs::read_link(format!("/proc/self/fd/{}", object.as_raw_fd()))?;
        let moved = || io::Error::from(io::ErrorKind::NotFound);
        let below = path.strip_prefix(&self.dir).map_err(|_| moved())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = openat(&self.data, below.join("lock"), flags, Mode::empty())?;
        let (found, meant) = (fstat(&lock)?, statat(object, "lock", AtFlags::SYMLINK_NOFOLLOW)?);
        let is_meant = (found.st_dev, found.st_ino) == (meant.st_dev, meant.st_ino);
        is_meant.then_some(lock).ok_or_else(moved)
    }
}

/// Receives both copies from the helper.
fn receive(socket: &OwnedFd) -> Result<(OwnedFd, OwnedFd), LaunchError> {
    let step = "copy the program's mount";
    let failed = |errno: Errno| LaunchError::new(step, &errno.into());
    let wait = Timespec { tv_sec: WAIT.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)).map_err(failed)? == 0 {
        return Err(failed(Errno::TIMEDOUT));
    }
    let (mut buffer, mut beside) = (vec![0; PACKET_LEN_MAX], Vec::new());
    let len = packet::receive(socket.as_fd(), &mut buffer, &mut beside).map_err(failed)?;
    match (Answer::decode(&buffer[..len]), <[OwnedFd; 2]>::try_from(beside)) {
        (Some(Answer::Ready), Ok([program, data])) => Ok((program, data)),
        (Some(Answer::SetupFailed { step, errno }), _) => Err(LaunchError { step, errno }),
        _ => Err(LaunchError { step: step.into(), errno: 0 }),
    }
}
