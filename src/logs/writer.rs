//! The thread that writes all logs: it joins pieces into lines.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::recorder::MESSAGES_MAX;
use super::rotation::Rotation;
use super::{Begun, LogEntry, LogFollowers, LogStream, Message};
use crate::clock::Clock;
use crate::types::{SandboxId, unfinished_len};

/// How often the writer checks for lines that have waited long enough for their end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest line, in bytes; a longer one is cut.
const LINE_LEN_MAX: usize = 8 << 10;
/// How often the writer checks for parts that are too old.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// A running command.
struct LoggedCommand {
    sandbox: SandboxId,
    exec: String,
    line_wait: Duration,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Since when an unfinished line waits for its end.
    waits_since: Option<Instant>,
    /// Whether all that waits did so before, and nothing was added since.
    waits_again: bool,
}

pub(super) struct LogWriter {
    rotation: Rotation,
    clock: Arc<dyn Clock>,
    news: Arc<LogFollowers>,
    last_words: Arc<Mutex<Vec<Message>>>,
    commands: HashMap<u64, LoggedCommand>,
    /// The lines to write next.
    lines: HashMap<SandboxId, Vec<LogEntry>>,
    is_failing: bool,
}

impl LogWriter {
    pub fn new(
        rotation: Rotation,
        clock: Arc<dyn Clock>,
        news: Arc<LogFollowers>,
        last_words: Arc<Mutex<Vec<Message>>>,
    ) -> Self {
        let (commands, lines) = (HashMap::new(), HashMap::new());
        Self { rotation, clock, news, last_words, commands, lines, is_failing: false }
    }

    /// Writes until all senders are gone.
    pub fn run(mut self, rx: &Receiver<Message>) {
        let mut is_pruned = self.prune();
        let mut prune_at = Instant::now() + PRUNE_EVERY;
        loop {
            let received = rx.recv_timeout(LOOK_EVERY);
            // What was in the queue before these messages comes before them.
            let last_words = self.last_words();
            let is_end = matches!(received, Err(RecvTimeoutError::Disconnected));
            let received = received.into_iter().chain(rx.try_iter().take(MESSAGES_MAX));
            received.chain(last_words).for_each(|message| self.take(message));
            self.cut_waiting_lines(Instant::now(), is_end);
            self.write_out();
            if is_end {
                return;
            }
            // If excess parts cannot be deleted, that is not retried at each line.
            if (is_pruned && self.rotation.is_too_much()) || Instant::now() >= prune_at {
                is_pruned = self.prune();
                prune_at = Instant::now() + PRUNE_EVERY;
            }
        }
    }

    fn last_words(&self) -> Vec<Message> {
        std::mem::take(&mut *self.last_words.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn take(&mut self, message: Message) {
        match message {
            Message::Begin { command, begun: Begun { sandbox, exec, text, line_wait } } => {
                let begun = LoggedCommand {
                    sandbox,
                    exec,
                    line_wait,
                    stdout: Vec::new(),
                    stderr: Vec::new(),
                    waits_since: None,
                    waits_again: false,
                };
                self.commands.insert(command, begun);
                self.add(command, LogStream::Command, &text, false);
            }
            Message::Piece { command, stream, bytes, _place } => {
                self.take_piece(command, stream, &bytes);
            }
            Message::Lost { command, bytes } => {
                self.cut(command);
                let text = format!("{bytes} bytes are missing here: they came too fast");
                self.add(command, LogStream::Note, &text, false);
            }
            Message::Note { sandbox, text } => self.push(
                sandbox,
                LogEntry {
                    n: 0,
                    at: self.clock.now(),
                    exec: String::new(),
                    stream: LogStream::Note,
                    text,
                    is_partial: false,
                },
            ),
            Message::End { command, text } => {
                self.cut(command);
                self.add(command, LogStream::Exit, &text, false);
                self.commands.remove(&command);
            }
        }
    }

    fn take_piece(&mut self, number: u64, stream: LogStream, bytes: &[u8]) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        command.waits_again = false;
        let kept = match stream {
            LogStream::Stderr => &mut command.stderr,
            LogStream::Stdout | LogStream::Command | LogStream::Exit | LogStream::Note => {
                &mut command.stdout
            }
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
                    // Not in the middle of a character, if that can be determined.
                    let len = LINE_LEN_MAX - unfinished_len(&rest[..LINE_LEN_MAX]);
                    lines.push((String::from_utf8_lossy(&rest[..len]).into_owned(), true));
                    from += len;
                }
                None => break,
            }
        }
        all.drain(..from);
        match stream {
            LogStream::Stderr => command.stderr = all,
            LogStream::Stdout | LogStream::Command | LogStream::Exit | LogStream::Note => {
                command.stdout = all
            }
        }
        if command.stdout.is_empty() && command.stderr.is_empty() {
            command.waits_since = None;
        } else if command.waits_since.is_none() || !lines.is_empty() {
            command.waits_since = Some(Instant::now());
        }
        for (text, is_partial) in lines {
            self.add(number, stream, &text, is_partial);
        }
    }

    /// Writes the unfinished lines of a command.
    fn cut(&mut self, number: u64) {
        self.cut_up_to(number, |bytes| bytes.len());
    }

    /// Writes the unfinished lines of a command whose time is over. A character that is not complete
    /// waits once more; if nothing was added in that time, it is written as it is.
    fn cut_whole_characters(&mut self, number: u64, now: Instant) {
        let Some(waits_again) = self.commands.get(&number).map(|c| c.waits_again) else { return };
        self.cut_up_to(number, |bytes| match waits_again {
            true => bytes.len(),
            false => bytes.len() - unfinished_len(bytes),
        });
        if let Some(command) = self.commands.get_mut(&number) {
            command.waits_again = !(command.stdout.is_empty() && command.stderr.is_empty());
            command.waits_since = command.waits_again.then_some(now);
        }
    }

    fn cut_up_to(&mut self, number: u64, len: impl Fn(&[u8]) -> usize) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        command.waits_since = None;
        let take = |bytes: &mut Vec<u8>| {
            let rest = bytes.split_off(len(bytes));
            std::mem::replace(bytes, rest)
        };
        let begun = [
            (LogStream::Stdout, take(&mut command.stdout)),
            (LogStream::Stderr, take(&mut command.stderr)),
        ];
        for (stream, bytes) in begun.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            self.add(number, stream, &String::from_utf8_lossy(&bytes), true);
        }
    }

    /// The same for all lines that have waited long enough, or for all lines at the end.
    pub fn cut_waiting_lines(&mut self, now: Instant, is_end: bool) {
        let is_due = |command: &LoggedCommand| {
            let waited = command.waits_since.map(|since| now.duration_since(since));
            waited.is_some_and(|waited| is_end || waited >= command.line_wait)
        };
        let due: Vec<u64> = (self.commands.iter())
            .filter(|(_, command)| is_due(command))
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            match is_end {
                true => self.cut(number),
                false => self.cut_whole_characters(number, now),
            }
        }
    }

    fn add(&mut self, number: u64, stream: LogStream, text: &str, is_partial: bool) {
        let Some(command) = self.commands.get(&number) else { return };
        let (exec, text) = (command.exec.clone(), text.to_owned());
        let entry = LogEntry { n: 0, at: self.clock.now(), exec, stream, text, is_partial };
        let sandbox = command.sandbox.clone();
        self.push(sandbox, entry);
    }

    fn push(&mut self, sandbox: SandboxId, entry: LogEntry) {
        self.lines.entry(sandbox).or_default().push(entry);
    }

    fn write_out(&mut self) {
        for (sandbox, entries) in std::mem::take(&mut self.lines) {
            match self.rotation.append(&sandbox, entries, self.clock.now()) {
                Ok(last) => {
                    self.is_failing = false;
                    if let Some(news) = self.news.get(&sandbox) {
                        news.send_replace(last);
                    }
                }
                Err(error) if !self.is_failing => {
                    // Logged once, not for each line, because the disk is probably full.
                    self.is_failing = true;
                    let dir = self.rotation.dir().display();
                    tracing::warn!(%error, %dir, "cannot write the logs of sandboxes");
                }
                Err(_still) => {}
            }
        }
    }

    /// The lines of a sandbox that are waiting to be written.
    #[cfg(test)]
    pub fn texts(&self, sandbox: &SandboxId) -> Vec<&str> {
        let lines = self.lines.get(sandbox).into_iter().flatten();
        lines.map(|entry| entry.text.as_str()).collect()
    }

    /// How many lines of a sandbox are waiting to be written.
    #[cfg(test)]
    pub fn waiting(&self, sandbox: &SandboxId) -> usize {
        self.lines.get(sandbox).map_or(0, Vec::len)
    }

    /// Deletes old and excess parts; returns whether that worked.
    fn prune(&mut self) -> bool {
        let pruned = self.rotation.prune(self.clock.now());
        if let Err(error) = &pruned {
            let dir = self.rotation.dir().display();
            tracing::warn!(%error, %dir, "cannot delete old logs");
        }
        pruned.is_ok()
    }
}
