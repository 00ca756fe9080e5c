//! The files below a directory, by system calls that block.
//!
//! The kernel opens every path with `RESOLVE_BENEATH`: links, `..` and concurrent changes can lead
//! only within the workspace; magic links (`/proc/self/fd/…`) and other mounts are not followed at
//! all. An opened file must be regular; `O_NONBLOCK` prevents blocking on a FIFO. In a sandbox the
//! caller has no privileges, so it can do nothing here that a command could not do.
//!
//! A write goes to a new file, which replaces the old one when it is complete. An interrupted
//! write leaves the old file as it was, and nothing else.

mod change;
mod fresh;
mod left_out;
mod pack;
mod unpack;
mod walk;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat2,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use fresh::Fresh;
pub use left_out::LeftOutEntries;

use super::listing::{ENTRY_NAMES_MAX, LEVELS_MAX, WireEntry};
use super::{RequestFailure, WorkFailure, explain, quoted, remove};
use crate::sandbox::LIST_ENTRIES_MAX;

/// Writes that may be open at once; more are refused, since each holds two descriptors.
const WRITES_MAX: usize = 256;

/// How often an `open` is retried that a concurrent rename made inconclusive.
const TRIES: usize = 64;

/// How the kernel resolves a path in the workspace.
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// A new file that has not replaced the old one yet.
struct OpenWrite {
    id: u64,
    fresh: Fresh,
    name: Vec<u8>,
}

/// The workspace, and the writes under way.
pub struct Files {
    root: OwnedFd,
    writes: VecDeque<OpenWrite>,
}

impl Files {
    /// The files below a directory.
    pub fn below(directory: impl Arg) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
        Ok(Self { root, writes: VecDeque::new() })
    }

    /// The workspace's descriptor.
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a regular file for reading.
    pub fn read(&self, path: &[u8]) -> Result<OwnedFd, RequestFailure> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.beneath(path, flags)?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file),
            FileType::Directory => {
                Err(RequestFailure::new(WorkFailure::WrongKind, "it is a directory"))
            }
            _ => Err(RequestFailure::new(WorkFailure::WrongKind, "it is not a regular file")),
        }
    }

    /// Opens a new file, which [`Files::finish`] moves to `path`. Missing directories are made.
    /// The new file gets the mode of the one that it replaces.
    pub fn write(&mut self, id: u64, path: &[u8]) -> Result<OwnedFd, RequestFailure> {
        if self.writes.len() >= WRITES_MAX {
            return Err(RequestFailure::new(
                WorkFailure::Refused,
                "too many writes at once; retry later",
            ));
        }
        let (parent, name) = split(path)?;
        let directory = self.directories(parent)?;
        let replaced = replaced_mode(&directory, name)?;
        let (fresh, file) = Fresh::make(directory, Mode::from_raw_mode(0o644))?;
        if let Some(mode) = replaced {
            fchmod(&file, mode)?;
        }
        self.writes.push_back(OpenWrite { id, fresh, name: name.to_vec() });
        Ok(file)
    }

    /// Ends a write: the new file replaces the old one, or is discarded. Returns whether there was
    /// a file before.
    pub fn finish(&mut self, write: u64, keep: bool) -> Result<bool, RequestFailure> {
        let at = self.writes.iter().position(|open| open.id == write);
        let open = at.and_then(|at| self.writes.remove(at));
        let open = open
            .ok_or_else(|| RequestFailure::new(WorkFailure::Broken, "this write does not exist"))?;
        if !keep {
            return Ok(false);
        }
        let replaced = replaced_mode(&open.fresh.directory, &open.name)?.is_some();
        open.fresh.place(&open.name)?;
        Ok(replaced)
    }

    /// Deletes a file, a link, or a directory with its content.
    pub fn delete(&self, path: &[u8]) -> Result<(), RequestFailure> {
        let (parent, name) = split(path)?;
        let parent = self.beneath(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        match unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => Ok(remove::remove(&parent, name)?),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes the entries at `path` to `out`; returns whether some were left out. A final link is
    /// listed as a link.
    pub fn list(&self, path: &[u8], depth: u32, out: &OwnedFd) -> Result<bool, RequestFailure> {
        let (parent, name) = if path.is_empty() { (path, path) } else { split(path)? };
        let mut listing = DirectoryListing { out, left: LIST_ENTRIES_MAX, truncated: false };
        if !path.is_empty() {
            let parent = self.beneath(parent, OFlags::PATH | OFlags::DIRECTORY)?;
            let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind != FileType::Directory {
                listing.entry(&WireEntry::of(path, &stat))?;
                return Ok(listing.truncated);
            }
        }
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let found = names(&directory)?;
        listing.directory(&directory, found, path, depth.min(LEVELS_MAX))?;
        Ok(listing.truncated || depth > LEVELS_MAX)
    }

    /// Opens a path beneath the workspace; the empty one is the workspace.
    fn beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        beneath(&self.root, path, flags, RESOLVE)
    }

    /// Opens a directory beneath the workspace, and makes missing ones.
    fn directories(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        directories(&self.root, path, RESOLVE)
    }
}

/// Opens a path beneath a directory; the empty one is the directory.
fn beneath(
    root: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // After a concurrent rename the kernel can't prove that the path stayed beneath.
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a directory beneath another, and makes missing ones. Each step is opened from the one
/// above, so none can lead outside.
fn directories(root: &OwnedFd, path: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match beneath(root, path, flags, resolve) {
        Err(Errno::NOENT) => {}
        done => return done,
    }
    let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    let mut above = beneath(root, b"", flags, resolve)?;
    let mut begin = 0;
    for end in ends.chain([path.len()]) {
        let opened = match beneath(root, &path[..end], flags, resolve) {
            Err(Errno::NOENT) => {
                match mkdirat(&above, &path[begin..end], Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                beneath(root, &path[..end], flags, resolve)
            }
            done => done,
        };
        above = opened?;
        begin = end + 1;
    }
    Ok(above)
}

/// The mode of the regular file that a write would replace; `None` if there is none.
fn replaced_mode(directory: &OwnedFd, name: &[u8]) -> Result<Option<Mode>, RequestFailure> {
    let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Some(Mode::from_raw_mode(stat.st_mode & 0o777))),
        FileType::Symlink => Err(RequestFailure::new(WorkFailure::NotAllowed, "it is a link")),
        FileType::Directory => {
            Err(RequestFailure::new(WorkFailure::WrongKind, "it is a directory"))
        }
        _ => Err(RequestFailure::new(WorkFailure::WrongKind, "it is not a regular file")),
    }
}

/// The parent directory and the name. The workspace itself has neither.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), RequestFailure> {
    if path.is_empty() {
        return Err(RequestFailure::new(WorkFailure::NotAllowed, "it is the workspace itself"));
    }
    Ok(match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    })
}

/// A listing under way to the server.
struct DirectoryListing<'a> {
    out: &'a OwnedFd,
    left: usize,
    truncated: bool,
}

impl DirectoryListing<'_> {
    fn entry(&mut self, entry: &WireEntry) -> Result<(), Errno> {
        let bytes = entry.encode();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match rustix::io::write(self.out, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Lists an open directory, parents before children, by name. What cannot be read is listed as
    /// that, and the rest goes on.
    fn directory(
        &mut self,
        directory: &OwnedFd,
        (names, is_cut): (Vec<Vec<u8>>, bool),
        path: &[u8],
        levels: u32,
    ) -> Result<(), Errno> {
        if levels == 0 {
            return Ok(());
        }
        self.truncated |= is_cut;
        for name in names {
            if self.left == 0 {
                self.truncated = true;
                return Ok(());
            }
            let path = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            let stat = match statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone meanwhile: skip it.
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    self.left -= 1;
                    self.entry(&WireEntry::unknown(&path))?;
                    continue;
                }
            };
            self.left -= 1;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || levels == 1 {
                self.entry(&WireEntry::of(&path, &stat))?;
                continue;
            }
            match opened(directory, &name) {
                Ok((below, found)) => {
                    self.entry(&WireEntry::of(&path, &stat))?;
                    self.directory(&below, found, &path, levels - 1)?;
                }
                // Gone or replaced meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    self.entry(&WireEntry::of(&path, &stat))?;
                }
                Err(_) => self.entry(&WireEntry::of(&path, &stat).unreadable())?,
            }
        }
        Ok(())
    }
}

/// The sorted names in a directory, and whether there were more than the bound.
type FoundNames = (Vec<Vec<u8>>, bool);

/// Opens a directory in another, and reads its names.
fn opened(directory: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, FoundNames), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let found = names(&below)?;
    Ok((below, found))
}

fn names(directory: &OwnedFd) -> Result<FoundNames, Errno> {
    let mut names = Vec::new();
    let mut is_cut = false;
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == ENTRY_NAMES_MAX {
            is_cut = true;
            break;
        }
        names.push(name.to_vec());
    }
    names.sort_unstable();
    Ok((names, is_cut))
}
