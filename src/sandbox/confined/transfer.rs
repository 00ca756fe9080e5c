//! Carries listings and contents from a pipe or a file to a reader, bounded, without trust in the
//! writer.

use std::os::fd::OwnedFd;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::broken;
use super::listing::{Parsed, parse};
use crate::sandbox::{FileListing, LIST_ENTRIES_MAX, WorkError, WorkspacePath};

/// Most bytes of one listing.
const LISTING_LEN_MAX: usize = 16 * 1024 * 1024;

/// Pieces of a file that wait for a reader.
pub const CHUNKS_LEN: usize = 1;

/// Longest piece of a file, in bytes.
pub const CHUNK_LEN_MAX: usize = 64 * 1024;

/// A pipe of which the server has one end and the worker the other.
///
/// # Errors
/// [`WorkError::Broken`] if the server has no descriptors left.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), WorkError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(broken)
}

/// Reads a listing until its end.
pub async fn receive(
    mut pipe: impl AsyncRead + Unpin,
    path: &WorkspacePath,
) -> Result<FileListing, WorkError> {
    let mut listing = FileListing { entries: Vec::new(), truncated: false };
    let (mut buffer, mut total) = (BytesMut::new(), 0);
    loop {
        let got = pipe.read_buf(&mut buffer).await.map_err(broken)?;
        total += got;
        loop {
            match parse(&buffer) {
                Parsed::Entry(entry, len) => {
                    if !is_below(&entry.path, path) {
                        return Err(broken("the sandbox listed a path that was not asked for"));
                    }
                    listing.entries.push(entry);
                    drop(buffer.split_to(len));
                }
                Parsed::Incomplete => break,
                Parsed::Malformed => return Err(broken("the sandbox's listing makes no sense")),
            }
            if listing.entries.len() > LIST_ENTRIES_MAX {
                return Err(broken("the sandbox listed more than it may"));
            }
        }
        if got == 0 {
            return Ok(listing);
        }
        if total > LISTING_LEN_MAX {
            listing.truncated = true;
            return Ok(listing);
        }
    }
}

/// Whether an entry's path is valid, and equal to or below the requested one.
fn is_below(entry: &[u8], requested: &WorkspacePath) -> bool {
    let well_formed = entry
        .split(|b| *b == b'/')
        .all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0));
    let rest = entry.strip_prefix(requested.as_bytes());
    well_formed
        && (requested.is_root() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/'))
}

/// Copies until the end, an error, or the receiver is gone.
pub async fn pass_on(
    mut file: impl AsyncRead + Unpin,
    reader: &mpsc::Sender<Result<Bytes, String>>,
) {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK_LEN_MAX);
        let piece = match file.read_buf(&mut chunk).await {
            Ok(0) => return,
            Ok(_) => Ok(Bytes::from(chunk)),
            Err(error) => Err(error.to_string()),
        };
        let is_last = piece.is_err();
        if reader.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_paths_are_those_asked_for() {
        let path = |text: &str| WorkspacePath::parse(text.as_bytes()).expect("a path");
        assert!(is_below(b"a/b", &path("a")));
        assert!(is_below(b"a", &path("a")));
        assert!(is_below(b"a", &path("")));
        for bad in [&b"ab"[..], b"b", b"a/../b", b"a//b", b"/a", b"", b"a/\0"] {
            assert!(!is_below(bad, &path("a")), "{bad:?} must be refused");
        }
    }
}
