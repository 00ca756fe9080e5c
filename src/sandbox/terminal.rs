//! Commands at a terminal, as a provider runs them.

use bytes::Bytes;
use tokio::sync::mpsc;

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// How wide.
    pub columns: u16,
    /// How high.
    pub rows: u16,
}

/// A request for a terminal. Nothing in it passes through a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalRequest {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Working directory, as for [`ExecRequest::cwd`](super::ExecRequest::cwd).
    pub cwd: Option<String>,
    /// Added to the sandbox's own environment.
    pub env: Vec<(String, String)>,
    /// How large the terminal is at first.
    pub size: TerminalSize,
}

impl TerminalRequest {
    /// The login shell: bash if there is one, otherwise `sh`.
    pub fn login_shell() -> Vec<String> {
        let script = "command -v bash >/dev/null && exec bash -l; exec sh -l";
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }
}

/// A command that runs at a terminal. Dropping `events` hangs up: the command and its session get
/// SIGHUP, and what is left of the session soon after that is killed.
#[derive(Debug)]
pub struct Terminal {
    /// What is typed. Full while the command does not read; its end means nothing to the command.
    pub input: mpsc::Sender<Bytes>,
    /// What is done to the terminal, also while the command does not read.
    pub control: mpsc::Sender<TerminalControl>,
    /// What is shown, in order, then exactly one [`TerminalEvent::Exit`], then the end. Ending
    /// without an `Exit` means that the sandbox went away under the command. The command waits
    /// while no reader takes them.
    pub events: mpsc::Receiver<TerminalEvent>,
}

/// What is done to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalControl {
    /// It has another size; the command gets SIGWINCH.
    Resize(TerminalSize),
    /// A signal is sent.
    Signal(TerminalSignal),
}

/// What can be sent to who works at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSignal {
    /// SIGINT to the foreground processes, as Ctrl-C.
    Interrupt,
    /// SIGQUIT to the foreground processes, as Ctrl-\.
    Quit,
    /// SIGKILL to the command and all of its session.
    Kill,
}

/// One piece of what happens at a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Bytes that are shown; cut anywhere, also within a character.
    Output(Bytes),
    /// The command ended. One killed by signal n has exit code 128 + n.
    Exit {
        /// Its exit code.
        code: i32,
    },
}
