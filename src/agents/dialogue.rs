//! Agents that are spoken to while they work: their lines are answered by lines.
//!
//! A dialogue does no IO: it is given the agent's lines and says what to write, so that recorded lines
//! test it. It belongs to one process and is given its output once, from the beginning. So no request of
//! an agent is answered twice: another process has another dialogue, and the ids of requests are only
//! good in their own.

use super::LineReader;
use crate::types::AgentQuestion;

/// What is said with one process of an agent.
pub trait AgentDialogue: LineReader {
    /// The lines that are to be written to the process's standard input since the last call, each with
    /// its line feed.
    fn take_lines(&mut self) -> Vec<String>;

    /// What a person must decide now. Its id is new in this dialogue.
    fn question(&self) -> Option<&AgentQuestion>;

    /// A person answers [`Self::question`] with the option of this id. Nothing happens if there is no such
    /// question or option.
    fn answer(&mut self, question: &str, option: &str);

    /// Asks the agent to end its turn.
    fn cancel(&mut self);

    /// Whether the turn is over: the process's input is to be closed, and the process to be ended.
    fn is_over(&self) -> bool;
}
