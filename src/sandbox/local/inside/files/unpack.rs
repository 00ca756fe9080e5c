//! A tar archive into a directory of the workspace, read in the sandbox.
//!
//! It is read by PID 1's fork and not by the server, for two reasons: what reads hostile bytes has
//! no more rights than a command of the sandbox and counts against its limits, and an archive is
//! one request, not one for every entry.
//!
//! # Guarantees
//! - Each entry is opened beneath the directory and *through no link at all*, so neither `..` nor a
//!   link that was in the archive or in the directory leads anywhere else. An absolute name and a
//!   name with `..` are refused, not corrected; a hard link's target is held to the same rule.
//! - Files, directories and links are made, with permission bits only; a device, FIFO, sparse file
//!   or unknown kind is refused. What a link points at is as it was written: it is followed by
//!   nothing here, and a command could have made it.
//! - A file takes its place once it has come whole. A refusal names the entry; what came before it
//!   stays. An archive without its end mark was cut off, and is said to have been.
//! - What is kept in memory is bounded, whatever the archive says.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fchmod,
    futimens, linkat, mkdirat, statat, symlinkat,
};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::super::super::frame::WorkFailure;
use super::fresh::{Fresh, place};
use super::{Failure, Files, RESOLVE, beneath, directories, quoted, split};
use crate::sandbox::WorkspacePath;

/// Most entries of one archive.
const ENTRIES_MAX: usize = 200_000;

/// Most bytes between the contents of two files: long names and the like, which are kept in memory.
const BETWEEN_LEN_MAX: u64 = 1024 * 1024;

/// Most bytes of names that are kept until the end: those of directories with permissions under
/// which nothing could be put into them.
const CLOSED_LEN_MAX: usize = 16 * 1024 * 1024;

/// Most bytes after the end mark that are read, so that whoever sends them is not cut off.
const REST_LEN_MAX: u64 = 1024 * 1024;

/// Not even a link that stays in the workspace is followed.
const THROUGH_NO_LINK: ResolveFlags = RESOLVE.union(ResolveFlags::NO_SYMLINKS);

impl Files {
    /// Reads an archive from a pipe into the directory at `path`, which is made where it is missing.
    pub fn unpack(&self, path: &[u8], pipe: Option<OwnedFd>) -> Result<bool, Failure> {
        let pipe =
            pipe.ok_or_else(|| Failure::new(WorkFailure::Broken, "an archive needs a pipe"))?;
        unpack(self.directories(path)?, File::from(pipe))?;
        Ok(false)
    }
}

/// Reads an archive into a directory.
pub(super) fn unpack(directory: OwnedFd, from: impl Read) -> Result<(), Failure> {
    let (left, has_ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let metered = Metered { from, left: Rc::clone(&left), has_ended: Rc::clone(&has_ended) };
    let mut archive = Archive::new(metered);
    let mut tree = Tree { root: directory, closed: BTreeMap::new(), closed_len: 0 };
    let mut last = b"the beginning".to_vec();
    let mut entries = archive.entries()?;
    for count in 0.. {
        left.set(BETWEEN_LEN_MAX);
        let Some(entry) = entries.next() else { break };
        let after = |error: io::Error| wrong(format!("after {}: {error}", quoted(&last)));
        let mut entry = entry.map_err(after)?;
        let name = entry.path_bytes().into_owned();
        if count == ENTRIES_MAX {
            return Err(wrong(format!("more than {ENTRIES_MAX} entries")).about(&name));
        }
        left.set(u64::MAX);
        tree.take(&name, &mut entry).map_err(|failure| failure.about(&name))?;
        last = name;
    }
    if has_ended.get() {
        return Err(wrong(format!("it is cut off after {}", quoted(&last))));
    }
    tree.close()?;
    left.set(u64::MAX);
    // What comes after the end means nothing, whether it can be read or not.
    let _ = io::copy(&mut archive.into_inner().take(REST_LEN_MAX), &mut io::sink());
    Ok(())
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(WorkFailure::BadArchive, message)
}

/// Reads no more than it is allowed at the moment, and remembers whether there was an end.
struct Metered<R> {
    from: R,
    left: Rc<Cell<u64>>,
    has_ended: Rc<Cell<bool>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other("names or headers are longer than 1 MiB"));
        }
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let read = self.from.read(&mut into[..len])?;
        self.left.set(left - read as u64);
        self.has_ended.set(self.has_ended.get() || (read == 0 && len > 0));
        Ok(read)
    }
}

/// The directory that the archive's entries go to.
struct Tree {
    root: OwnedFd,
    /// Directories that nothing could be put into with the permissions they are to have, by path:
    /// what is said last of one counts.
    closed: BTreeMap<Vec<u8>, Mode>,
    /// How long their paths are together, in bytes.
    closed_len: usize,
}

impl Tree {
    fn take<R: Read>(&mut self, name: &[u8], entry: &mut Entry<'_, R>) -> Result<(), Failure> {
        let kind = entry.header().entry_type();
        match kind {
            // It is about the archive, not about a file; left out without being read.
            EntryType::XGlobalHeader => {
                return if entry.size() > BETWEEN_LEN_MAX {
                    Err(wrong("its headers are longer than 1 MiB"))
                } else {
                    Ok(())
                };
            }
            // One that is an entry of its own, as of a header of an old form, would be read whole.
            EntryType::XHeader => return Err(wrong("its extended header is not one")),
            _ => check_extensions(entry)?,
        }
        match kind {
            // Before there was a type for directories they ended in a slash.
            EntryType::Regular if name.ends_with(b"/") => {
                return self.directory(&clean(name)?, entry.header().mode()?);
            }
            EntryType::Directory => return self.directory(&clean(name)?, entry.header().mode()?),
            _ => {}
        }
        let path = clean(name)?;
        if path.is_empty() {
            return Err(wrong("it has no name"));
        }
        let (above, name) = split(&path)?;
        let above = directories(&self.root, above, THROUGH_NO_LINK)?;
        match kind {
            EntryType::Regular | EntryType::Continuous => file(above, name, entry),
            EntryType::Symlink => link(&above, name, entry),
            EntryType::Link => self.hard_link(&above, name, entry),
            EntryType::Char | EntryType::Block => Err(wrong("it is a device")),
            EntryType::Fifo => Err(wrong("it is a FIFO")),
            EntryType::GNUSparse => Err(wrong("it is a sparse file; archive it without --sparse")),
            other => Err(wrong(format!("its type {:?} is not known", char::from(other.as_byte())))),
        }
    }

    fn directory(&mut self, path: &[u8], mode: u32) -> Result<(), Failure> {
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

    fn hard_link<R: Read>(
        &self,
        above: &OwnedFd,
        name: &[u8],
        entry: &Entry<'_, R>,
    ) -> Result<(), Failure> {
        let target = target(entry)?;
        let of_target = |failure: Failure| {
            let Failure { kind, message } = failure;
            Failure::new(kind, format!("a hard link to {}: {message}", quoted(&target)))
        };
        let link = || {
            let path = clean(&target)?;
            let (directory, old) = split(&path)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let directory = beneath(&self.root, directory, flags, THROUGH_NO_LINK)?;
            let stat = statat(&directory, old, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(wrong("that is not a regular file"));
            }
            let make = |name: &[u8]| linkat(&directory, old, above, name, AtFlags::empty());
            Ok(place(above, name, make)?)
        };
        link().map_err(of_target)
    }

    /// Gives directories the permissions they are to have, from below upwards: what is in a
    /// directory comes after it in the order of paths.
    fn close(&mut self) -> Result<(), Failure> {
        for (path, mode) in std::mem::take(&mut self.closed).into_iter().rev() {
            let closed = self.open_directory(&path).and_then(|directory| fchmod(directory, mode));
            closed.map_err(|errno| Failure::from(errno).about(&path))?;
        }
        Ok(())
    }
}

/// A regular file, which takes its place once it has come whole.
fn file<R: Read>(above: OwnedFd, name: &[u8], entry: &mut Entry<'_, R>) -> Result<(), Failure> {
    let (fresh, writer) = Fresh::make(above, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(writer);
    let (size, header) = (entry.size(), entry.header());
    let (mode, time) = (Mode::from_raw_mode(header.mode()? & 0o777), header.mtime()?);
    let copied = io::copy(entry, &mut file)?;
    if copied < size {
        return Err(wrong(format!("it is cut off: {copied} of {size} bytes came")));
    }
    fchmod(&file, mode)?;
    let modified = Timespec { tv_sec: i64::try_from(time).unwrap_or(i64::MAX), tv_nsec: 0 };
    let accessed = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: accessed, last_modification: modified };
    futimens(&file, &times)?;
    Ok(fresh.place(name)?)
}

fn link<R: Read>(above: &OwnedFd, name: &[u8], entry: &Entry<'_, R>) -> Result<(), Failure> {
    let target = target(entry)?;
    Ok(place(above, name, |name| symlinkat(&*target, above, name))?)
}

/// What a link points at, as it is written.
fn target<R: Read>(entry: &Entry<'_, R>) -> Result<Vec<u8>, Failure> {
    let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
    if target.is_empty() || target.contains(&0) || target.len() > WorkspacePath::LEN_MAX {
        return Err(wrong("it is a link that points at nothing that can be written"));
    }
    Ok(target)
}

/// A name as a path below the directory: without `.` and doubled slashes. Nothing that leads
/// elsewhere is mended.
fn clean(name: &[u8]) -> Result<Vec<u8>, Failure> {
    if name.starts_with(b"/") {
        return Err(wrong("its name is absolute"));
    }
    if name.contains(&0) {
        return Err(wrong("its name contains a NUL byte"));
    }
    if name.len() > WorkspacePath::LEN_MAX {
        return Err(wrong("its name is longer than 4095 bytes"));
    }
    let parts: Vec<&[u8]> =
        name.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&b"..".as_slice()) {
        return Err(wrong("its name contains '..'"));
    }
    Ok(parts.join(&b'/'))
}

/// Extended headers may say again how long a file is, or that it is sparse in a way of its own.
/// Readers differ in which they believe, so that an archive can look different to each.
fn check_extensions<R: Read>(entry: &mut Entry<'_, R>) -> Result<(), Failure> {
    let size = entry.size();
    let Some(extensions) = entry.pax_extensions()? else { return Ok(()) };
    for extension in extensions {
        let extension = extension?;
        let key = extension.key_bytes();
        if key.starts_with(b"GNU.sparse.") {
            return Err(wrong("it is a sparse file; archive it without --sparse"));
        }
        let told = std::str::from_utf8(extension.value_bytes()).ok().and_then(|v| v.parse().ok());
        if key == b"size" && told != Some(size) {
            return Err(wrong("its headers disagree on its size"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
