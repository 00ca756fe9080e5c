//! Running a command: the server makes the pipes and reads them as fast as the caller takes the output.
//!
//! - Output waits in the pipe (64 KiB) and in a queue of [`EVENTS_LEN`] pieces. When both are full, the
//!   command waits. An unread `yes` blocks only itself.
//! - A command ends when its leader ends, not when its pipes close. Output that is in the pipes at that
//!   moment is delivered; later output of background processes is not.
//! - Dropping the [`Execution`], or the future that makes it, kills the command and its session. So
//!   does the timeout.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::frame::{Answer, Request};
use super::link::{AnswerWithFd, Call, Link, broken, ends, nonsense, pipe};
use crate::sandbox::command_pipes::{OutputPipe, check};
use crate::sandbox::{ExecEvent, ExecInput, ExecRequest, Execution, WorkError};

/// Pieces of output that wait for the caller. With their length this bounds the server's memory for
/// one command to half a MiB.
const EVENTS_LEN: usize = 16;

/// How long a killed command may take to end. After that PID 1 does not follow requests any more, and the
/// sandbox is ended.
pub const KILL_WAIT: Duration = Duration::from_secs(10);

/// A command that runs.
pub struct Running {
    /// The request to PID 1 that started it.
    pub request: u64,
    /// Its output. Dropping it ends the command.
    pub execution: Execution,
    /// Cancelled when the command has ended, also while its output is not read.
    pub over: CancellationToken,
}

/// Starts a command.
///
/// # Errors
/// [`WorkError`].
pub async fn start(link: &Arc<Link>, request: ExecRequest) -> Result<Running, WorkError> {
    let ExecRequest { command, cwd, env, .. } = &request;
    check(command, cwd.as_deref(), env)?;
    let ((stdin, stdin_writer), (stdout_reader, stdout), (stderr_reader, stderr)) =
        (pipe()?, pipe()?, pipe()?);
    // Commands open the pipes again by name, as /dev/stdout, and run as another user than the one that
    // made them. Only the command has a name for them.
    for end in [&stdin, &stdout, &stderr] {
        fchmod(end, Mode::from_raw_mode(0o666)).map_err(broken)?;
    }
    let variables = link.defaults.env(&request.env)?;
    let order = |id| Request::Exec {
        id,
        argv: request.command.iter().map(|text| text.clone().into()).collect(),
        cwd: link.defaults.cwd(request.cwd.as_deref()),
        env: variables,
    };
    let call = link.call(order, &ends([&stdin, &stdout, &stderr])).await?;
    // From here on, dropping the future kills the command.
    let mut command = RequestedCommand { call, is_over: false };
    drop((stdin, stdout, stderr));
    command.started().await?;
    let (sender, events) = mpsc::channel(EVENTS_LEN);
    let (request_id, over) = (command.call.id, CancellationToken::new());
    let pump = Pump {
        over: over.clone(),
        command,
        events: sender,
        stdout: OutputPipe::new(stdout_reader, ExecEvent::Stdout)?,
        stderr: OutputPipe::new(stderr_reader, ExecEvent::Stderr)?,
        stdin: Feeder::new(stdin_writer, request.stdin)?,
        time_up: request.timeout.map(|timeout| Instant::now() + timeout),
    };
    tokio::spawn(pump.run());
    Ok(Running { request: request_id, execution: Execution { events }, over })
}

/// A requested command. Dropping it kills its session, unless it is over.
pub struct RequestedCommand {
    /// The request for it.
    pub call: Call,
    /// Whether no process of it is left to kill.
    pub is_over: bool,
}

impl RequestedCommand {
    /// The next answer before it runs. After a failure it is over.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn answer(&mut self) -> Result<AnswerWithFd, WorkError> {
        let answer = self.call.answer().await;
        self.is_over = matches!(
            answer,
            Err(WorkError::CommandNotFound(_)
                | WorkError::CannotStart(_)
                | WorkError::Refused(_)
                | WorkError::Shortage(_))
        );
        answer
    }

    /// Returns once it runs.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn started(&mut self) -> Result<(), WorkError> {
        match self.answer().await? {
            (Answer::Started { .. }, _) => Ok(()),
            _ => Err(nonsense()),
        }
    }

    /// Kills it and its session.
    pub async fn kill(&self) {
        // If this cannot be sent, the sandbox is ending, and the command with it.
        let _ = self.call.link.send(&Request::Kill { id: self.call.id }, &[]).await;
    }
}

impl Drop for RequestedCommand {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (link, id) = (Arc::clone(&self.call.link), self.call.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = link.send(&Request::Kill { id }, &[]).await;
            });
        }
    }
}

/// The task that writes a command's input; dropping it ends the input.
struct Feeder(JoinHandle<()>);

impl Feeder {
    fn new(pipe: OwnedFd, mut input: ExecInput) -> Result<Self, WorkError> {
        let mut pipe = Sender::from_owned_fd(pipe).map_err(broken)?;
        Ok(Self(tokio::spawn(async move {
            // A command need not read all of its input.
            while let Some(bytes) = input.next().await
                && pipe.write_all(&bytes).await.is_ok()
            {}
        })))
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a command's output ends.
enum CommandEnd {
    /// It ended, with this exit code.
    Exited(i32),
    /// The sandbox ended before the command did.
    Lost,
    /// The caller has dropped the output.
    Unheard,
}

/// Passes a command's output and its exit code to the caller.
struct Pump {
    command: RequestedCommand,
    events: mpsc::Sender<ExecEvent>,
    stdout: OutputPipe,
    stderr: OutputPipe,
    stdin: Feeder,
    time_up: Option<Instant>,
    over: CancellationToken,
}

impl Pump {
    async fn run(mut self) {
        let mut timed_out = false;
        let mut pending = None;
        let end = loop {
            let time_up = self.time_up.filter(|_| !timed_out);
            tokio::select! {
                biased;
                () = self.events.closed() => break CommandEnd::Unheard,
                () = at(time_up) => {
                    timed_out = true;
                    self.command.kill().await;
                    self.time_up = Some(Instant::now() + KILL_WAIT);
                }
                () = at(self.time_up.filter(|_| timed_out)) => {
                    self.command.call.link.cut();
                    self.time_up = None;
                }
                answer = self.command.call.next() => match answer {
                    Some(Answer::Exited { code, .. }) => break CommandEnd::Exited(code),
                    // The sandbox has ended, or its answer makes no sense.
                    _ => break CommandEnd::Lost,
                },
                permit = self.events.reserve(), if pending.is_some() => {
                    if let (Ok(permit), Some(event)) = (permit, pending.take()) {
                        permit.send(event);
                    }
                }
                event = self.stdout.next(), if pending.is_none() => pending = Some(event),
                event = self.stderr.next(), if pending.is_none() => pending = Some(event),
            }
        };
        self.over.cancel();
        match end {
            CommandEnd::Unheard => self.end_unheard().await,
            CommandEnd::Lost => self.drain(pending).await,
            CommandEnd::Exited(code) => {
                self.command.is_over = true;
                self.drain(pending).await;
                // The caller may have dropped the output by now.
                let _ = self.events.send(ExecEvent::Exit { code, timed_out }).await;
            }
        }
    }

    /// Delivers the output that was written before the command ended, and no more: background
    /// processes may still write.
    async fn drain(&self, pending: Option<ExecEvent>) {
        let left = [self.stdout.waiting(), self.stderr.waiting()];
        if let Some(event) = pending
            && self.events.send(event).await.is_err()
        {
            return;
        }
        for (stream, mut left) in [&self.stdout, &self.stderr].into_iter().zip(left) {
            while left > 0
                && let Some(event) = stream.read(left)
            {
                left -= match &event {
                    ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => bytes.len().min(left),
                    ExecEvent::Exit { .. } => 0,
                };
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Kills a command whose caller has gone.
    async fn end_unheard(mut self) {
        self.command.kill().await;
        self.command.is_over = true;
        drop(self.stdin);
        if tokio::time::timeout(KILL_WAIT, self.command.call.next()).await.is_err() {
            self.command.call.link.cut();
        }
    }
}

/// Returns at a time, or never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
