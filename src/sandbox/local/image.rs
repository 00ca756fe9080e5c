//! A workspace of a fixed size: an ext4 file system in a file, mounted through a loop device.
//!
//! Where the server is root this is what limits a sandbox's disk as a whole: bytes and names alike,
//! and it makes deleting a sandbox one `unlink`. [`Templates`] makes the files; a launcher mounts
//! its own while it is still root, without attaching it anywhere ([`mount`]): no mount namespace
//! but the sandbox's ever shows it, and it ends with the last descriptor or namespace that has it.
//!
//! # Guarantees
//! - **Nothing is left.** The loop device lets go of the file by itself (`autoclear`) when the file
//!   system is unmounted, also where every process that knows of it was killed.
//! - **Never mounted twice.** Whoever mounts holds `flock` on the open file that the device then
//!   keeps; the next one waits until the kernel has let go of that ([`wait_until_free`]).
//! - **Nobody writes the raw image.** Sandboxes write files *in* it, through the kernel; the file
//!   is in a directory that only the server's user may enter. So an image is no more hostile to the
//!   kernel than a directory is. It is mounted `nosuid,nodev` all the same.
//!
//! # Memory
//! What is read and written is kept in memory once, as for a directory, and counted to the sandbox:
//! the device goes past the cache of the file that it has ([`Device::bypass_cache`]). Kept twice,
//! under a small limit, the kernel would need memory of the sandbox's to write the sandbox's memory
//! to the disk, and kill for it. Only mounting reads the file from the cache, which is faster where
//! the image was just made.
//!
//! # Losing power
//! The image has a journal and is written with barriers, so what a program in it has synced is there
//! afterwards, as on the host. Only the mounting itself does without them, where no journal has to be
//! replayed: it waits for the disk four times. They are switched on while the rest of the sandbox is
//! set up ([`flush`]), and before that the sandbox does not count as up: nothing that was promised
//! can have been written without them. What a power failure meanwhile leaves is:
//! - *An image that was whole before, and that nothing but mounting has written to.* That writes two
//!   blocks: the superblock, which then says that the journal has to be replayed, and the journal's
//!   head, which says where it begins. Whichever of them is lost, the next mount finds an empty journal
//!   to replay or none, and the file system as it was before.
//! - *A new image, whose top directory is given to its user as well.* That is one transaction, which
//!   the kernel commits when the barriers go on, or by itself after five seconds, where the disk stalls
//!   for that long. Every block of the journal has a checksum: a transaction of which a part is lost is
//!   not replayed, and the kernel may then refuse to mount the image (next section). Its create has not
//!   been answered, so nothing that was promised is lost.
//!
//! # Damage
//! An image in which the kernel has met an error, or which it refuses to mount, is not mounted
//! ([`is_damage`]). The sandbox does not start, nothing is deleted, and the error names the image and
//! the `e2fsck` command that the operator runs.
//!
//! A new image itself reaches the disk, with its name, before its create is answered
//! (`Disk::sync_new`), and the first barrier brings everything before it to the disk. So a create that
//! was answered finds its workspace again, and all that was synced in it.

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

/// A disk with less room than this, in bytes, is full: a file that grows by less than it gets on a
/// disk is rare, and the kernel keeps a little back.
const FULL_BELOW: u64 = 64 * 1024;

/// A step of mounting an image that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageError {
    /// Which step, for people.
    pub step: &'static str,
    /// What the system said.
    pub errno: Errno,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.step, std::io::Error::from(self.errno))
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

/// An image that is mounted, for as long as its mount is held or attached somewhere.
pub struct Mounted {
    /// The mount.
    pub mount: OwnedFd,
    /// The device that it is on.
    pub device: Device,
}

/// Mounts an image that is open for reading and writing, and returns the mount, which is attached
/// nowhere. Its top directory belongs to `owner`. Blocks while the image is mounted elsewhere.
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
        // What is freed inside is freed on the host.
        .and_then(|()| fsconfig_set_flag(context, "discard"))
        // Zeroing tables that were never used would fill the file with them.
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

/// Does the rest of mounting, which waits for the disk: a sandbox can be set up meanwhile. Once the
/// barriers are on, `safe` is called.
///
/// # Errors
/// Where barriers can't be switched on. That files are kept in memory twice, where the file system
/// that the image is on can't do without, is none.
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

/// Prepares the top directory, once: as made it is root's, which nobody inside can make it again. A
/// repair may have put things into `lost+found`, which are the sandbox's then.
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
        // One that the sandbox has made is its own.
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    if fstat(&top)?.st_uid != 0 {
        return Ok(());
    }
    fchmod(&top, Mode::from_raw_mode(0o700))?;
    fchown(&top, uid, gid)
}

/// Waits until an image is mounted nowhere, and keeps it so until this descriptor, and every
/// device that has it, is closed.
///
/// # Errors
/// What `flock` answers.
pub fn wait_until_free(image: &OwnedFd) -> Result<(), Errno> {
    loop {
        match flock(image, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

/// Whether a mounted image has no room left, for bytes or for names.
///
/// # Errors
/// What the kernel answers.
pub fn is_full(mount: impl AsFd) -> Result<bool, Errno> {
    let stat = fstatfs(mount)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(0);
    Ok(stat.f_bavail.saturating_mul(block) < FULL_BELOW || stat.f_ffree == 0)
}
