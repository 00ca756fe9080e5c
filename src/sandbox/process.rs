//! Processes that outlive a connection: their ids, what starts them, and their output.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::types::SandboxId;

/// Which process: `{sandbox id}/{number}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// The sandbox that it runs in.
    pub sandbox: SandboxId,
    /// Its number there. No two processes of a sandbox ever have the same one, also across stops and
    /// starts.
    pub number: u64,
}

impl ProcessId {
    /// Reads an id back; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (sandbox, number) = text.rsplit_once('/')?;
        let parsed = number.parse().ok()?;
        let id = Self { sandbox: SandboxId::trusted(sandbox), number: parsed };
        // One form for each id: no `+1`, no `01`.
        (!sandbox.is_empty() && id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.sandbox, self.number)
    }
}

/// A process to start. Nothing in it passes through a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Working directory; `None` for the workspace. Relative ones are below the workspace,
    /// absolute ones are inside the sandbox.
    pub cwd: Option<String>,
    /// Added to the sandbox's own environment.
    pub env: Vec<(String, String)>,
    /// What its standard input is.
    pub stdin: StdinMode,
    /// After this the process and all of its session are killed; `None` for no limit.
    pub timeout: Option<Duration>,
    /// How many bytes of its output are kept, both outputs together: at least the newest so many,
    /// and never much more. At most [`OUTPUT_KEPT_MAX`](super::OUTPUT_KEPT_MAX).
    pub keep: u64,
    /// What happens to output beyond `keep`.
    pub overflow: Overflow,
    /// By what [`Processes::tagged`](super::Processes::tagged) finds it again: at most 64 ASCII letters,
    /// digits and dashes.
    pub tag: Option<String>,
}

/// What a process's standard input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// Empty: it reads end of file at once.
    Empty,
    /// Open until [`close_stdin`](super::Processes::close_stdin);
    /// [`write_stdin`](super::Processes::write_stdin) feeds it.
    Open,
}

/// What happens to a process's output when `keep` bytes are kept already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest bytes are dropped; the process never waits. A reader that comes too late for them
    /// receives a [`ProcessEvent::Gap`].
    DropOldest,
    /// The process waits while `keep` bytes have been given to no reader. A byte is dropped only
    /// after some reader was given it and [`REREAD_LEN`](super::REREAD_LEN) bytes after it. So the
    /// quickest reader loses nothing, also when it connects again; slower ones may receive a gap.
    Wait,
}

/// A position in the output of a process: how many bytes came before it, both outputs together, in
/// the order in which the provider read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

/// Output of a process, as one reader receives it.
#[derive(Debug)]
pub struct ProcessOutput {
    /// Output and gaps in the order of their offsets without a hole between them, then exactly one
    /// [`ProcessEvent::Exit`], then the end. Ending without an `Exit` means that the sandbox went
    /// down under the process or the provider could not be reached any more; attach again to find
    /// out.
    pub events: mpsc::Receiver<ProcessEvent>,
}

/// One piece of what a process did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Bytes that it wrote, cut anywhere. The next event begins at `from` plus their number.
    Output {
        /// The position of the first byte.
        from: Offset,
        /// Which of its outputs.
        stream: OutputStream,
        /// The bytes; never empty.
        bytes: Bytes,
    },
    /// Bytes that are not kept any more.
    Gap {
        /// The position of the first one that is missing.
        from: Offset,
        /// The position of the first one that follows.
        to: Offset,
    },
    /// It ended, and all of its output came before.
    Exit(ProcessExit),
}

/// One of the two outputs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// Its exit code; 128 + n for one that was killed by signal n.
    pub code: i32,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
}

/// A signal for a process's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP.
    Hangup,
    /// SIGINT.
    Interrupt,
    /// SIGQUIT.
    Quit,
    /// SIGKILL.
    Kill,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Hangup,
        Self::Interrupt,
        Self::Quit,
        Self::Kill,
        Self::User1,
        Self::User2,
        Self::Terminate,
    ];

    /// Its number on Linux.
    pub const fn number(self) -> i32 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Kill => 9,
            Self::User1 => 10,
            Self::User2 => 12,
            Self::Terminate => 15,
        }
    }

    /// Its name without `SIG`, as `kill -l` prints it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hangup => "HUP",
            Self::Interrupt => "INT",
            Self::Quit => "QUIT",
            Self::Kill => "KILL",
            Self::User1 => "USR1",
            Self::User2 => "USR2",
            Self::Terminate => "TERM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_id_has_one_form() {
        let id = ProcessId { sandbox: SandboxId::trusted("sb-1"), number: 7 };
        assert_eq!(id.to_string(), "sb-1/7");
        assert_eq!(ProcessId::parse("sb-1/7"), Some(id));
        for text in ["", "7", "sb-1", "/7", "sb-1/", "sb-1/-7", "sb-1/+7", "sb-1/07", "sb-1/7 "] {
            assert_eq!(ProcessId::parse(text), None, "{text:?}");
        }
    }
}
