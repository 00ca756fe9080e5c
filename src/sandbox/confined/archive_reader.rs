//! The entries of a tar archive that a caller sends, checked one by one.
//!
//! # Guarantees
//! - An absolute name and a name with `..` are refused, not changed; so are a hard link's targets.
//! - Only files, directories and links pass; a device, FIFO, sparse file or unknown kind is refused. A
//!   symbolic link's target is kept as written: a command could have made it.
//! - A refusal names the entry. An archive without an end mark is reported as cut off.
//! - Memory use is bounded, whatever the archive contains.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use tar::{Archive, Entry, EntryType};

use super::archive_form::parse_exact_time;
use super::{RequestFailure, WorkFailure, quoted};
use crate::sandbox::WorkspacePath;

/// Most entries of one archive.
pub const ENTRIES_MAX: usize = 200_000;

/// Most bytes between the contents of two files: long names and the like, kept in memory.
const BETWEEN_LEN_MAX: u64 = 1024 * 1024;

/// Most bytes read after the end mark, so that the sender is not cut off.
const REST_LEN_MAX: u64 = 1024 * 1024;

/// Nanoseconds of a second.
pub const SECOND_NS: i64 = 1_000_000_000;

/// An entry that may be unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedEntry {
    /// Its path below the directory, without `.` and doubled slashes; empty for the directory itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: CheckedKind,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedKind {
    /// A directory with permission bits.
    Directory(u32),
    /// A regular file.
    File(CheckedFile),
    /// A symbolic link with its target, as written.
    Link(Vec<u8>),
    /// A hard link to a path below the directory.
    HardLink(Vec<u8>),
}

/// What the headers of a regular file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// Its permission bits.
    pub mode: u32,
    /// Its length, in bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// Reads an archive to its end and passes each entry on, with the content that follows it.
///
/// # Errors
/// What is wrong with the archive, or what `take` answers; either names the entry.
pub fn read_archive(
    from: impl Read,
    mut take: impl FnMut(CheckedEntry, &mut dyn Read) -> Result<(), RequestFailure>,
) -> Result<(), RequestFailure> {
    let (left, has_ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let metered = Metered { from, left: Rc::clone(&left), has_ended: Rc::clone(&has_ended) };
    let mut archive = Archive::new(metered);
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
        let taken = check(&name, &mut entry).and_then(|checked| match checked {
            Some(checked) => take(checked, &mut entry),
            None => Ok(()),
        });
        taken.map_err(|failure| failure.about(&name))?;
        last = name;
    }
    if has_ended.get() {
        return Err(wrong(format!("it is cut off after {}", quoted(&last))));
    }
    left.set(u64::MAX);
    // Data after the end is ignored, readable or not.
    let _ = io::copy(&mut archive.into_inner().take(REST_LEN_MAX), &mut io::sink());
    Ok(())
}

/// Copies the content of a file, which must be as long as its headers say.
///
/// # Errors
/// It is cut off, or cannot be written.
pub fn copy_content(
    content: &mut dyn Read,
    to: &mut impl Write,
    size: u64,
) -> Result<(), RequestFailure> {
    let copied = io::copy(content, to)?;
    if copied < size {
        return Err(wrong(format!("it is cut off: {copied} of {size} bytes came")));
    }
    Ok(())
}

/// Something is wrong with an archive.
pub fn wrong(message: impl Into<String>) -> RequestFailure {
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

/// Checks an entry; `None` for what describes the archive and is no entry of it.
fn check<R: Read>(
    name: &[u8],
    entry: &mut Entry<'_, R>,
) -> Result<Option<CheckedEntry>, RequestFailure> {
    let kind = entry.header().entry_type();
    let exact_time = match kind {
        // It describes the archive, not a file; skipped unread.
        EntryType::XGlobalHeader if entry.size() > BETWEEN_LEN_MAX => {
            return Err(wrong("its headers are longer than 1 MiB"));
        }
        EntryType::XGlobalHeader => return Ok(None),
        // As an entry of its own (in a header of an old form) it would be read whole.
        EntryType::XHeader => return Err(wrong("its extended header is invalid")),
        _ => check_extensions(entry)?,
    };
    // Old archives mark directories by a final slash.
    let is_directory =
        kind == EntryType::Directory || (kind == EntryType::Regular && name.ends_with(b"/"));
    let path = clean(name)?;
    if path.is_empty() && !is_directory {
        return Err(wrong("it has no name"));
    }
    let kind = match kind {
        _ if is_directory => CheckedKind::Directory(entry.header().mode()? & 0o777),
        EntryType::Regular | EntryType::Continuous => CheckedKind::File(file(entry, exact_time)?),
        EntryType::Symlink => CheckedKind::Link(target(entry)?),
        EntryType::Link => {
            let target = target(entry)?;
            let path = clean(&target).map_err(|failure| failure.of_hard_link(&target))?;
            CheckedKind::HardLink(path)
        }
        EntryType::Char | EntryType::Block => return Err(wrong("it is a device")),
        EntryType::Fifo => return Err(wrong("it is a FIFO")),
        EntryType::GNUSparse => {
            return Err(wrong("it is a sparse file; archive it without --sparse"));
        }
        other => {
            let kind = char::from(other.as_byte());
            return Err(wrong(format!("its type {kind:?} is not supported")));
        }
    };
    Ok(Some(CheckedEntry { path, kind }))
}

fn file<R: Read>(
    entry: &Entry<'_, R>,
    exact_time: Option<i64>,
) -> Result<CheckedFile, RequestFailure> {
    let header = entry.header();
    let (mode, seconds) = (header.mode()? & 0o777, header.mtime()?);
    let whole = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(SECOND_NS);
    Ok(CheckedFile { mode, size: entry.size(), modified_ns: exact_time.unwrap_or(whole) })
}

impl RequestFailure {
    /// Says that it is about the target of a hard link.
    pub fn of_hard_link(self, target: &[u8]) -> Self {
        let Self { kind, message } = self;
        Self { kind, message: format!("a hard link to {}: {message}", quoted(target)) }
    }
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
