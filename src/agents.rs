//! Agents: how their command lines are started, read, judged and refused. No IO.
//!
//! An [`Agent`] turns a run into a [`Launch`], and its lines into [`AgentEvent`]s; a [`RunReport`] of
//! those events and the process's exit give the [`RunOutcome`]. The facts behind each adapter were
//! measured with the versions that it names in [`Agent::tested_versions`]; recorded lines of them are in
//! `fixtures/agents/`.
//!
//! # Guarantees
//! - A reader takes any bytes: it can begin at any line, never panics, and keeps lines that it does not
//!   know as [`AgentEvent::Unknown`].
//! - Every text of a line that it knows is in the events: in pieces while it comes, and not again when
//!   the whole block arrives.
//! - Events are bounded in size, and have one stable form in JSON.
//! - A run is judged by the exit and the last turn's end, never by a word of success.

mod acp;
mod blocks;
mod bounds;
mod claude;
mod codex;
mod command;
mod dialogue;
mod event;
mod json;
mod launch;
mod lines;
mod outcome;
pub mod prompt;
pub mod refusal;
#[cfg(test)]
mod tests;

pub use acp::AcpAgent;
pub use bounds::LINE_BYTES_MAX;
pub use claude::ClaudeCode;
pub use codex::Codex;
pub use command::CommandAgent;
pub use dialogue::AgentDialogue;
pub use event::{AgentEvent, QuestionChoice, SubAgentState, TextPart, TurnEnd};
pub use launch::{
    AGENT_DIR, AgentTurn, GATEWAY_URL, Interrupt, Launch, LaunchFile, NO_KEY, SessionFile,
    SessionStart, TurnLimits,
};
pub use lines::LineSplitter;
pub use outcome::{AgentExit, EndedTurn, RunOutcome, RunReport};

use crate::types::SessionId;

/// An agent's command line: how a run of it is started, read and judged. Adapters do no IO.
pub trait Agent: Send + Sync {
    /// Its name in the configuration, such as `claude-code`.
    fn name(&self) -> &'static str;

    /// The program to look for when the configuration names none, such as `claude`.
    fn program(&self) -> Option<&'static str>;

    /// Programs that must lie beside the program, if they are installed beside it.
    fn companions(&self) -> &'static [&'static str] {
        &[]
    }

    /// How a person installs the program.
    fn install_hint(&self) -> &'static str;

    /// The versions with which this adapter was tested.
    fn tested_versions(&self) -> &'static [&'static str];

    /// Whether what the program prints for `--version` is one of [`Self::tested_versions`].
    fn is_tested(&self, version: &str) -> bool {
        version.split_whitespace().any(|word| self.tested_versions().contains(&word))
    }

    /// Whether the agent itself chooses the id of a new session. If so, the run's session is the one in
    /// [`RunReport::session_id`], not the one of [`SessionStart::New`].
    fn chooses_session(&self) -> bool {
        false
    }

    /// How to start a run.
    fn launch(&self, turn: &AgentTurn) -> Launch;

    /// A reader of the program's standard output.
    fn reader(&self) -> Box<dyn LineReader>;

    /// What is said with a process of this run, for an agent that is spoken to while it works. It reads the
    /// lines in place of [`Self::reader`], and its first lines are there before any was read.
    fn dialogue(&self, _turn: &AgentTurn) -> Option<Box<dyn AgentDialogue>> {
        None
    }

    /// What a run came to. It does not know who sent a signal: a caller that cancelled the run, or ran
    /// out of patience, says that instead of [`RunOutcome::Interrupted`] or [`RunOutcome::Lost`].
    fn outcome(&self, exit: AgentExit, report: &RunReport) -> RunOutcome;

    /// The files that must survive the sandbox so that the session can be resumed.
    fn session_files(&self, session: &SessionId) -> Vec<SessionFile>;

    /// The file, below the agent's own directory, that holds what the agent itself calls a session; for an
    /// agent whose names of sessions are not ours. It is one of [`Self::session_files`].
    fn session_name_file(&self, _session: &SessionId) -> Option<String> {
        None
    }

    /// How to ask it to end its turn.
    fn interrupt(&self) -> Interrupt;
}

/// Reads an agent's standard output, line by line.
pub trait LineReader: Send {
    /// The events of a line, without its line feed. Any bytes will do. Lines that are longer than
    /// [`LINE_BYTES_MAX`] need not be whole: only their beginning is kept.
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent>;
}

/// The agents that are built in.
pub const BUILT_IN: [&dyn Agent; 4] = [&ClaudeCode, &Codex, &CommandAgent, &AcpAgent];

/// The built-in agent of this name.
pub fn built_in(name: &str) -> Option<&'static dyn Agent> {
    BUILT_IN.into_iter().find(|agent| agent.name() == name)
}
