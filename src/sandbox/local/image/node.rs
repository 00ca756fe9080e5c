//! Device nodes, made if `/dev` lacks them.
//!
//! A container has only the nodes from its start, but the kernel makes loop devices on demand, so
//! the free one may lack a node. It is then made in an unattached file system that ends with its
//! last open descriptor: `/dev` may be read-only and belongs to the host.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{CWD, Dev, FileType, Mode, OFlags, makedev, mknodat, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

/// The kind and the numbers of a device (`Documentation/admin-guide/devices.txt`).
#[derive(Clone, Copy)]
pub struct Numbers {
    pub kind: FileType,
    pub major: u32,
    pub minor: u32,
}

/// A node that is open for reading and writing.
pub struct Node {
    /// Its path, for this process.
    pub path: String,
    pub open: OwnedFd,
    /// The file system that was made for it.
    _made: Option<OwnedFd>,
}

impl Node {
    /// Opens a device by its name in `/dev`, or by its numbers if there is no such name.
    ///
    /// # Errors
    /// The error of opening it; `NOENT` if it is missing and can't be made.
    pub fn open(name: &str, numbers: Numbers) -> Result<Self, Errno> {
        let path = format!("/dev/{name}");
        match open(&path) {
            Ok(open) => Ok(Self { path, open, _made: None }),
            Err(Errno::NOENT) => Self::make(name, numbers).map_err(|errno| match errno {
                // The missing node explains more than why it can't be made.
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

    /// `/dev/zero` under an unused name.
    const ZERO: Numbers = Numbers { kind: FileType::CharacterDevice, major: 1, minor: 5 };

    #[test]
    fn a_missing_node_is_made_if_that_is_allowed() {
        let there = Node::open("zero", ZERO).expect("it exists");
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
