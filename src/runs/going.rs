//! Which runs go on now, by sandbox: what the gateway for models asks, and when a run was last active.
//!
//! An agent that outlived the last server may ask a model before this one follows it again. Such a request
//! waits for that, up to [`TAKE_OVER_WAIT`] after the start: a refusal would end the agent.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dashmap::DashMap;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::github::messages::{AgentDoing, LiveAgents};
use crate::models::refusal::ModelRefusal;
use crate::models::{ModelActivity, RunOf, RunningRun};
use crate::types::{RunId, SandboxId, Timestamp};

/// How long after the server's start a sandbox may have an agent that is not followed yet.
const TAKE_OVER_WAIT: Duration = Duration::from_secs(60);

/// A run that goes on.
#[derive(Debug)]
pub struct GoingRun {
    /// What the gateway for models must know of it.
    pub running: RunningRun,
    /// When it last printed something or asked a model, in milliseconds since 1970.
    active_at: AtomicI64,
    /// What its agent does.
    doing: Mutex<AgentDoing>,
    /// Why the gateway refused the last request to a model, if it did.
    refused: Mutex<Option<ModelRefusal>>,
}

impl GoingRun {
    /// It is active now.
    pub fn touch(&self, now: Timestamp) {
        self.active_at.fetch_max(now.unix_ms(), Ordering::Relaxed);
    }

    /// Its agent does this from now on.
    pub fn does(&self, doing: AgentDoing) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    /// Why the gateway refused the last request to a model, if it did.
    pub fn refused(&self) -> Option<ModelRefusal> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When it was last active.
    pub fn active_at(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.active_at.load(Ordering::Relaxed))
    }
}

/// The runs that go on now. A sandbox has at most one.
pub struct GoingRuns {
    runs: DashMap<SandboxId, Arc<GoingRun>>,
    clock: Arc<dyn Clock>,
    /// Changes when a run begins.
    begun: watch::Sender<()>,
    /// Until when a run may be taken over.
    taken_over_by: Timestamp,
}

impl GoingRuns {
    /// None go on.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let taken_over_by = clock.now().after(TAKE_OVER_WAIT);
        Self { runs: DashMap::new(), clock, begun: watch::Sender::new(()), taken_over_by }
    }

    /// How many go on.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// A run begins in a sandbox. It is over when what this returns is dropped.
    pub(super) fn begin(self: &Arc<Self>, sandbox: SandboxId, running: RunningRun) -> Going {
        let active_at = AtomicI64::new(self.clock.now().unix_ms());
        let (doing, refused) = Default::default();
        let run = Arc::new(GoingRun { running, active_at, doing, refused });
        self.runs.insert(sandbox.clone(), Arc::clone(&run));
        self.begun.send_replace(());
        Going { all: Arc::clone(self), sandbox, run }
    }

    /// The run that goes on in a sandbox, if it is known now.
    pub fn known(&self, sandbox: &SandboxId) -> Option<RunningRun> {
        self.runs.get(sandbox).map(|going| going.running.clone())
    }

    fn of_run(&self, run: RunId) -> Option<Arc<GoingRun>> {
        // There are few: as many as places for runs.
        let found = self.runs.iter().find(|going| going.running.run == run);
        found.map(|going| Arc::clone(&going))
    }
}

#[async_trait]
impl RunOf for GoingRuns {
    async fn run_of(&self, sandbox: &SandboxId) -> Option<RunningRun> {
        let mut begun = self.begun.subscribe();
        loop {
            if let Some(running) = self.known(sandbox) {
                return Some(running);
            }
            tokio::select! {
                biased;
                () = self.clock.sleep_until(self.taken_over_by) => return None,
                // The sender is here.
                _ = begun.changed() => {}
            }
        }
    }

    fn activity(&self, run: &RunningRun, activity: ModelActivity) {
        let Some(going) = self.of_run(run.run) else { return };
        going.touch(self.clock.now());
        let refused = match activity {
            ModelActivity::Asked => None,
            ModelActivity::Refused(refusal) => Some(refusal),
            ModelActivity::Settled { .. } => return,
        };
        *going.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}

impl LiveAgents for GoingRuns {
    fn doing(&self, run: RunId) -> Option<AgentDoing> {
        let going = self.of_run(run)?;
        let doing = going.doing.lock().unwrap_or_else(PoisonError::into_inner);
        Some(doing.clone())
    }
}

/// A run while it goes on.
pub(super) struct Going {
    all: Arc<GoingRuns>,
    sandbox: SandboxId,
    pub run: Arc<GoingRun>,
}

impl Drop for Going {
    fn drop(&mut self) {
        self.all.runs.remove_if(&self.sandbox, |_, known| Arc::ptr_eq(known, &self.run));
    }
}
