//! What comes out of a sandbox: a command's output, and the events of a conversation.

use std::collections::VecDeque;

use super::SandboxError;
use crate::runs::journal::{JournalEvent, JournalReader};
use crate::sandbox::{ExecEvent, Execution, WorkError};
use crate::types::{MessageId, RunId};

/// Most of each stream of a command that is kept, in bytes: 1 MiB.
pub const EXEC_OUTPUT_MAX: usize = 1 << 20;

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code; 128 + n if signal n killed it.
    pub exit_code: i32,
    /// The first MiB of its standard output.
    pub stdout: Vec<u8>,
    /// The first MiB of its standard error.
    pub stderr: Vec<u8>,
    /// Whether one of them was longer.
    pub truncated: bool,
}

impl ExecOutput {
    /// Reads a command's output to its end.
    pub(super) async fn of(mut execution: Execution) -> Result<Self, SandboxError> {
        let mut output = Self::default();
        while let Some(event) = execution.events.recv().await {
            let (stream, bytes) = match event {
                ExecEvent::Stdout(bytes) => (&mut output.stdout, bytes),
                ExecEvent::Stderr(bytes) => (&mut output.stderr, bytes),
                ExecEvent::Exit { code, .. } => return Ok(Self { exit_code: code, ..output }),
            };
            let room = EXEC_OUTPUT_MAX - stream.len();
            output.truncated |= bytes.len() > room;
            stream.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        let why = "the sandbox went away before its command ended";
        Err(WorkError::Broken(why.to_owned()).into())
    }
}

/// The events of a message and the run that answers it, as they come. Dropping it changes nothing for
/// the run.
pub struct ConversationEvents {
    message: MessageId,
    run: RunId,
    reader: JournalReader,
    read: VecDeque<JournalEvent>,
}

impl ConversationEvents {
    pub(super) const fn new(message: MessageId, run: RunId, reader: JournalReader) -> Self {
        Self { message, run, reader, read: VecDeque::new() }
    }

    /// The message that was said.
    pub const fn message(&self) -> MessageId {
        self.message
    }

    /// The run that answers it.
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// The next event; `None` once the run has ended. It may be dropped while it waits.
    ///
    /// # Errors
    /// [`SandboxError::Journal`] if the conversation cannot be read.
    pub async fn next(&mut self) -> Result<Option<JournalEvent>, SandboxError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(Some(event));
            }
            if self.reader.is_over() {
                return Ok(None);
            }
            self.read = self.reader.read().await?.into();
            if self.read.is_empty() && !self.reader.is_over() {
                self.reader.news().await;
            }
        }
    }
}
