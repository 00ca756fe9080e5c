//! The one thread that writes logs: lines out of pieces, files that are turned over, and what is
//! too old or too much taken away.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use super::{Entry, LogBounds, Message, News, Stream, paths, reader, row};
use crate::clock::Clock;
use crate::types::SandboxId;

/// How long a line that has not ended waits for its end.
const LINE_WAIT: Duration = Duration::from_millis(200);
/// Longest line, in bytes; a longer one is cut.
const LINE_LEN_MAX: usize = 8 << 10;
/// How often it is looked whether something is too old or too much.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// Sandboxes whose place is remembered, so that their file need not be read for it again.
const PLACES_MAX: usize = 4096;

/// A command that runs.
struct Command {
    sandbox: SandboxId,
    exec: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Where a sandbox's log stands.
#[derive(Clone, Copy, Default)]
struct Place {
    n: u64,
    len: u64,
}

pub(super) struct Writer {
    dir: PathBuf,
    bounds: LogBounds,
    clock: Arc<dyn Clock>,
    waiting: Arc<AtomicUsize>,
    news: Arc<News>,
    commands: HashMap<u64, Command>,
    places: HashMap<SandboxId, Place>,
    /// What is written next.
    lines: HashMap<SandboxId, Vec<Entry>>,
    is_failing: bool,
}

impl Writer {
    pub fn new(
        dir: PathBuf,
        bounds: LogBounds,
        clock: Arc<dyn Clock>,
        waiting: Arc<AtomicUsize>,
        news: Arc<News>,
    ) -> Self {
        Self {
            dir,
            bounds,
            clock,
            waiting,
            news,
            commands: HashMap::new(),
            places: HashMap::new(),
            lines: HashMap::new(),
            is_failing: false,
        }
    }

    /// Writes until nobody can tell anything any more.
    pub fn run(mut self, rx: &Receiver<Message>) {
        self.prune();
        let mut prune_at = Instant::now() + PRUNE_EVERY;
        loop {
            match rx.recv_timeout(LINE_WAIT) {
                Ok(message) => {
                    self.take(message);
                    rx.try_iter().take(super::PIECES_MAX).for_each(|more| self.take(more));
                }
                Err(RecvTimeoutError::Timeout) => self.cut_all(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.cut_all();
                    self.write_out();
                    return;
                }
            }
            self.write_out();
            if Instant::now() >= prune_at {
                self.prune();
                prune_at = Instant::now() + PRUNE_EVERY;
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Begin { command, sandbox, exec, text } => {
                let (stdout, stderr) = (Vec::new(), Vec::new());
                self.commands.insert(command, Command { sandbox, exec, stdout, stderr });
                self.add(command, Stream::Command, &text, false);
            }
            Message::Piece { command, stream, bytes } => {
                self.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
                self.take_piece(command, stream, &bytes);
            }
            Message::Lost { command, bytes } => {
                self.cut(command);
                let text = format!("{bytes} bytes are missing here: they came too fast");
                self.add(command, Stream::Note, &text, false);
            }
            Message::End { command, text } => {
                self.cut(command);
                self.add(command, Stream::Exit, &text, false);
                self.commands.remove(&command);
            }
        }
    }

    fn take_piece(&mut self, number: u64, stream: Stream, bytes: &[u8]) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        let kept = match stream {
            Stream::Stderr => &mut command.stderr,
            Stream::Stdout | Stream::Command | Stream::Exit | Stream::Note => &mut command.stdout,
        };
        kept.extend_from_slice(bytes);
        let mut all = std::mem::take(kept);
        let mut lines = Vec::new();
        let mut from = 0;
        while from < all.len() {
            let rest = &all[from..];
            let end = rest.iter().take(LINE_LEN_MAX).position(|byte| *byte == b'\n');
            match end {
                Some(end) => {
                    let line = &rest[..end];
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    lines.push((String::from_utf8_lossy(line).into_owned(), false));
                    from += end + 1;
                }
                None if rest.len() >= LINE_LEN_MAX => {
                    // Not in the middle of a character, where that can be told.
                    let len = whole_len(&rest[..LINE_LEN_MAX]);
                    lines.push((String::from_utf8_lossy(&rest[..len]).into_owned(), true));
                    from += len;
                }
                None => break,
            }
        }
        all.drain(..from);
        match stream {
            Stream::Stderr => command.stderr = all,
            Stream::Stdout | Stream::Command | Stream::Exit | Stream::Note => command.stdout = all,
        }
        for (text, is_partial) in lines {
            self.add(number, stream, &text, is_partial);
        }
    }

    /// Tells what a command has written of a line that has not ended.
    fn cut(&mut self, number: u64) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        let begun = [
            (Stream::Stdout, std::mem::take(&mut command.stdout)),
            (Stream::Stderr, std::mem::take(&mut command.stderr)),
        ];
        for (stream, bytes) in begun.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            self.add(number, stream, &String::from_utf8_lossy(&bytes), true);
        }
    }

    fn cut_all(&mut self) {
        let numbers: Vec<u64> = self.commands.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.cut(number));
    }

    fn add(&mut self, number: u64, stream: Stream, text: &str, is_partial: bool) {
        let Some(command) = self.commands.get(&number) else { return };
        let (exec, text) = (command.exec.clone(), text.to_owned());
        let entry = Entry { n: 0, at: self.clock.now(), exec, stream, text, is_partial };
        self.lines.entry(command.sandbox.clone()).or_default().push(entry);
    }

    fn write_out(&mut self) {
        for (sandbox, entries) in std::mem::take(&mut self.lines) {
            match self.append(&sandbox, entries) {
                Ok(last) => {
                    self.is_failing = false;
                    self.tell(&sandbox, last);
                }
                Err(error) if !self.is_failing => {
                    // Once, not for each line: the disk is full, most likely.
                    self.is_failing = true;
                    tracing::warn!(%error, dir = %self.dir.display(), "sandboxes' logs cannot be written");
                }
                Err(_still) => {}
            }
        }
    }

    fn append(&mut self, sandbox: &SandboxId, entries: Vec<Entry>) -> io::Result<u64> {
        let [newest, before] = paths(&self.dir, sandbox);
        let mut place = match self.places.get(sandbox) {
            Some(place) => *place,
            None => {
                let last = reader::tail(&self.dir, sandbox, 1)?.pop();
                let len = newest.metadata().map_or(0, |metadata| metadata.len());
                Place { n: last.map_or(0, |entry| entry.n), len }
            }
        };
        let part_len_max = self.bounds.sandbox_len_max / 2;
        let mut text = String::new();
        for entry in entries {
            place.n += 1;
            let line = row::write(&Entry { n: place.n, ..entry });
            let so_far = place.len + text.len() as u64;
            if so_far > 0 && so_far + line.len() as u64 > part_len_max {
                put(&newest, &text)?;
                fs::rename(&newest, &before)?;
                text.clear();
                place.len = 0;
            }
            text.push_str(&line);
        }
        put(&newest, &text)?;
        place.len += text.len() as u64;
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert(sandbox.clone(), place);
        Ok(place.n)
    }

    fn tell(&self, sandbox: &SandboxId, last: u64) {
        let is_followed = self.news.get(sandbox).is_some_and(|news| {
            news.send_replace(last);
            news.receiver_count() > 0
        });
        if !is_followed {
            self.news.remove_if(sandbox, |_, news| news.receiver_count() == 0);
        }
    }

    /// Takes away what is too old, then the oldest of what is too much.
    fn prune(&mut self) {
        if let Err(error) = self.try_prune() {
            tracing::warn!(%error, dir = %self.dir.display(), "old logs cannot be looked for");
        }
    }

    fn try_prune(&mut self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            files.push((metadata.modified()?, metadata.len(), entry.path()));
        }
        files.sort();
        let now = SystemTime::UNIX_EPOCH
            + Duration::from_millis(u64::try_from(self.clock.now().unix_ms()).unwrap_or(0));
        let mut total: u64 = files.iter().map(|(_, len, _)| *len).sum();
        for (modified, len, path) in files {
            let age = now.duration_since(modified).unwrap_or_default();
            let is_old = self.bounds.age_max.is_some_and(|age_max| age > age_max);
            if !is_old && total <= self.bounds.total_len_max {
                break;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => total -= len,
            }
            // Where a log stands has changed.
            self.places.clear();
        }
        Ok(())
    }
}

fn put(path: &PathBuf, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// How much of it is whole characters; all where it is no text anyway.
fn whole_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}
