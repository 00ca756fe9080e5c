//! What commands in sandboxes wrote, kept for whoever asks later.
//!
//! # Guarantees
//! - **Bounded.** Of each sandbox the newest bytes are kept, of all together so many, and nothing for
//!   longer than so many days. What waits to be written is bounded as well.
//! - **Beside the work.** A command's output is handed on as it comes, whatever becomes of the
//!   log: where writing does not keep up, pieces are left out and the log says how many bytes. Each
//!   command has its share of what may wait, so none is silenced by another.
//! - **By sandbox id,** so it outlives a stop, a restart and the sandbox itself, and never shows
//!   another generation's.
//!
//! # Races it accepts
//! Nothing is synced: a machine that loses its power loses the last lines. A line is cut where its
//! command pauses in the middle of it, and says so ([`Entry::is_partial`]). Who reads while so much
//! is written that a part is turned over twice meanwhile misses what went: the numbers show it.

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
use crate::types::{SandboxId, Timestamp};

pub use reader::Follower;
use recorder::{MESSAGES_MAX, QueueShare, QueuedBytes, Recorder, RecorderDesk};
use rotation::Rotation;

/// Longest command that is told in full, in characters.
const COMMAND_LEN_MAX: usize = 1024;
/// How long a line that has not ended waits for its end.
const LINE_WAIT: Duration = Duration::from_millis(200);
/// The same at a terminal, which shows a line key by key while somebody types it.
const TYPED_LINE_WAIT: Duration = Duration::from_secs(5);
/// How long closing waits for what is still to be written.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Events that the way through here holds at most.
const ON_THE_WAY_MAX: usize = 4;

/// How much is kept, and for how long. Nothing else takes a log away: it goes by its own age, not
/// with its sandbox's history, whose rows are kept for a time of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Of one sandbox, in bytes.
    pub sandbox_len_max: u64,
    /// Of all, in bytes.
    pub total_len_max: u64,
    /// `None` keeps for ever, within the other bounds.
    pub age_max: Option<Duration>,
}

/// Which of a command's streams, or what is told about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// That it began; its program and arguments.
    Command,
    /// A line that it wrote to standard output.
    Stdout,
    /// A line that it wrote to standard error.
    Stderr,
    /// That it ended, and how.
    Exit,
    /// What is to be said of the log itself, or of the sandbox.
    Note,
}

impl Stream {
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
pub struct Entry {
    /// Its number within the sandbox's log; later ones have greater ones.
    pub n: u64,
    /// When it was written.
    pub at: Timestamp,
    /// Which command: the id of the request that ran it. Empty where it is of none.
    pub exec: String,
    /// What it is.
    pub stream: Stream,
    /// The line, without its end; bytes that are not UTF-8 are U+FFFD.
    pub text: String,
    /// Whether the line goes on in the next entry of the same stream.
    pub is_partial: bool,
}

/// The logs of all sandboxes.
#[derive(Clone)]
pub struct Logs(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    /// `None` once they are closed.
    desk: Mutex<Option<RecorderDesk>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    commands: AtomicU64,
    news: Arc<LogFollowers>,
}

/// Who follows which sandbox's log. An entry lives as long as somebody does.
type LogFollowers = DashMap<SandboxId, watch::Sender<u64>>;

/// A command that begins.
struct Begun {
    sandbox: SandboxId,
    exec: String,
    text: String,
    line_wait: Duration,
}

/// What the writer is told.
enum Message {
    Begin { command: u64, begun: Begun },
    Piece { command: u64, stream: Stream, bytes: Bytes, _place: QueueShare },
    Lost { command: u64, bytes: u64 },
    Note { sandbox: SandboxId, text: String },
    End { command: u64, text: String },
}

impl Logs {
    /// Opens the logs in a directory, which is made where it is missing.
    ///
    /// # Errors
    /// Where the directory cannot be made, or no thread started.
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

    /// Keeps what a command of a sandbox writes, and hands it on. Dropping what is handed on ends the
    /// command, as dropping the execution itself does. Must be called within a tokio runtime.
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

    /// The same for a command at a terminal: what was shown is what it wrote to standard output, with
    /// the codes that move a cursor. What is typed without being shown is not in it.
    pub fn keep_shown(
        &self,
        sandbox: &SandboxId,
        exec: &str,
        argv: &[String],
        terminal: Terminal,
    ) -> Terminal {
        let recorder = self.recorder(sandbox, exec, argv, TYPED_LINE_WAIT);
        let Terminal { input, control, events } = terminal;
        let told = |event: &TerminalEvent| match event {
            TerminalEvent::Output(bytes) => ExecEvent::Stdout(bytes.clone()),
            TerminalEvent::Exit { code } => ExecEvent::Exit { code: *code, timed_out: false },
        };
        Terminal { input, control, events: pass_on(recorder, events, told) }
    }

    /// Notes something of a sandbox in its log. Where there is no room it is left out, as it is once
    /// they are closed.
    pub fn note(&self, sandbox: &SandboxId, text: String) {
        let desk = self.0.desk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(desk) = desk else { return };
        if desk.tx.try_send(Message::Note { sandbox: sandbox.clone(), text }).is_err() {
            tracing::debug!(sandbox.id = %sandbox, "a note was left out of a sandbox's log");
        }
    }

    /// The last lines of a sandbox's log, oldest first. Blocks on the disk.
    ///
    /// # Errors
    /// Where the log cannot be read. One that is not there is empty.
    pub fn tail(&self, sandbox: &SandboxId, lines: usize) -> io::Result<Vec<Entry>> {
        reader::tail(&self.0.dir, sandbox, lines)
    }

    /// What comes after this entry, as it comes.
    pub fn follow(&self, sandbox: &SandboxId, after: u64) -> Follower {
        Follower::new(&self.0.dir, sandbox, after, Arc::clone(&self.0.news))
    }

    /// Writes what is still to be written, and ends. What comes later is not kept.
    pub fn close(&self) {
        drop(self.0.desk.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // A thread cannot be waited for in bounded time but by another one.
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let ended = thread.join().is_ok();
            done.send(ended)
        });
        if is_done.recv_timeout(CLOSE_TIME_MAX) != Ok(true) {
            tracing::warn!("the last lines of sandboxes' logs were not written");
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
        let (sandbox, exec, text) = (sandbox.clone(), exec.to_owned(), told(argv));
        Recorder::new(command, desk, Begun { sandbox, exec, text, line_wait })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer ends by itself once nobody can tell it anything.
        drop(self.desk.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Hands events on as they come, and records what they tell.
fn pass_on<E: Send + 'static>(
    mut recorder: Recorder,
    mut events: tokio::sync::mpsc::Receiver<E>,
    told: impl Fn(&E) -> ExecEvent + Send + 'static,
) -> tokio::sync::mpsc::Receiver<E> {
    let (tx, passed) = tokio::sync::mpsc::channel(ON_THE_WAY_MAX);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = tx.closed() => return,
                event = events.recv() => {
                    let Some(event) = event else { return };
                    recorder.take(&told(&event));
                    if tx.send(event).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    passed
}

/// A command as a shell would take it.
fn told(argv: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = |word: &String| match word.chars().all(is_plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let whole = argv.iter().map(quoted).collect::<Vec<_>>().join(" ");
    match whole.char_indices().nth(COMMAND_LEN_MAX) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

/// Where a sandbox's log is: the newest part, and the one before it.
fn paths(dir: &Path, sandbox: &SandboxId) -> [PathBuf; 2] {
    let id = sandbox.as_str();
    let is_plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let stem = match is_plain && !id.is_empty() {
        true => id.to_owned(),
        // An older form of ids, which need not be the name of a file.
        false => format!("x{}", hex::encode(Sha256::digest(id))),
    };
    [dir.join(format!("{stem}.jsonl")), dir.join(format!("{stem}.1.jsonl"))]
}

#[cfg(test)]
mod tests;
