//! What people and the agent said about one issue, and the runs of the agent, decided without IO.
//!
//! [`Conversation`] is to runs what [`issue`](crate::issue) is to sandboxes. It lives in the issue's
//! state and is changed in the same steps, so that a delivery's effects (a sandbox is wanted, a message
//! waits, a reaction is owed) are one transaction. It is given what the sandbox is as [`Around`], and
//! gives back whether a run needs the sandbox and what the worker of runs has to do ([`RunOrder`]).
//!
//! ```text
//!            message                 begin                    ended
//!   (none) ──────────► queued ──────────────► running ───────────────► succeeded, failed, over_budget
//!                       │  ▲                   │   │ cancel, interrupt
//!                       │  │ sandbox is up     │   └──────► cancelling ──► cancelled
//!                       │  │                   │ sandbox went down
//!              stopped, │  └── interrupted ◄───┘
//!        closed, deleted│           │ more than 3 times without progress
//!                       ▼           ▼
//!                  cancelled      failed
//! ```
//!
//! # Invariants
//! - At most one run of a home is [in progress](crate::types::RunState::is_in_progress) with a process; the next one
//!   only collects messages.
//! - Every message belongs to exactly one run, which it is given when it is said.
//! - A run is recorded as running, with a new attempt, before its process is started. An end that names
//!   another attempt changes nothing.
//! - No run begins while the sandbox is not up, and none goes on in a sandbox that went down.

mod message;
mod question;
mod run;
mod state;
mod step;

#[cfg(test)]
mod tests;

pub use message::{MessageOrigin, MessageText, SaidMessage, SaidWords};
pub use question::{PersonAnswer, RunQuestions};
pub use run::{AgentSession, Run, RunEnd, RunWait};
pub use state::{
    Around, Conversation, ConversationRows, IssueWords, RunOrder, RunOrderKind, SandboxStanding,
};
pub use step::{ConversationStep, FreshIds, RunEvent, RunRefusal, RunReply, SayAsk, WAITING_MAX};
