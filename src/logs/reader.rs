//! Reading logs while they are written and turned over.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::{Entry, News, paths, row};
use crate::types::SandboxId;

/// How much of a log is read at once while following, in bytes.
const READ_LEN_MAX: u64 = 1 << 20;

pub(super) fn tail(dir: &Path, sandbox: &SandboxId, lines: usize) -> io::Result<Vec<Entry>> {
    tail_while(dir, sandbox, lines, || {})
}

/// The same while something happens between the reading of the two parts.
pub(super) fn tail_while(
    dir: &Path,
    sandbox: &SandboxId,
    lines: usize,
    meanwhile: impl FnOnce(),
) -> io::Result<Vec<Entry>> {
    let [newest, before] = paths(dir, sandbox);
    // The newest part first: where it is turned over meanwhile, its lines are read twice and not
    // missed.
    let newest = whole(&newest)?;
    meanwhile();
    let mut entries = entries_of(&whole(&before)?, 0);
    entries.extend(entries_of(&newest, 0));
    entries.sort_by_key(|entry| entry.n);
    entries.dedup_by_key(|entry| entry.n);
    Ok(entries.split_off(entries.len().saturating_sub(lines)))
}

fn whole(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// The entries behind that number. What is no entry was broken off while it was written, and the
/// log says so behind it.
fn entries_of(bytes: &[u8], after: u64) -> Vec<Entry> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(row::read).filter(|entry| entry.n > after).collect()
}

/// Reads a sandbox's log as it grows.
pub struct Follower {
    sandbox: SandboxId,
    paths: [PathBuf; 2],
    last: u64,
    part: Option<Part>,
    news: watch::Receiver<u64>,
    all_news: Arc<News>,
}

/// A part of a log, open: as long as it is, no other file has its inode.
struct Part {
    file: File,
    inode: u64,
    /// Up to where it was read.
    read_to: u64,
}

impl Part {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => {
                let inode = file.metadata()?.ino();
                Ok(Some(Self { file, inode, read_to: 0 }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whole lines from where reading stands.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(self.read_to))?;
        let mut bytes = Vec::new();
        (&self.file).take(READ_LEN_MAX).read_to_end(&mut bytes)?;
        let len = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(len);
        self.read_to += len as u64;
        Ok(bytes)
    }
}

impl Follower {
    pub(super) fn new(dir: &Path, sandbox: &SandboxId, last: u64, all_news: Arc<News>) -> Self {
        let news = all_news.entry(sandbox.clone()).or_default().subscribe();
        let (sandbox, paths) = (sandbox.clone(), paths(dir, sandbox));
        Self { sandbox, paths, last, part: None, news, all_news }
    }

    /// What has come since the last time; empty where nothing has. Blocks on the disk.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<Entry>> {
        // Seen before reading: what is written after wakes the next wait.
        self.news.borrow_and_update();
        let [newest, before] = self.paths.clone();
        if self.part.is_none() {
            self.part = Part::open(&before)?;
        }
        loop {
            // Known before reading: what is no longer the newest does not grow any more.
            let next = Part::open(&newest)?;
            let Some(part) = &mut self.part else {
                match next {
                    Some(next) => self.part = Some(next),
                    None => return Ok(Vec::new()),
                }
                continue;
            };
            let bytes = part.read()?;
            let entries = entries_of(&bytes, self.last);
            if let Some(last) = entries.last() {
                self.last = last.n;
                return Ok(entries);
            }
            if !bytes.is_empty() {
                continue;
            }
            match next {
                Some(next) if next.inode != part.inode => {
                    // Where it was turned over twice since, there is one between.
                    let between = Part::open(&before)?.filter(|it| it.inode != part.inode);
                    self.part = Some(between.unwrap_or(next));
                }
                // It was taken away, or is just being turned over.
                None => {
                    let between = Part::open(&before)?.filter(|it| it.inode != part.inode);
                    match between {
                        Some(between) => self.part = Some(between),
                        None => return Ok(Vec::new()),
                    }
                }
                Some(_same) => return Ok(Vec::new()),
            }
        }
    }

    /// Waits until there may be more; `false` where there never will be.
    pub async fn changed(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }
}

impl Drop for Follower {
    /// The last one takes the way to it along.
    fn drop(&mut self) {
        self.all_news.remove_if(&self.sandbox, |_, news| news.receiver_count() <= 1);
    }
}
