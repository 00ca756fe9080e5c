//! Removes directory trees, including hostile ones.
//!
//! A tree can be 60,000 levels deep, so nothing here recurses or holds a descriptor per level. The
//! walk holds one descriptor and returns by `..`, which must be the directory that it came from.
//! Directories below [`LEVELS_MAX`] are first moved up to the tree's top, which bounds memory too.
//! A directory can deny access to its owner, so its permissions are set first, through a
//! descriptor that can't be swapped for a link. Links are removed, never followed.
//!
//! The server uses this on trees that no process uses any more. Inside a sandbox it runs on the
//! workspace, where commands may interfere: then it may fail, but it touches only what those
//! commands could touch.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fstat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// The deepest walk. Moving a directory costs several times as much as entering it.
const LEVELS_MAX: usize = 4_096;

/// The most directory names that the walk remembers in all; a level with more is read again.
const NAMES_MAX: usize = 20_000;

/// The most names read from a directory before it is changed: `readdir` of a changing directory is
/// unspecified.
const BATCH_LEN: usize = 10_000;

/// Removes `name` in `parent`, a directory with all its content.
///
/// # Errors
/// `NOENT` if it does not exist; `BUSY` if directories were moved meanwhile; the kernel's error.
pub fn remove(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        // Linux returns ISDIR for a directory, POSIX prescribes PERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let top = enter(parent, name)?;
    let here = enter(parent, name)?;
    RemovalWalk { top, here, names: Vec::new(), above: Vec::new(), remembered: 0, moved: 0 }
        .empty()?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory whatever its permissions are, and makes it writable.
fn enter(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(parent, name, flags, Mode::empty())?;
    if fstat(&held)?.st_mode & 0o700 != 0o700 {
        // This path leads to the open directory only.
        let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
        chmodat(CWD, path, Mode::from_raw_mode(0o700), AtFlags::empty())?;
    }
    openat(&held, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Identifies a directory while it is open or an ancestor of an open one.
fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A level on the way down, to return to.
struct Level {
    identity: (u64, u64),
    /// The subdirectory that the walk entered.
    through: Vec<u8>,
    /// Other subdirectories that are not empty.
    names: Vec<Vec<u8>>,
}

/// A walk that removes a tree.
struct RemovalWalk {
    top: OwnedFd,
    here: OwnedFd,
    /// Subdirectories that are not empty.
    names: Vec<Vec<u8>>,
    above: Vec<Level>,
    /// The number of names in `above` and `names`.
    remembered: usize,
    moved: u64,
}

impl RemovalWalk {
    /// Removes everything below the top.
    fn empty(&mut self) -> Result<(), Errno> {
        loop {
            if let Some(name) = self.names.pop() {
                self.remembered -= 1;
                self.go_down(name)?;
            } else if self.sweep()? {
                continue;
            } else if !self.go_up()? {
                return Ok(());
            }
        }
    }

    /// Removes what can be removed at once and remembers the rest; returns whether another pass is
    /// needed.
    fn sweep(&mut self) -> Result<bool, Errno> {
        let found = read(&self.here)?;
        let mut again = found.len() >= BATCH_LEN;
        for (name, kind) in found {
            if kind != FileType::Directory {
                match unlinkat(&self.here, &*name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(Errno::ISDIR | Errno::PERM) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match unlinkat(&self.here, &*name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            again = true;
            if self.names.is_empty() || self.remembered < NAMES_MAX {
                self.names.push(name);
                self.remembered += 1;
            }
        }
        Ok(again)
    }

    fn go_down(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        if self.above.len() >= LEVELS_MAX {
            return self.move_up(&name);
        }
        let below = match enter(&self.here, &name) {
            Ok(below) => below,
            // Gone or replaced meanwhile: the next pass sees.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let names = std::mem::take(&mut self.names);
        self.above.push(Level { identity: identity(&self.here)?, through: name, names });
        self.here = below;
        Ok(())
    }

    /// Returns to the parent and removes the directory just left; false at the top.
    fn go_up(&mut self) -> Result<bool, Errno> {
        let Some(Level { identity: expected, through, names }) = self.above.pop() else {
            return Ok(false);
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(&self.here, c"..", flags, Mode::empty())?;
        if identity(&parent)? != expected {
            return Err(Errno::BUSY);
        }
        self.here = parent;
        self.names = names;
        match unlinkat(&self.here, &*through, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // A running command filled or replaced it meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
                self.names.push(through);
                self.remembered += 1;
            }
            Err(errno) => return Err(errno),
        }
        Ok(true)
    }

    /// Moves a directory to the top, where a later pass finds it.
    fn move_up(&mut self, name: &[u8]) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let to = format!(".moved-{}", self.moved);
            // Makes a directory for it first: the name may be in use.
            match mkdirat(&self.top, &to, Mode::from_raw_mode(0o700)) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno),
            }
            return match renameat(&self.here, name, &self.top, &to) {
                // Moving a directory changes its `..`, so its owner must be able to write to it.
                Err(Errno::ACCESS) => {
                    drop(enter(&self.here, name)?);
                    renameat(&self.here, name, &self.top, &to)
                }
                Err(Errno::NOENT) => Ok(()),
                done => done,
            };
        }
    }
}

/// Reads up to [`BATCH_LEN`] entries of a directory.
fn read(directory: &OwnedFd) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), entry.file_type()));
        }
        if names.len() == BATCH_LEN {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        File::open(path).expect("opens").into()
    }

    #[test]
    fn trees_deeper_than_the_walk_and_wider_than_a_pass_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let parent = open(dir.path());
        fs::create_dir(dir.path().join("tree")).expect("made");
        let mut here = open(&dir.path().join("tree"));
        for level in 0..LEVELS_MAX + 100 {
            mkdirat(&here, "d", Mode::from_raw_mode(0o700)).expect("made");
            if level % 1_000 == 7 {
                for name in [".moved-1", "sibling"] {
                    mkdirat(&here, name, Mode::from_raw_mode(0o000)).expect("made");
                }
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            here = openat(&here, "d", flags, Mode::empty()).expect("opens");
        }
        let wide = dir.path().join("tree/wide");
        for name in 0..BATCH_LEN + 5 {
            fs::create_dir_all(wide.join(format!("{}", name % 300))).expect("made");
            File::create(wide.join(format!("{}/{name}", name % 300))).expect("made");
            File::create(wide.join(format!("f{name}"))).expect("made");
        }
        remove(&parent, b"tree").expect("removed");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0);
        assert_eq!(remove(&parent, b"tree"), Err(Errno::NOENT));
    }

    #[test]
    fn links_are_removed_and_not_followed_and_closed_directories_are_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("kept")).expect("made");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("closed/below/x")).expect("made");
        symlink(&outside, tree.join("link")).expect("linked");
        symlink(&outside, tree.join("closed/below/link")).expect("linked");
        for path in ["closed/below", "closed", ""] {
            let closed = fs::Permissions::from_mode(0o000);
            fs::set_permissions(tree.join(path), closed).expect("closed");
        }
        remove(&open(dir.path()), b"tree").expect("removed");
        assert!(!tree.exists() && outside.join("kept").exists());
        let mode = fs::metadata(&outside).expect("there").permissions().mode();
        assert_ne!(mode & 0o777, 0o700, "the link's target keeps its permissions");
    }
}
