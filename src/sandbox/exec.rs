//! Short commands: what is asked, what comes back, and how a provider that can start detached
//! processes offers them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{
    Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, ProcessId, ProcessOutput,
    ProcessSpec, Processes, STDIN_CHUNK_MAX, Signal, StdinMode, Target, WorkError,
};

/// A command to run. Nothing in it passes through a shell.
#[derive(Debug)]
pub struct ExecRequest {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Working directory; `None` for the workspace. Relative ones are below the workspace,
    /// absolute ones are inside the sandbox.
    pub cwd: Option<String>,
    /// Added to the sandbox's own environment.
    pub env: Vec<(String, String)>,
    /// What the command reads; then end of file.
    pub stdin: ExecInput,
    /// After this the command and all of its session are killed; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// The input of a command, piece by piece as it arrives. A command that does not read makes the sender
/// wait, so that no more than some pieces are held. When the command has ended or reads no more, sending
/// fails.
#[derive(Debug)]
pub struct ExecInput(mpsc::Receiver<Bytes>);

impl ExecInput {
    /// An input that is still to come. Dropping the sender ends it.
    pub fn channel() -> (mpsc::Sender<Bytes>, Self) {
        let (sender, pieces) = mpsc::channel(1);
        (sender, Self(pieces))
    }

    /// The next piece; `None` at its end.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

impl From<Bytes> for ExecInput {
    /// An input that is there already.
    fn from(bytes: Bytes) -> Self {
        let (sender, input) = Self::channel();
        if !bytes.is_empty() {
            sender.try_send(bytes).expect("the channel is empty");
        }
        input
    }
}

/// A running command's output. Dropping it ends the command.
#[derive(Debug)]
pub struct Execution {
    /// Output in order, then exactly one [`ExecEvent::Exit`], then the end. Ending without an
    /// `Exit` means that the sandbox went away under the command.
    pub events: mpsc::Receiver<ExecEvent>,
}

/// One piece of what a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent {
    /// Bytes it wrote to standard output.
    Stdout(Bytes),
    /// Bytes it wrote to standard error.
    Stderr(Bytes),
    /// It ended. A command killed by signal n has exit code 128 + n.
    Exit {
        /// Its exit code.
        code: i32,
        /// Whether it was killed because its time was up.
        timed_out: bool,
    },
}

/// [`Processes::exec`] by `spawn`, `attach` and `signal`, for providers that have no quicker way.
/// A task passes input and output on; when the caller drops the [`Execution`], it kills the session.
///
/// # Errors
/// As for [`Processes::spawn`] and [`Processes::attach`].
pub async fn exec_by_spawn<P: Processes>(
    processes: Arc<P>,
    target: Target,
    request: ExecRequest,
) -> Result<Execution, WorkError> {
    let ExecRequest { command, cwd, env, stdin, timeout } = request;
    let (keep, overflow) = (EXEC_KEEP, Overflow::Wait);
    let spec = ProcessSpec {
        command,
        cwd,
        env,
        stdin: StdinMode::Open,
        timeout,
        keep,
        overflow,
        tag: None,
    };
    let (sender, events) = mpsc::channel(1);
    let (ready, started) = oneshot::channel();
    // A task of its own from the first call on: a caller that goes away while the command is being
    // started must not leave it running.
    tokio::spawn(async move {
        let begun = begin(&*processes, &target, spec).await;
        let (id, output) = match begun {
            Ok(begun) => begun,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let is_wanted = ready.send(Ok(())).is_ok();
        let has_ended = is_wanted
            && tokio::select! {
                biased;
                has_ended = carry(output, &sender) => has_ended,
                () = sender.closed() => false,
                never = feed(&*processes, &target, &id, stdin) => match never {},
            };
        if !has_ended {
            // One that is gone with its object needs no signal.
            let _ = processes.signal(target, id, Signal::Kill).await;
        }
    });
    let gone = |_| WorkError::Broken("the server is shutting down".into());
    started.await.map_err(gone)??;
    Ok(Execution { events })
}

/// How much output of a short command is kept: enough that it need not wait for each chunk.
const EXEC_KEEP: u64 = 1 << 20;

async fn begin<P: Processes>(
    processes: &P,
    target: &Target,
    spec: ProcessSpec,
) -> Result<(ProcessId, ProcessOutput), WorkError> {
    let id = processes.spawn(target.clone(), spec).await?;
    match processes.attach(target.clone(), id.clone(), Offset(0)).await {
        Ok(output) => Ok((id, output)),
        Err(error) => {
            let _ = processes.signal(target.clone(), id, Signal::Kill).await;
            Err(error)
        }
    }
}

/// Writes all input, closes it, and then waits to be dropped. A process need not read all of it.
async fn feed<P: Processes>(
    processes: &P,
    target: &Target,
    id: &ProcessId,
    mut stdin: ExecInput,
) -> Infallible {
    let mut is_read = true;
    while is_read && let Some(mut piece) = stdin.next().await {
        while is_read && !piece.is_empty() {
            let chunk = piece.split_to(piece.len().min(STDIN_CHUNK_MAX));
            is_read = processes.write_stdin(target.clone(), id.clone(), chunk).await.is_ok();
        }
    }
    // It may have ended meanwhile, which its output shows. A sender that has more input learns it now.
    drop(stdin);
    let _ = processes.close_stdin(target.clone(), id.clone()).await;
    std::future::pending().await
}

/// Passes output on; returns whether the process has ended.
async fn carry(mut output: ProcessOutput, sender: &mpsc::Sender<ExecEvent>) -> bool {
    while let Some(event) = output.events.recv().await {
        let (event, has_ended) = match event {
            ProcessEvent::Output { stream: OutputStream::Stdout, bytes, .. } => {
                (ExecEvent::Stdout(bytes), false)
            }
            ProcessEvent::Output { stream: OutputStream::Stderr, bytes, .. } => {
                (ExecEvent::Stderr(bytes), false)
            }
            // Cannot be: the only reader is the quickest one. Incomplete output must not look whole.
            ProcessEvent::Gap { .. } => return false,
            ProcessEvent::Exit(ProcessExit { code, timed_out }) => {
                (ExecEvent::Exit { code, timed_out }, true)
            }
        };
        if sender.send(event).await.is_err() || has_ended {
            return has_ended;
        }
    }
    false
}
