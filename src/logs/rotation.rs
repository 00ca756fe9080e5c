//! The files of the logs. Each sandbox has a newest part and the one before it. A full part is rotated;
//! old or excess parts are deleted. A file's modification time is set from the server's clock, so that
//! one clock decides about its age.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{LogBounds, LogEntry, LogStream, paths, reader, row};
use crate::types::{SandboxId, Timestamp};

/// Most sandboxes whose position is cached, so that their file need not be read for it.
const PLACES_MAX: usize = 4096;

/// The end of a sandbox's log.
#[derive(Clone, Copy, Default)]
struct LogPosition {
    /// The last number; `None` if not yet known.
    n: Option<u64>,
    /// Length of the newest part, in bytes; `None` if the file may have changed.
    len: Option<u64>,
    /// Lines that were lost, or may have been, since the last write.
    missing: u64,
}

/// All logs.
pub(super) struct Rotation {
    dir: PathBuf,
    bounds: LogBounds,
    places: HashMap<SandboxId, LogPosition>,
    /// The length of all parts together, in bytes; an upper bound if one was rotated since it was
    /// counted.
    total_len: u64,
}

impl Rotation {
    pub fn new(dir: PathBuf, bounds: LogBounds) -> Self {
        Self { dir, bounds, places: HashMap::new(), total_len: 0 }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the total exceeds its bound.
    pub const fn is_too_much(&self) -> bool {
        self.total_len > self.bounds.total_len_max
    }

    /// Appends lines to a sandbox's log and returns the last one's number. After a failure the log gets a
    /// note about it once it can be written.
    pub fn append(
        &mut self,
        sandbox: &SandboxId,
        entries: Vec<LogEntry>,
        now: Timestamp,
    ) -> io::Result<u64> {
        let mut place = self.places.get(sandbox).copied().unwrap_or_default();
        let count = entries.len() as u64;
        let written = self.write(sandbox, &mut place, entries, now);
        match written {
            Ok(_) => place.missing = 0,
            Err(_) => {
                // It is unknown how much was written.
                place.len = None;
                place.missing += count;
            }
        }
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(sandbox) {
            self.places.clear();
        }
        self.places.insert(sandbox.clone(), place);
        written
    }

    fn write(
        &mut self,
        sandbox: &SandboxId,
        place: &mut LogPosition,
        entries: Vec<LogEntry>,
        now: Timestamp,
    ) -> io::Result<u64> {
        let [newest, before] = paths(&self.dir, sandbox);
        let part_len_max = self.bounds.sandbox_len_max / 2;
        let mut n = match place.n {
            Some(n) => n,
            None => last_number(&self.dir, sandbox, now)?,
        };
        let (mut len, is_broken) = match place.len {
            Some(len) => (len, false),
            None => end_line(&newest)?,
        };
        let note = note(place.missing, is_broken).zip(entries.first());
        let note = note.map(|(text, first)| LogEntry {
            n: 0,
            at: now,
            exec: first.exec.clone(),
            stream: LogStream::Note,
            text,
            is_partial: false,
        });
        let mut text = String::new();
        for entry in note.into_iter().chain(entries) {
            n += 1;
            // Used up, even if the write fails: a part of the line may be there.
            place.n = Some(n);
            let line = row::write(&LogEntry { n, ..entry });
            let so_far = len + text.len() as u64;
            if so_far > 0 && so_far + line.len() as u64 > part_len_max {
                self.put(&newest, &text, now)?;
                fs::rename(&newest, &before)?;
                text.clear();
                len = 0;
            }
            text.push_str(&line);
        }
        self.put(&newest, &text, now)?;
        place.len = Some(len + text.len() as u64);
        Ok(n)
    }

    fn put(&mut self, path: &Path, text: &str, now: Timestamp) -> io::Result<()> {
        self.total_len += text.len() as u64;
        let mut file = opened(path)?;
        file.write_all(text.as_bytes())?;
        file.set_modified(file_time(now))
    }

    /// Deletes parts that are too old, then the oldest ones until the total is a tenth below its bound,
    /// so that not every line requires it. A part that cannot be deleted does not block others.
    pub fn prune(&mut self, now: Timestamp) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            // Other files are not ours to delete.
            if metadata.is_file() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort();
        self.total_len = files.iter().map(|(_, len, _)| *len).sum();
        let total_len_max = match self.is_too_much() {
            true => self.bounds.total_len_max / 10 * 9,
            false => self.bounds.total_len_max,
        };
        let now = file_time(now);
        let mut done = Ok(());
        for (modified, len, path) in files {
            let age = now.duration_since(modified).unwrap_or_default();
            let is_old = self.bounds.age_max.is_some_and(|age_max| age > age_max);
            if !is_old && self.total_len <= total_len_max {
                break;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => done = Err(error),
                Ok(()) | Err(_) => self.total_len -= len,
            }
            self.places.values_mut().for_each(|place| place.len = None);
        }
        done
    }
}

fn file_time(at: Timestamp) -> SystemTime {
    let since_1970 = u64::try_from(at.unix_ms()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(since_1970)
}

/// The log's note about lost lines.
fn note(missing: u64, is_broken: bool) -> Option<String> {
    match (missing, is_broken) {
        (0, false) => None,
        (0, true) => Some("a line is missing here: its write was interrupted".to_owned()),
        (missing, _) => {
            Some(format!("up to {missing} lines are missing here: writing them failed"))
        }
    }
}

/// The last number of a sandbox's log. A new log starts at the time in microseconds, which grows faster
/// than any log. So a follower of a deleted log sees greater numbers. JavaScript represents them exactly
/// for two hundred years.
fn last_number(dir: &Path, sandbox: &SandboxId, now: Timestamp) -> io::Result<u64> {
    let last = reader::tail(dir, sandbox, 1)?.pop();
    let from_now = u64::try_from(now.unix_ms()).unwrap_or(0).saturating_mul(1_000);
    Ok(last.map_or(from_now, |entry| entry.n))
}

/// Ends the last line of a file if a write was interrupted in it. Returns the length of the file, and
/// whether a write was interrupted.
fn end_line(path: &Path) -> io::Result<(u64, bool)> {
    let mut file = opened(path)?;
    let len = file.seek(SeekFrom::End(0))?;
    if len == 0 {
        return Ok((0, false));
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(len - 1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok((len, false));
    }
    file.write_all(b"\n")?;
    Ok((len + 1, true))
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}
