//! Work on the workspace's files that is one request each, as bytes.

use super::codec::{Reader, put_bool, put_bytes, put_u32};

/// What to do with files. Paths are relative to the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// Whether what is there gives way.
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
    /// Read a tar archive from the pipe into a directory, which is made where it is missing.
    Unpack {
        /// Which directory.
        path: Vec<u8>,
    },
}

impl FileWork {
    /// Adds the work to a packet.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::MakeDirectory { path } => {
                out.push(0);
                put_bytes(out, path);
            }
            Self::Move { from, to, overwrite } => {
                out.push(1);
                put_bytes(out, from);
                put_bytes(out, to);
                put_bool(out, *overwrite);
            }
            Self::SetMode { path, mode } => {
                out.push(2);
                put_bytes(out, path);
                put_u32(out, *mode);
            }
            Self::Pack { path } => {
                out.push(3);
                put_bytes(out, path);
            }
            Self::Unpack { path } => {
                out.push(4);
                put_bytes(out, path);
            }
        }
    }

    /// Takes work off the front of a packet.
    pub(super) fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            0 => Self::MakeDirectory { path: from.bytes()?.to_vec() },
            1 => Self::Move {
                from: from.bytes()?.to_vec(),
                to: from.bytes()?.to_vec(),
                overwrite: from.bool()?,
            },
            2 => Self::SetMode { path: from.bytes()?.to_vec(), mode: from.u32()? },
            3 => Self::Pack { path: from.bytes()?.to_vec() },
            4 => Self::Unpack { path: from.bytes()?.to_vec() },
            _ => return None,
        })
    }
}

/// One of each, for the tests of what carries them.
#[cfg(test)]
pub(super) fn every() -> [FileWork; 5] {
    let path = b"p/\xff".to_vec();
    [
        FileWork::MakeDirectory { path: path.clone() },
        FileWork::Move { from: path.clone(), to: b"-q".to_vec(), overwrite: true },
        FileWork::SetMode { path: path.clone(), mode: 0o750 },
        FileWork::Pack { path: path.clone() },
        FileWork::Unpack { path },
    ]
}
