//! The control group in which memory is limited, as PID 1 has it.
//!
//! Whoever works steps into it before anything else: a fork that becomes a command or works on
//! files, and with it all that it starts. PID 1 does not: what fills the limit need not belong to
//! any process that could be ended for it, and PID 1's end is the sandbox's.
//!
//! The door is a descriptor of PID 1's that ends at an execution. Through it one gets in and not
//! out, and a command that had it would be where it is already.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, write};
use rustix::thread::UnshareFlags;

use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};

/// Its two doors, before PID 1 has made it its own.
pub struct WorkGroup {
    enter: OwnedFd,
    leave: OwnedFd,
}

/// The way into it.
pub struct Door(OwnedFd);

impl WorkGroup {
    /// Takes both doors from an order.
    pub fn take(beside: &mut impl Iterator<Item = OwnedFd>) -> Result<Self, SetupError> {
        match (beside.next(), beside.next()) {
            (Some(enter), Some(leave)) => Ok(Self { enter, leave }),
            (_, _) => Err(SetupError::check("the order must have the doors of its group")),
        }
    }

    /// Makes it all that those in it can see: the root of a cgroup namespace, which is that of
    /// whoever enters the namespace at that moment. So PID 1 steps in, and out again.
    pub fn enclose(self) -> Result<Door, SetupError> {
        let step = |door| write(door, b"0");
        step(&self.enter).step("step into the control group of those who work")?;
        sys::unshare(UnshareFlags::NEWCGROUP).step("make a cgroup namespace")?;
        if !on(Bug::InWorkGroup) {
            step(&self.leave).step("step out of the control group of those who work")?;
        }
        Ok(Door(self.enter))
    }
}

impl Door {
    /// Its descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Steps in, for good. 0 is whoever writes it.
    pub fn enter(&self) -> Result<(), Errno> {
        write(&self.0, b"0").map(|_| ())
    }
}
