//! What runs inside: the launcher that makes a sandbox, and PID 1 that works in it.
//!
//! The server starts its own binary with [`HIDDEN_COMMAND`] ([`launch`]); that process is small, has
//! one thread, no environment and no descriptor but its socket. One always waits in stock for the
//! next sandbox. Once it has its order it takes the sandbox's lock,
//! becomes an unprivileged user, enters a user namespace and forks. The fork builds the file
//! system it will see ([`view`]), gives up every privilege ([`confine`]), checks from inside that
//! all of this is so ([`check`]), says *ready*, and serves ([`init`]).
//!
//! PID 1 is the launcher's fork and does not execute the binary a second time: the image is fresh
//! and holds nothing of the server, and an executable inside would need its interpreter and
//! libraries at their paths on the host. A command can execute that image, too, by
//! `/proc/self/exe`, and is dumpable then. So the launcher runs from a read-only copy of the
//! binary's mount ([`copies`]), and PID 1 checks that it holds nothing else of the host ([`held`]).
//!
//! Everything here is synchronous and has one thread, as `fork` and namespaces want it. Nothing
//! here may be called in the server.

mod check;
mod confine;
mod connect;
mod copies;
mod given;
mod held;
mod init;
mod launch;
mod mapped;
mod netlink;
mod network;
#[cfg(test)]
mod refusals;
mod seccomp;
mod start;
mod sys;
mod usage;
mod view;
mod watchdog;
mod watched;
mod ways;
mod work_group;
mod workspace;

use rustix::io::Errno;

use super::image::ImageError;
use crate::sandbox::confined::{explain, shortened};

pub use check::HOST_ROOT;
pub use launch::run_hidden_command;
pub use mapped::mapping_program;
#[cfg(test)]
pub use sys::raise_loopback;

/// The first argument that makes the binary a launcher. Not for people: it does nothing without
/// the server's socket as its standard input.
pub const HIDDEN_COMMAND: &str = "__issuebox-launch";

/// The first argument that makes the binary the helper that copies mounts; the second is the
/// provider's directory.
pub const COPIES_COMMAND: &str = "__issuebox-copies";

/// The first argument that makes the binary the helper that acts for a sandbox's host user; the
/// second is that user's number.
pub const MAPPED_COMMAND: &str = "__issuebox-mapped";

/// Who commands are, inside: uid and gid.
const INNER_ID: u32 = 1000;

/// The workspace's place inside.
const WORKSPACE: &str = "/workspace";

/// The home directory inside.
const HOME: &str = "/home/agent";

/// A step of the setting up that failed.
#[derive(Debug, PartialEq, Eq)]
struct SetupError {
    /// Which step, for people and for the remedies.
    step: String,
    /// The system's error number; 0 if a check failed.
    errno: i32,
}

impl SetupError {
    fn check(what: impl Into<String>) -> Self {
        Self { step: what.into(), errno: 0 }
    }
}

/// Names the step that an error belongs to.
trait NameStep<T> {
    fn step(self, step: &str) -> Result<T, SetupError>;
}

impl<T> NameStep<T> for Result<T, Errno> {
    fn step(self, step: &str) -> Result<T, SetupError> {
        self.map_err(|errno| SetupError { step: step.into(), errno: errno.raw_os_error() })
    }
}

impl<T> NameStep<T> for std::io::Result<T> {
    fn step(self, step: &str) -> Result<T, SetupError> {
        self.map_err(|error| SetupError {
            step: step.into(),
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        })
    }
}

impl From<ImageError> for SetupError {
    fn from(ImageError { step, errno }: ImageError) -> Self {
        Self { step: step.into(), errno: errno.raw_os_error() }
    }
}
