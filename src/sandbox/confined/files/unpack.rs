//! Unpacks a tar archive into a directory of the workspace, in the sandbox.
//!
//! A fork of PID 1 reads it, not the server, for two reasons: a parser of hostile bytes then has
//! only the rights and limits of a command, and an archive is one request, not one per entry.
//!
//! # Guarantees
//! - Each entry is opened beneath the directory and *through no link at all*, so neither `..` nor
//!   a link in the archive or in the directory leads outside.
//! - What is unpacked is what [`read_archive`] lets pass, with permission bits only. Nothing here follows
//!   a link.
//! - A file gets the time of its extended header, to the nanosecond, else that of its header.
//! - A file gets its name when it is complete. A refusal names the entry; earlier entries stay.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fchmod,
    futimens, linkat, mkdirat, statat, symlinkat,
};
use rustix::io::Errno;

use super::fresh::{Fresh, place};
use super::{Files, RESOLVE, RequestFailure, WorkFailure, beneath, directories, split};
use crate::sandbox::confined::archive_reader::{
    CheckedEntry, CheckedFile, CheckedKind, SECOND_NS, copy_content, read_archive, wrong,
};

/// Most bytes of directory names that are kept until the end, because the final mode of these
/// directories would prevent writing into them.
const CLOSED_LEN_MAX: usize = 16 * 1024 * 1024;

/// Links are not followed, even within the workspace.
const THROUGH_NO_LINK: ResolveFlags = RESOLVE.union(ResolveFlags::NO_SYMLINKS);

impl Files {
    /// Reads an archive from a pipe into the directory at `path`, which is made if it is missing.
    pub fn unpack(&self, path: &[u8], pipe: Option<OwnedFd>) -> Result<bool, RequestFailure> {
        let pipe = pipe
            .ok_or_else(|| RequestFailure::new(WorkFailure::Broken, "an archive needs a pipe"))?;
        unpack(self.directories(path)?, File::from(pipe))?;
        Ok(false)
    }
}

/// Reads an archive into a directory.
pub(super) fn unpack(directory: OwnedFd, from: impl Read) -> Result<(), RequestFailure> {
    let mut tree = Tree { root: directory, closed: BTreeMap::new(), closed_len: 0 };
    read_archive(from, |entry, content| tree.take(&entry, content))?;
    tree.close()
}

/// The directory of the archive's entries.
struct Tree {
    root: OwnedFd,
    /// Final modes, by path, of directories that would not be writable with them; the last entry
    /// for a path wins.
    closed: BTreeMap<Vec<u8>, Mode>,
    /// The sum of their paths' lengths, in bytes.
    closed_len: usize,
}

impl Tree {
    fn take(&mut self, entry: &CheckedEntry, content: &mut dyn Read) -> Result<(), RequestFailure> {
        if let CheckedKind::Directory(mode) = entry.kind {
            return self.directory(&entry.path, mode);
        }
        let (above, name) = split(&entry.path)?;
        let above = directories(&self.root, above, THROUGH_NO_LINK)?;
        match &entry.kind {
            CheckedKind::Directory(_) => Ok(()),
            CheckedKind::File(facts) => file(above, name, *facts, content),
            CheckedKind::Link(target) => {
                Ok(place(&above, name, |name| symlinkat(&**target, &above, name))?)
            }
            CheckedKind::HardLink(target) => {
                self.hard_link(&above, name, target).map_err(|failure| failure.of_hard_link(target))
            }
        }
    }

    fn directory(&mut self, path: &[u8], mode: u32) -> Result<(), RequestFailure> {
        if path.is_empty() {
            return Ok(());
        }
        let (above, name) = split(path)?;
        let above = directories(&self.root, above, THROUGH_NO_LINK)?;
        match mkdirat(&above, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mode = Mode::from_raw_mode(mode & 0o777);
        if mode.contains(Mode::RWXU) {
            fchmod(self.open_directory(path)?, mode)?;
            if self.closed.remove(path).is_some() {
                self.closed_len -= path.len();
            }
        } else {
            drop(self.open_directory(path)?);
            if self.closed.insert(path.to_vec(), mode).is_none() {
                self.closed_len += path.len();
            }
            if self.closed_len > CLOSED_LEN_MAX {
                return Err(wrong("too many directories that their owner may not write to"));
            }
        }
        Ok(())
    }

    fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        beneath(&self.root, path, OFlags::RDONLY | OFlags::DIRECTORY, THROUGH_NO_LINK)
    }

    fn hard_link(&self, above: &OwnedFd, name: &[u8], target: &[u8]) -> Result<(), RequestFailure> {
        let (directory, old) = split(target)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = beneath(&self.root, directory, flags, THROUGH_NO_LINK)?;
        let stat = statat(&directory, old, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(wrong("that is not a regular file"));
        }
        let make = |name: &[u8]| linkat(&directory, old, above, name, AtFlags::empty());
        Ok(place(above, name, make)?)
    }

    /// Sets the final modes of directories, deepest first: a directory's content sorts after it.
    fn close(&mut self) -> Result<(), RequestFailure> {
        for (path, mode) in std::mem::take(&mut self.closed).into_iter().rev() {
            let closed = self.open_directory(&path).and_then(|directory| fchmod(directory, mode));
            closed.map_err(|errno| RequestFailure::from(errno).about(&path))?;
        }
        Ok(())
    }
}

/// A regular file, which gets its name when it is complete.
fn file(
    above: OwnedFd,
    name: &[u8],
    facts: CheckedFile,
    content: &mut dyn Read,
) -> Result<(), RequestFailure> {
    let CheckedFile { mode, size, modified_ns } = facts;
    let (fresh, writer) = Fresh::make(above, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(writer);
    copy_content(content, &mut file, size)?;
    fchmod(&file, Mode::from_raw_mode(mode))?;
    let modified = Timespec {
        tv_sec: modified_ns.div_euclid(SECOND_NS),
        tv_nsec: modified_ns.rem_euclid(SECOND_NS),
    };
    let accessed = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: accessed, last_modification: modified };
    futimens(&file, &times)?;
    Ok(fresh.place(name)?)
}

#[cfg(test)]
mod tests;
