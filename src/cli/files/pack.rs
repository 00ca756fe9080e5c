//! Packs a local directory into a tar archive while walking it.
//!
//! Links are archived as links. A special file or an unreadable file is left out and named to the
//! caller; the rest goes on. A file that grows is cut at the length in its header. One that shrinks
//! is filled up with zeros and named, too.

use std::fs::{self, File, Metadata, OpenOptions};
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

/// Archives a directory; returns what was left out, each with its path and the reason. Holes become
/// zeros. After an error the archive has no end marker.
///
/// # Errors
/// If the directory itself cannot be read; `BrokenPipe` if the reader has gone.
pub(super) fn pack(from: &Path, out: impl Write) -> io::Result<Vec<String>> {
    let mut archive = Builder::new(Gate(Some(BufWriter::with_capacity(PIECE_LEN, out))));
    let packed = entries(&mut archive, from);
    if packed.is_err() {
        // Otherwise the builder would write an end marker.
        archive.get_mut().0 = None;
        return packed;
    }
    archive.into_inner()?.flush()?;
    packed
}

fn entries(archive: &mut Builder<impl Write>, from: &Path) -> io::Result<Vec<String>> {
    let mut left_out = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        let here = from.join(&directory);
        let names = match names(&here) {
            Ok(names) => names,
            Err(error) if directory.as_os_str().is_empty() => return Err(error),
            Err(why) => {
                left_out.push(format!("{}: {why}", here.display()));
                continue;
            }
        };
        for name in names {
            let path = directory.join(name);
            let here = from.join(&path);
            match entry(archive, &here, &path)? {
                PackedFile::Whole => {}
                PackedFile::LeftOut(why) => left_out.push(format!("{}: {why}", here.display())),
                PackedFile::Directory => left.push(path),
            }
        }
    }
    Ok(left_out)
}

/// What became of an entry.
enum PackedFile {
    Whole,
    /// A directory, to descend into.
    Directory,
    /// It is missing, or a part of it is.
    LeftOut(String),
}

/// The names in a directory, sorted: the same directory gives the same archive.
fn names(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// What is at a path.
enum LocalEntry {
    Directory(Metadata),
    Link(Metadata, PathBuf),
    File(Metadata, File),
}

fn look(here: &Path) -> io::Result<LocalEntry> {
    let metadata = fs::symlink_metadata(here)?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Ok(LocalEntry::Directory(metadata));
    }
    if kind.is_symlink() {
        return Ok(LocalEntry::Link(metadata, fs::read_link(here)?));
    }
    if !kind.is_file() {
        return Err(io::Error::other("not a file, directory or link"));
    }
    // By now it may be a link or a pipe; do not follow it or block on it.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(here)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("the file was replaced while it was being packed"));
    }
    Ok(LocalEntry::File(metadata, file))
}

/// Writes one entry.
///
/// # Errors
/// Only those of the output.
fn entry(archive: &mut Builder<impl Write>, here: &Path, path: &Path) -> io::Result<PackedFile> {
    match look(here) {
        Ok(LocalEntry::Directory(metadata)) => {
            let mut header = header(&metadata, EntryType::Directory, 0);
            archive.append_data(&mut header, path, io::empty())?;
            Ok(PackedFile::Directory)
        }
        Ok(LocalEntry::Link(metadata, target)) => {
            archive.append_link(&mut header(&metadata, EntryType::Symlink, 0), path, target)?;
            Ok(PackedFile::Whole)
        }
        Ok(LocalEntry::File(metadata, file)) => {
            content(archive, path, &metadata, metadata.len(), file)
        }
        Err(why) => Ok(PackedFile::LeftOut(why.to_string())),
    }
}

/// Writes a file's content, at most `len` bytes.
fn content(
    archive: &mut Builder<impl Write>,
    path: &Path,
    metadata: &Metadata,
    len: u64,
    file: impl Read,
) -> io::Result<PackedFile> {
    let mut filled = FilledFile { file: file.take(len), left: len, why: None };
    archive.append_data(&mut header(metadata, EntryType::Regular, len), path, &mut filled)?;
    Ok(match filled.why {
        None => PackedFile::Whole,
        Some((missing, why)) => {
            PackedFile::LeftOut(format!("{why}: its last {missing} of {len} bytes are zeros there"))
        }
    })
}

/// A file as long as its header says: what cannot be read of it is zeros.
struct FilledFile<R> {
    file: io::Take<R>,
    left: u64,
    /// How many bytes are missing, and why.
    why: Option<(u64, String)>,
}

impl<R: Read> Read for FilledFile<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let into = &mut into[..room];
        if room == 0 {
            return Ok(0);
        }
        if self.why.is_none() {
            match self.file.read(into) {
                Ok(0) => self.why = Some((self.left, "it shrank while it was being sent".into())),
                Ok(len) => {
                    self.left -= len as u64;
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => self.why = Some((self.left, error.to_string())),
            }
        }
        into.fill(0);
        self.left -= room as u64;
        Ok(room)
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
        assert_eq!(pack(dir.path(), &mut bytes).expect("packed"), [""; 0]);
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
        let (mut bytes, whole) = (Vec::new(), bytes);
        let left_out = pack(dir.path(), &mut bytes).expect("packed");
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].ends_with("d/socket: not a file, directory or link"), "{left_out:?}");
        assert!(bytes == whole, "the rest is there");
        let error = pack(&dir.path().join("d/socket"), Vec::new()).expect_err("no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_file_that_grows_is_cut_and_one_that_shrinks_is_filled_up_and_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let metadata = file.as_file().metadata().expect("read");
        let pack = |len, content_now: &[u8]| {
            let mut archive = Builder::new(Vec::new());
            let packed = content(&mut archive, Path::new("f"), &metadata, len, content_now);
            content(&mut archive, Path::new("g"), &metadata, 2, &b"gg"[..]).expect("whole");
            let why = match packed.expect("written") {
                PackedFile::LeftOut(why) => why,
                PackedFile::Whole | PackedFile::Directory => String::new(),
            };
            (held(&archive.into_inner().expect("whole")), why)
        };
        for now in [&b"abc"[..], b"abcd", &[b"abc", &[b'x'; 5_000][..]].concat()] {
            let (held, why) = pack(3, now);
            let texts: Vec<_> = held.iter().map(|(_, _, _, text)| text.as_str()).collect();
            assert_eq!((texts.as_slice(), why.as_str()), (&["abc", "gg"][..], ""));
        }
        let (held, why) = pack(3, b"ab");
        assert_eq!((held[0].3.as_str(), held[1].3.as_str()), ("ab\0", "gg"));
        let said = "it shrank while it was being sent: its last 1 of 3 bytes are zeros there";
        assert_eq!(why, said);
    }
}
