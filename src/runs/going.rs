//! Which runs go on now, by sandbox: what the gateway for models asks, and when a run was last active.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use dashmap::DashMap;

use crate::clock::Clock;
use crate::types::{AccountName, HomeId, Repository, RunId, SandboxId, Timestamp};

/// A run that goes on.
#[derive(Debug)]
pub struct GoingRun {
    /// Which.
    pub run: RunId,
    /// The home of its issue.
    pub home: HomeId,
    /// The account.
    pub account: AccountName,
    /// The repository, if it is known.
    pub repository: Option<Repository>,
    /// When it last printed something or asked a model, in milliseconds since 1970.
    active_at: AtomicI64,
}

impl GoingRun {
    /// It is active now.
    pub fn touch(&self, now: Timestamp) {
        self.active_at.fetch_max(now.unix_ms(), Ordering::Relaxed);
    }

    /// When it was last active.
    pub fn active_at(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.active_at.load(Ordering::Relaxed))
    }
}

/// The runs that go on now. A sandbox has at most one.
#[derive(Default)]
pub struct GoingRuns {
    runs: DashMap<SandboxId, Arc<GoingRun>>,
}

impl GoingRuns {
    /// The run that goes on in a sandbox.
    pub fn of(&self, sandbox: &SandboxId) -> Option<Arc<GoingRun>> {
        self.runs.get(sandbox).map(|run| Arc::clone(&run))
    }

    /// How many go on.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// A run begins in a sandbox. It is over when what this returns is dropped.
    pub(super) fn begin(
        self: &Arc<Self>,
        sandbox: SandboxId,
        (run, home): (RunId, HomeId),
        (account, repository): (AccountName, Option<Repository>),
        clock: &dyn Clock,
    ) -> Going {
        let active_at = AtomicI64::new(clock.now().unix_ms());
        let run = Arc::new(GoingRun { run, home, account, repository, active_at });
        self.runs.insert(sandbox.clone(), Arc::clone(&run));
        Going { all: Arc::clone(self), sandbox, run }
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
