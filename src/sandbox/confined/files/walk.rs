//! A walk through a directory of the workspace: one system call for each entry, no contents.
//!
//! Links have their targets and are never followed. What cannot be read is named at the end,
//! so one entry never costs the others.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, readlinkat, statat};
use rustix::io::Errno;

use super::left_out::LeftOutEntries;
use super::pack::{PackedEntry, PackingWalk, is_shortage};
use super::{Files, RequestFailure, WorkFailure, explain};
use crate::sandbox::{FileKind, TreeEntry};

/// The buffer before the pipe, in bytes.
const BUFFER_LEN: usize = 64 * 1024;

impl Files {
    /// Writes the entries below the directory at `path` into a pipe; returns whether something
    /// could not be read.
    pub fn walk(&self, path: &[u8], pipe: Option<OwnedFd>) -> Result<bool, RequestFailure> {
        let pipe =
            pipe.ok_or_else(|| RequestFailure::new(WorkFailure::Broken, "a walk needs a pipe"))?;
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        walk(&directory, File::from(pipe))
    }
}

fn walk(directory: &OwnedFd, out: impl Write) -> Result<bool, RequestFailure> {
    let mut out = BufWriter::with_capacity(BUFFER_LEN, out);
    let (mut left_out, mut encoded) = (LeftOutEntries::default(), Vec::with_capacity(256));
    PackingWalk::new(directory, &mut left_out)?.each(|directory, name, path| {
        encoded.clear();
        let visited = visit(directory, name, path, &mut encoded)?;
        out.write_all(&encoded)?;
        Ok(visited)
    })?;
    for path in left_out.paths() {
        encoded.clear();
        TreeEntry::encode_left_out(path, &mut encoded);
        out.write_all(&encoded)?;
    }
    out.flush()?;
    Ok(!left_out.is_empty())
}

fn visit(
    directory: &OwnedFd,
    name: &[u8],
    path: &[u8],
    encoded: &mut Vec<u8>,
) -> Result<PackedEntry, RequestFailure> {
    match look(directory, name, path, encoded) {
        Ok(visited) => Ok(visited),
        // Gone meanwhile, or of another kind.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::INVAL) => Ok(PackedEntry::Settled),
        Err(errno) if is_shortage(errno) => Err(RequestFailure::from(errno).about(path)),
        Err(errno) => Ok(PackedEntry::LeftOut(explain(errno))),
    }
}

fn look(
    directory: &OwnedFd,
    name: &[u8],
    path: &[u8],
    encoded: &mut Vec<u8>,
) -> Result<PackedEntry, Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (kind, link_target) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (FileKind::File, Vec::new()),
        FileType::Directory => (FileKind::Directory, Vec::new()),
        FileType::Symlink => {
            (FileKind::Link, readlinkat(directory, name, Vec::new())?.into_bytes())
        }
        _ => (FileKind::Other, Vec::new()),
    };
    entry(path, kind, &stat, link_target).encode(encoded);
    if kind != FileKind::Directory {
        return Ok(PackedEntry::Settled);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(PackedEntry::Directory(rustix::fs::openat(directory, name, flags, Mode::empty())?))
}

fn entry(path: &[u8], kind: FileKind, stat: &Stat, link_target: Vec<u8>) -> TreeEntry {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    TreeEntry {
        path: path.to_vec(),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos),
        link_target,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[tokio::test]
    async fn a_walk_names_each_entry_with_its_target_and_follows_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("d/empty")).expect("made");
        fs::write(dir.path().join("d/f"), "four").expect("written");
        let mode = fs::Permissions::from_mode(0o750);
        fs::set_permissions(dir.path().join("d/f"), mode).expect("set");
        symlink("/etc", dir.path().join("l")).expect("made");
        let top: OwnedFd = File::open(dir.path()).expect("opens").into();
        let mut bytes = Vec::new();
        assert_eq!(walk(&top, &mut bytes).ok(), Some(false));
        let tree = crate::sandbox::walk::receive(&bytes[..]).await.expect("a walk");
        let seen: Vec<_> =
            tree.entries.iter().map(|e| (&*e.path, e.kind, &*e.link_target)).collect();
        let expected = [
            (&b"d"[..], FileKind::Directory, &b""[..]),
            (b"d/empty", FileKind::Directory, b""),
            (b"d/f", FileKind::File, b""),
            (b"l", FileKind::Link, b"/etc"),
        ];
        assert_eq!(seen, expected);
        assert_eq!((tree.entries[2].mode, tree.entries[2].size), (0o750, 4));
    }
}
