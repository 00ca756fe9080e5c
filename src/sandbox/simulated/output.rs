//! The output of a simulated process on the disk: the newest bytes, and which stream each is of.
//!
//! It is kept in segments, named by the position of their first byte, of two files of one length:
//! the bytes, and for each byte its stream. Nothing is synced.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::sandbox::OutputStream;

/// The most bytes that one [`OutputLog::read`] returns.
const READ_MAX: u64 = 64 * 1024;

/// The shortest length at which a segment is full, in bytes.
const SEGMENT_MIN: u64 = 64 * 1024;

/// How the files of bytes and of streams end.
const ENDINGS: [&str; 2] = ["bytes", "streams"];

/// The output that is kept.
#[derive(Debug)]
pub(super) struct OutputLog {
    dir: PathBuf,
    /// At which length a segment is full.
    segment_len: u64,
    /// How many of the newest bytes are kept at least.
    keep: u64,
    /// Where each segment begins; never empty.
    starts: VecDeque<u64>,
    end: u64,
}

impl OutputLog {
    /// Opens what is kept in a directory, which is made when it is missing.
    pub fn open(dir: PathBuf, keep: u64) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let mut starts = Vec::new();
        for entry in fs::read_dir(&dir)? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".streams"));
            starts.extend(name.and_then(|start| start.parse::<u64>().ok()));
        }
        starts.sort_unstable();
        let last = starts.last().copied().unwrap_or(0);
        if starts.is_empty() {
            starts.push(0);
        }
        let segment_len = (keep / 4).max(SEGMENT_MIN);
        let mut log = Self { dir, segment_len, keep, starts: starts.into(), end: last };
        // The bytes are written first: what has no stream yet was not written.
        log.end += fs::metadata(log.path(last, ENDINGS[1])).map_or(0, |file| file.len());
        if let Ok(file) = OpenOptions::new().write(true).open(log.path(last, ENDINGS[0])) {
            file.set_len(log.end - last)?;
        }
        Ok(log)
    }

    /// The position of the first byte that is kept.
    pub fn kept_from(&self) -> u64 {
        self.starts.front().copied().unwrap_or(self.end)
    }

    /// How many bytes were ever written.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Writes bytes at the end.
    pub fn append(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        let mut last = self.starts.back().copied().unwrap_or(self.end);
        if self.end - last >= self.segment_len {
            last = self.end;
            self.starts.push_back(last);
        }
        let tag = match stream {
            OutputStream::Stdout => 1,
            OutputStream::Stderr => 2,
        };
        let open = |ending| {
            let path = self.path(last, ending);
            OpenOptions::new().create(true).append(true).open(path)
        };
        open(ENDINGS[0])?.write_all(bytes)?;
        open(ENDINGS[1])?.write_all(&vec![tag; bytes.len()])?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Drops the oldest segments that are not among the newest `keep` bytes and end at or before
    /// `until`.
    pub fn drop_oldest(&mut self, until: u64) -> io::Result<()> {
        while let Some(&next) = self.starts.get(1)
            && self.end - next >= self.keep
            && next <= until
        {
            if let Some(start) = self.starts.pop_front() {
                for ending in ENDINGS {
                    fs::remove_file(self.path(start, ending))?;
                }
            }
        }
        Ok(())
    }

    /// The bytes from a position on that are of one stream; empty at the end.
    pub fn read(&self, from: u64) -> io::Result<(OutputStream, Bytes)> {
        let at = self.starts.partition_point(|start| *start <= from);
        let start = at.checked_sub(1).and_then(|at| self.starts.get(at)).copied();
        let Some(start) = start.filter(|_| from < self.end) else {
            return Ok((OutputStream::Stdout, Bytes::new()));
        };
        let end = self.starts.get(at).copied().unwrap_or(self.end);
        let len = (end - from).min(READ_MAX);
        let streams = read_part(&self.path(start, ENDINGS[1]), from - start, len)?;
        let mut bytes = read_part(&self.path(start, ENDINGS[0]), from - start, len)?;
        let first = streams.first().copied();
        bytes.truncate(streams.iter().take_while(|tag| Some(**tag) == first).count());
        let stream = if first == Some(2) { OutputStream::Stderr } else { OutputStream::Stdout };
        Ok((stream, bytes.into()))
    }

    fn path(&self, start: u64, ending: &str) -> PathBuf {
        self.dir.join(format!("{start}.{ending}"))
    }
}

fn read_part(path: &Path, from: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &OutputLog, mut at: u64) -> Vec<(OutputStream, Vec<u8>)> {
        let mut all: Vec<(OutputStream, Vec<u8>)> = Vec::new();
        loop {
            let (stream, bytes) = log.read(at).expect("readable");
            if bytes.is_empty() {
                return all;
            }
            at += bytes.len() as u64;
            match all.last_mut() {
                Some((of, so_far)) if *of == stream => so_far.extend_from_slice(&bytes),
                _ => all.push((stream, bytes.to_vec())),
            }
        }
    }

    #[test]
    fn what_was_written_is_read_from_any_position_also_after_a_reopening() {
        use OutputStream::{Stderr, Stdout};
        let dir = tempfile::tempdir().expect("a directory");
        let open = || OutputLog::open(dir.path().join("output"), 1 << 20).expect("opens");
        let mut log = open();
        assert_eq!(all(&log, 0), []);
        for (stream, bytes) in [(Stdout, "ab"), (Stderr, "cd"), (Stdout, "e")] {
            log.append(stream, bytes.as_bytes()).expect("written");
            log = open();
        }
        let expected =
            [(Stdout, b"ab".to_vec()), (Stderr, b"cd".to_vec()), (Stdout, b"e".to_vec())];
        assert_eq!(all(&log, 0), expected);
        assert_eq!(all(&log, 3), [(Stderr, b"d".to_vec()), (Stdout, b"e".to_vec())]);
        assert_eq!((log.kept_from(), log.end()), (0, 5));
        // The process ended between its two writes.
        let bytes = log.path(0, "bytes");
        OpenOptions::new().append(true).open(bytes).expect("there").write_all(b"xx").expect("cut");
        let mut log = open();
        log.append(Stderr, b"f").expect("written");
        assert_eq!(all(&log, 4), [(Stdout, b"e".to_vec()), (Stderr, b"f".to_vec())]);
    }

    #[test]
    fn only_what_is_old_and_was_let_go_is_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let keep = 2 * SEGMENT_MIN;
        let mut log = OutputLog::open(dir.path().to_owned(), keep).expect("opens");
        let piece = vec![b'x'; usize::try_from(SEGMENT_MIN / 2).expect("small")];
        for _ in 0..20 {
            log.append(OutputStream::Stdout, &piece).expect("written");
            log.drop_oldest(0).expect("nothing is dropped");
        }
        assert_eq!(log.kept_from(), 0);
        log.drop_oldest(3 * SEGMENT_MIN).expect("dropped");
        assert_eq!(log.kept_from(), 3 * SEGMENT_MIN);
        log.drop_oldest(u64::MAX).expect("dropped");
        let kept = log.end() - log.kept_from();
        assert!((keep..=keep + SEGMENT_MIN).contains(&kept), "{kept}");
        let reopened = OutputLog::open(dir.path().to_owned(), keep).expect("opens");
        assert_eq!((reopened.kept_from(), reopened.end()), (log.kept_from(), log.end()));
    }
}
