//! Mounting an image that may be damaged: by a disk that lost what it had said it has, by a host's
//! disk that was full, by a bug of the kernel's.
//!
//! An image in which the kernel has met an error, or which it refuses to mount, is given to
//! `e2fsck -p` first. That repairs what can be repaired without a question, and gives up where
//! somebody must decide; the sandbox then does not start, and says what to do. Nothing is ever made
//! anew or deleted for it.
//!
//! # What it is given to
//! What is in an image was written by a sandbox, but only through the kernel: the structures that
//! `e2fsck` and the kernel read are the kernel's own. A sandbox could still have found a bug in
//! either. The kernel's is why images are mounted at all only on hosts that trust it with a hostile
//! sandbox anyway. `e2fsck` needs no trust: it runs as the sandbox's own uid, in namespaces of its
//! own, without a network, with nothing writable but the image, which is open already; and it can't
//! take more than its [time](TIME_MAX), its [memory](MEMORY_MAX) and the image's own length.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchown, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use rustix::thread::{UnshareFlags, set_no_new_privs};

use super::super::image::{self, DAMAGED, Mounted, tool};
use super::launch::become_user;
use super::{NameStep, SetupError, sys};
use crate::types::inert;

/// How long a check may take: less than a call to a provider does unless it is configured, so that its
/// reason is told. A gigabyte takes a second or so, and many files some more.
const TIME_MAX: Duration = Duration::from_secs(100);

/// How much memory it may take, in bytes. It keeps some bits for each block and file.
const MEMORY_MAX: u64 = 2 << 30;

/// Most characters of what it says that are told.
const SAID_LEN_MAX: usize = 300;

/// Mounts an image for `owner`, and has it repaired before where that is needed and possible; says
/// whether it was.
pub fn mount(image: &OwnedFd, owner: u32) -> Result<(Mounted, bool), SetupError> {
    // What the last sandbox's end still has to write comes first.
    image::wait_until_free(image).step("wait for the workspace's image")?;
    let is_known = image::has_errors(image);
    if is_known {
        repair(image, owner)?;
    }
    match image::mount(image, owner) {
        Err(error) if !is_known && error.is_damage() => {
            repair(image, owner)?;
            Ok((image::mount(image, owner)?, true))
        }
        mounted => Ok((mounted?, is_known)),
    }
}

fn repair(image: &OwnedFd, owner: u32) -> Result<(), SetupError> {
    let damaged = |why: &str| SetupError::check(format!("{DAMAGED}, and {why}"));
    let Some(program) = tool::find("e2fsck") else {
        return Err(damaged("e2fsck is missing: install e2fsprogs, then start it again"));
    };
    give(image, owner)?;
    let ended = check(image, owner, Command::new(program));
    give(image, 0)?;
    match ended {
        // 1 and 2 say that something was repaired.
        Ok((status, _)) if status.code().is_some_and(|code| code & !3 == 0) => Ok(()),
        Ok((_, said)) => {
            // It names files, which may be named anything.
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let said: String = inert(&words).chars().take(SAID_LEN_MAX).collect();
            Err(damaged(&format!(
                "e2fsck could not repair it without being asked: {said}. Stop the server, copy the \
                 image and run e2fsck on it yourself, or delete the sandbox"
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(damaged(&format!(
            "e2fsck was not done in {} seconds. Stop the server and run it on the image yourself",
            TIME_MAX.as_secs()
        ))),
        Err(error) => Err(damaged(&format!("e2fsck can't be run: {error}"))),
    }
}

fn give(image: &OwnedFd, id: u32) -> Result<(), SetupError> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    fchown(image, Some(uid), Some(gid)).step("give the workspace's image to who checks it")
}

fn check(
    image: &OwnedFd,
    owner: u32,
    mut command: Command,
) -> io::Result<(std::process::ExitStatus, String)> {
    let size = u64::try_from(fstat(image)?.st_size).unwrap_or(0);
    // By the descriptor: nobody but root may come to it by its path.
    command.args(["-p", "/proc/self/fd/0"]).env_clear().current_dir("/");
    command.stdin(Stdio::from(image.try_clone()?));
    sys::before_execution(&mut command, move || confine(owner, size).map_err(io::Error::from));
    tool::run(command, TIME_MAX)
}

/// Becomes nobody who could do anything but read, and write this much into what is open.
fn confine(owner: u32, size: u64) -> Result<(), Errno> {
    become_user(owner).map_err(|error| Errno::from_raw_os_error(error.errno))?;
    sys::unshare(
        UnshareFlags::NEWUSER
            | UnshareFlags::NEWNS
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS,
    )?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys::set_mount(&root, u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()), true)?;
    let limit =
        |resource, most| setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, size)?;
    limit(Resource::As, MEMORY_MAX)?;
    limit(Resource::Cpu, TIME_MAX.as_secs())?;
    nice(19)?;
    set_no_new_privs(true)?;
    set_parent_process_death_signal(Some(Signal::KILL))
}
