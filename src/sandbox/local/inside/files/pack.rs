//! A directory of the workspace as a tar archive, written while it is walked.
//!
//! Links are archived as links and never followed; sockets, FIFOs and devices are left out. Owners
//! are left out too: nobody outside has the sandbox's users. Names are bytes; what has no room in a
//! header comes before it, as GNU tar does it.
//!
//! Commands may be at work meanwhile. What is gone or something else by the time it is opened is
//! left out; a file that grew is cut at the length it had, and one that got shorter is filled up
//! with zeros. What its owner may not read is not left out: the archive ends with an error that
//! names it, since nobody would notice that it is missing.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use tar::{EntryType, Header};

use super::super::super::frame::WorkFailure;
use super::{Failure, Files, LEVELS_MAX, names};

/// Bytes of a block: headers are one, contents are filled up to one.
const BLOCK_LEN: u64 = 512;

/// How much is gathered before it is written to the pipe, in bytes.
const BUFFER_LEN: usize = 64 * 1024;

impl Files {
    /// Writes the directory at `path` into a pipe as an archive.
    pub fn pack(&self, path: &[u8], pipe: Option<OwnedFd>) -> Result<bool, Failure> {
        let pipe =
            pipe.ok_or_else(|| Failure::new(WorkFailure::Broken, "an archive needs a pipe"))?;
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        pack(&directory, File::from(pipe))?;
        Ok(false)
    }
}

/// Writes what is in a directory as an archive.
pub(super) fn pack(directory: &OwnedFd, out: impl Write) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(BUFFER_LEN, out);
    if let Err(failure) = entries(&mut out, directory, b"", LEVELS_MAX) {
        // What has not been sent yet never is: where that is all, the reason is the whole answer.
        drop(out.into_parts());
        return Err(failure);
    }
    // Two blocks of zeros are the end.
    out.write_all(&[0; 2 * BLOCK_LEN as usize])?;
    Ok(out.flush()?)
}

fn entries(
    out: &mut impl Write,
    directory: &OwnedFd,
    path: &[u8],
    levels: u32,
) -> Result<(), Failure> {
    if levels == 0 {
        let why = format!("directories are nested deeper than {LEVELS_MAX} levels");
        return Err(Failure::new(WorkFailure::Refused, why).about(path));
    }
    let (names, is_cut) = names(directory).map_err(|errno| Failure::from(errno).about(path))?;
    if is_cut {
        return Err(
            Failure::new(WorkFailure::Refused, "too many files in one directory").about(path)
        );
    }
    for name in names {
        let path = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
        match entry(out, directory, &name, &path) {
            Ok(Some(below)) => entries(out, &below, &path, levels - 1)?,
            Ok(None) => {}
            Err(failure) => return Err(failure.about(&path)),
        }
    }
    Ok(())
}

/// Writes one entry; returns the directory that is to be gone into, where it is one.
fn entry(
    out: &mut impl Write,
    directory: &OwnedFd,
    name: &[u8],
    path: &[u8],
) -> Result<Option<OwnedFd>, Failure> {
    let Some(stat) = still(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW))? else {
        return Ok(None);
    };
    let open = |flags: OFlags| {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(directory, name, flags, Mode::empty())
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let Some(below) = still(open(OFlags::DIRECTORY))? else { return Ok(None) };
            let path = [path, b"/"].concat();
            head(out, &path, &fstat(&below)?, EntryType::Directory, 0, None)?;
            Ok(Some(below))
        }
        FileType::RegularFile => {
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
            let Some(file) = still(open(flags))? else { return Ok(None) };
            let stat = fstat(&file)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(None);
            }
            content(out, path, file, &stat)?;
            Ok(None)
        }
        FileType::Symlink => {
            let Some(target) = still(readlinkat(directory, name, Vec::new()))? else {
                return Ok(None);
            };
            head(out, path, &stat, EntryType::Symlink, 0, Some(target.as_bytes()))?;
            Ok(None)
        }
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Ok(None),
    }
}

/// What was found by a name; none where that is gone meanwhile, or is of another kind: as if it had
/// never been seen.
fn still<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Ok(found) => Ok(Some(found)),
        // A link where a file was, a file where a directory was, a socket, and no link any more.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(super) fn content(
    out: &mut impl Write,
    path: &[u8],
    file: OwnedFd,
    stat: &Stat,
) -> Result<(), Failure> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    head(out, path, stat, EntryType::Regular, size, None)?;
    // No more than its header says, however fast it grows.
    let copied = std::io::copy(&mut File::from(file).take(size), out)?;
    std::io::copy(&mut std::io::repeat(0).take(size - copied), out)?;
    fill_up(out, size)
}

/// Writes an entry's header, and before it what has no room in it.
fn head(
    out: &mut impl Write,
    path: &[u8],
    stat: &Stat,
    kind: EntryType,
    size: u64,
    link: Option<&[u8]>,
) -> Result<(), Failure> {
    let mut header = Header::new_gnu();
    if !place(&mut header.as_old_mut().name, path) {
        long(out, EntryType::GNULongName, path)?;
    }
    if let Some(link) = link
        && !place(&mut header.as_old_mut().linkname, link)
    {
        long(out, EntryType::GNULongLink, link)?;
    }
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(stat.st_mode & 0o777);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    Ok(out.write_all(header.as_bytes())?)
}

/// Writes a name that is too long for the header that follows.
fn long(out: &mut impl Write, kind: EntryType, name: &[u8]) -> Result<(), Failure> {
    let mut header = Header::new_gnu();
    place(&mut header.as_old_mut().name, b"././@LongLink");
    header.set_entry_type(kind);
    let size = name.len() as u64 + 1;
    header.set_size(size);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(name)?;
    out.write_all(&[0])?;
    fill_up(out, size)
}

/// Puts as much of a name into a field as there is room for; false where that is not all.
fn place(field: &mut [u8], name: &[u8]) -> bool {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    len == name.len()
}

fn fill_up(out: &mut impl Write, size: u64) -> Result<(), Failure> {
    let missing = size.next_multiple_of(BLOCK_LEN) - size;
    let zeros = [0; BLOCK_LEN as usize];
    Ok(out.write_all(&zeros[..usize::try_from(missing).expect("less than a block")])?)
}
