//! Descriptors that a tokio task can wait for.

#![allow(unsafe_code, reason = "tokio can't see from AsRawFd that a descriptor stays open")]

use std::io;
use std::os::fd::OwnedFd;

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
