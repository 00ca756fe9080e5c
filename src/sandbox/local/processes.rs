//! Detached processes: they outlive the connection that started them and end with their sandbox.
//!
//! A detached process is a [command](super::exec) whose output a task of the server reads and keeps
//! in a file ([`KeptOutput`]), which any number of readers follow.
//!
//! # Guarantees
//! - The server holds the other ends of the pipes, so nothing of a process's output or input passes
//!   through PID 1, and the sandbox can't reach the file.
//! - A stop, a delete and the end of the server end every process. The table of processes and the files
//!   (which have no name) end with them: after a restart of the sandbox or of the server
//!   the old ids are unknown, and what was kept of their output is gone.
//! - In memory are at most half a MiB for each process and some pieces for each reader.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::exec::{self, Running};
use super::frame::Request;
use super::link::Link;
use crate::sandbox::kept_output::KeptOutput;
use crate::sandbox::{
    ENDED_KEPT, ExecEvent, ExecInput, ExecRequest, OUTPUT_KEPT_MAX, Offset, OutputStream,
    ProcessExit, ProcessOutput, ProcessSpec, Signal, StdinMode, WorkError,
};

/// The detached processes of a running sandbox.
#[derive(Default)]
pub struct ProcessTable(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    processes: HashMap<u64, Arc<DetachedProcess>>,
    /// Those that have ended, the earliest first.
    ended: VecDeque<u64>,
}

/// A process that was started, until it is forgotten.
struct DetachedProcess {
    /// The request to PID 1 that started it.
    request: u64,
    tag: Option<String>,
    /// `None` once its input is closed.
    input: Mutex<Option<mpsc::Sender<Bytes>>>,
    output: Arc<KeptOutput>,
}

impl ProcessTable {
    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn find(&self, number: u64) -> Result<Arc<DetachedProcess>, WorkError> {
        self.change(|entries| entries.processes.get(&number).cloned())
            .ok_or(WorkError::NoSuchProcess)
    }

    /// The number of the newest process with a tag.
    pub fn tagged(&self, tag: &str) -> Option<u64> {
        self.change(|entries| {
            let tagged = entries.processes.iter().filter(|(_, it)| it.tag.as_deref() == Some(tag));
            tagged.map(|(number, _)| *number).max()
        })
    }

    /// Notes that a process has ended, and forgets the first of too many.
    fn ended(&self, number: u64) {
        self.change(|entries| {
            entries.ended.push_back(number);
            if entries.ended.len() > ENDED_KEPT
                && let Some(first) = entries.ended.pop_front()
            {
                entries.processes.remove(&first);
            }
        });
    }
}

impl DetachedProcess {
    fn take_input(&self) -> Option<mpsc::Sender<Bytes>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Starts a process with this number. Its output is kept in `file`, which is empty.
///
/// # Errors
/// [`WorkError`].
pub async fn spawn(
    link: &Arc<Link>,
    number: u64,
    spec: ProcessSpec,
    file: File,
) -> Result<(), WorkError> {
    let ProcessSpec { command, cwd, env, stdin, timeout, keep, overflow, tag } = spec;
    let (sender, stdin) = match stdin {
        StdinMode::Empty => (None, Bytes::new().into()),
        StdinMode::Open => {
            let (sender, input) = ExecInput::channel();
            (Some(sender), input)
        }
    };
    let running = exec::start(link, ExecRequest { command, cwd, env, stdin, timeout }).await?;
    let process = Arc::new(DetachedProcess {
        request: running.request,
        tag,
        input: Mutex::new(sender),
        output: Arc::new(KeptOutput::new(file, keep.min(OUTPUT_KEPT_MAX), overflow)),
    });
    link.processes.change(|entries| entries.processes.insert(number, Arc::clone(&process)));
    let link = Arc::clone(link);
    tokio::spawn(async move {
        let ended = keep_output(running, &process.output).await;
        // A write that waits for room ends too: nothing reads it.
        drop(process.take_input());
        process.output.end(ended);
        link.processes.ended(number);
    });
    Ok(())
}

/// Keeps the output of a process until it ends.
async fn keep_output(running: Running, output: &Arc<KeptOutput>) -> Result<ProcessExit, WorkError> {
    let Running { mut execution, over, .. } = running;
    loop {
        let (stream, bytes) = match execution.events.recv().await {
            Some(ExecEvent::Stdout(bytes)) => (OutputStream::Stdout, bytes),
            Some(ExecEvent::Stderr(bytes)) => (OutputStream::Stderr, bytes),
            Some(ExecEvent::Exit { code, timed_out }) => {
                return Ok(ProcessExit { code, timed_out });
            }
            None => return Err(WorkError::NotRunning),
        };
        if let Err(error) = output.append(stream, bytes, &over).await {
            tracing::warn!(%error, "cannot keep the output of a process, which is killed");
            // Dropping the execution kills it.
            return Err(WorkError::Broken(format!("its output could not be kept: {error}")));
        }
    }
}

/// The output of a process from an offset on, followed until its end.
///
/// # Errors
/// [`WorkError::NoSuchProcess`], [`WorkError::OutOfRange`].
pub fn attach(link: &Link, number: u64, from: Offset) -> Result<ProcessOutput, WorkError> {
    Arc::clone(&link.processes.find(number)?.output).follow(from)
}

/// Passes bytes to the input of a process.
///
/// # Errors
/// [`WorkError::NoSuchProcess`], [`WorkError::StdinClosed`].
pub async fn write_stdin(link: &Link, number: u64, bytes: Bytes) -> Result<(), WorkError> {
    let process = link.processes.find(number)?;
    let input = process.input.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let input = input.ok_or(WorkError::StdinClosed)?;
    input.send(bytes).await.map_err(|_| WorkError::StdinClosed)
}

/// Closes the input of a process, after what was written to it.
///
/// # Errors
/// [`WorkError::NoSuchProcess`].
pub fn close_stdin(link: &Link, number: u64) -> Result<(), WorkError> {
    drop(link.processes.find(number)?.take_input());
    Ok(())
}

/// Signals every process of a process's session.
///
/// # Errors
/// [`WorkError::NoSuchProcess`], [`WorkError::NotRunning`].
pub async fn signal(link: &Link, number: u64, signal: Signal) -> Result<(), WorkError> {
    let id = link.processes.find(number)?.request;
    let request = match signal {
        Signal::Kill => Request::Kill { id },
        other => Request::Signal { id, number: other.number() },
    };
    link.send(&request, &[]).await
}

/// Waits for the end of a process.
///
/// # Errors
/// [`WorkError::NoSuchProcess`], [`WorkError::NotRunning`], [`WorkError::Broken`].
pub async fn wait(link: &Link, number: u64) -> Result<ProcessExit, WorkError> {
    let process = link.processes.find(number)?;
    process.output.ended().await
}
