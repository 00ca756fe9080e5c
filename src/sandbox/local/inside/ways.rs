//! Keeps the ways into a sandbox open.
//!
//! Its user owns the workspace, the home directory and the directories for temporary files, so a
//! command can take every right on them away. No file could be read then and no command started.
//! Each request therefore begins with directories that their owner may read, change and enter; all
//! else about them stays as it is. What only root may set, the immutable attribute for one
//! (`ioctl_iflags(2)`), cannot be set inside.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, fstat, mkdirat, openat};
use rustix::io::Errno;

use super::{HOME, WORKSPACE};

/// What the owner of a directory needs to use it.
const OWNER: u32 = 0o700;

/// How often a command tries to enter its directory while others may close it again.
const TRIES: usize = 64;

/// The directories that every request can need, each after the one that it is in.
const WAYS: [&str; 5] = [WORKSPACE, "/tmp", "/dev/shm", "/home", HOME];

/// Opens the directories that a command has closed, and makes a home directory that it has removed.
/// What stands in the place of the home directory, a link or a file, stays.
pub fn open_all() {
    for way in WAYS {
        if open(way) == Err(Errno::NOENT) {
            // If this fails, the request that needs it says why.
            let _ = mkdirat(CWD, way, Mode::from_raw_mode(OWNER));
        }
    }
}

fn open(way: &str) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_to_owner(&openat(CWD, way, flags, Mode::empty())?)
}

/// Gives the owner of an open directory all rights on it.
pub fn open_to_owner(directory: &OwnedFd) -> Result<(), Errno> {
    let mode = fstat(directory)?.st_mode;
    if mode & OWNER == OWNER {
        return Ok(());
    }
    // This path leads to the open directory only; a descriptor without rights takes no `fchmod`.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    chmodat(CWD, path, Mode::from_raw_mode(mode & 0o7777 | OWNER), AtFlags::empty())
}

/// Enters the workspace, in spite of a process that keeps closing it.
pub fn enter_workspace() -> Result<(), Errno> {
    let mut entered = Err(Errno::ACCESS);
    for _ in 0..TRIES {
        entered = rustix::process::chdir(WORKSPACE);
        if entered != Err(Errno::ACCESS) {
            break;
        }
        open_all();
    }
    entered
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_closed_directory_is_opened_to_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        for (closed, open) in [(0o000, 0o700), (0o644, 0o744), (0o1277, 0o1777), (0o2755, 0o2755)] {
            let held: OwnedFd = File::open(dir.path()).expect("opens").into();
            fs::set_permissions(dir.path(), PermissionsExt::from_mode(closed)).expect("set");
            open_to_owner(&held).expect("opened");
            let mode = fs::metadata(dir.path()).expect("there").permissions().mode();
            assert_eq!(mode & 0o7777, open, "{closed:o}");
        }
    }
}
