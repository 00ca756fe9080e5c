//! What the port says about files: paths in a workspace, what a listing shows, what is read.

use std::ops::Range;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::types::Timestamp;

/// A path below the workspace, as bytes: relative, no `..`, no NUL, not empty parts. The empty
/// path is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspacePath(Vec<u8>);

impl WorkspacePath {
    /// Longest accepted path, in bytes (Linux' own limit is 4096 with the terminating NUL).
    pub const LEN_MAX: usize = 4095;

    /// Parses a path as callers give it: relative to the workspace, or absolute below
    /// `/workspace`. `.` parts and doubled slashes are dropped.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(path: &[u8]) -> Result<Self, String> {
        if path.len() > Self::LEN_MAX {
            return Err("is longer than 4095 bytes".into());
        }
        if path.contains(&0) {
            return Err("contains a NUL byte".into());
        }
        let relative = match path.strip_prefix(b"/workspace") {
            Some([]) => b"",
            Some(rest) if rest.starts_with(b"/") => rest,
            _ if path.starts_with(b"/") => {
                return Err("is absolute and not below /workspace".into());
            }
            _ => path,
        };
        let parts: Vec<&[u8]> =
            relative.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
        if parts.contains(&b"..".as_slice()) {
            return Err("contains '..'".into());
        }
        Ok(Self(parts.join(&b'/')))
    }

    /// The path's bytes, relative to the workspace.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the workspace itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

/// What `list_files` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileListing {
    /// The entries, parents before children, by name within a directory.
    pub entries: Vec<FileEntry>,
    /// Whether there were more than [`LIST_ENTRIES_MAX`](super::LIST_ENTRIES_MAX).
    pub truncated: bool,
}

/// One file, directory or link in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its path relative to the workspace.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Its size, in bytes.
    pub size: u64,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
    /// When it was last changed.
    pub modified_at: Timestamp,
    /// Whether the content of a directory, or anything but a name, could not be read.
    pub is_unreadable: bool,
}

/// The beginning of the name of the file at an archive's end that names what the archive lacks.
pub const LEFT_OUT_NAME: &str = "issuebox-left-out";

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Link,
    /// A FIFO, socket or device.
    Other,
}

/// Chunks of a file; the channel's end is the file's end, an `Err` breaks it off.
pub type ChunkReceiver = mpsc::Receiver<Result<Bytes, String>>;

/// Which bytes of a file are asked for (RFC 9110, section 14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// All.
    Whole,
    /// Those from a position on.
    From(u64),
    /// Those from a position to another one, both included. The second is not before the first.
    Between(u64, u64),
    /// So many at the end.
    Last(u64),
}

impl FilePart {
    /// Which bytes these are of a file of this size; `None` where there is none of them.
    pub fn of(self, size: u64) -> Option<Range<u64>> {
        match self {
            Self::Whole => Some(0..size),
            Self::From(first) => (first < size).then_some(first..size),
            Self::Between(first, last) => {
                (first < size).then_some(first..last.saturating_add(1).min(size))
            }
            Self::Last(len) => (len > 0 && size > 0).then_some(size.saturating_sub(len)..size),
        }
    }
}

/// A file opened for reading.
#[derive(Debug)]
pub struct FileContent {
    /// Its size when it was opened, in bytes.
    pub size: u64,
    /// Which of its bytes come.
    pub range: Range<u64>,
    /// They.
    pub chunks: ChunkReceiver,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// There was no such file before.
    Created,
    /// A file was replaced.
    Replaced,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn workspace_paths_stay_below_the_workspace() {
        let parse = |path: &str| WorkspacePath::parse(path.as_bytes()).map(|p| p.0);
        assert_eq!(parse("a//b/./c"), Ok(b"a/b/c".to_vec()));
        assert_eq!(parse("/workspace/a"), Ok(b"a".to_vec()));
        assert_eq!(parse("/workspace"), Ok(Vec::new()));
        for bad in ["../a", "a/../b", "/etc/passwd", "/workspaces/a", "a\0b"] {
            assert!(parse(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn parts_are_those_bytes_that_are_there() {
        for (part, size, range) in [
            (FilePart::Whole, 0, Some(0..0)),
            (FilePart::Whole, 5, Some(0..5)),
            (FilePart::From(2), 5, Some(2..5)),
            (FilePart::From(5), 5, None),
            (FilePart::Between(0, 0), 5, Some(0..1)),
            (FilePart::Between(3, u64::MAX), 5, Some(3..5)),
            (FilePart::Between(5, 9), 5, None),
            (FilePart::Last(2), 5, Some(3..5)),
            (FilePart::Last(9), 5, Some(0..5)),
            (FilePart::Last(0), 5, None),
            (FilePart::Last(1), 0, None),
        ] {
            assert_eq!(part.of(size), range, "{part:?} of {size}");
        }
    }

    fn nearly_a_path() -> impl Strategy<Value = Vec<u8>> {
        let part = prop::sample::select(vec![
            &b".."[..],
            b".",
            b"",
            b"/",
            b"/workspace",
            b"workspace",
            b"a",
            b"\0",
            b"\xff",
            b"...",
        ]);
        let parts = prop::collection::vec(part, 0..8);
        (parts, any::<bool>()).prop_map(
            |(parts, is_joined)| {
                if is_joined { parts.join(&b'/') } else { parts.concat() }
            },
        )
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(2048))]

        #[test]
        fn no_bytes_of_a_path_lead_out_of_the_workspace(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..100), nearly_a_path()],
        ) {
            if let Ok(path) = WorkspacePath::parse(&bytes) {
                let leads_out = |part: &[u8]| matches!(part, b"" | b"." | b"..");
                prop_assert!(path.is_root() || !path.0.split(|b| *b == b'/').any(leads_out));
                prop_assert!(!path.0.contains(&0));
                prop_assert_eq!(WorkspacePath::parse(path.as_bytes()), Ok(path));
            }
        }
    }
}
