//! Runs of agents: their processes in sandboxes, what those print, and how they end.
//!
//! The conversation of an issue decides ([`conversation`](crate::conversation)); this carries it out. Each
//! durable change of an issue brings an order: to begin a run, to follow its process, or to end it.
//!
//! # Guarantees
//! - A process is started only after the record says that its run is running, and its attempt is reported
//!   as ended whatever happens to it: it ended, was killed, or its sandbox went down.
//! - No run begins before its sandbox is up, its repository checked out and its issue verified
//!   ([`RunGate`]).
//! - Nothing that people or a model wrote becomes part of a shell's line.
//! - What an agent prints is read in bounded memory, and kept in the journal of its conversation
//!   ([`journal`]), from where any number of readers follow it.
//!
//! # Accepted
//! If the server ends in the middle, what its process printed since the last piece was read is lost where
//! the sandbox ends with the server. The agent's session goes on.

mod begin;
mod dialogue;
mod follow;
mod going;
mod hooked;
mod inside;
pub mod journal;
mod live;
mod prepare;
mod process;
mod program;
mod prompt;
mod removal;
mod session;
mod takeover;
mod watch;
mod worker;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::conversation::{RunOrder, RunWait};
use crate::engine::Engine;
use crate::github::task::Task;
use crate::hooks::HookRunner;
use crate::sandbox::Processes;
use crate::store::Store;
use crate::store::conversation::ConversationStore;
use crate::store::usage::UsageStore;
use crate::types::{HomeId, ProviderName, PublishMode};

pub use going::{GoingRun, GoingRuns};
pub(crate) use inside::{AGENT_DIR, Inside};
use journal::Journals;
#[cfg(test)]
pub(crate) use prepare::process_tag;
pub use program::{AgentPrograms, KnownAgent, ProgramError, ProgramVersion, on_path};
pub use session::SessionCopies;
pub use worker::{RunChange, RunPublisher, RunWorker};

/// What must be true in a sandbox before a run begins.
#[async_trait]
pub trait RunGate: Send + Sync + 'static {
    /// Waits until the issue is verified, at a time after everything that the run answers was said, and
    /// its repository is checked out. `waits` is called with what it
    /// waits for, when that takes a while.
    ///
    /// # Errors
    /// Why no run may begin, for people. A later trigger may change that.
    async fn ready(
        &self,
        home: HomeId,
        order: &RunOrder,
        waits: &(dyn Fn(RunWait, String) + Send + Sync),
    ) -> Result<AgentWorkplace, String>;

    /// What the issue is about, for a session that begins; `None` if that is not known.
    ///
    /// # Errors
    /// Why it is not known now, for people.
    async fn task(&self, home: HomeId) -> Result<Option<Task>, String>;
}

/// What an agent must know of where it works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentWorkplace {
    /// The branch that it works on; `None` if there is no checkout.
    pub branch: Option<String>,
    /// The branch from which that began.
    pub base: Option<String>,
}

/// What of runs the edge uses, too.
#[derive(Clone)]
pub struct RunShare {
    /// The messages and runs.
    pub rows: Arc<dyn ConversationStore>,
    /// What models cost.
    pub usage: Arc<dyn UsageStore>,
    /// What was said and printed.
    pub journals: Arc<Journals>,
    /// The runs that go on.
    pub going: Arc<GoingRuns>,
    /// The agents.
    pub programs: AgentPrograms,
}

impl RunShare {
    /// With journals in the directory `conversations` of the data directory.
    pub fn new(
        data: &Path,
        programs: AgentPrograms,
        store: Arc<impl ConversationStore + UsageStore>,
        going: Arc<GoingRuns>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let rows = Arc::clone(&store) as Arc<dyn ConversationStore>;
        let journals = Journals::new(data.join("conversations"), Arc::clone(&rows), clock);
        Self { rows, usage: store, journals: Arc::new(journals), going, programs }
    }
}

/// What runs are carried out with.
pub struct RunParts {
    /// Decides.
    pub engine: Engine,
    /// The issues.
    pub store: Arc<dyn Store>,
    /// The messages.
    pub rows: Arc<dyn ConversationStore>,
    /// Run the processes, by provider.
    pub processes: HashMap<ProviderName, Arc<dyn Processes>>,
    /// The agents.
    pub programs: AgentPrograms,
    /// Says when a run may begin.
    pub gate: Arc<dyn RunGate>,
    /// Keep what is said and printed.
    pub journals: Arc<Journals>,
    /// Copies of the agents' sessions, outside of the sandboxes.
    pub sessions: SessionCopies,
    /// Which runs go on now.
    pub going: Arc<GoingRuns>,
    /// The places for runs that go on at the same time.
    pub places: Arc<Semaphore>,
    /// Carries out the hooks of templates; `None` for none.
    pub hooks: Option<Arc<HookRunner>>,
    /// What becomes of pushes, for the agent to know.
    pub publish: PublishMode,
    /// Runs a home's task, beside everything else.
    pub spawn: Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}
