//! Reading logs while they are written and turned over.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::{Entry, paths, row};
use crate::types::SandboxId;

/// How much of a log is read at once while following, in bytes.
const READ_LEN_MAX: u64 = 1 << 20;

pub(super) fn tail(dir: &Path, sandbox: &SandboxId, lines: usize) -> io::Result<Vec<Entry>> {
    let [newest, before] = paths(dir, sandbox);
    // The older part first: where it is turned over meanwhile, lines are read twice and not missed.
    let mut bytes = whole(&before)?;
    bytes.extend(whole(&newest)?);
    let parts = bytes.split(|byte| *byte == b'\n').rev();
    let mut newest_first: Vec<Entry> =
        parts.filter(|line| !line.is_empty()).filter_map(row::read).take(lines).collect();
    newest_first.reverse();
    newest_first.dedup_by_key(|entry| entry.n);
    Ok(newest_first)
}

fn whole(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// The place at the beginning of the newest part, whichever file that is: no file has inode 0.
const AFTER_BEFORE: (u64, u64) = (0, 0);

/// Reads a sandbox's log as it grows.
pub struct Follower {
    paths: [PathBuf; 2],
    last: u64,
    /// Which file was read last, by its inode, and up to where.
    place: Option<(u64, u64)>,
    news: watch::Receiver<u64>,
}

impl Follower {
    pub(super) fn new(
        dir: PathBuf,
        sandbox: &SandboxId,
        last: u64,
        news: watch::Receiver<u64>,
    ) -> Self {
        Self { paths: paths(&dir, sandbox), last, place: None, news }
    }

    /// What has come since the last time; empty where nothing has. Blocks on the disk.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<Entry>> {
        // Seen before reading: what is written after wakes the next wait.
        self.news.borrow_and_update();
        loop {
            let (bytes, is_last) = self.read_some()?;
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let entries = lines.filter_map(row::read).filter(|entry| entry.n > self.last);
            let entries: Vec<Entry> = entries.collect();
            if let Some(last) = entries.last() {
                self.last = last.n;
                return Ok(entries);
            }
            if is_last {
                return Ok(entries);
            }
        }
    }

    /// Waits until there may be more; `false` where there never will be.
    pub async fn changed(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }

    /// Whole lines from where reading stands, and whether that was all there is now.
    fn read_some(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let opened = self.paths.each_ref().map(|path| open(path));
        let [newest, before] = opened;
        let (newest, before) = (newest?, before?);
        let is_at = |file: &Option<(File, u64)>, inode| file.as_ref().is_some_and(|f| f.1 == inode);
        // A log that was turned over is read to its end first, one that was not read yet from its
        // beginning.
        let from_before = before.is_some()
            && match self.place {
                Some(AFTER_BEFORE) => false,
                Some((inode, _)) => !is_at(&newest, inode),
                None => true,
            };
        let chosen = if from_before { before } else { newest };
        let Some((mut file, inode)) = chosen else { return Ok((Vec::new(), true)) };
        let from = self.place.filter(|place| place.0 == inode).map_or(0, |place| place.1);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(READ_LEN_MAX).read_to_end(&mut bytes)?;
        let len = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(len);
        self.place = Some((inode, from + len as u64));
        if from_before && len == 0 {
            // Read to its end: the newest one next, from its beginning.
            self.place = Some(AFTER_BEFORE);
            return Ok((bytes, false));
        }
        Ok((bytes, len == 0))
    }
}

fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    match File::open(path) {
        Ok(file) => {
            let inode = file.metadata()?.ino();
            Ok(Some((file, inode)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
