//! One simulated process: its state and output on the disk, and what changes them.
//!
//! Nothing runs by itself: the state is brought up to date at every call, so a process of
//! an earlier server goes on as if it had never ended. Only [`Program::Zeros`] has a task, which
//! writes for as long as there is room.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::output::OutputLog;
use super::program::Program;
use crate::clock::Clock;
use crate::sandbox::{
    Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, ProcessSpec, REREAD_LEN, Signal,
    StdinMode, WorkError,
};
use crate::types::Timestamp;

/// The file that holds a process's state.
const STATE_FILE: &str = "state.json";

/// How much is written in one go by a process that writes by itself, in bytes.
const WRITE_LEN: u64 = 256 * 1024;

/// A process.
pub(super) struct SimProcess {
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    state: Mutex<ProcessState>,
    changed: watch::Sender<()>,
}

struct ProcessState {
    saved: SavedState,
    log: OutputLog,
    /// Up to where some reader was given the output.
    given: u64,
    /// Its object went down under it.
    is_gone: bool,
}

/// What of the state is on the disk, beside the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedState {
    command: Vec<String>,
    #[serde(default)]
    tag: Option<String>,
    keep: u64,
    waits_for_readers: bool,
    stdin_is_open: bool,
    /// When its time is up, and when it ends by itself; in milliseconds since 1970.
    deadline_ms: Option<i64>,
    ends_at_ms: Option<i64>,
    exit: Option<SavedExit>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedExit {
    code: i32,
    timed_out: bool,
    at_ms: i64,
}

/// What a reader finds at its position.
pub(super) enum Found {
    /// This, and then the rest from a position on.
    Event(ProcessEvent, u64),
    /// The end of all output of a process that has ended.
    Ended(ProcessExit),
    /// Its object went down.
    Gone,
    /// Nothing yet; at the latest at this time there may be something.
    Nothing(Option<Timestamp>),
}

impl SimProcess {
    /// Starts a process with its state in `dir`.
    pub fn start(clock: Arc<dyn Clock>, dir: PathBuf, spec: ProcessSpec) -> io::Result<Arc<Self>> {
        let now = clock.now();
        let program = Program::of(&spec.command);
        let ends_at = match program {
            Program::Sleep(span) => Some(now.after(span)),
            Program::Echo
            | Program::Cat
            | Program::Tee
            | Program::Zeros(_)
            | Program::Shell
            | Program::Server(..) => None,
        };
        let saved = SavedState {
            keep: spec.keep,
            waits_for_readers: spec.overflow == Overflow::Wait,
            stdin_is_open: spec.stdin == StdinMode::Open,
            deadline_ms: spec.timeout.map(|timeout| now.after(timeout).unix_ms()),
            ends_at_ms: ends_at.map(Timestamp::unix_ms),
            exit: None,
            command: spec.command,
            tag: spec.tag,
        };
        let log = OutputLog::open(dir.join("output"), saved.keep)?;
        let process = Self::with(clock, dir, saved, log);
        {
            let mut state = process.lock();
            match program {
                Program::Echo => {
                    let text = Program::echo(&state.saved.command);
                    state.log.append(OutputStream::Stdout, text.as_bytes())?;
                    state.end(0, false, now);
                }
                Program::Cat | Program::Tee | Program::Shell if !state.saved.stdin_is_open => {
                    state.end(0, false, now);
                }
                Program::Cat
                | Program::Tee
                | Program::Sleep(_)
                | Program::Zeros(_)
                | Program::Shell
                | Program::Server(..) => {}
            }
            process.save(&state)?;
        }
        process.go_on();
        Ok(process)
    }

    /// Reads a process that an earlier server started.
    pub fn reopen(clock: Arc<dyn Clock>, dir: PathBuf) -> io::Result<Arc<Self>> {
        let saved: SavedState = serde_json::from_slice(&fs::read(dir.join(STATE_FILE))?)?;
        let log = OutputLog::open(dir.join("output"), saved.keep)?;
        let process = Self::with(clock, dir, saved, log);
        process.go_on();
        Ok(process)
    }

    fn with(clock: Arc<dyn Clock>, dir: PathBuf, saved: SavedState, log: OutputLog) -> Arc<Self> {
        let given = log.kept_from();
        let state = Mutex::new(ProcessState { saved, log, given, is_gone: false });
        Arc::new(Self { clock, dir, state, changed: watch::Sender::new(()) })
    }

    /// A receiver that is notified of each later change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How it ended, and when; `None` while it runs.
    pub fn exit(&self) -> Result<Option<(ProcessExit, Timestamp)>, WorkError> {
        let state = self.now()?;
        Ok(state.saved.exit.map(|exit| (exit.into(), Timestamp::from_unix_ms(exit.at_ms))))
    }

    /// Whether it was started with this tag.
    pub fn has_tag(&self, tag: &str) -> bool {
        self.lock().saved.tag.as_deref() == Some(tag)
    }

    /// What it plays.
    pub fn program(&self) -> Program {
        Program::of(&self.lock().saved.command)
    }

    /// What there is at a position.
    pub fn look(&self, from: Offset) -> Result<Found, WorkError> {
        let state = self.now()?;
        if from.0 > state.log.end() {
            return Err(WorkError::OutOfRange { size: state.log.end() });
        }
        let kept_from = state.log.kept_from();
        if from.0 < kept_from {
            let gap = ProcessEvent::Gap { from, to: Offset(kept_from) };
            return Ok(Found::Event(gap, kept_from));
        }
        let (stream, bytes) = state.log.read(from.0).map_err(|error| broken(&error))?;
        if !bytes.is_empty() {
            let next = from.0 + bytes.len() as u64;
            return Ok(Found::Event(ProcessEvent::Output { from, stream, bytes }, next));
        }
        Ok(state.end_or_wait())
    }

    /// How it ended, if it has; never an event.
    pub fn end(&self) -> Result<Found, WorkError> {
        Ok(self.now()?.end_or_wait())
    }

    /// A reader was given the output up to a position.
    pub fn give(&self, until: u64) -> Result<(), WorkError> {
        let mut state = self.lock();
        state.given = state.given.max(until);
        self.wake_readers();
        Ok(())
    }

    /// Writes to its input. `Ok(false)` says that it has no room to write that on, and reads
    /// nothing until a reader makes some.
    pub fn write_stdin(&self, bytes: &Bytes) -> Result<bool, WorkError> {
        let mut state = self.now()?;
        if state.saved.exit.is_some() || !state.saved.stdin_is_open {
            return Err(WorkError::StdinClosed);
        }
        let streams: &[OutputStream] = match Program::of(&state.saved.command) {
            Program::Cat => &[OutputStream::Stdout],
            Program::Tee => &[OutputStream::Stdout, OutputStream::Stderr],
            Program::Echo
            | Program::Sleep(_)
            | Program::Zeros(_)
            | Program::Shell
            | Program::Server(..) => &[],
        };
        if !streams.is_empty() && state.room() == 0 {
            return Ok(false);
        }
        for stream in streams {
            state.write(*stream, bytes).map_err(|error| broken(&error))?;
        }
        self.wake_readers();
        Ok(true)
    }

    /// Closes its input.
    pub fn close_stdin(&self) -> Result<(), WorkError> {
        let mut state = self.now()?;
        state.saved.stdin_is_open = false;
        if let Program::Cat | Program::Tee | Program::Shell = Program::of(&state.saved.command) {
            let now = self.clock.now();
            state.end(0, false, now);
        }
        self.keep(&state)
    }

    /// Sends a signal: no program of the simulation lives on after one.
    pub fn signal(&self, signal: Signal) -> Result<(), WorkError> {
        let mut state = self.now()?;
        let now = self.clock.now();
        state.end(128 + signal.number(), false, now);
        self.keep(&state)
    }

    /// Its object goes down.
    pub fn go_down(&self) -> Result<(), WorkError> {
        let mut state = self.now()?;
        if state.saved.exit.is_none() {
            state.is_gone = true;
            let now = self.clock.now();
            state.end(128 + Signal::Kill.number(), false, now);
        }
        self.keep(&state)
    }

    /// Removes it from the disk.
    pub fn forget(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.dir)
    }

    /// Begins to write, if it is a process that does so by itself.
    fn go_on(self: &Arc<Self>) {
        let state = self.lock();
        let Program::Zeros(total) = Program::of(&state.saved.command) else { return };
        if state.saved.exit.is_none() {
            let (process, changes) = (Arc::downgrade(self), self.changes());
            drop(state);
            tokio::spawn(async move {
                let mut changes = changes;
                loop {
                    changes.borrow_and_update();
                    let Some(process) = process.upgrade() else { return };
                    let has_written = match process.write_zeros(total) {
                        Ok(Some(has_written)) => has_written,
                        Ok(None) => return,
                        Err(error) => {
                            return tracing::warn!(%error, "a simulated process stopped writing");
                        }
                    };
                    drop(process);
                    if has_written {
                        tokio::task::yield_now().await;
                    } else if changes.changed().await.is_err() {
                        return;
                    }
                }
            });
        }
    }

    /// Writes some of so many zeros; whether there was room for any, `None` at the end.
    fn write_zeros(&self, total: u64) -> Result<Option<bool>, WorkError> {
        let mut state = self.now()?;
        if state.saved.exit.is_some() {
            return Ok(None);
        }
        let left = total.saturating_sub(state.log.end());
        if left == 0 {
            let now = self.clock.now();
            state.end(0, false, now);
            self.keep(&state)?;
            return Ok(None);
        }
        let len = left.min(state.room()).min(WRITE_LEN);
        if len == 0 {
            return Ok(Some(false));
        }
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        state.write(OutputStream::Stdout, &zeros).map_err(|error| broken(&error))?;
        self.wake_readers();
        Ok(Some(true))
    }

    /// Its state as it is now.
    fn now(&self) -> Result<MutexGuard<'_, ProcessState>, WorkError> {
        let mut state = self.lock();
        let now = self.clock.now().unix_ms();
        let is_due = |at: Option<i64>| at.filter(|at| *at <= now);
        let saved = &state.saved;
        let (deadline, end) = (is_due(saved.deadline_ms), is_due(saved.ends_at_ms));
        if saved.exit.is_none() && (deadline.is_some() || end.is_some()) {
            let timed_out = deadline.is_some_and(|at| end.is_none_or(|end| at <= end));
            let at = if timed_out { deadline } else { end }.unwrap_or(now);
            let code = if timed_out { 128 + Signal::Kill.number() } else { 0 };
            state.end(code, timed_out, Timestamp::from_unix_ms(at));
            self.keep(&state)?;
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a change of the state and wakes its readers.
    fn keep(&self, state: &ProcessState) -> Result<(), WorkError> {
        self.save(state).map_err(|error| broken(&error))?;
        self.wake_readers();
        Ok(())
    }

    fn save(&self, state: &ProcessState) -> io::Result<()> {
        write_whole(&self.dir.join(STATE_FILE), &serde_json::to_vec(&state.saved)?)
    }

    fn wake_readers(&self) {
        self.changed.send_replace(());
    }
}

impl ProcessState {
    fn end(&mut self, code: i32, timed_out: bool, at: Timestamp) {
        let exit = SavedExit { code, timed_out, at_ms: at.unix_ms() };
        self.saved.exit.get_or_insert(exit);
        self.saved.stdin_is_open = false;
    }

    fn end_or_wait(&self) -> Found {
        match self.saved.exit {
            _ if self.is_gone => Found::Gone,
            Some(exit) => Found::Ended(exit.into()),
            None => Found::Nothing(self.saved.next_change()),
        }
    }

    /// How much more it can write now.
    fn room(&self) -> u64 {
        if self.saved.waits_for_readers {
            (self.given + self.saved.keep).saturating_sub(self.log.end())
        } else {
            u64::MAX
        }
    }

    fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        self.log.append(stream, bytes)?;
        let is_free = match self.saved.waits_for_readers {
            true => self.given.saturating_sub(REREAD_LEN),
            false => u64::MAX,
        };
        self.log.drop_oldest(is_free)
    }
}

impl SavedState {
    /// When it ends at the latest, if that is known.
    fn next_change(&self) -> Option<Timestamp> {
        let at = self.deadline_ms.into_iter().chain(self.ends_at_ms).min();
        at.map(Timestamp::from_unix_ms)
    }
}

impl From<SavedExit> for ProcessExit {
    fn from(SavedExit { code, timed_out, .. }: SavedExit) -> Self {
        Self { code, timed_out }
    }
}

/// Writes a file beside its place and renames it there.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, content)?;
    fs::rename(fresh, path)
}

/// What a failure of the disk is for callers.
pub(super) fn broken(error: &io::Error) -> WorkError {
    WorkError::Broken(format!("the simulation's files cannot be used: {error}"))
}
