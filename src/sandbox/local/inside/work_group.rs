//! The workers' control group, whose memory is limited, on PID 1's side.
//!
//! Each worker joins it first: a fork that becomes a command or works on files, and with it all
//! its children. PID 1 stays outside. The limit may be filled by memory of no process, and PID 1's
//! end is the sandbox's end.
//!
//! The door is a close-on-exec descriptor of PID 1. It only allows to join; a command that had it
//! would already be in the group.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, write};
use rustix::thread::UnshareFlags;

use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};

/// The files to join and to leave it, before PID 1 makes it a namespace's root.
pub struct WorkGroup {
    enter: OwnedFd,
    leave: OwnedFd,
}

/// The file to join it.
pub struct Door(OwnedFd);

impl WorkGroup {
    /// Takes both files from an order.
    pub fn take(beside: &mut impl Iterator<Item = OwnedFd>) -> Result<Self, SetupError> {
        match (beside.next(), beside.next()) {
            (Some(enter), Some(leave)) => Ok(Self { enter, leave }),
            (_, _) => {
                Err(SetupError::check("the order lacks the files of the workers' control group"))
            }
        }
    }

    /// Makes it the root of a cgroup namespace, so that its members see nothing above it. The root
    /// is the current group of the process that makes the namespace, so PID 1 joins and leaves.
    pub fn enclose(self) -> Result<Door, SetupError> {
        let step = |door| write(door, b"0");
        step(&self.enter).step("join the workers' control group")?;
        sys::unshare(UnshareFlags::NEWCGROUP).step("make a cgroup namespace")?;
        if !on(Bug::InWorkGroup) {
            step(&self.leave).step("leave the workers' control group")?;
        }
        Ok(Door(self.enter))
    }
}

impl Door {
    /// Its descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Joins, for good. 0 means the writer.
    pub fn enter(&self) -> Result<(), Errno> {
        write(&self.0, b"0").map(|_| ())
    }
}
