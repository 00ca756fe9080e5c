//! A directory of the workspace as a tar archive, written during the walk.
//!
//! Links are archived as links and never followed; sockets, FIFOs and devices are left out. Owners
//! are left out too, because the sandbox's users do not exist outside. Names are bytes; what does
//! not fit into a header precedes it, as in GNU tar.
//!
//! Commands may run meanwhile. A file that is gone or replaced before it is opened is left out;
//! one that grew is cut at its first length, and one that shrank is filled up with zeros. What
//! cannot be read, or has a path that is too long, is left out and named in a file at the
//! archive's end: [`LeftOutEntries`]. So one entry never costs the others.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use tar::EntryType;

use super::left_out::LeftOutEntries;
use super::{ENTRY_NAMES_MAX, Files, RESOLVE, RequestFailure, WorkFailure, beneath, names};
use crate::sandbox::WorkspacePath;
use crate::sandbox::confined::archive_form::{ARCHIVE_END, ArchiveFacts, fill_up, head};

/// The buffer before the pipe, in bytes.
const BUFFER_LEN: usize = 64 * 1024;

/// How many levels of directories are held open on the way down. Deeper ones are opened again by
/// their path on the way up.
const HELD_MAX: usize = 32;

/// How a directory above is opened again: through no link, since the way down led through none.
const AGAIN: ResolveFlags = RESOLVE.union(ResolveFlags::NO_SYMLINKS);

impl Files {
    /// Writes the directory at `path` into a pipe as an archive; returns whether something was left
    /// out of it.
    pub fn pack(&self, path: &[u8], pipe: Option<OwnedFd>) -> Result<bool, RequestFailure> {
        let pipe = pipe
            .ok_or_else(|| RequestFailure::new(WorkFailure::Broken, "an archive needs a pipe"))?;
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        pack(&directory, File::from(pipe))
    }
}

/// Writes the content of a directory as an archive; returns whether something was left out of it.
pub(super) fn pack(directory: &OwnedFd, out: impl Write) -> Result<bool, RequestFailure> {
    let mut out = BufWriter::with_capacity(BUFFER_LEN, out);
    let mut left_out = LeftOutEntries::default();
    let written = PackingWalk::new(directory, &mut left_out)
        .and_then(|walk| walk.each(|held, name, path| entry(&mut out, held, name, path)))
        .and_then(|()| name_left_out(&mut out, directory, &left_out));
    if let Err(failure) = written {
        // Drops what is still buffered: if nothing was sent, the caller gets only the error.
        drop(out.into_parts());
        return Err(failure);
    }
    out.write_all(&ARCHIVE_END)?;
    out.flush()?;
    Ok(!left_out.is_empty())
}

/// Adds the file that names what is missing, if something is.
fn name_left_out(
    out: &mut impl Write,
    directory: &OwnedFd,
    left_out: &LeftOutEntries,
) -> Result<(), RequestFailure> {
    if left_out.is_empty() {
        return Ok(());
    }
    let is_taken = |name: &str| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let (name, text) = left_out.file(is_taken);
    let mut stat = fstat(directory)?;
    stat.st_mode = 0o644;
    let size = text.len() as u64;
    head(out, name.as_bytes(), EntryType::Regular, &facts(&stat, size), None)?;
    out.write_all(text.as_bytes())?;
    Ok(fill_up(out, size)?)
}

/// A directory on the way from the top to where the walk is.
struct PackedLevel {
    /// `None` if it is opened again when the walk returns to it.
    held: Option<OwnedFd>,
    identity: (u64, u64),
    names: std::vec::IntoIter<Vec<u8>>,
    path_len: usize,
}

/// A walk through a tree. It holds a bounded number of directories open, however deep the tree is.
pub(super) struct PackingWalk<'a> {
    top: &'a OwnedFd,
    above: Vec<PackedLevel>,
    here: PackedLevel,
    path: Vec<u8>,
    left_out: &'a mut LeftOutEntries,
}

/// What became of an entry.
pub(super) enum PackedEntry {
    /// It is written, or gone, or of a kind that has no place in an archive.
    Settled,
    /// A directory whose content follows.
    Directory(OwnedFd),
    /// It is not written, or not to its end.
    LeftOut(String),
}

impl<'a> PackingWalk<'a> {
    pub(super) fn new(
        top: &'a OwnedFd,
        left_out: &'a mut LeftOutEntries,
    ) -> Result<Self, RequestFailure> {
        let here = level(top.try_clone()?, b"", left_out)?;
        Ok(Self { top, above: Vec::new(), here, path: Vec::new(), left_out })
    }

    /// Goes through the tree, parents before children. `visit` gets the open directory, the name in
    /// it and the path of each entry.
    pub(super) fn each(
        mut self,
        mut visit: impl FnMut(&OwnedFd, &[u8], &[u8]) -> Result<PackedEntry, RequestFailure>,
    ) -> Result<(), RequestFailure> {
        loop {
            let Some(name) = self.here.names.next() else {
                if !self.go_up() {
                    return Ok(());
                }
                continue;
            };
            let Some(held) = self.here.held.as_ref() else { continue };
            self.path.truncate(self.here.path_len);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            // A directory gets a slash more.
            if self.path.len() >= WorkspacePath::LEN_MAX {
                self.left_out.add(&self.path, "its path is too long");
                continue;
            }
            match visit(held, &name, &self.path)? {
                PackedEntry::Settled => {}
                PackedEntry::LeftOut(why) => self.left_out.add(&self.path, &why),
                PackedEntry::Directory(below) => {
                    let below = level(below, &self.path, self.left_out)?;
                    let mut above = std::mem::replace(&mut self.here, below);
                    if self.above.len() >= HELD_MAX {
                        above.held = None;
                    }
                    self.above.push(above);
                }
            }
        }
    }

    /// Returns to the directory above; false at the top. If that was moved meanwhile, the rest of
    /// it is left out.
    fn go_up(&mut self) -> bool {
        let Some(mut above) = self.above.pop() else { return false };
        self.path.truncate(above.path_len);
        if above.held.is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let opened = beneath(self.top, &self.path, flags, AGAIN).ok();
            above.held = opened.filter(|held| identity(held).is_ok_and(|id| id == above.identity));
            if above.held.is_none() && !above.names.as_slice().is_empty() {
                self.left_out.add(&self.path, "it was moved or closed while it was read");
            }
        }
        self.here = above;
        true
    }
}

/// Reads a directory's names.
fn level(
    directory: OwnedFd,
    path: &[u8],
    left_out: &mut LeftOutEntries,
) -> Result<PackedLevel, RequestFailure> {
    let names = match names(&directory) {
        Ok((names, is_cut)) => {
            if is_cut {
                let why =
                    format!("it has more than {ENTRY_NAMES_MAX} entries; the rest is missing");
                left_out.add(path, &why);
            }
            names
        }
        Err(errno) if is_shortage(errno) => return Err(RequestFailure::from(errno).about(path)),
        Err(errno) => {
            left_out.failed(path, errno);
            Vec::new()
        }
    };
    let (identity, path_len) = (identity(&directory)?, path.len());
    Ok(PackedLevel { held: Some(directory), identity, names: names.into_iter(), path_len })
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether an error is about what the reader lacks: every further entry would be left out too.
pub(super) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Writes one entry.
fn entry(
    out: &mut impl Write,
    directory: &OwnedFd,
    name: &[u8],
    path: &[u8],
) -> Result<PackedEntry, RequestFailure> {
    match look(directory, name) {
        Ok(FoundEntry::Directory(stat, below)) => {
            let path = [path, b"/"].concat();
            head(out, &path, EntryType::Directory, &facts(&stat, 0), None)?;
            Ok(match below {
                Ok(below) => PackedEntry::Directory(below),
                Err(errno) => PackedEntry::LeftOut(super::explain(errno)),
            })
        }
        Ok(FoundEntry::File(stat, file)) => {
            let missing = content(out, path, file, &stat)?;
            Ok(match missing {
                0 => PackedEntry::Settled,
                missing => PackedEntry::LeftOut(format!("its last {missing} bytes are zeros here")),
            })
        }
        Ok(FoundEntry::Link(stat, target)) => {
            head(out, path, EntryType::Symlink, &facts(&stat, 0), Some(&target))?;
            Ok(PackedEntry::Settled)
        }
        Ok(FoundEntry::Other) => Ok(PackedEntry::Settled),
        // Gone meanwhile, or of another kind: a link instead of a file, a file instead of a
        // directory, a socket, and no link any more.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::INVAL) => {
            Ok(PackedEntry::Settled)
        }
        Err(errno) if is_shortage(errno) => Err(RequestFailure::from(errno).about(path)),
        Err(errno) => Ok(PackedEntry::LeftOut(super::explain(errno))),
    }
}

/// What is behind a name.
enum FoundEntry {
    /// A directory, and why it cannot be opened if it cannot.
    Directory(Stat, Result<OwnedFd, Errno>),
    File(Stat, OwnedFd),
    Link(Stat, Vec<u8>),
    /// Something that has no place in an archive.
    Other,
}

fn look(directory: &OwnedFd, name: &[u8]) -> Result<FoundEntry, Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let open = |flags: OFlags| {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(directory, name, flags, Mode::empty())
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => match open(OFlags::DIRECTORY) {
            Ok(below) => Ok(FoundEntry::Directory(fstat(&below)?, Ok(below))),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                Ok(FoundEntry::Directory(stat, Err(errno)))
            }
            Err(errno) => Err(errno),
        },
        FileType::RegularFile => {
            let file = open(OFlags::NONBLOCK | OFlags::NOCTTY)?;
            let stat = fstat(&file)?;
            Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => FoundEntry::File(stat, file),
                _ => FoundEntry::Other,
            })
        }
        FileType::Symlink => {
            let target = readlinkat(directory, name, Vec::new())?;
            Ok(FoundEntry::Link(stat, target.into_bytes()))
        }
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Ok(FoundEntry::Other),
    }
}

fn facts(stat: &Stat, size: u64) -> ArchiveFacts {
    let modified_seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    ArchiveFacts { mode: stat.st_mode, modified_seconds, size }
}

/// Writes a file; returns how many bytes of it could not be read, which are zeros in the archive.
pub(super) fn content(
    out: &mut impl Write,
    path: &[u8],
    file: OwnedFd,
    stat: &Stat,
) -> Result<u64, RequestFailure> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    head(out, path, EntryType::Regular, &facts(stat, size), None)?;
    // No more than its header says, however fast it grows.
    let mut file = File::from(file).take(size);
    let mut piece = vec![0; BUFFER_LEN.min(usize::try_from(size).unwrap_or(BUFFER_LEN))];
    let mut missing = size;
    while missing > 0 {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => {
                out.write_all(&piece[..len])?;
                missing -= len as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    std::io::copy(&mut std::io::repeat(0).take(missing), out)?;
    fill_up(out, size)?;
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{mkdirat, openat};

    use super::*;

    #[test]
    fn deeper_directories_than_are_held_are_found_again_on_the_way_up() {
        const DEPTH: usize = 100;
        const NAME: &str = "a-name-of-fifty-bytes-that-makes-paths-long-enough";
        let dir = tempfile::tempdir().expect("a directory");
        let top: OwnedFd = File::open(dir.path()).expect("opens").into();
        let mut here = top.try_clone().expect("cloned");
        for _ in 0..DEPTH {
            mkdirat(&here, NAME, Mode::from_raw_mode(0o700)).expect("made");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            here = openat(&here, NAME, flags, Mode::empty()).expect("opens");
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            openat(&here, "z", flags, Mode::from_raw_mode(0o600)).expect("made");
        }
        fs::write(dir.path().join("z"), "top").expect("written");
        let mut bytes = Vec::new();
        assert_eq!(pack(&top, &mut bytes).ok(), Some(true), "the deepest are left out");
        let (mut files, mut text) = (Vec::new(), String::new());
        for entry in tar::Archive::new(&bytes[..]).entries().expect("an archive") {
            let mut entry = entry.expect("well formed");
            let path = entry.path_bytes().into_owned();
            if path.ends_with(b"z") {
                files.push(path);
            } else if path.ends_with(b".txt") {
                entry.read_to_string(&mut text).expect("text");
            }
        }
        let levels = (WorkspacePath::LEN_MAX - 1 - "z".len()) / (NAME.len() + 1);
        assert_eq!(files.len(), levels + 1, "one in each directory whose path is short enough");
        assert_eq!(files.last().map(Vec::as_slice), Some(&b"z"[..]), "the walk came back");
        assert!(text.ends_with(": its path is too long\n"), "{text}");
        drop(here);
        crate::sandbox::confined::remove::remove(&top, NAME.as_bytes()).expect("removed");
    }

    #[test]
    fn a_directory_that_is_moved_meanwhile_costs_only_the_rest_of_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = "d/".repeat(HELD_MAX + 2);
        fs::create_dir_all(dir.path().join(&deep)).expect("made");
        // Each level has something left when the walk returns to it.
        let mut at = dir.path().to_owned();
        for _ in 0..HELD_MAX + 2 {
            fs::write(at.join("z"), "").expect("written");
            at.push("d");
        }
        let top: OwnedFd = File::open(dir.path()).expect("opens").into();
        let mut out = MovesAway {
            at: dir.path().join("d".to_owned() + &"/d".repeat(HELD_MAX)),
            bytes: Vec::new(),
        };
        let mut left_out = LeftOutEntries::default();
        PackingWalk::new(&top, &mut left_out)
            .and_then(|walk| walk.each(|held, name, path| entry(&mut out, held, name, path)))
            .expect("written");
        let (_, text) = left_out.file(|_| false);
        assert!(text.ends_with("it was moved or closed while it was read\n"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        out.bytes.extend([0; 1024]);
        let mut archive = tar::Archive::new(&out.bytes[..]);
        let last = archive.entries().expect("an archive").last().expect("entries");
        assert_eq!(&*last.expect("well formed").path_bytes(), b"z", "the walk came back");
    }

    /// Moves a directory when the deepest one is written.
    struct MovesAway {
        at: std::path::PathBuf,
        bytes: Vec<u8>,
    }

    impl Write for MovesAway {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let deepest = "d/".repeat(HELD_MAX + 2);
            if bytes.starts_with(deepest.as_bytes()) && self.at.exists() {
                fs::rename(&self.at, self.at.with_file_name("moved"))?;
            }
            self.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
