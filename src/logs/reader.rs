//! Reads logs while they are written and rotated.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::{LogEntry, LogFollowers, paths, row};
use crate::types::SandboxId;

/// Most bytes of a read while following: more than the longest line, whose 8 KiB can be six times as
/// long in JSON.
pub(super) const READ_LEN_MAX: u64 = 1 << 16;
/// Size of the first read from the end of a part, in bytes.
const END_LEN: u64 = 1 << 16;
/// Growth of the read when it held too few lines.
const END_GROWTH: u64 = 4;

pub(super) fn tail(dir: &Path, sandbox: &SandboxId, lines: usize) -> io::Result<Vec<LogEntry>> {
    tail_while(dir, sandbox, lines, || {})
}

/// The same, with a hook between the reading of the two parts for tests.
pub(super) fn tail_while(
    dir: &Path,
    sandbox: &SandboxId,
    lines: usize,
    meanwhile: impl FnOnce(),
) -> io::Result<Vec<LogEntry>> {
    let [newest, before] = paths(dir, sandbox);
    // The newest part first: if a rotation happens in between, its lines are read twice instead of
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

/// The last lines of a part, and perhaps some before them. Long parts are not read whole.
fn end_of(path: &Path, lines: usize) -> io::Result<Vec<LogEntry>> {
    let Some(Part { mut file, .. }) = Part::open(path)? else { return Ok(Vec::new()) };
    let len = file.metadata()?.len();
    let mut read_len = END_LEN;
    loop {
        let from = len.saturating_sub(read_len);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        (&file).take(len - from).read_to_end(&mut bytes)?;
        // If this is not the start of the part, the first line is incomplete and no entry.
        let entries = entries_of(&bytes, 0);
        if from == 0 || entries.len() >= lines {
            return Ok(entries);
        }
        read_len = read_len.saturating_mul(END_GROWTH);
    }
}

/// The entries with greater numbers. Lines that are not entries were cut off while being written; a
/// note after them says so.
fn entries_of(bytes: &[u8], after: u64) -> Vec<LogEntry> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(row::read).filter(|entry| entry.n > after).collect()
}

/// Follows a sandbox's log.
pub struct Follower {
    sandbox: SandboxId,
    paths: [PathBuf; 2],
    last: u64,
    part: Option<Part>,
    news: watch::Receiver<u64>,
    all_news: Arc<LogFollowers>,
}

/// An open part of a log: while it is open, no other file has its inode.
struct Part {
    file: File,
    inode: u64,
    /// The offset up to which it was read.
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

    /// Moves to the last lines, as far as these numbers of lines and bytes allow, and takes them off.
    /// Whether all of the part is read then.
    fn seek_back(&mut self, lines: &mut usize, len_max: &mut u64) -> io::Result<bool> {
        let mut at = self.file.metadata()?.len();
        let mut block = vec![0; READ_LEN_MAX as usize];
        // Behind the last complete line.
        let mut end = None;
        while at > 0 {
            let len = at.min(READ_LEN_MAX);
            at -= len;
            let block = &mut block[..len as usize];
            self.file.read_exact_at(block, at)?;
            for offset in memchr::memrchr_iter(b'\n', block) {
                let start = at + offset as u64 + 1;
                match end {
                    None => {
                        (end, self.read_to) = (Some(start), start);
                        if *lines == 0 {
                            return Ok(false);
                        }
                    }
                    Some(_) if !self.takes_back(start, lines, len_max) => return Ok(false),
                    Some(_) => {}
                }
            }
        }
        Ok(end.is_none() || self.takes_back(0, lines, len_max))
    }

    /// Whether the line that begins at `start` fits, and another one may.
    fn takes_back(&mut self, start: u64, lines: &mut usize, len_max: &mut u64) -> bool {
        let Some(left) = len_max.checked_sub(self.read_to - start) else { return false };
        (*len_max, self.read_to) = (left, start);
        *lines = lines.saturating_sub(1);
        *lines > 0
    }

    /// Complete lines from the current offset.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(self.read_to))?;
        let mut bytes = Vec::new();
        (&self.file).take(READ_LEN_MAX).read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
        // This many bytes without a line feed are remains of a power loss.
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

    /// Begins with the last lines: at most so many, of at most `len_max` bytes on disk. Reads through
    /// them once and keeps none. Blocks on the disk.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn seek_tail(&mut self, mut lines: usize, mut len_max: u64) -> io::Result<()> {
        let [newest, before] = &self.paths;
        // The newest part first: if it is rotated in between, it is found under both names.
        let newest = Part::open(newest)?;
        let is_other =
            |part: &Part| newest.as_ref().is_none_or(|newest| newest.inode != part.inode);
        let before = Part::open(before)?.filter(is_other);
        for mut part in [newest, before].into_iter().flatten() {
            let is_whole = part.seek_back(&mut lines, &mut len_max)?;
            self.part = Some(part);
            if !is_whole {
                break;
            }
        }
        Ok(())
    }

    /// The new entries since the last call. Blocks on the disk.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<LogEntry>> {
        self.read_while(|| {})
    }

    /// The same, with a hook after the newest part was opened for tests.
    pub(super) fn read_while(&mut self, meanwhile: impl FnOnce()) -> io::Result<Vec<LogEntry>> {
        // Marked before reading: a later write wakes the next wait.
        self.news.borrow_and_update();
        let [newest, before] = self.paths.clone();
        let mut meanwhile = Some(meanwhile);
        loop {
            // Opened before reading: a part that is no longer the newest does not grow.
            let next = Part::open(&newest)?;
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            let Some(part) = &mut self.part else {
                // The newest part first: if it is rotated in between, it is found under its other
                // name.
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
                    // After two rotations there is a part between.
                    let between = Part::open(&before)?.filter(|it| it.inode != part.inode);
                    self.part = Some(between.unwrap_or(next));
                }
                // The log was deleted, or is just being rotated.
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

    /// Waits until there may be more; `false` if there never will be.
    pub async fn changed(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }
}

impl Drop for Follower {
    /// The last follower removes the sandbox's channel.
    fn drop(&mut self) {
        let own = std::mem::replace(&mut self.news, watch::channel(0).1);
        // Dropped under the entry's lock: of two that end together, one is the last.
        self.all_news.remove_if(&self.sandbox, |_, news| {
            drop(own);
            news.receiver_count() == 0
        });
    }
}
