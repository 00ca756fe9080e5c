//! The file of a journal: lines are appended, and read from any place on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

/// A journal's file, open to be written.
pub(super) struct JournalFile {
    file: File,
    len: u64,
}

impl JournalFile {
    /// Opens the file, which is made if it is missing, and gives its lines that are of messages and runs,
    /// and behind them the last one of an agent.
    /// A last line that was cut off is removed.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<Vec<u8>>)> {
        if let Some(dir) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let options = &mut OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        let (mut lines, mut len) = (Vec::new(), 0);
        let mut reader = BufReader::new(&mut file);
        let (mut line, mut of_agent) = (Vec::new(), Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            len += read as u64;
            // An agent's lines are many.
            let is_kept = [&b"\"type\":\"message\""[..], b"\"type\":\"run\""]
                .iter()
                .any(|part| memchr::memmem::find(&line, part).is_some());
            if is_kept {
                lines.push(line[..read - 1].to_vec());
            } else {
                of_agent.clone_from(&line);
            }
        }
        lines.extend(Some(of_agent).filter(|line| !line.is_empty()));
        file.set_len(len)?;
        Ok((Self { file, len }, lines))
    }

    /// How long it is.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Appends lines with one call to the system, so that the death of the process leaves all or none.
    pub fn append(&mut self, lines: &[Value]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
        }
        self.file.write_all(&bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// How many bytes are read at once when lines are counted from the end.
const TAIL_PIECE_LEN: u64 = 64 * 1024;

/// The place before the last `count` lines, or before fewer if those have more than `len_max` bytes; at
/// least one, if any is asked for. A last line that is being written is none yet.
pub(super) fn place_before_last(path: &Path, count: usize, len_max: u64) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    let mut at = file.metadata()?.len();
    let mut piece = Vec::new();
    // Where the last whole line ends, the place so far, and how many lines are behind it.
    let (mut end, mut place, mut lines) = (None, 0, 0);
    while at > 0 {
        let len = at.min(TAIL_PIECE_LEN);
        at -= len;
        piece.clear();
        file.seek(SeekFrom::Start(at))?;
        (&mut file).take(len).read_to_end(&mut piece)?;
        for found in memchr::memrchr_iter(b'\n', &piece) {
            let begin = at + found as u64 + 1;
            let Some(end) = end else {
                (end, place) = (Some(begin), begin);
                if count == 0 {
                    return Ok(begin);
                }
                continue;
            };
            if lines > 0 && end - begin > len_max {
                return Ok(place);
            }
            (place, lines) = (begin, lines + 1);
            if lines == count {
                return Ok(begin);
            }
        }
    }
    // The first line begins at 0.
    let is_too_long = lines > 0 && end.is_some_and(|end: u64| end > len_max);
    Ok(if is_too_long { place } else { 0 })
}

/// A line, and the place behind it.
type Line = (u64, Bytes);

/// The lines behind a place, about as many as have `len_max` bytes. `None` if no line begins there.
pub(super) fn read(path: &Path, after: u64, len_max: usize) -> io::Result<Option<Vec<Line>>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((after == 0).then(Vec::new));
        }
        file => file?,
    };
    if after > 0 {
        let mut before = [0];
        file.seek(SeekFrom::Start(after - 1))?;
        if file.read(&mut before)? == 0 || before != *b"\n" {
            return Ok(None);
        }
    }
    let mut reader = BufReader::new(file);
    let (mut lines, mut at, mut total) = (Vec::new(), after, 0);
    while total < len_max {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            break;
        }
        at += read as u64;
        total += read;
        lines.push((at, Bytes::from(line)));
    }
    Ok(Some(lines))
}
