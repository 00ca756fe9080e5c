//! Unpacks an archive in a sandbox: the server checks each entry and writes it again in a form without
//! surprises, a script sees that no link is in the way, and the sandbox's own `tar` unpacks it.
//!
//! All of it is uploaded before anything is unpacked: an archive that is refused or breaks off changes
//! nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use tar::EntryType;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::DaytonaProvider;
use super::files::{argument, decoded, refusal};
use super::processes::UPLOAD_WAIT;
use super::shell::Script;
use super::toolbox::Toolbox;
use crate::sandbox::confined::archive_form::{
    ARCHIVE_END, ArchiveFacts, exact_time, fill_up, head,
};
use crate::sandbox::confined::archive_reader::{
    CheckedEntry, CheckedKind, SECOND_NS, copy_content, read_archive, wrong,
};
use crate::sandbox::confined::{RequestFailure, WorkFailure, broken, quoted};
use crate::sandbox::{ChunkReceiver, Target, WorkError, WorkspacePath};
use crate::types::Timestamp;

/// Most bytes of the names in one archive, which are kept to the end.
const NAMES_LEN_MAX: usize = 32 * 1024 * 1024;
/// The longest piece of an upload, in bytes.
const PIECE_LEN_MAX: usize = 64 * 1024;

impl DaytonaProvider {
    /// Checks an archive and unpacks it.
    pub(super) async fn unpack(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        path: &WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        let (path, upload) = (argument(path)?, self.ids.request_id());
        let done = self.upload_and_unpack(target, toolbox, (&path, &upload), archive).await;
        // If that fails, a start after a day removes it.
        let _ = toolbox.run(Script::Archives, &["discard", &upload]).await;
        done
    }

    async fn upload_and_unpack(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        (path, upload): (&str, &str),
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        let place = match toolbox.run(Script::Archives, &["spool", upload]).await {
            Ok(Some(place)) => decoded(&place)?,
            Ok(None) => return Err(broken("the sandbox took too long for it")),
            Err(failure) => return Err(self.work_error(target, failure).await),
        };
        let (sender, pieces) = mpsc::channel(2);
        let now = self.clock.now();
        let checking = tokio::task::spawn_blocking(move || {
            let mut out = Pieces { sender, piece: Vec::new() };
            let names = rewrite(Arriving { archive, piece: Bytes::new() }, &mut out, now);
            if let Err(failure) = &names {
                // So that the upload does not look whole.
                out.send(Err(io::Error::other(failure.message.clone())));
            }
            names
        });
        let body = reqwest::Body::wrap_stream(ReceiverStream::new(pieces));
        let sent = toolbox.upload(&place, body, UPLOAD_WAIT).await;
        let names = checking.await.map_err(broken)?;
        if let Err(failure) = &names
            && failure.kind != WorkFailure::Broken
        {
            return names.map(drop).map_err(WorkError::from);
        }
        let sent = match sent {
            Ok(()) => {
                let place = [&place[..], b".names"].concat();
                toolbox.upload(&place, names?.into(), UPLOAD_WAIT).await
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = sent {
            return Err(self.work_error(target, failure).await);
        }
        let printed = self.archive_script(target, toolbox, &["unpack", path, upload]).await;
        match printed {
            Ok(printed) if printed.trim_ascii() == b"unpacked" => Ok(()),
            Ok(printed) => Err(refusal(&String::from_utf8_lossy(&printed))),
            Err(error) => Err(named(error)),
        }
    }
}

/// An error of the script about an entry, with its name first.
fn named(error: WorkError) -> WorkError {
    let about = |why: String| match why.split_once("//") {
        Some((why, name)) => format!("{}: {why}", quoted(name.as_bytes())),
        None => why,
    };
    match error {
        WorkError::PathNotAllowed(why) => WorkError::PathNotAllowed(about(why)),
        WorkError::WrongKind(why) => WorkError::WrongKind(about(why)),
        other => other,
    }
}

/// An archive as it arrives, for a thread that may block.
struct Arriving {
    archive: ChunkReceiver,
    piece: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.piece.has_remaining() {
            match self.archive.blocking_recv() {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(why)) => {
                    return Err(io::Error::other(format!("the archive broke off: {why}")));
                }
                None => return Ok(0),
            }
        }
        let len = self.piece.remaining().min(into.len());
        self.piece.copy_to_slice(&mut into[..len]);
        Ok(len)
    }
}

/// Sends what is written on in pieces.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Pieces {
    /// Sends one; false if the upload has ended.
    fn send(&self, piece: io::Result<Bytes>) -> bool {
        self.sender.blocking_send(piece).is_ok()
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_LEN_MAX {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        match piece.is_empty() || self.send(Ok(piece.into())) {
            true => Ok(()),
            // Not a fault of the archive: the upload says what is wrong.
            false => Err(rustix::io::Errno::PIPE.into()),
        }
    }
}

/// Checks an archive and writes it again. Returns the list for the script: each path with a letter before
/// it, and NUL behind it. It is `d` for what must be a directory, `f` for what must not, `h` for what must be
/// a regular file.
fn rewrite(
    from: impl Read,
    out: &mut impl Write,
    now: Timestamp,
) -> Result<Vec<u8>, RequestFailure> {
    let seconds = u64::try_from(now.unix_ms() / 1_000).unwrap_or(0);
    let mut paths = ArchivePaths::default();
    // Directories that cannot be written to once they have their own mode. Deeper ones sort after it.
    let mut closed = BTreeMap::new();
    read_archive(from, |mut entry, content| {
        paths.add(&entry)?;
        if let CheckedKind::Directory(mode) = &mut entry.kind
            && !entry.path.is_empty()
        {
            match *mode & 0o700 {
                0o700 => closed.remove(&entry.path),
                _ => closed.insert(entry.path.clone(), *mode),
            };
            *mode |= 0o700;
        }
        write(&entry, content, out, seconds)
    })?;
    for (path, mode) in closed.into_iter().rev() {
        let entry = CheckedEntry { path, kind: CheckedKind::Directory(mode) };
        write(&entry, &mut io::empty(), out, seconds)?;
    }
    out.write_all(&ARCHIVE_END)?;
    out.flush()?;
    Ok(paths.list())
}

/// Writes an entry; what has no time of its own gets these seconds since 1970.
fn write(
    entry: &CheckedEntry,
    content: &mut dyn Read,
    out: &mut impl Write,
    seconds: u64,
) -> Result<(), RequestFailure> {
    let without = |mode| ArchiveFacts { mode, modified_seconds: seconds, size: 0 };
    match &entry.kind {
        // The directory itself stays as it is.
        CheckedKind::Directory(_) if entry.path.is_empty() => {}
        CheckedKind::Directory(mode) => {
            head(out, &entry.path, EntryType::Directory, &without(*mode), None)?;
        }
        CheckedKind::Link(target) => {
            head(out, &entry.path, EntryType::Symlink, &without(0o777), Some(target))?;
        }
        CheckedKind::HardLink(target) => {
            head(out, &entry.path, EntryType::Link, &without(0o644), Some(target))?;
        }
        CheckedKind::File(file) => {
            let seconds = file.modified_ns.div_euclid(SECOND_NS);
            let modified_seconds = u64::try_from(seconds).unwrap_or(0);
            let facts = ArchiveFacts { mode: file.mode, modified_seconds, size: file.size };
            exact_time(out, file.modified_ns)?;
            head(out, &entry.path, EntryType::Regular, &facts, None)?;
            copy_content(content, out, file.size)?;
            fill_up(out, file.size)?;
        }
    }
    Ok(())
}

/// What an archive makes at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MadeKind {
    Directory,
    File,
    Link,
}

/// The paths that an archive makes or needs.
#[derive(Default)]
struct ArchivePaths {
    made: HashMap<Vec<u8>, MadeKind>,
    /// Targets of hard links that were there before.
    linked: HashSet<Vec<u8>>,
    len: usize,
}

impl ArchivePaths {
    /// Adds an entry and the directories above it.
    ///
    /// # Errors
    /// It needs something else than the archive has there.
    fn add(&mut self, entry: &CheckedEntry) -> Result<(), RequestFailure> {
        if entry.path.is_empty() {
            return Ok(());
        }
        let kind = match &entry.kind {
            CheckedKind::Directory(_) => MadeKind::Directory,
            CheckedKind::File(_) => MadeKind::File,
            CheckedKind::Link(_) => MadeKind::Link,
            CheckedKind::HardLink(target) => {
                self.add_target(target).map_err(|failure| failure.of_hard_link(target))?;
                MadeKind::File
            }
        };
        self.add_above(&entry.path)?;
        match (self.made.get(&entry.path), kind) {
            (Some(MadeKind::Directory), MadeKind::Directory) => Ok(()),
            (Some(MadeKind::Directory), _) => Err(wrong("the archive has a directory there")),
            (Some(_), MadeKind::Directory) => Err(not_a_directory(&entry.path)),
            (Some(_) | None, _) => self.put(&entry.path, kind),
        }
    }

    /// Adds what a hard link leads to, which must be a regular file.
    fn add_target(&mut self, target: &[u8]) -> Result<(), RequestFailure> {
        self.add_above(target)?;
        match self.made.get(target) {
            Some(MadeKind::File) => Ok(()),
            Some(MadeKind::Directory | MadeKind::Link) => Err(wrong("that is not a regular file")),
            None if target.is_empty() => Err(wrong("that is not a regular file")),
            None => {
                self.count(target)?;
                self.linked.insert(target.to_vec());
                Ok(())
            }
        }
    }

    /// Adds the directories above a path, the deepest first: above a known one all are known.
    fn add_above(&mut self, path: &[u8]) -> Result<(), RequestFailure> {
        let mut rest = path;
        while let Some(end) = rest.iter().rposition(|byte| *byte == b'/') {
            rest = &rest[..end];
            match self.made.get(rest) {
                Some(MadeKind::Directory) => break,
                Some(MadeKind::File | MadeKind::Link) => return Err(not_a_directory(rest)),
                None => self.put(rest, MadeKind::Directory)?,
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &[u8], kind: MadeKind) -> Result<(), RequestFailure> {
        self.count(path)?;
        self.made.insert(path.to_vec(), kind);
        Ok(())
    }

    fn count(&mut self, path: &[u8]) -> Result<(), RequestFailure> {
        self.len += path.len() + 2;
        if self.len > NAMES_LEN_MAX {
            return Err(wrong("the names in the archive are longer than 32 MiB together"));
        }
        Ok(())
    }

    fn list(self) -> Vec<u8> {
        let made = self.made.into_iter().map(|(path, kind)| match kind {
            MadeKind::Directory => (b'd', path),
            MadeKind::File | MadeKind::Link => (b'f', path),
        });
        let linked = self.linked.into_iter().map(|path| (b'h', path));
        let mut list = Vec::with_capacity(self.len);
        for (letter, path) in made.chain(linked) {
            list.push(letter);
            list.extend_from_slice(&path);
            list.push(0);
        }
        list
    }
}

fn not_a_directory(path: &[u8]) -> RequestFailure {
    wrong(format!("{} is no directory in the archive", quoted(path)))
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(5_000);

    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, target) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(0);
            header.set_mode(0o700);
            if target.is_empty() {
                archive.append_data(&mut header, name, &b""[..]).expect("packed");
            } else {
                archive.append_link(&mut header, name, target).expect("packed");
            }
        }
        archive.into_inner().expect("whole")
    }

    #[test]
    fn the_list_says_what_must_be_a_directory() {
        let made = [
            (EntryType::Directory, "d/", ""),
            (EntryType::Regular, "a/b/c", ""),
            (EntryType::Symlink, "d/l", "/etc"),
            (EntryType::Link, "d/h", "a/b/c"),
            (EntryType::Link, "d/i", "before/x"),
        ];
        let mut out = Vec::new();
        let list = rewrite(&archive(&made)[..], &mut out, NOW).expect("fine");
        let mut list: Vec<_> =
            list.split(|byte| *byte == 0).filter(|one| !one.is_empty()).collect();
        list.sort_unstable();
        assert_eq!(
            list,
            ["da", "da/b", "dbefore", "dd", "fa/b/c", "fd/h", "fd/i", "fd/l", "hbefore/x"]
                .map(str::as_bytes)
        );
        // What is written again is read as the same archive.
        let mut again = Vec::new();
        rewrite(&out[..], &mut again, NOW).expect("fine");
        assert_eq!(out, again);
    }

    #[test]
    fn nothing_leads_through_what_the_archive_made_itself() {
        let file = (EntryType::Regular, "a/x", "");
        let link = (EntryType::Symlink, "a", "/etc");
        for (first, then, why) in [
            (link, (EntryType::Link, "h", "a/x"), "\"h\": a hard link to \"a/x\": \"a\" is no"),
            (link, (EntryType::Link, "h", "a"), "\"h\": a hard link to \"a\": that is not a"),
            ((EntryType::Symlink, "a", "/etc"), file, "\"a/x\": \"a\" is no directory"),
            ((EntryType::Regular, "a", ""), file, "\"a/x\": \"a\" is no directory"),
            (file, (EntryType::Symlink, "a", "/etc"), "\"a\": the archive has a directory there"),
        ] {
            let refused = rewrite(&archive(&[first, then])[..], &mut Vec::new(), NOW);
            let failure = refused.expect_err("refused");
            assert!(failure.message.starts_with(why), "{failure:?}");
        }
    }

    #[test]
    fn a_directory_is_closed_when_its_files_are_there() {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, mode) in [
            (EntryType::Directory, "c/", 0o500),
            (EntryType::Directory, "c/d/", 0o100),
            (EntryType::Regular, "c/d/f", 0o400),
            (EntryType::Directory, "open/", 0o500),
            (EntryType::Directory, "open/", 0o755),
        ] {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(mode);
            archive.append_data(&mut header, name, &b""[..]).expect("packed");
        }
        let mut out = Vec::new();
        rewrite(&archive.into_inner().expect("whole")[..], &mut out, NOW).expect("fine");
        let mut made = Vec::new();
        for entry in tar::Archive::new(&out[..]).entries().expect("an archive") {
            let entry = entry.expect("an entry");
            let header = entry.header();
            let path = entry.path().expect("a path").display().to_string();
            made.push((path, header.mode().expect("a mode"), header.mtime().expect("a time")));
        }
        let expected = [
            ("c", 0o700, 5),
            ("c/d", 0o700, 5),
            ("c/d/f", 0o400, 0),
            ("open", 0o700, 5),
            ("open", 0o755, 5),
            ("c/d", 0o100, 5),
            ("c", 0o500, 5),
        ];
        assert_eq!(made, expected.map(|(path, mode, time)| (path.to_owned(), mode, time)));
    }
}
