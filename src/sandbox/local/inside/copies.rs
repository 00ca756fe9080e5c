//! The helper that makes the read-only copies of the host's mounts for the server.
//!
//! A copy is a mount that is attached nowhere: it lives as long as its descriptor and what was
//! opened or executed through it, and no namespace has a way to make it writable again.
//!
//! Root copies the mounts as the server has them. An ordinary user may copy no mount of the
//! host's, but those of a mount namespace of its own, where each has to be found by its path again.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{fstat, stat};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

use super::super::frame::Answer;
use super::super::packet;
use super::{NameStep, SetupError, launch, sys, view};

/// The program of this process.
const PROGRAM: &str = "/proc/self/exe";

/// Makes both copies and sends them. Its standard input is the server's socket.
pub(super) fn run(dir: &Path) -> ExitCode {
    let Ok(socket) = launch::take_socket() else { return ExitCode::from(2) };
    let (answer, copies) = match copies(dir) {
        Ok(copies) => (Answer::Ready, Vec::from(copies)),
        Err(SetupError { step, errno }) => (Answer::SetupFailed { step, errno }, Vec::new()),
    };
    let beside: Vec<_> = copies.iter().map(AsFd::as_fd).collect();
    // The server may have ended.
    let sent = packet::send(&socket, &answer.encode(), &beside);
    ExitCode::from(u8::from(sent.is_err()))
}

fn copies(dir: &Path) -> Result<[OwnedFd; 2], SetupError> {
    let step = "copy the program's mount";
    let program = match view::read_only(PROGRAM, false) {
        Err(Errno::PERM) => {
            sys::unshare(UnshareFlags::NEWUSER).step("make a user namespace")?;
            sys::unshare(UnshareFlags::NEWNS).step("make a mount namespace")?;
            // The link leads to the mount of the namespace that was left.
            let path = fs::read_link(PROGRAM).step(step)?;
            let replaced = || {
                SetupError::check(
                    "the server's program file was replaced or removed since it was started; \
                     restart the server",
                )
            };
            let program = match view::read_only(&*path, false) {
                Err(Errno::NOENT) => return Err(replaced()),
                copied => copied.step(step)?,
            };
            let (found, meant) = (fstat(&program).step(step)?, stat(PROGRAM).step(step)?);
            if (found.st_dev, found.st_ino) != (meant.st_dev, meant.st_ino) {
                return Err(replaced());
            }
            program
        }
        copied => copied.step(step)?,
    };
    let data = view::read_only(dir, true).step("copy the data directory's mount")?;
    Ok([program, data])
}
