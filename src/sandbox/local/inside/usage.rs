//! How much of the disk a tree takes, found out a piece at a time by looking at all that is in it.
//!
//! The tree is a sandbox's workspace, and what runs in the sandbox changes it meanwhile, or was made
//! to be hard to look at. So nothing here recurses, waits, or follows a link; each [piece](Walk::go_on)
//! is one look at some of a directory, whatever the tree is like; and memory is bounded: of the way
//! down only the [upper levels](HELD_MAX) are held open, and the way up from deeper ones is `..`, which
//! must lead to the directory that was come from. Where directories that deep were moved about
//! meanwhile, the walk has [lost](Seen::Lost) its way and counts for nothing but what it has seen.
//!
//! What counts is the room that is taken, not the length that a file has, and at least
//! [something](ENTRY_BYTES) for every name. Of a file with many names each has its part. What a file
//! system shares between files (reflinks) is counted for each. A file that has no name any more, and
//! is still open, is not seen.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, seek, statat,
};
use rustix::io::Errno;

/// The least that a name takes, in bytes: what common file systems keep for a file without content.
const ENTRY_BYTES: u64 = 512;

/// The levels that are held open. Who moves directories at these does not lead the walk astray.
const HELD_MAX: usize = 128;

/// The deepest way down, at some 64 bytes for each level.
const LEVELS_MAX: usize = 200_000;

/// The most names of directories that are remembered on the whole way down.
const NAMES_MAX: usize = 4_096;

/// How much of a directory is read at once, in bytes.
const PIECE: usize = 16 * 1024;

/// What a piece of a walk has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkProgress {
    /// There is more to see.
    Part,
    /// This is all of it.
    Whole,
    /// The way was lost, or a directory could not be looked at.
    Lost,
}

/// A walk through a tree.
pub struct Walk {
    /// The directory that is looked at, and where in it to go on.
    here: Here,
    above: Vec<Level>,
    /// How many names are remembered in all.
    remembered: usize,
    bytes: u64,
}

struct Here {
    directory: OwnedFd,
    /// The kernel's own mark of a place in the directory.
    cookie: u64,
    /// Whether nothing is left to be read.
    is_read: bool,
    /// Directories in it that have not been entered.
    names: Vec<Vec<u8>>,
}

/// A level on the way down that is come back to.
struct Level {
    identity: (u64, u64),
    held: Option<OwnedFd>,
    cookie: u64,
    is_read: bool,
    names: Vec<Vec<u8>>,
}

impl Walk {
    /// Begins at a directory.
    ///
    /// # Errors
    /// What opening it answers.
    pub fn new(top: impl AsFd) -> Result<Self, Errno> {
        let directory = enter(top, b".")?;
        let bytes = taken(&fstat(&directory)?);
        let here = Here { directory, cookie: 0, is_read: false, names: Vec::new() };
        Ok(Self { here, above: Vec::new(), remembered: 0, bytes })
    }

    /// What has been seen so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Looks at one more piece.
    pub fn go_on(&mut self) -> WalkProgress {
        let done = if let Some(name) = self.here.names.pop() {
            self.remembered -= 1;
            self.go_down(&name).map(|()| WalkProgress::Part)
        } else if !self.here.is_read {
            self.read().map(|()| WalkProgress::Part)
        } else {
            self.go_up()
        };
        done.unwrap_or(WalkProgress::Lost)
    }

    /// Counts what is in a piece of the directory.
    fn read(&mut self) -> Result<(), Errno> {
        let here = &mut self.here;
        let mut buffer = [MaybeUninit::uninit(); PIECE];
        seek(&here.directory, SeekFrom::Start(here.cookie))?;
        let mut entries = RawDir::new(&here.directory, &mut buffer);
        loop {
            let Some(entry) = entries.next() else {
                here.is_read = true;
                return Ok(());
            };
            let entry = entry?;
            let (name, next) = (entry.file_name().to_bytes(), entry.next_entry_cookie());
            if name != b"." && name != b".." {
                // Where it has gone meanwhile it takes nothing.
                if let Ok(stat) = statat(&here.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                        if self.remembered >= NAMES_MAX && !here.names.is_empty() {
                            // It is read again once those are done.
                            return Ok(());
                        }
                        here.names.push(name.to_vec());
                        self.remembered += 1;
                    }
                    self.bytes = self.bytes.saturating_add(taken(&stat));
                }
            }
            here.cookie = next;
            if entries.is_buffer_empty() {
                return Ok(());
            }
        }
    }

    fn go_down(&mut self, name: &[u8]) -> Result<(), Errno> {
        if self.above.len() >= LEVELS_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let below = match enter(&self.here.directory, name) {
            Ok(below) => below,
            // Gone, or something else meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let below = Here { directory: below, cookie: 0, is_read: false, names: Vec::new() };
        let Here { directory, cookie, is_read, names } = std::mem::replace(&mut self.here, below);
        let stat = fstat(&directory)?;
        let held = (self.above.len() < HELD_MAX).then_some(directory);
        let identity = (stat.st_dev, stat.st_ino);
        self.above.push(Level { identity, held, cookie, is_read, names });
        Ok(())
    }

    fn go_up(&mut self) -> Result<WalkProgress, Errno> {
        let Some(Level { identity, held, cookie, is_read, names }) = self.above.pop() else {
            return Ok(WalkProgress::Whole);
        };
        let directory = match held {
            Some(directory) => directory,
            None => {
                let parent = enter(&self.here.directory, b"..")?;
                let stat = fstat(&parent)?;
                if (stat.st_dev, stat.st_ino) != identity {
                    return Ok(WalkProgress::Lost);
                }
                parent
            }
        };
        self.here = Here { directory, cookie, is_read, names };
        Ok(WalkProgress::Part)
    }
}

fn enter(at: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// What a name takes of the disk, in bytes: the kernel counts in blocks of 512.
fn taken(stat: &Stat) -> u64 {
    let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    // A directory's further names are its own `.` and its children's `..`.
    #[allow(clippy::useless_conversion, reason = "a smaller number on aarch64")]
    let names = if is_directory { 1 } else { u64::from(stat.st_nlink).max(1) };
    (bytes / names).max(ENTRY_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::mkdirat;

    use super::*;

    /// What a tree takes, and in how many pieces that was seen.
    fn whole(top: &Path) -> (u64, usize) {
        let top = File::open(top).expect("opens");
        let mut walk = Walk::new(&top).expect("begins");
        for pieces in 1.. {
            match walk.go_on() {
                WalkProgress::Part => {}
                WalkProgress::Whole => return (walk.bytes(), pieces),
                WalkProgress::Lost => panic!("nobody moves anything here"),
            }
        }
        unreachable!("it ends")
    }

    fn deep(top: &Path, levels: usize) {
        let mut here: OwnedFd = File::open(top).expect("opens").into();
        for _ in 0..levels {
            mkdirat(&here, "d", Mode::from_raw_mode(0o700)).expect("made");
            here = enter(&here, b"d").expect("opens");
        }
    }

    #[test]
    fn what_is_taken_is_counted_once_and_what_is_elsewhere_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, len: usize| {
            let mut file = File::create(dir.path().join(path)).expect("made");
            file.write_all(&vec![1; len]).expect("written");
            file.sync_all().expect("on the disk");
        };
        write("outside", 3_000_000);
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("made");
        write("tree/a/file", 1_000_000);
        File::create(tree.join("sparse")).and_then(|f| f.set_len(1 << 40)).expect("made");
        for name in ["a/b/second", "third"] {
            fs::hard_link(tree.join("a/file"), tree.join(name)).expect("linked");
        }
        symlink(dir.path(), tree.join("a/b/up")).expect("linked");
        symlink("../outside", tree.join("out")).expect("linked");
        let of = |path: &str| fs::symlink_metadata(tree.join(path)).expect("there").blocks() * 512;
        let rest = ["", "a", "a/b", "sparse", "a/b/up", "out"].map(|p| of(p).max(ENTRY_BYTES));
        let expected = of("a/file") / 3 * 3 + rest.iter().sum::<u64>();
        assert_eq!(whole(&tree).0, expected);
    }

    #[test]
    fn trees_that_are_deep_and_wide_are_seen_to_their_end_in_small_pieces() {
        let dir = tempfile::tempdir().expect("a directory");
        deep(dir.path(), HELD_MAX + 1_000);
        // More directories beside one another than are remembered.
        for name in 0..NAMES_MAX + 1_000 {
            fs::create_dir(dir.path().join(format!("w{name}"))).expect("made");
        }
        let directories = 1 + HELD_MAX + 1_000 + NAMES_MAX + 1_000;
        let (bytes, pieces) = whole(dir.path());
        // Each is entered, read and left; a file system may take some blocks for each.
        assert!((directories * 3..directories * 5).contains(&pieces), "{pieces}");
        let least = directories as u64 * ENTRY_BYTES;
        assert!((least..least * 16).contains(&bytes), "{bytes}");
        crate::sandbox::local::remove::remove(
            &File::open(dir.path().parent().expect("one")).expect("opens").into(),
            dir.path().file_name().expect("one").as_encoded_bytes(),
        )
        .expect("removed");
    }

    #[test]
    fn who_moves_directories_loses_the_walk_only_below_what_is_held() {
        for (levels, ends) in
            [(HELD_MAX - 8, WalkProgress::Whole), (HELD_MAX + 8, WalkProgress::Lost)]
        {
            let dir = tempfile::tempdir().expect("a directory");
            deep(dir.path(), levels);
            let top = File::open(dir.path()).expect("opens");
            let mut walk = Walk::new(&top).expect("begins");
            while walk.above.len() < levels {
                assert_eq!(walk.go_on(), WalkProgress::Part);
            }
            // The last is moved to the top while it is looked at.
            let last = dir.path().join("d/".repeat(levels));
            fs::rename(last, dir.path().join("moved")).expect("moved");
            let end = loop {
                match walk.go_on() {
                    WalkProgress::Part => {}
                    end => break end,
                }
            };
            assert_eq!(end, ends, "{levels} levels");
        }
    }

    #[test]
    fn what_can_not_be_looked_at_is_not_taken_for_nothing() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).expect("made");
        fs::set_permissions(&closed, Permissions::from_mode(0o300)).expect("closed");
        let top = File::open(dir.path()).expect("opens");
        let mut walk = Walk::new(&top).expect("begins");
        assert_eq!((walk.go_on(), walk.go_on()), (WalkProgress::Part, WalkProgress::Lost));
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("opened");
    }
}
