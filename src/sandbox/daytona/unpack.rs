//! Unpacks an archive in a sandbox: the server checks each entry and writes it again in a form without
//! surprises, a script sees that no link is in the way, and the sandbox's own `tar` unpacks it.
//!
//! All of it is uploaded before anything is unpacked: an archive that is refused or breaks off changes
//! nothing.

use std::collections::HashMap;
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
    CheckedEntry, CheckedKind, copy_content, read_archive, wrong,
};
use crate::sandbox::confined::{RequestFailure, WorkFailure, broken, quoted};
use crate::sandbox::{ChunkReceiver, Target, WorkError, WorkspacePath};

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
        let checking = tokio::task::spawn_blocking(move || {
            let mut out = Pieces { sender, piece: Vec::new() };
            let names = rewrite(Arriving { archive, piece: Bytes::new() }, &mut out);
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

/// Checks an archive and writes it again. Returns the list for the script: each path with `d` before it
/// if it must be a directory, `f` if it must not, and NUL behind it.
fn rewrite(from: impl Read, out: &mut impl Write) -> Result<Vec<u8>, RequestFailure> {
    let mut names = ArchivePaths::default();
    read_archive(from, |entry, content| {
        names.add(&entry)?;
        write(&entry, content, out)
    })?;
    out.write_all(&ARCHIVE_END)?;
    out.flush()?;
    Ok(names.list())
}

fn write(
    entry: &CheckedEntry,
    content: &mut dyn Read,
    out: &mut impl Write,
) -> Result<(), RequestFailure> {
    let without = |mode| ArchiveFacts { mode, modified_seconds: 0, size: 0 };
    match &entry.kind {
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
            let seconds = file.modified_ns.div_euclid(1_000_000_000);
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

/// The paths that an archive makes, each with whether it is a directory.
#[derive(Default)]
struct ArchivePaths {
    is_directory: HashMap<Vec<u8>, bool>,
    len: usize,
}

impl ArchivePaths {
    /// Adds an entry and the directories above it.
    ///
    /// # Errors
    /// It needs a directory where the archive has something else, or the other way round.
    fn add(&mut self, entry: &CheckedEntry) -> Result<(), RequestFailure> {
        if entry.path.is_empty() {
            return Ok(());
        }
        for (at, _) in entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            self.put(&entry.path[..at], true)?;
        }
        self.put(&entry.path, matches!(entry.kind, CheckedKind::Directory(_)))
    }

    fn put(&mut self, path: &[u8], is_directory: bool) -> Result<(), RequestFailure> {
        match self.is_directory.get(path) {
            Some(before) if *before == is_directory => Ok(()),
            Some(true) => Err(wrong("the archive has a directory there")),
            Some(false) => {
                let through = format!("{} is no directory in the archive", quoted(path));
                Err(wrong(through))
            }
            None => {
                self.len += path.len() + 2;
                if self.len > NAMES_LEN_MAX {
                    return Err(wrong("the names in the archive are longer than 32 MiB together"));
                }
                self.is_directory.insert(path.to_vec(), is_directory);
                Ok(())
            }
        }
    }

    fn list(self) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.len);
        for (path, is_directory) in self.is_directory {
            list.push(if is_directory { b'd' } else { b'f' });
            list.extend_from_slice(&path);
            list.push(0);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, target) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(0);
            header.set_mode(0o600);
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
        ];
        let mut out = Vec::new();
        let list = rewrite(&archive(&made)[..], &mut out).expect("fine");
        let mut list: Vec<_> =
            list.split(|byte| *byte == 0).filter(|one| !one.is_empty()).collect();
        list.sort_unstable();
        assert_eq!(list, [&b"da"[..], b"da/b", b"dd", b"fa/b/c", b"fd/h", b"fd/l"]);
        // What is written again is read as the same archive.
        let mut again = Vec::new();
        rewrite(&out[..], &mut again).expect("fine");
        assert_eq!(out, again);
    }

    #[test]
    fn nothing_leads_through_what_the_archive_made_itself() {
        let file = (EntryType::Regular, "a/x", "");
        for (first, then, why) in [
            ((EntryType::Symlink, "a", "/etc"), file, "\"a/x\": \"a\" is no directory"),
            ((EntryType::Regular, "a", ""), file, "\"a/x\": \"a\" is no directory"),
            (file, (EntryType::Symlink, "a", "/etc"), "\"a\": the archive has a directory there"),
        ] {
            let refused = rewrite(&archive(&[first, then])[..], &mut Vec::new());
            let failure = refused.expect_err("refused");
            assert!(failure.message.starts_with(why), "{failure:?}");
        }
    }
}
