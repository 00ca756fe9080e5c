//! What commands in sandboxes wrote, kept for whoever asks later.
//!
//! # Guarantees
//! - **Bounded.** Of each sandbox the newest bytes are kept, of all together so many, and nothing for
//!   longer than so many days. What waits to be written is bounded as well.
//! - **Beside the work.** A command's output is handed on as it comes, whatever becomes of the
//!   log: where writing does not keep up, pieces are left out and the log says how many bytes.
//! - **By sandbox id,** so it outlives a stop, a restart and the sandbox itself, and never shows
//!   another generation's.
//!
//! # Races it accepts
//! Nothing is synced: a machine that loses its power loses the last lines. A line is cut where its
//! command pauses in the middle of it, and says so ([`Entry::is_partial`]).

mod reader;
mod row;
mod writer;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::sandbox::{ExecEvent, Execution};
use crate::types::{SandboxId, Timestamp};

pub use reader::Follower;

/// Pieces that wait to be written at most.
const PIECES_MAX: usize = 1024;
/// Bytes of them at most.
const WAITING_MAX: usize = 8 << 20;
/// Longest command that is told in full, in characters.
const COMMAND_LEN_MAX: usize = 1024;
/// How long closing waits for what is still to be written.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Events that the way through here holds at most.
const ON_THE_WAY_MAX: usize = 4;

/// How much is kept, and for how long.
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
    /// What is to be said of the log itself.
    Note,
}

impl Stream {
    /// Every one.
    const ALL: [Self; 5] = [Self::Command, Self::Stdout, Self::Stderr, Self::Exit, Self::Note];

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
    /// Which command: the id of the request that ran it.
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
    tx: Mutex<Option<SyncSender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    waiting: Arc<AtomicUsize>,
    commands: AtomicU64,
    news: Arc<News>,
}

/// Who follows which sandbox's log.
type News = DashMap<SandboxId, watch::Sender<u64>>;

/// What the writer is told.
enum Message {
    Begin { command: u64, sandbox: SandboxId, exec: String, text: String },
    Piece { command: u64, stream: Stream, bytes: Bytes },
    Lost { command: u64, bytes: u64 },
    End { command: u64, text: String },
}

impl Logs {
    /// Opens the logs in a directory, which is made where it is missing.
    ///
    /// # Errors
    /// Where the directory cannot be made, or no thread started.
    pub fn open(dir: &Path, bounds: LogBounds, clock: Arc<dyn Clock>) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let (tx, rx) = mpsc::sync_channel(PIECES_MAX);
        let (waiting, news) = (Arc::<AtomicUsize>::default(), Arc::<News>::default());
        let writer = writer::Writer::new(
            dir.to_owned(),
            bounds,
            clock,
            Arc::clone(&waiting),
            Arc::clone(&news),
        );
        let thread = std::thread::Builder::new()
            .name("issuebox-logs".into())
            .spawn(move || writer.run(&rx))?;
        Ok(Self(Arc::new(Inner {
            dir: dir.to_owned(),
            tx: Mutex::new(Some(tx)),
            writer: Mutex::new(Some(thread)),
            waiting,
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
        mut execution: Execution,
    ) -> Execution {
        let mut recorder = self.recorder(sandbox, exec, argv);
        let (tx, events) = tokio::sync::mpsc::channel(ON_THE_WAY_MAX);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = tx.closed() => return,
                    event = execution.events.recv() => {
                        let Some(event) = event else { return };
                        recorder.take(&event);
                        if tx.send(event).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Execution { events }
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
        let news = self.0.news.entry(sandbox.clone()).or_default().subscribe();
        Follower::new(self.0.dir.clone(), sandbox, after, news)
    }

    /// Writes what is still to be written, and ends. What comes later is not kept.
    pub fn close(&self) {
        drop(self.0.tx.lock().unwrap_or_else(PoisonError::into_inner).take());
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

    fn recorder(&self, sandbox: &SandboxId, exec: &str, argv: &[String]) -> Recorder {
        let command = self.0.commands.fetch_add(1, Ordering::Relaxed);
        let tx = self.0.tx.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let waiting = Arc::clone(&self.0.waiting);
        let mut recorder = Recorder { command, tx, waiting, lost: 0, ended: None };
        let (sandbox, exec, text) = (sandbox.clone(), exec.to_owned(), told(argv));
        recorder.send(Message::Begin { command, sandbox, exec, text }, 0);
        recorder
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer ends by itself once nobody can tell it anything.
        drop(self.tx.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
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

/// Tells the writer of one command; its end, whatever ends it.
struct Recorder {
    command: u64,
    /// `None` once the logs are closed.
    tx: Option<SyncSender<Message>>,
    waiting: Arc<AtomicUsize>,
    /// Bytes that were left out since the last that were not.
    lost: u64,
    ended: Option<String>,
}

impl Recorder {
    fn take(&mut self, event: &ExecEvent) {
        let (stream, bytes) = match event {
            ExecEvent::Stdout(bytes) => (Stream::Stdout, bytes),
            ExecEvent::Stderr(bytes) => (Stream::Stderr, bytes),
            ExecEvent::Exit { code, timed_out } => {
                let why = if *timed_out { ", its time was up" } else { "" };
                self.ended = Some(format!("{code}{why}"));
                return;
            }
        };
        let (command, len) = (self.command, bytes.len());
        if self.lost > 0 && self.send(Message::Lost { command, bytes: self.lost }, 0) {
            self.lost = 0;
        }
        if !self.send(Message::Piece { command, stream, bytes: bytes.clone() }, len) {
            self.lost += len as u64;
        }
    }

    /// Whether there was room for it.
    fn send(&mut self, message: Message, len: usize) -> bool {
        let Some(tx) = &self.tx else { return false };
        if self.waiting.fetch_add(len, Ordering::Relaxed) + len <= WAITING_MAX
            && tx.try_send(message).is_ok()
        {
            return true;
        }
        self.waiting.fetch_sub(len, Ordering::Relaxed);
        false
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let command = self.command;
        let text = self.ended.take();
        let text = text.unwrap_or_else(|| "ended with its caller, or its sandbox".to_owned());
        if self.lost > 0 {
            let lost = self.lost;
            self.send(Message::Lost { command, bytes: lost }, 0);
        }
        // The last word must not be left out, or the writer keeps the command for ever.
        let (Some(tx), message) = (self.tx.take(), Message::End { command, text }) else { return };
        if let Err(mpsc::TrySendError::Full(message)) = tx.try_send(message) {
            std::thread::spawn(move || tx.send(message));
        }
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
