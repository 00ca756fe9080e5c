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
//! afterwards, as on the host. Only the mounting itself does without them: it writes the journal's
//! head and waits for the disk four times, and where that is lost the file system is as it was before;
//! not where a journal has to be replayed.
//! They are switched on while the rest of the sandbox is set up ([`settle`]); accepted race: what is
//! synced in its first milliseconds can be lost with the power.

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
    AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock, fstat, fstatfs, openat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
};

pub use loopback::Device;
pub use steps::{DAMAGED, is_passing, remedy};
pub use superblock::has_errors;
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

impl ImageError {
    /// Whether it can mean that the image is damaged.
    pub fn is_damage(&self) -> bool {
        let is_said = matches!(
            self.errno,
            Errno::UCLEAN | Errno::BADMSG | Errno::INVAL | Errno::IO | Errno::NODATA
        );
        self.step == steps::MOUNT && is_said
    }
}

/// Names the step that an error belongs to.
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, ImageError>;
}

impl<T> Step<T> for Result<T, Errno> {
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

/// Does the rest of mounting, which waits for the disk: a sandbox can be set up meanwhile.
///
/// # Errors
/// Where barriers can't be switched on. That files are kept in memory twice, where the file system
/// that the image is on can't do without, is none.
pub fn settle(Mounted { mount, device }: &Mounted) -> Result<(), ImageError> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    fspick(mount, "", flags)
        .and_then(|again| {
            fsconfig_set_flag(again.as_fd(), "barrier")?;
            fsconfig_reconfigure(again.as_fd())
        })
        .step(steps::SETTLE)?;
    let _ = device.bypass_cache();
    Ok(())
}

/// Prepares the top directory, once: as made it is root's, which nobody inside can make it again.
fn give_to(mount: &OwnedFd, owner: u32) -> Result<(), Errno> {
    let top =
        openat(mount, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if fstat(&top)?.st_uid != 0 {
        return Ok(());
    }
    match unlinkat(&top, "lost+found", AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    fchmod(&top, Mode::from_raw_mode(0o700))?;
    fchown(&top, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
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
