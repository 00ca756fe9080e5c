//! The workspace before it is attached in the sandbox: a directory of the host, or an image.
//!
//! The launcher looks for both in the object's directory. It takes the workspace while it still has the
//! server's user: only root can mount an image, and only the server's user may enter the directories
//! above the workspace.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, fchdir, geteuid, waitpid};

use super::super::image::{self, IMAGE, Mounted};
use super::sys::Fork;
use super::watched::WatchedDisk;
use super::{NameStep, SetupError, mapped, sys, ways};
use crate::sabotage::{Bug, on};

/// A workspace that is not attached yet.
pub enum TakenWorkspace {
    /// The current directory: the one path that follows into a new mount namespace by itself,
    /// since its parents are closed to the user that the launcher becomes.
    Directory,
    /// A mount that is attached nowhere, and the fork that finishes it.
    Image(Mounted, Settling),
}

/// The fork that finishes the mount of an image.
pub struct Settling {
    pid: Pid,
    /// Receives a byte when the write barriers are on.
    said: OwnedFd,
}

impl TakenWorkspace {
    /// Takes the workspace of an object, for `owner`. Waits while its image is still mounted: after a
    /// stop the kernel writes its last bytes.
    pub fn take(object: &OwnedFd, owner: Option<u32>) -> Result<Self, SetupError> {
        if let Some(id) = owner.filter(|_| !geteuid().is_root()) {
            // From here on this process may give files to that user, and become it.
            mapped::enter(id)?;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match (openat(object, IMAGE, flags, Mode::empty()), owner) {
            (Ok(image), Some(owner)) => {
                let mounted = image::mount(&image, owner)?;
                let (said, say) =
                    pipe_with(PipeFlags::CLOEXEC).step("make a pipe for the workspace")?;
                match sys::fork().step("fork for the workspace")? {
                    Fork::Child => {
                        drop(said);
                        if on(Bug::BarriersOff) {
                            sys::exit_now(1);
                        }
                        let flushed = image::flush(&mounted, || {
                            // If this fails, the launcher has ended, and the sandbox with it.
                            let _ = rustix::io::write(&say, b"!");
                        });
                        sys::exit_now(i32::from(flushed.is_err()));
                    }
                    Fork::Parent(pid) => Ok(Self::Image(mounted, Settling { pid, said })),
                }
            }
            (Ok(_), None) => Err(SetupError::check("only root can mount the workspace's image")),
            (Err(Errno::NOENT), owner) => Self::directory(object, owner),
            (Err(errno), _) => Err(errno).step("open the workspace's image"),
        }
    }

    fn directory(object: &OwnedFd, owner: Option<u32>) -> Result<Self, SetupError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory =
            openat(object, "workspace", flags, Mode::empty()).step("open the workspace")?;
        // A command of an earlier run may have closed it.
        ways::open_to_owner(&directory).step("open the workspace to its owner")?;
        let step = "give the workspace to the sandbox's user";
        let has_owner = fstat(&directory).step(step)?.st_uid;
        if let Some(owner) = owner.filter(|owner| *owner != has_owner) {
            let (uid, gid) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)));
            chownat(&directory, "", uid, gid, AtFlags::EMPTY_PATH).step(step)?;
        }
        fchdir(&directory).step("enter the workspace")?;
        Ok(Self::Directory)
    }

    /// The device that it is on.
    pub fn device(&self) -> Result<u64, SetupError> {
        let stat = match self {
            Self::Directory => fstat(openat(CWD, ".", OFlags::PATH, Mode::empty()).step("look")?),
            Self::Image(Mounted { mount, .. }, _) => fstat(mount),
        };
        Ok(stat.step("look at the workspace")?.st_dev)
    }

    /// The mount to attach, without set-uid programs and devices. Must be called in the mount namespace
    /// that it is attached in.
    pub fn mount(self) -> Result<OwnedFd, SetupError> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = match self {
            Self::Directory => open_tree(CWD.as_fd(), "", flags).step("take the workspace")?,
            Self::Image(Mounted { mount, device: _ }, _) => return Ok(mount),
        };
        let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        sys::set_mount(&mount, u64::from(harmless.bits()), false).step("restrict the workspace")?;
        Ok(mount)
    }
}

impl TakenWorkspace {
    /// Waits until synced data survives a power failure. The sandbox does not count as up before.
    pub fn wait_until_safe(&self) -> Result<(), SetupError> {
        let Self::Image(_, Settling { said, .. }) = self else { return Ok(()) };
        loop {
            match rustix::io::read(said, &mut [0]) {
                Err(Errno::INTR) => {}
                Ok(1) => return Ok(()),
                Ok(_) | Err(_) => {
                    return Err(SetupError::check("the workspace's write barriers stay off"));
                }
            }
        }
    }

    /// Waits for the end of the mounting, and returns what must be watched while PID 1 has the rest. A
    /// directory may take `limit_mb`.
    pub fn watched(self, limit_mb: u64) -> Result<WatchedDisk, SetupError> {
        let (mount, settling) = match self {
            Self::Directory => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let top = openat(CWD, ".", flags, Mode::empty()).step("watch the workspace")?;
                return Ok(WatchedDisk::directory(top, limit_mb));
            }
            Self::Image(Mounted { mount, device: _ }, settling) => (mount, settling),
        };
        // Its exit code does not matter: the barriers are on, and the rest may fail.
        while matches!(waitpid(Some(settling.pid), WaitOptions::empty()), Err(Errno::INTR)) {}
        Ok(WatchedDisk::image(mount))
    }
}
