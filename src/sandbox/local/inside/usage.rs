//! Measures the disk use of a tree in small pieces.
//!
//! The tree is a workspace that running processes change, or that is built to be hard to walk. So
//! nothing here recurses, blocks, or follows a link; each [piece](Walk::go_on) reads a part of one
//! directory; and memory is bounded. Only the [upper levels](HELD_MAX) stay open. The walk returns
//! from deeper ones by `..`, which must be the directory that it came from. If directories that
//! deep were moved meanwhile, the walk is [lost](WalkProgress::Lost), and only what it has seen
//! counts.
//!
//! The allocated blocks count, not a file's length, and at least [some bytes](ENTRY_BYTES) per
//! name. A file with several names is divided among them. Blocks shared between files (reflinks)
//! count for each. Open files without a name are not seen.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, seek, statat,
};
use rustix::io::Errno;

/// The least bytes of a name: what common file systems allocate for an empty file.
const ENTRY_BYTES: u64 = 512;

/// The levels that stay open. Moving directories at these levels does not mislead the walk.
const HELD_MAX: usize = 128;

/// The deepest level, at some 64 bytes of memory per level.
const LEVELS_MAX: usize = 200_000;

/// The most directory names that the walk remembers.
const NAMES_MAX: usize = 4_096;

/// How much of a directory is read at once, in bytes.
const PIECE: usize = 16 * 1024;

/// The state of a walk after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkProgress {
    /// There is more to read.
    Part,
    /// The walk is complete.
    Whole,
    /// The walk lost its way, or a directory could not be read.
    Lost,
}

/// A walk through a tree.
pub struct Walk {
    /// The current directory, and the position in it.
    here: Here,
    above: Vec<Level>,
    /// The number of remembered names.
    remembered: usize,
    bytes: u64,
}

struct Here {
    directory: OwnedFd,
    /// The kernel's cookie for a position in the directory.
    cookie: u64,
    /// Whether the directory is read to its end.
    is_read: bool,
    /// Subdirectories that are not entered yet.
    names: Vec<Vec<u8>>,
}

/// A level on the way down, to return to.
struct Level {
    identity: (u64, u64),
    held: Option<OwnedFd>,
    cookie: u64,
    is_read: bool,
    names: Vec<Vec<u8>>,
}

impl Walk {
    /// Starts at a directory.
    ///
    /// # Errors
    /// The error of opening it.
    pub fn new(top: impl AsFd) -> Result<Self, Errno> {
        let directory = enter(top, b".")?;
        let bytes = taken(&fstat(&directory)?);
        let here = Here { directory, cookie: 0, is_read: false, names: Vec::new() };
        Ok(Self { here, above: Vec::new(), remembered: 0, bytes })
    }

    /// The bytes seen so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Walks one more piece.
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

    /// Counts a piece of the directory.
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
                // If it is gone meanwhile it takes nothing.
                if let Ok(stat) = statat(&here.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                        if self.remembered >= NAMES_MAX && !here.names.is_empty() {
                            // It is read again after those.
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
            // Gone or replaced meanwhile.
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

/// The allocated bytes of a name: the kernel counts in blocks of 512.
fn taken(stat: &Stat) -> u64 {
    let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    // A directory's further links are its own `.` and its children's `..`.
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

    /// The disk use of a tree, and the number of pieces.
    fn whole(top: &Path) -> (u64, usize) {
        let top = File::open(top).expect("opens");
        let mut walk = Walk::new(&top).expect("begins");
        for pieces in 1.. {
            match walk.go_on() {
                WalkProgress::Part => {}
                WalkProgress::Whole => return (walk.bytes(), pieces),
                WalkProgress::Lost => panic!("no directory is moved here"),
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
    fn blocks_in_the_tree_count_once_and_others_do_not() {
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
    fn deep_and_wide_trees_are_walked_to_the_end_in_small_pieces() {
        let dir = tempfile::tempdir().expect("a directory");
        deep(dir.path(), HELD_MAX + 1_000);
        // More sibling directories than the walk remembers.
        for name in 0..NAMES_MAX + 1_000 {
            fs::create_dir(dir.path().join(format!("w{name}"))).expect("made");
        }
        let directories = 1 + HELD_MAX + 1_000 + NAMES_MAX + 1_000;
        let (bytes, pieces) = whole(dir.path());
        // Each is entered, read and left; a file system may use some blocks for each.
        assert!((directories * 3..directories * 5).contains(&pieces), "{pieces}");
        let least = directories as u64 * ENTRY_BYTES;
        assert!((least..least * 16).contains(&bytes), "{bytes}");
        crate::sandbox::confined::remove::remove(
            &File::open(dir.path().parent().expect("one")).expect("opens").into(),
            dir.path().file_name().expect("one").as_encoded_bytes(),
        )
        .expect("removed");
    }

    #[test]
    fn moved_directories_mislead_the_walk_only_below_the_open_levels() {
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
            // The last one is moved to the top during the walk.
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
    fn an_unreadable_directory_does_not_count_as_empty() {
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
