//! Device nodes, also where `/dev` does not have them.
//!
//! A container has the nodes that were there when it was started, and the kernel makes loop devices
//! as they are asked for: the one that is free may have none. It is made then, in a file system of
//! its own that is attached nowhere and goes with the last who has it open: `/dev` may be read-only,
//! and is not ours.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{CWD, Dev, FileType, Mode, OFlags, makedev, mknodat, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

/// What a device is, and its numbers (`Documentation/admin-guide/devices.txt`).
#[derive(Clone, Copy)]
pub struct Numbers {
    pub kind: FileType,
    pub major: u32,
    pub minor: u32,
}

/// A node that is open for reading and writing.
pub struct Node {
    /// Where it is, for this process.
    pub path: String,
    pub open: OwnedFd,
    /// The file system that was made for it.
    _made: Option<OwnedFd>,
}

impl Node {
    /// Opens a device by its name in `/dev`, or by its numbers where there is none of that name.
    ///
    /// # Errors
    /// What opening it answers; `NOENT` where it is not there and can't be made either.
    pub fn open(name: &str, numbers: Numbers) -> Result<Self, Errno> {
        let path = format!("/dev/{name}");
        match open(&path) {
            Ok(open) => Ok(Self { path, open, _made: None }),
            Err(Errno::NOENT) => Self::make(name, numbers).map_err(|errno| match errno {
                // What is missing says more than why it can't be made.
                Errno::PERM | Errno::ACCESS => Errno::NOENT,
                errno => errno,
            }),
            Err(errno) => Err(errno),
        }
    }

    fn make(name: &str, Numbers { kind, major, minor }: Numbers) -> Result<Self, Errno> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(context.as_fd(), "mode", "0700")?;
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let made = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let device: Dev = makedev(major, minor);
        mknodat(&made, name, kind, Mode::RUSR | Mode::WUSR, device)?;
        let path = format!("/proc/self/fd/{}/{name}", made.as_raw_fd());
        Ok(Self { open: open(&path)?, path, _made: Some(made) })
    }
}

fn open(path: &str) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/zero` under a name that nobody has.
    const ZERO: Numbers = Numbers { kind: FileType::CharacterDevice, major: 1, minor: 5 };

    #[test]
    fn a_node_that_is_missing_is_made_where_that_is_allowed() {
        let there = Node::open("zero", ZERO).expect("it is there");
        assert_eq!(there.path, "/dev/zero");
        let made = Node::open("issuebox-no-such-node", ZERO);
        if !rustix::process::geteuid().is_root() {
            assert_eq!(made.err(), Some(Errno::NOENT), "it is missing");
            return;
        }
        let mut bytes = [1; 4];
        // Root of a container may not be allowed to either.
        match made {
            Ok(made) => {
                assert_eq!(rustix::io::read(&made.open, &mut bytes), Ok(4));
                assert_eq!(bytes, [0; 4]);
            }
            Err(errno) => assert_eq!(errno, Errno::NOENT),
        }
        assert!(!std::path::Path::new("/dev/issuebox-no-such-node").exists());
    }
}
