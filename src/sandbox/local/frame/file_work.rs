//! Work on the workspace's files that is one request each.

use serde::{Deserialize, Serialize};

/// What to do with files. Paths are relative to the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileWork {
    /// Make a directory and what is missing above it.
    MakeDirectory {
        /// Where.
        path: Vec<u8>,
    },
    /// Move a file, link or directory.
    Move {
        /// What.
        from: Vec<u8>,
        /// Where to.
        to: Vec<u8>,
        /// Whether a file at the destination is replaced.
        overwrite: bool,
    },
    /// Set permission bits.
    SetMode {
        /// Of what.
        path: Vec<u8>,
        /// Which, at most `0o777`.
        mode: u32,
    },
    /// Write a directory as a tar archive into the pipe.
    Pack {
        /// Which directory.
        path: Vec<u8>,
    },
    /// Write what is below a directory into the pipe, without contents.
    Walk {
        /// Which directory.
        path: Vec<u8>,
    },
    /// Read a tar archive from the pipe into a directory, which is made if it is missing.
    Unpack {
        /// Which directory.
        path: Vec<u8>,
    },
}

/// One of each, for tests.
#[cfg(test)]
pub(super) fn every() -> [FileWork; 6] {
    let path = b"p/\xff".to_vec();
    [
        FileWork::MakeDirectory { path: path.clone() },
        FileWork::Move { from: path.clone(), to: b"-q".to_vec(), overwrite: true },
        FileWork::SetMode { path: path.clone(), mode: 0o750 },
        FileWork::Pack { path: path.clone() },
        FileWork::Walk { path: path.clone() },
        FileWork::Unpack { path },
    ]
}
