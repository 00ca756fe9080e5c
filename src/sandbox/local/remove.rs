//! Removes trees that were made to be hard to remove.
//!
//! A tree can be 60,000 levels deep, so nothing here recurses or holds a descriptor per level: each
//! directory that is found inside another is first moved up beside the tree's top, and emptied
//! there, so that no path ever has more than two parts. A directory can forbid its owner to enter
//! it, so its permissions are set first, through a descriptor that can't be swapped for a link.
//! Links are removed, never followed; another mount is never entered, since none can be moved.
//!
//! Used by the server on trees in which nothing runs any more, and inside a sandbox on its
//! workspace, where commands may interfere: then it may fail, but touches only what those commands
//! could touch themselves.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fstat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// Removes what is called `name` in `parent`, a directory with all that is in it.
///
/// # Errors
/// `NOENT` where there is nothing; what the kernel answers to the call that failed.
pub fn remove(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        // Linux answers ISDIR for a directory; PERM is what POSIX wants.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let top = enter(parent, name)?;
    let mut heap = Heap { top, moved: 0 };
    heap.empty_top()?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory, whatever its permissions are, and makes it one that can be emptied.
fn enter(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(parent, name, flags, Mode::empty())?;
    if fstat(&held)?.st_mode & 0o700 != 0o700 {
        chmod_held(&held)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(&held, c".", flags, Mode::empty())
}

/// Gives a directory that is held open its owner's permissions back. The path below `/proc` leads
/// to what is held and nowhere else.
fn chmod_held(held: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
    chmodat(CWD, path, Mode::from_raw_mode(0o700), AtFlags::empty())
}

/// The tree on its way out: its top, and how many directories were moved up to it.
struct Heap {
    top: OwnedFd,
    moved: u64,
}

impl Heap {
    /// Empties the top: every directory in it is emptied and removed, until a look finds nothing.
    fn empty_top(&mut self) -> Result<(), Errno> {
        loop {
            let mut found = false;
            for (name, kind) in read(&self.top)? {
                found = true;
                if kind != FileType::Directory {
                    match unlinkat(&self.top, &*name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => continue,
                        Err(Errno::ISDIR | Errno::PERM) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                self.empty_child(&name)?;
            }
            if !found {
                return Ok(());
            }
        }
    }

    /// Removes a directory of the top: its files go, its directories move up.
    fn empty_child(&mut self, name: &[u8]) -> Result<(), Errno> {
        loop {
            let child = match enter(&self.top, name) {
                Ok(child) => child,
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let found = read(&child)?;
            if found.is_empty() {
                match unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => return Ok(()),
                    // Filled meanwhile, by a command that is still running.
                    Err(Errno::NOTEMPTY | Errno::EXIST) => continue,
                    Err(errno) => return Err(errno),
                }
            }
            for (below, kind) in found {
                if kind != FileType::Directory {
                    match unlinkat(&child, &*below, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => continue,
                        Err(Errno::ISDIR | Errno::PERM) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                self.move_up(&child, &below)?;
            }
        }
    }

    fn move_up(&mut self, from: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let to = format!(".moved-{}", self.moved);
            // A name of its own is made first: a rename onto an existing empty directory would
            // succeed too, but one onto a full or foreign one would not.
            match mkdirat(&self.top, &to, Mode::from_raw_mode(0o700)) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno),
            }
            return match renameat(from, name, &self.top, &to) {
                // Moving a directory changes its `..`, for which it must be writable to its owner.
                Err(Errno::ACCESS) => {
                    drop(enter(from, name)?);
                    renameat(from, name, &self.top, &to)
                }
                Err(Errno::NOENT) => Ok(()),
                done => done,
            };
        }
    }
}

/// What is in a directory. Collected before anything is changed: what `readdir` shows of a
/// directory that is being changed is unspecified.
fn read(directory: &OwnedFd) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
    /// Names held at once; the rest is found by the next look.
    const NAMES_MAX: usize = 10_000;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), entry.file_type()));
        }
        if names.len() == NAMES_MAX {
            break;
        }
    }
    Ok(names)
}
