//! Reading logs while they are written and turned over.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::{Entry, LogFollowers, paths, row};
use crate::types::SandboxId;

/// How much of a log is read at once while following, in bytes: more than the longest line.
pub(super) const READ_LEN_MAX: u64 = 1 << 20;
/// How much of a part is read from its end at first, in bytes.
const END_LEN: u64 = 1 << 16;
/// How many times as much is read where that was too few lines.
const END_GROWTH: u64 = 4;

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
    let mut entries = end_of(&newest, lines)?;
    meanwhile();
    if entries.len() < lines {
        entries.extend(end_of(&before, lines)?);
    }
    entries.sort_by_key(|entry| entry.n);
    entries.dedup_by_key(|entry| entry.n);
    Ok(entries.split_off(entries.len().saturating_sub(lines)))
}

/// The last lines of a part, and perhaps some before them: a log may be long, and is not read whole
/// for its end.
fn end_of(path: &Path, lines: usize) -> io::Result<Vec<Entry>> {
    let Some(Part { mut file, .. }) = Part::open(path)? else { return Ok(Vec::new()) };
    let len = file.metadata()?.len();
    let mut read_len = END_LEN;
    loop {
        let from = len.saturating_sub(read_len);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        (&file).take(len - from).read_to_end(&mut bytes)?;
        // Where it does not begin with the part, it begins within a line, which is no entry then.
        let entries = entries_of(&bytes, 0);
        if from == 0 || entries.len() >= lines {
            return Ok(entries);
        }
        read_len = read_len.saturating_mul(END_GROWTH);
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
    all_news: Arc<LogFollowers>,
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
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
        // So much without an end is no line that goes on: what a machine left that lost its power.
        let is_none = bytes.len() as u64 == READ_LEN_MAX;
        let len = end.unwrap_or(if is_none { bytes.len() } else { 0 });
        bytes.truncate(len);
        self.read_to += len as u64;
        Ok(bytes)
    }
}

impl Follower {
    pub(super) fn new(
        dir: &Path,
        sandbox: &SandboxId,
        last: u64,
        all_news: Arc<LogFollowers>,
    ) -> Self {
        let news = all_news.entry(sandbox.clone()).or_default().subscribe();
        let (sandbox, paths) = (sandbox.clone(), paths(dir, sandbox));
        Self { sandbox, paths, last, part: None, news, all_news }
    }

    /// What has come since the last time; empty where nothing has. Blocks on the disk.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<Entry>> {
        self.read_while(|| {})
    }

    /// The same while something happens behind the first look at the newest part.
    pub(super) fn read_while(&mut self, meanwhile: impl FnOnce()) -> io::Result<Vec<Entry>> {
        // Seen before reading: what is written after wakes the next wait.
        self.news.borrow_and_update();
        let [newest, before] = self.paths.clone();
        let mut meanwhile = Some(meanwhile);
        loop {
            // Known before reading: what is no longer the newest does not grow any more.
            let next = Part::open(&newest)?;
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            let Some(part) = &mut self.part else {
                // The newest part first, as with the last lines: what is turned over meanwhile is
                // found under its other name.
                self.part = Part::open(&before)?.or(next);
                match self.part {
                    Some(_) => continue,
                    None => return Ok(Vec::new()),
                }
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
        let own = std::mem::replace(&mut self.news, watch::channel(0).1);
        // Given back under the entry's lock: of two that go at once, one is the last.
        self.all_news.remove_if(&self.sandbox, |_, news| {
            drop(own);
            news.receiver_count() == 0
        });
    }
}
