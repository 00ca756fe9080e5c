//! What is done to descriptors without a safe call: letting a tokio task wait for one, and sending
//! a signal through a terminal.

#![allow(
    unsafe_code,
    reason = "tokio can't see from AsRawFd that a descriptor stays open, and there \
    is no wrapper for TIOCSIG"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::Signal;
use tokio::io::unix::AsyncFd;

/// Lets a descriptor be waited for. It must not block.
///
/// # Errors
/// What registering it answers.
pub fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, always names the same descriptor, and closes it only when it
    // is dropped, which is after tokio has let go of it.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}

/// Sends a signal to the process group that is in front at a terminal, by its master side; to nobody
/// where there is none any more.
pub fn signal_foreground(master: &OwnedFd, signal: Signal) {
    // SAFETY: TIOCSIG takes a number by value and touches no memory of ours.
    let _gone = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSIG, signal.as_raw()) };
}
