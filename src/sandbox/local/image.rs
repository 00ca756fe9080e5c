//! A workspace of a fixed size: an ext4 file system in a file, mounted through a loop device.
//!
//! When the server is root, this limits the whole disk use of a sandbox, bytes and inodes alike,
//! and makes deleting a sandbox one `unlink`. [`Templates`] makes the files. A launcher mounts its
//! own image while it is still root, without attaching the mount ([`mount`]): only the sandbox's
//! mount namespace ever contains it, and it ends with the last descriptor or namespace that holds
//! it.
//!
//! # Guarantees
//! - **No loop device leaks.** The device releases the file (`autoclear`) when the file system is
//!   unmounted, even if every process that used it was killed.
//! - **Never mounted twice.** Mounting takes `flock` on the open file, which the device then
//!   holds. The next mount waits until the kernel has released the file ([`wait_until_free`]).
//! - **The raw image is not writable from inside.** Sandboxes write files *in* it, through the
//!   kernel. The image is in a directory that only the server's user may enter, so it is no more
//!   hostile to the kernel than a directory. It is mounted `nosuid,nodev` all the same.
//!
//! # Memory
//! File content is cached once, as for a directory, and charged to the sandbox: the device
//! bypasses the cache of its backing file ([`Device::bypass_cache`]). With two caches and a small
//! limit, the kernel would need the sandbox's memory to write the sandbox's memory to disk, and
//! would kill for it. Only mounting reads through the cache, which is faster for an image that was
//! just made.
//!
//! # Losing power
//! The image has a journal and write barriers, so synced data survives a power failure, as on the
//! host. Only mounting works without barriers, unless the journal has to be replayed, because
//! mounting waits for the disk four times. [`flush`] switches barriers on while the rest of the
//! sandbox is set up. The sandbox does not count as up before that, so no promised data is written
//! without them. A power failure in between leaves one of:
//! - *An old image to which only mounting has written.* Mounting writes two blocks: the
//!   superblock, which then demands a journal replay, and the journal's head, which says where it
//!   begins. Whichever of them is lost, the next mount replays an empty journal or none, and the
//!   file system is as before.
//! - *A new image, whose top directory was also given to its user.* That is one transaction, which the
//!   kernel commits when the barriers go on, or after five seconds if the disk stalls. Every block of
//!   the journal has a checksum, so an incomplete transaction is not replayed. The kernel may then
//!   refuse to mount the image (see below). The create was not answered, so no promised data is lost.
//!
//! A new image and its name are on disk before its create is answered (`Disk::sync_new`), and the
//! first barrier writes everything before it. So a create that was answered finds its workspace again,
//! with all synced data.
//!
//! # Damage
//! An image in which the kernel has met an error, or which it refuses to mount, is not mounted
//! ([`is_damage`]). The sandbox does not start, nothing is deleted, and the error names the image and
//! the operator's `e2fsck` command.

mod loopback;
mod node;
mod steps;
mod superblock;
mod templates;
pub mod tool;
mod usable;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, flock, fstat,
    fstatfs, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
};

pub use loopback::Device;
pub use steps::{is_damage, is_passing, remedy};
pub use templates::Templates;
pub use usable::Images;

/// The image's name in an object's directory.
pub const IMAGE: &str = "workspace.ext4";

/// A disk with less room than this, in bytes, is full. Few writes need less at once, and the
/// kernel keeps a small reserve.
const FULL_BELOW: u64 = 64 * 1024;

/// A step of mounting an image that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageError {
    /// The step, for people.
    pub step: &'static str,
    /// The system's error.
    pub errno: Errno,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, std::io::Error::from(self.errno))
    }
}

/// Names the step that an error belongs to.
trait NameStep<T> {
    fn step(self, step: &'static str) -> Result<T, ImageError>;
}

impl<T> NameStep<T> for Result<T, Errno> {
    fn step(self, step: &'static str) -> Result<T, ImageError> {
        self.map_err(|errno| ImageError { step, errno })
    }
}

/// A mounted image; it stays mounted while its mount is held or attached.
pub struct Mounted {
    /// The mount.
    pub mount: OwnedFd,
    /// The loop device.
    pub device: Device,
}

/// Mounts an image that is open for reading and writing, and returns the unattached mount. Its top
/// directory belongs to `owner`. Blocks while the image is mounted elsewhere.
///
/// # Errors
/// [`ImageError`]; nothing is left then.
pub fn mount(image: &OwnedFd, owner: u32) -> Result<Mounted, ImageError> {
    wait_until_free(image).step(steps::WAIT)?;
    if superblock::has_errors(image) {
        return Err(Errno::UCLEAN).step(steps::MOUNT);
    }
    let device = loopback::attach(image)?;
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC).step(steps::OPEN_EXT4)?;
    let context = context.as_fd();
    fsconfig_set_string(context, "source", device.path())
        .and_then(|()| fsconfig_set_string(context, "errors", "remount-ro"))
        // Space freed inside is freed on the host.
        .and_then(|()| fsconfig_set_flag(context, "discard"))
        // Zeroing unused tables would fill the file with them.
        .and_then(|()| fsconfig_set_flag(context, "noinit_itable"))
        .and_then(|()| match superblock::needs_recovery(image) {
            true => Ok(()),
            false => fsconfig_set_flag(context, "nobarrier"),
        })
        .and_then(|()| fsconfig_create(context))
        .step(steps::MOUNT)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(steps::MOUNT)?;
    give_to(&mount, owner).step(steps::GIVE_TO_USER)?;
    Ok(Mounted { mount, device })
}

/// Completes the mount by waiting for the disk, while the sandbox is being set up. Calls `safe`
/// once barriers are on.
///
/// # Errors
/// Fails if barriers can't be switched on. Does not fail if the host's file system can't bypass
/// its cache; then files are cached twice.
pub fn flush(Mounted { mount, device }: &Mounted, safe: impl FnOnce()) -> Result<(), ImageError> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    fspick(mount, "", flags)
        .and_then(|again| {
            fsconfig_set_flag(again.as_fd(), "barrier")?;
            fsconfig_reconfigure(again.as_fd())
        })
        .step(steps::SETTLE)?;
    safe();
    let _ = device.bypass_cache();
    Ok(())
}

/// Gives the top directory to its user, once: a new one is root's, which nothing inside can
/// restore. Later it is only opened to its user again, who may have closed it. A repair may have filled `lost+found`, which then becomes the sandbox's.
fn give_to(mount: &OwnedFd, owner: u32) -> Result<(), Errno> {
    let top =
        openat(mount, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let (uid, gid) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)));
    let lost = "lost+found";
    match statat(&top, lost, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if stat.st_uid == 0 => match unlinkat(&top, lost, AtFlags::REMOVEDIR) {
            Ok(()) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                chownat(&top, lost, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Err(errno) => return Err(errno),
        },
        // A `lost+found` that the sandbox made is its own.
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let stat = fstat(&top)?;
    if stat.st_uid != 0 {
        let mode = stat.st_mode & 0o7777;
        return match mode & 0o700 {
            0o700 => Ok(()),
            _ => fchmod(&top, Mode::from_raw_mode(mode | 0o700)),
        };
    }
    fchmod(&top, Mode::from_raw_mode(0o700))?;
    fchown(&top, uid, gid)
}

/// Waits until an image is mounted nowhere. Then no other mount succeeds until this descriptor and
/// every device that has the image are closed.
///
/// # Errors
/// The error of `flock`.
pub fn wait_until_free(image: &OwnedFd) -> Result<(), Errno> {
    loop {
        match flock(image, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

/// Whether a mounted image has no bytes or no inodes left.
///
/// # Errors
/// The kernel's error.
pub fn is_full(mount: impl AsFd) -> Result<bool, Errno> {
    let stat = fstatfs(mount)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(0);
    Ok(stat.f_bavail.saturating_mul(block) < FULL_BELOW || stat.f_ffree == 0)
}
