//! Whether the files that the store writes to still have their names.
//!
//! A directory can be removed or replaced under a running server. What is written then reaches files
//! that no name leads to, and is gone with the process. So the writer compares the files' inodes before
//! each transaction, and while nothing is written every few seconds.
//!
//! # Races it accepts
//! Files that are removed right after the comparison: the acknowledged write was stored, and then removed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::open::LOCK_FILE;
use super::schema::with_ending;
use crate::store::StoreError;

/// Which file a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Never by opening the file: closing it again would end the locks that SQLite has on it, see
    /// "How To Corrupt An SQLite Database File", 2.2.
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The files of an open store.
#[derive(Debug)]
pub(super) struct Presence {
    files: Vec<(PathBuf, FileId)>,
}

impl Presence {
    /// Takes the files of the database at `path` as they are, once its log is there.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let beside = ["-wal", "-shm"].map(|ending| with_ending(path, ending));
        let lock = path.with_file_name(LOCK_FILE);
        let files = std::iter::once(path.to_owned()).chain(beside).chain([lock]);
        let files = files.map(|path| FileId::of(&path).map(|id| (path, id)));
        Ok(Self { files: files.collect::<io::Result<_>>()? })
    }

    /// Whether each name still leads to the same file.
    ///
    /// # Errors
    /// [`StoreError::Replaced`], with the first that does not.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        for (path, id) in &self.files {
            let how = match FileId::of(path) {
                Ok(now) if now == *id => continue,
                Ok(_) => "was replaced by another file",
                Err(error) if error.kind() == io::ErrorKind::NotFound => "was removed",
                Err(_) => "cannot be reached any more",
            };
            return Err(StoreError::Replaced { path: path.clone(), how });
        }
        Ok(())
    }
}
