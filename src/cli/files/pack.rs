//! Packs a local directory into a tar archive while walking it.
//!
//! Links are archived as links. A special file or an unreadable file is an error that names it. A
//! file that grows is cut at the length in its header. A file that shrinks ends the archive with an
//! error, so that no truncated file arrives.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

/// Size of the write buffer, in bytes.
const PIECE_LEN: usize = 64 * 1024;

/// The output, until an error closes it.
struct Gate<W: Write>(Option<BufWriter<W>>);

impl<W: Write> Gate<W> {
    fn open(&mut self) -> io::Result<&mut BufWriter<W>> {
        self.0.as_mut().ok_or_else(|| io::Error::other("the archive was aborted"))
    }
}

impl<W: Write> Write for Gate<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.flush()
    }
}

/// Archives a directory. Holes become zeros. After an error the archive has no end marker.
///
/// # Errors
/// If a file cannot be read, naming it; `BrokenPipe` if the reader has gone.
pub(super) fn pack(from: &Path, out: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(Gate(Some(BufWriter::with_capacity(PIECE_LEN, out))));
    let packed = entries(&mut archive, from);
    if packed.is_err() {
        // Otherwise the builder would write an end marker.
        archive.get_mut().0 = None;
        return packed;
    }
    archive.into_inner()?.flush()
}

fn entries(archive: &mut Builder<impl Write>, from: &Path) -> io::Result<()> {
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        let here = from.join(&directory);
        for name in names(&here).map_err(|error| about(&here, &error))? {
            let path = directory.join(name);
            let here = from.join(&path);
            if entry(archive, &here, &path).map_err(|error| about(&here, &error))? {
                left.push(path);
            }
        }
    }
    Ok(())
}

/// The names in a directory, sorted: the same directory gives the same archive.
fn names(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Writes one entry; returns whether it is a directory to descend into.
fn entry(archive: &mut Builder<impl Write>, here: &Path, path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(here)?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        archive.append_data(&mut header(&metadata, EntryType::Directory, 0), path, io::empty())?;
    } else if kind.is_symlink() {
        let target = fs::read_link(here)?;
        archive.append_link(&mut header(&metadata, EntryType::Symlink, 0), path, target)?;
    } else if kind.is_file() {
        // By now it may be a link or a pipe; do not follow it or block on it.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(here)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("the file was replaced while it was being packed"));
        }
        content(archive, path, &metadata, metadata.len(), file)?;
    } else {
        return Err(io::Error::other("not a file, directory or link"));
    }
    Ok(kind.is_dir())
}

/// Writes a file's content, at most `len` bytes.
fn content(
    archive: &mut Builder<impl Write>,
    path: &Path,
    metadata: &Metadata,
    len: u64,
    file: impl Read,
) -> io::Result<()> {
    let mut rest = file.take(len);
    archive.append_data(&mut header(metadata, EntryType::Regular, len), path, &mut rest)?;
    match rest.limit() {
        0 => Ok(()),
        missing => Err(io::Error::other(format!(
            "the file shrank while it was being sent: {missing} of {len} bytes are missing"
        ))),
    }
}

/// Owners are left out: a sandbox has its own users.
fn header(metadata: &Metadata, kind: EntryType, len: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(len);
    header.set_mode(metadata.mode() & 0o777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// An archive's entries: path, kind, mode, content or target.
    fn held(archive: &[u8]) -> Vec<(String, EntryType, u32, String)> {
        let mut archive = tar::Archive::new(archive);
        let held = archive.entries().expect("an archive").map(|entry| {
            let mut entry = entry.expect("well formed");
            let (mut text, header) = (String::new(), entry.header().clone());
            entry.read_to_string(&mut text).expect("whole");
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if let Some(target) = entry.link_name_bytes() {
                text = String::from_utf8_lossy(&target).into_owned();
            }
            (path, header.entry_type(), header.mode().expect("a mode"), text)
        });
        held.collect()
    }

    #[test]
    fn a_directory_becomes_an_archive_of_its_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let long = "n".repeat(200);
        fs::create_dir_all(at("d/e")).expect("made");
        fs::write(at("d/e/f"), "content").expect("written");
        fs::write(at(&long), "long").expect("written");
        fs::set_permissions(at("d/e/f"), PermissionsExt::from_mode(0o4751)).expect("set");
        symlink("/etc/passwd", at("link")).expect("made");
        let mut bytes = Vec::new();
        pack(dir.path(), &mut bytes).expect("packed");
        let held = held(&bytes);
        let short: Vec<_> = held
            .iter()
            .map(|(path, kind, _, text)| (path.as_str(), *kind, text.as_str()))
            .collect();
        use EntryType::{Directory, Regular, Symlink};
        let expected = [
            ("d", Directory, ""),
            ("link", Symlink, "/etc/passwd"),
            (long.as_str(), Regular, "long"),
            ("d/e", Directory, ""),
            ("d/e/f", Regular, "content"),
        ];
        assert_eq!(short, expected);
        assert_eq!(held[4].2, 0o751, "without its setuid bit");

        let _socket = std::os::unix::net::UnixListener::bind(at("d/socket")).expect("bound");
        let (mut bytes, whole) = (Vec::new(), bytes.len());
        let error = pack(dir.path(), &mut bytes).expect_err("a socket").to_string();
        assert!(error.ends_with("d/socket: not a file, directory or link"), "{error}");
        assert!(bytes.len() < whole && !bytes.ends_with(&[0; 1024]), "it has no end");
    }

    #[test]
    fn a_file_that_grows_is_cut_and_one_that_shrinks_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let metadata = file.as_file().metadata().expect("read");
        let pack = |len, content_now: &[u8]| {
            let mut archive = Builder::new(Vec::new());
            content(&mut archive, Path::new("f"), &metadata, len, content_now)
                .map_err(|error| error.to_string())?;
            content(&mut archive, Path::new("g"), &metadata, 2, &b"gg"[..]).expect("whole");
            Ok::<_, String>(archive.into_inner().expect("whole"))
        };
        for now in [&b"abc"[..], b"abcd", &[b"abc", &[b'x'; 5_000][..]].concat()] {
            let held = held(&pack(3, now).expect("packed"));
            let texts: Vec<_> = held.iter().map(|(_, _, _, text)| text.as_str()).collect();
            assert_eq!(texts, ["abc", "gg"]);
        }
        let shorter = pack(3, b"ab").expect_err("shorter");
        assert_eq!(shorter, "the file shrank while it was being sent: 1 of 3 bytes are missing");
    }
}
