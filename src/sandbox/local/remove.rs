//! Removes trees that were made to be hard to remove.
//!
//! A tree can be 60,000 levels deep, so nothing here recurses or holds a descriptor per level: the
//! way down is a single descriptor, and the way up is `..`, which must lead to the directory that
//! was come from. What lies deeper than [`LEVELS_MAX`] is first moved up to the tree's top, so that
//! memory is bounded too. A directory can forbid its owner to enter it, so its permissions are set
//! first, through a descriptor that can't be swapped for a link. Links are removed, never followed.
//!
//! Used by the server on trees in which nothing runs any more, and inside a sandbox on its
//! workspace, where commands may interfere: then it may fail, but touches only what those commands
//! could touch themselves.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fstat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// Deepest way down. Moving a directory costs several times what entering it does.
const LEVELS_MAX: usize = 4_096;

/// Most names of directories that are remembered on the whole way down; a level that has more is
/// looked at again.
const NAMES_MAX: usize = 20_000;

/// Most names that are read from a directory before it is changed: what `readdir` shows of a
/// directory that is being changed is unspecified.
const BATCH_LEN: usize = 10_000;

/// Removes what is called `name` in `parent`, a directory with all that is in it.
///
/// # Errors
/// `NOENT` where there is nothing; `BUSY` where directories were moved about meanwhile; what the
/// kernel answers to the call that failed.
pub fn remove(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        // Linux answers ISDIR for a directory; PERM is what POSIX wants.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let top = enter(parent, name)?;
    let here = enter(parent, name)?;
    Walk { top, here, names: Vec::new(), above: Vec::new(), remembered: 0, moved: 0 }.empty()?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory, whatever its permissions are, and makes it one that can be emptied.
fn enter(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(parent, name, flags, Mode::empty())?;
    if fstat(&held)?.st_mode & 0o700 != 0o700 {
        // This path leads to what is held open, and nowhere else.
        let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
        chmodat(CWD, path, Mode::from_raw_mode(0o700), AtFlags::empty())?;
    }
    openat(&held, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Which directory a descriptor is, as long as it is held or on the way to one that is.
fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A level on the way down that is come back to.
struct Level {
    identity: (u64, u64),
    /// The directory in it that the way goes on through.
    through: Vec<u8>,
    /// Further directories in it that are not empty.
    names: Vec<Vec<u8>>,
}

/// A walk through a tree that leaves nothing behind.
struct Walk {
    top: OwnedFd,
    here: OwnedFd,
    /// Directories here that are known not to be empty.
    names: Vec<Vec<u8>>,
    above: Vec<Level>,
    /// How many names there are in all of `above` and `names`.
    remembered: usize,
    moved: u64,
}

impl Walk {
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

    /// Removes what can be removed at once and remembers what can't; says whether another look is
    /// needed, because something is remembered or was left out.
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
            // Gone, or something else meanwhile: the next look tells.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let names = std::mem::take(&mut self.names);
        self.above.push(Level { identity: identity(&self.here)?, through: name, names });
        self.here = below;
        Ok(())
    }

    /// Goes back up and removes the directory come from; false at the top.
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
            // Filled or replaced meanwhile, by a command that still runs.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
                self.names.push(through);
                self.remembered += 1;
            }
            Err(errno) => return Err(errno),
        }
        Ok(true)
    }

    /// Moves a directory from here to the top, where a later look finds it.
    fn move_up(&mut self, name: &[u8]) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let to = format!(".moved-{}", self.moved);
            // A place of its own is made first: the name may be in use.
            match mkdirat(&self.top, &to, Mode::from_raw_mode(0o700)) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno),
            }
            return match renameat(&self.here, name, &self.top, &to) {
                // Moving a directory changes its `..`, for which it must be writable to its owner.
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

/// What is in a directory, up to [`BATCH_LEN`] of it.
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
    fn trees_deeper_than_the_way_down_and_wider_than_a_look_are_removed() {
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
