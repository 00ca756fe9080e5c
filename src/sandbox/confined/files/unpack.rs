//! Unpacks a tar archive into a directory of the workspace, in the sandbox.
//!
//! A fork of PID 1 reads it, not the server, for two reasons: a parser of hostile bytes then has
//! only the rights and limits of a command, and an archive is one request, not one per entry.
//!
//! # Guarantees
//! - Each entry is opened beneath the directory and *through no link at all*, so neither `..` nor
//!   a link in the archive or in the directory leads outside. An absolute name and a name with
//!   `..` are refused, not changed; so are a hard link's targets.
//! - Only files, directories and links are made, with permission bits only; a device, FIFO, sparse
//!   file or unknown kind is refused. A link's target is kept as written: nothing here follows it,
//!   and a command could have made it.
//! - A file gets the time of its extended header, to the nanosecond, else that of its header.
//! - A file gets its name when it is complete. A refusal names the entry; earlier entries stay. An
//!   archive without an end mark is reported as cut off.
//! - Memory use is bounded, whatever the archive contains.

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

use super::fresh::{Fresh, place};
use super::{Files, RESOLVE, RequestFailure, WorkFailure, beneath, directories, quoted, split};
use crate::sandbox::WorkspacePath;
use crate::sandbox::confined::archive_form::parse_exact_time;

/// Most entries of one archive.
const ENTRIES_MAX: usize = 200_000;

/// Most bytes between the contents of two files: long names and the like, kept in memory.
const BETWEEN_LEN_MAX: u64 = 1024 * 1024;

/// Most bytes of directory names that are kept until the end, because the final mode of these
/// directories would prevent writing into them.
const CLOSED_LEN_MAX: usize = 16 * 1024 * 1024;

/// Most bytes read after the end mark, so that the sender is not cut off.
const REST_LEN_MAX: u64 = 1024 * 1024;

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

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
    // Data after the end is ignored, readable or not.
    let _ = io::copy(&mut archive.into_inner().take(REST_LEN_MAX), &mut io::sink());
    Ok(())
}

fn wrong(message: impl Into<String>) -> RequestFailure {
    RequestFailure::new(WorkFailure::BadArchive, message)
}

/// A reader with a movable bound, which remembers whether the end was reached.
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
    fn take<R: Read>(
        &mut self,
        name: &[u8],
        entry: &mut Entry<'_, R>,
    ) -> Result<(), RequestFailure> {
        let kind = entry.header().entry_type();
        let exact_time = match kind {
            // It describes the archive, not a file; skipped unread.
            EntryType::XGlobalHeader => {
                return if entry.size() > BETWEEN_LEN_MAX {
                    Err(wrong("its headers are longer than 1 MiB"))
                } else {
                    Ok(())
                };
            }
            // As an entry of its own (in a header of an old form) it would be read whole.
            EntryType::XHeader => return Err(wrong("its extended header is invalid")),
            _ => check_extensions(entry)?,
        };
        match kind {
            // Old archives mark directories by a final slash.
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
            EntryType::Regular | EntryType::Continuous => file(above, name, entry, exact_time),
            EntryType::Symlink => link(&above, name, entry),
            EntryType::Link => self.hard_link(&above, name, entry),
            EntryType::Char | EntryType::Block => Err(wrong("it is a device")),
            EntryType::Fifo => Err(wrong("it is a FIFO")),
            EntryType::GNUSparse => Err(wrong("it is a sparse file; archive it without --sparse")),
            other => {
                Err(wrong(format!("its type {:?} is not supported", char::from(other.as_byte()))))
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

    fn hard_link<R: Read>(
        &self,
        above: &OwnedFd,
        name: &[u8],
        entry: &Entry<'_, R>,
    ) -> Result<(), RequestFailure> {
        let target = target(entry)?;
        let of_target = |failure: RequestFailure| {
            let RequestFailure { kind, message } = failure;
            RequestFailure::new(kind, format!("a hard link to {}: {message}", quoted(&target)))
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
fn file<R: Read>(
    above: OwnedFd,
    name: &[u8],
    entry: &mut Entry<'_, R>,
    exact_time: Option<i64>,
) -> Result<(), RequestFailure> {
    let (fresh, writer) = Fresh::make(above, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(writer);
    let (size, header) = (entry.size(), entry.header());
    let (mode, time) = (Mode::from_raw_mode(header.mode()? & 0o777), header.mtime()?);
    let copied = io::copy(entry, &mut file)?;
    if copied < size {
        return Err(wrong(format!("it is cut off: {copied} of {size} bytes came")));
    }
    fchmod(&file, mode)?;
    let modified = match exact_time {
        Some(ns) => {
            Timespec { tv_sec: ns.div_euclid(SECOND_NS), tv_nsec: ns.rem_euclid(SECOND_NS) }
        }
        None => Timespec { tv_sec: i64::try_from(time).unwrap_or(i64::MAX), tv_nsec: 0 },
    };
    let accessed = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: accessed, last_modification: modified };
    futimens(&file, &times)?;
    Ok(fresh.place(name)?)
}

fn link<R: Read>(above: &OwnedFd, name: &[u8], entry: &Entry<'_, R>) -> Result<(), RequestFailure> {
    let target = target(entry)?;
    Ok(place(above, name, |name| symlinkat(&*target, above, name))?)
}

/// The target of a link, as written.
fn target<R: Read>(entry: &Entry<'_, R>) -> Result<Vec<u8>, RequestFailure> {
    let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
    if target.is_empty() || target.contains(&0) || target.len() > WorkspacePath::LEN_MAX {
        return Err(wrong("it is a link without a valid target"));
    }
    Ok(target)
}

/// A name as a path below the directory: without `.` and doubled slashes. A path that leads
/// outside is refused, not changed.
fn clean(name: &[u8]) -> Result<Vec<u8>, RequestFailure> {
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

/// Extended headers may repeat a file's size, or mark it as sparse in their own way. Readers
/// differ in which they use, so an archive could look different to each. Returns the entry's exact
/// time, in nanoseconds since 1970, if they have it.
fn check_extensions<R: Read>(entry: &mut Entry<'_, R>) -> Result<Option<i64>, RequestFailure> {
    let (size, mut exact_time) = (entry.size(), None);
    let Some(extensions) = entry.pax_extensions()? else { return Ok(None) };
    for extension in extensions {
        let extension = extension?;
        let key = extension.key_bytes();
        if key.starts_with(b"GNU.sparse.") {
            return Err(wrong("it is a sparse file; archive it without --sparse"));
        }
        let repeated =
            std::str::from_utf8(extension.value_bytes()).ok().and_then(|v| v.parse().ok());
        if key == b"size" && repeated != Some(size) {
            return Err(wrong("its headers disagree on its size"));
        }
        if key == b"mtime" {
            exact_time = parse_exact_time(extension.value_bytes());
        }
    }
    Ok(exact_time)
}

#[cfg(test)]
mod tests;
