//! Unsafe calls on descriptors: registering one with tokio, and sending a signal through a
//! terminal.

#![allow(
    unsafe_code,
    reason = "tokio can't see from AsRawFd that a descriptor stays open, and there \
    is no wrapper for TIOCSIG"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::Signal;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with tokio. It must not block.
///
/// # Errors
/// The error of registering it.
pub fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, always names the same descriptor, and closes it only on drop,
    // which is after tokio has deregistered it.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}

/// Sends a signal to the foreground process group of a terminal, by its master. Does nothing if
/// there is no such group.
pub fn signal_foreground(master: &OwnedFd, signal: Signal) {
    // SAFETY: TIOCSIG takes a number by value and touches no memory of ours.
    let _gone = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSIG, signal.as_raw()) };
}
