//! The wire format of a listing from PID 1 to the server: entries in a row over a pipe.
//!
//! The server does not trust it: it bounds the length, checks that paths are below the requested
//! one, and stops at the first invalid entry.

use rustix::fs::{FileType, Stat};

use crate::sandbox::{FileEntry, FileKind};
use crate::types::Timestamp;

/// Deepest listing, in levels. Each level holds a descriptor open.
pub const LEVELS_MAX: u32 = 64;

/// Most names of one directory that are sorted; if there are more, the listing is marked
/// incomplete.
pub const ENTRY_NAMES_MAX: usize = 200_000;

/// Bytes before an entry's path: kind, mode, size, time and the path's length.
const HEAD_LEN: usize = 1 + 4 + 8 + 8 + 4;

/// The bit beside the kind of an entry that could not be read.
const UNREADABLE: u8 = 0x80;

/// Longest path in a listing, in bytes: 64 levels of the longest names.
const PATH_LEN_MAX: usize = 64 * 256 + 4096;

/// One entry on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireEntry(FileEntry);

impl WireEntry {
    /// An entry from a `stat`.
    pub fn of(path: &[u8], stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        let millis = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
        let modified = stat.st_mtime.saturating_mul(1_000).saturating_add(millis);
        Self(FileEntry {
            path: path.to_vec(),
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            modified_at: Timestamp::from_unix_ms(modified),
            is_unreadable: false,
        })
    }

    /// An entry of which only the name is known.
    pub fn unknown(path: &[u8]) -> Self {
        Self(FileEntry {
            path: path.to_vec(),
            kind: FileKind::Other,
            size: 0,
            mode: 0,
            modified_at: Timestamp::from_unix_ms(0),
            is_unreadable: true,
        })
    }

    /// The entry of a directory whose content cannot be read.
    pub fn unreadable(self) -> Self {
        Self(FileEntry { is_unreadable: true, ..self.0 })
    }

    /// Encodes the entry.
    pub fn encode(&self) -> Vec<u8> {
        let FileEntry { path, kind, size, mode, modified_at, is_unreadable } = &self.0;
        let kind: u8 = match kind {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Link => 2,
            FileKind::Other => 3,
        };
        let len = u32::try_from(path.len()).expect("paths are bounded by the kernel");
        let mut out = Vec::with_capacity(HEAD_LEN + path.len());
        out.push(kind | if *is_unreadable { UNREADABLE } else { 0 });
        out.extend_from_slice(&mode.to_le_bytes());
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&modified_at.unix_ms().to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(path);
        out
    }
}

/// The result of reading the front of a buffer.
pub enum Parsed {
    /// An entry, and its length in bytes.
    Entry(FileEntry, usize),
    /// Its end has not arrived yet.
    Incomplete,
    /// Not an entry.
    Malformed,
}

/// Reads the entry at the front of `bytes`.
pub fn parse(bytes: &[u8]) -> Parsed {
    let Some(head) = bytes.first_chunk::<HEAD_LEN>() else { return Parsed::Incomplete };
    let number = |from: usize, len: usize| {
        head[from..from + len].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let kind = match head[0] & !UNREADABLE {
        0 => FileKind::File,
        1 => FileKind::Directory,
        2 => FileKind::Link,
        3 => FileKind::Other,
        _ => return Parsed::Malformed,
    };
    let Some(len) = usize::try_from(number(21, 4)).ok().filter(|len| *len <= PATH_LEN_MAX) else {
        return Parsed::Malformed;
    };
    let Some(path) = bytes.get(HEAD_LEN..HEAD_LEN + len) else { return Parsed::Incomplete };
    let entry = FileEntry {
        path: path.to_vec(),
        kind,
        mode: u32::try_from(number(1, 4) & 0o7777).expect("twelve bits"),
        size: number(5, 8),
        modified_at: Timestamp::from_unix_ms(i64::from_le_bytes(number(13, 8).to_le_bytes())),
        is_unreadable: head[0] & UNREADABLE != 0,
    };
    Parsed::Entry(entry, HEAD_LEN + len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_survives_a_round_trip_and_a_cut_one_waits() {
        let entry = WireEntry(FileEntry {
            path: b"a/\xff".to_vec(),
            kind: FileKind::Link,
            size: 1 << 40,
            mode: 0o4755,
            modified_at: Timestamp::from_unix_ms(-5),
            is_unreadable: true,
        });
        let bytes = entry.encode();
        for len in 0..bytes.len() {
            assert!(matches!(parse(&bytes[..len]), Parsed::Incomplete));
        }
        let Parsed::Entry(read, len) = parse(&bytes) else { panic!("must parse") };
        assert_eq!((read, len), (entry.0, bytes.len()));
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(2048))]

        #[test]
        fn no_bytes_make_parsing_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
