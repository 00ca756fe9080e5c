//! A directory of the workspace as a tar archive, written during the walk.
//!
//! Links are archived as links and never followed; sockets, FIFOs and devices are left out. Owners
//! are left out too, because the sandbox's users do not exist outside. Names are bytes; what does
//! not fit into a header precedes it, as in GNU tar.
//!
//! Commands may run meanwhile. A file that is gone or replaced before it is opened is left out;
//! one that grew is cut at its first length, and one that shrank is filled up with zeros. A file
//! that its owner may not read is an error that names it, since its absence would go unnoticed.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use tar::{EntryType, Header};

use super::{Files, LEVELS_MAX, RequestFailure, WorkFailure, names};

/// Bytes of a block: a header is one, contents are padded to whole ones.
const BLOCK_LEN: u64 = 512;

/// The buffer before the pipe, in bytes.
const BUFFER_LEN: usize = 64 * 1024;

impl Files {
    /// Writes the directory at `path` into a pipe as an archive.
    pub fn pack(&self, path: &[u8], pipe: Option<OwnedFd>) -> Result<bool, RequestFailure> {
        let pipe = pipe
            .ok_or_else(|| RequestFailure::new(WorkFailure::Broken, "an archive needs a pipe"))?;
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        pack(&directory, File::from(pipe))?;
        Ok(false)
    }
}

/// Writes the content of a directory as an archive.
pub(super) fn pack(directory: &OwnedFd, out: impl Write) -> Result<(), RequestFailure> {
    let mut out = BufWriter::with_capacity(BUFFER_LEN, out);
    if let Err(failure) = entries(&mut out, directory, b"", LEVELS_MAX) {
        // Drops what is still buffered: if nothing was sent, the caller gets only the error.
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
) -> Result<(), RequestFailure> {
    if levels == 0 {
        let why = format!("directories are nested deeper than {LEVELS_MAX} levels");
        return Err(RequestFailure::new(WorkFailure::Refused, why).about(path));
    }
    let (names, is_cut) =
        names(directory).map_err(|errno| RequestFailure::from(errno).about(path))?;
    if is_cut {
        return Err(RequestFailure::new(WorkFailure::Refused, "too many files in one directory")
            .about(path));
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

/// Writes one entry; returns the directory to descend into, if it is one.
fn entry(
    out: &mut impl Write,
    directory: &OwnedFd,
    name: &[u8],
    path: &[u8],
) -> Result<Option<OwnedFd>, RequestFailure> {
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

/// The entry of a name; `None` if it is gone meanwhile or of another kind: it is left out.
fn still<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Ok(found) => Ok(Some(found)),
        // A link instead of a file, a file instead of a directory, a socket, and no link any more.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(super) fn content(
    out: &mut impl Write,
    path: &[u8],
    file: OwnedFd,
    stat: &Stat,
) -> Result<(), RequestFailure> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    head(out, path, stat, EntryType::Regular, size, None)?;
    // No more than its header says, however fast it grows.
    let copied = std::io::copy(&mut File::from(file).take(size), out)?;
    std::io::copy(&mut std::io::repeat(0).take(size - copied), out)?;
    fill_up(out, size)
}

/// Writes an entry's header, preceded by the names that do not fit into it.
fn head(
    out: &mut impl Write,
    path: &[u8],
    stat: &Stat,
    kind: EntryType,
    size: u64,
    link: Option<&[u8]>,
) -> Result<(), RequestFailure> {
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

/// Writes a name that is too long for the following header.
fn long(out: &mut impl Write, kind: EntryType, name: &[u8]) -> Result<(), RequestFailure> {
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

/// Copies as much of a name into a field as fits; returns whether all fit.
fn place(field: &mut [u8], name: &[u8]) -> bool {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    len == name.len()
}

fn fill_up(out: &mut impl Write, size: u64) -> Result<(), RequestFailure> {
    let missing = size.next_multiple_of(BLOCK_LEN) - size;
    let zeros = [0; BLOCK_LEN as usize];
    Ok(out.write_all(&zeros[..usize::try_from(missing).expect("less than a block")])?)
}
