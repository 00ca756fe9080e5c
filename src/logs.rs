//! Stores the output of commands in sandboxes.
//!
//! # Guarantees
//! - **Bounded.** Each sandbox keeps its newest bytes; all logs together have a bound, and each has a
//!   maximum age. The queue to the writer is bounded too.
//! - **Never in the way.** A command's output is passed on as it arrives, whatever happens to the log.
//!   If the writer is too slow, pieces are dropped and the log notes how many bytes. Each command has
//!   its share of the queue, so none silences another.
//! - **By sandbox id,** so a log outlives a stop, a restart and the sandbox, and never shows another
//!   generation's lines.
//!
//! # Accepted races
//! Nothing is synced: a power loss loses the last lines. A line is cut if its command pauses in the
//! middle of it; the entry says so ([`LogEntry::is_partial`]). A reader misses lines if the log is rotated
//! twice while it reads; the numbers show the gap.

mod reader;
mod recorder;
mod rotation;
mod row;
mod writer;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::sandbox::{ExecEvent, Execution, Terminal, TerminalEvent};
use crate::types::{SandboxId, Timestamp, beginning};

pub use reader::Follower;
use recorder::{MESSAGES_MAX, QueueShare, QueuedBytes, Recorder, RecorderDesk};
use rotation::Rotation;

/// Longest command line that is recorded in full, in characters.
const COMMAND_LEN_MAX: usize = 1024;
/// How long an unfinished line waits for its end.
const LINE_WAIT: Duration = Duration::from_millis(200);
/// The same at a terminal, where a person types a line key by key.
const TYPED_LINE_WAIT: Duration = Duration::from_secs(5);
/// How long closing waits for the writer.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Most events that are buffered while they are passed on.
const ON_THE_WAY_MAX: usize = 4;

/// How much is kept, and for how long. The age of its lines alone decides when a log is deleted; its
/// sandbox's history has a retention of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Bytes of one sandbox.
    pub sandbox_len_max: u64,
    /// Bytes of all sandboxes.
    pub total_len_max: u64,
    /// `None` keeps logs for ever, within the other bounds.
    pub age_max: Option<Duration>,
}

/// Which of a command's streams, or another kind of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// A command's start: its program and arguments.
    Command,
    /// A line that it wrote to standard output.
    Stdout,
    /// A line that it wrote to standard error.
    Stderr,
    /// A command's end.
    Exit,
    /// A note about the log or the sandbox.
    Note,
}

impl LogStream {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Command, Self::Stdout, Self::Stderr, Self::Exit, Self::Note];

    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Exit => "exit",
            Self::Note => "note",
        }
    }
}

/// One line of a sandbox's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its number within the sandbox's log; later ones have greater ones.
    pub n: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The command, by the id of the request that ran it. Empty for a note.
    pub exec: String,
    /// Its kind.
    pub stream: LogStream,
    /// The line, without its end; bytes that are not UTF-8 are U+FFFD.
    pub text: String,
    /// Whether the line continues in the next entry of the same stream.
    pub is_partial: bool,
}

/// The logs of all sandboxes.
#[derive(Clone)]
pub struct Logs(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    /// `None` after the logs are closed.
    desk: Mutex<Option<RecorderDesk>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    commands: AtomicU64,
    news: Arc<LogFollowers>,
}

/// The followers of each sandbox's log. An entry lives as long as there is a follower.
type LogFollowers = DashMap<SandboxId, watch::Sender<u64>>;

/// The start of a command.
struct Begun {
    sandbox: SandboxId,
    exec: String,
    text: String,
    line_wait: Duration,
}

/// A message to the writer.
enum Message {
    Begin { command: u64, begun: Begun },
    Piece { command: u64, stream: LogStream, bytes: Bytes, _place: QueueShare },
    Lost { command: u64, bytes: u64 },
    Note { sandbox: SandboxId, text: String },
    End { command: u64, text: String },
}

impl Logs {
    /// Opens the logs in a directory, and creates it if it is missing.
    ///
    /// # Errors
    /// If the directory cannot be created, or the thread cannot be started.
    pub fn open(dir: &Path, bounds: LogBounds, clock: Arc<dyn Clock>) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let (tx, rx) = mpsc::sync_channel(MESSAGES_MAX);
        let (waiting, last_words) = (Arc::<QueuedBytes>::default(), Arc::default());
        let desk = RecorderDesk { tx, waiting, last_words: Arc::clone(&last_words) };
        let news = Arc::<LogFollowers>::default();
        let rotation = Rotation::new(dir.to_owned(), bounds);
        let writer = writer::LogWriter::new(rotation, clock, Arc::clone(&news), last_words);
        let thread = std::thread::Builder::new()
            .name("issuebox-logs".into())
            .spawn(move || writer.run(&rx))?;
        Ok(Self(Arc::new(Inner {
            dir: dir.to_owned(),
            desk: Mutex::new(Some(desk)),
            writer: Mutex::new(Some(thread)),
            commands: AtomicU64::new(0),
            news,
        })))
    }

    /// Records a command's output and passes it on. Dropping the returned execution ends the command, as
    /// dropping the original does. Requires a tokio runtime.
    pub fn keep(
        &self,
        sandbox: &SandboxId,
        exec: &str,
        argv: &[String],
        execution: Execution,
    ) -> Execution {
        let recorder = self.recorder(sandbox, exec, argv, LINE_WAIT);
        Execution { events: pass_on(recorder, execution.events, Clone::clone) }
    }

    /// The same for a command at a terminal: its output counts as standard output, including the codes
    /// that move the cursor. Input without an echo is not recorded.
    pub fn keep_shown(
        &self,
        sandbox: &SandboxId,
        exec: &str,
        argv: &[String],
        terminal: Terminal,
    ) -> Terminal {
        let recorder = self.recorder(sandbox, exec, argv, TYPED_LINE_WAIT);
        let Terminal { input, control, events } = terminal;
        let as_output = |event: &TerminalEvent| match event {
            TerminalEvent::Output(bytes) => ExecEvent::Stdout(bytes.clone()),
            TerminalEvent::Exit { code } => ExecEvent::Exit { code: *code, timed_out: false },
        };
        Terminal { input, control, events: pass_on(recorder, events, as_output) }
    }

    /// Adds a note about a sandbox to its log. It is dropped if the queue is full or the logs are
    /// closed.
    pub fn note(&self, sandbox: &SandboxId, text: String) {
        let desk = self.0.desk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(desk) = desk else { return };
        if desk.tx.try_send(Message::Note { sandbox: sandbox.clone(), text }).is_err() {
            tracing::debug!(sandbox.id = %sandbox, "dropped a note for a sandbox's log: the queue is full");
        }
    }

    /// The last lines of a sandbox's log, oldest first. Blocks on the disk.
    ///
    /// # Errors
    /// If the log cannot be read. A missing log is empty.
    pub fn tail(&self, sandbox: &SandboxId, lines: usize) -> io::Result<Vec<LogEntry>> {
        reader::tail(&self.0.dir, sandbox, lines)
    }

    /// Follows the log after this entry.
    pub fn follow(&self, sandbox: &SandboxId, after: u64) -> Follower {
        Follower::new(&self.0.dir, sandbox, after, Arc::clone(&self.0.news))
    }

    /// Writes the queue to disk and stops. Later output is not kept.
    pub fn close(&self) {
        drop(self.0.desk.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // Only another thread can wait for a thread with a timeout.
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let ended = thread.join().is_ok();
            done.send(ended)
        });
        if is_done.recv_timeout(CLOSE_TIME_MAX) != Ok(true) {
            tracing::warn!("the last lines of the sandboxes' logs were not written");
        }
    }

    fn recorder(
        &self,
        sandbox: &SandboxId,
        exec: &str,
        argv: &[String],
        line_wait: Duration,
    ) -> Recorder {
        let command = self.0.commands.fetch_add(1, Ordering::Relaxed);
        let desk = self.0.desk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (sandbox, exec, text) = (sandbox.clone(), exec.to_owned(), quoted(argv));
        Recorder::new(command, desk, Begun { sandbox, exec, text, line_wait })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer ends once all senders are gone.
        drop(self.desk.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Passes events on as they arrive, and records them.
fn pass_on<E: Send + 'static>(
    mut recorder: Recorder,
    mut events: tokio::sync::mpsc::Receiver<E>,
    as_output: impl Fn(&E) -> ExecEvent + Send + 'static,
) -> tokio::sync::mpsc::Receiver<E> {
    let (tx, passed) = tokio::sync::mpsc::channel(ON_THE_WAY_MAX);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = tx.closed() => return,
                event = events.recv() => {
                    let Some(event) = event else { return };
                        recorder.take(&as_output(&event));
                    if tx.send(event).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    passed
}

/// A command quoted for a shell.
fn quoted(argv: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = |word: &String| match word.chars().all(is_plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let whole = argv.iter().map(quoted).collect::<Vec<_>>().join(" ");
    beginning(&whole, COMMAND_LEN_MAX)
}

/// The files of a sandbox's log: the newest part, and the one before it.
fn paths(dir: &Path, sandbox: &SandboxId) -> [PathBuf; 2] {
    let id = sandbox.as_str();
    let is_plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let stem = match is_plain && !id.is_empty() {
        true => id.to_owned(),
        // An older form of ids, which may not be a file name.
        false => format!("x{}", hex::encode(Sha256::digest(id))),
    };
    [dir.join(format!("{stem}.jsonl")), dir.join(format!("{stem}.1.jsonl"))]
}

#[cfg(test)]
mod tests;
