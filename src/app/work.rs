//! Builds what works in sandboxes: verification before it, checkouts, entry commands and runs of agents.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};

use super::entry::{self, EntryEvent, EntryParts};
use super::gate::WorkGate;
use super::providers::ProviderMap;
use super::verified::Verifications;
use crate::checkout::CheckoutWorker;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::Engine;
use crate::hooks::{HookParts, HookRunner};
use crate::logs::Logs;
use crate::models::gateway::HttpModelGateway;
use crate::runs::{
    AgentPrograms, GoingRuns, ProgramVersion, RunChange, RunParts, RunShare, RunWorker,
    SessionCopies,
};
use crate::sandbox::Capability;
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::sync::SyncWorker;
use crate::types::AgentName;
use crate::verification::IssueVerifier;

/// What works in sandboxes is built from.
pub(super) struct WorkParts<'a> {
    pub config: &'a Config,
    pub engine: &'a Engine,
    pub sqlite: &'a Arc<SqliteStore>,
    pub going: &'a Arc<GoingRuns>,
    pub programs: AgentPrograms,
    pub providers: &'a ProviderMap,
    pub logs: &'a Logs,
    pub clock: &'a Arc<dyn Clock>,
    /// Makes checkouts, if there are credentials for GitHub.
    pub checkouts: Option<CheckoutWorker>,
    /// Pushes and pulls workspaces, if an object storage is configured.
    pub sync: Option<SyncWorker>,
    /// Verifies issues, if there are credentials for GitHub.
    pub verifier: Option<Arc<IssueVerifier>>,
    /// Knows what is left of the budgets.
    pub models: Weak<HttpModelGateway>,
    pub entries: mpsc::UnboundedReceiver<EntryEvent>,
    pub run_changes: mpsc::UnboundedReceiver<RunChange>,
    pub ended: watch::Receiver<bool>,
    pub io: &'a Handle,
}

/// Logs which versions of agents work here, and which of them were not tested.
async fn log_versions(agents: BTreeSet<AgentName>, programs: AgentPrograms) {
    for agent in agents {
        let known = match programs.get(&agent) {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%agent, %error, "runs of this agent will fail");
                continue;
            }
        };
        if known.adapter.tested_versions().is_empty() {
            continue;
        }
        let program = known.program.file().display().to_string();
        match ProgramVersion::ask(&known).await {
            Ok(ProgramVersion { text, is_tested: true }) => {
                tracing::info!(%agent, program, version = text, "agent found");
            }
            Ok(ProgramVersion { text, is_tested: false }) => {
                tracing::warn!(%agent, program, version = text, "this version was not tested");
            }
            Err(error) => tracing::warn!(%agent, error, "an agent did not say its version"),
        }
    }
}

impl WorkParts<'_> {
    /// Begins to work, until the server ends. Returns what callers ask for runs and for hooks.
    pub fn start(self) -> (RunShare, Arc<HookRunner>) {
        let Self { config, sqlite, clock, logs, .. } = &self;
        let verifications =
            Verifications::new(self.verifier.clone(), (*logs).clone(), Arc::clone(clock));
        let programs = self.programs.clone();
        self.io.spawn(log_versions(config.agents_of_templates(), programs.clone()));
        let data = &config.server.data;
        let going = Arc::clone(self.going);
        let share = RunShare::new(data, programs, (*sqlite).clone(), going, Arc::clone(clock));
        let entries = EntryParts {
            checkouts: self.checkouts.clone(),
            verifications: verifications.clone(),
            clock: Arc::clone(clock),
            engine: self.engine.clone(),
            providers: Arc::new(self.providers.clone()),
            logs: self.logs.clone(),
        };
        let hooks = Arc::new(HookRunner::new(self.hook_parts(&verifications)));
        self.engine.set_hooks(Arc::clone(&hooks) as _);
        let worker = RunWorker::new(self.run_parts(&share, verifications, Arc::clone(&hooks)));
        self.io.spawn(entry::run(self.entries, entries, self.ended.clone()));
        self.io.spawn(worker.run(self.run_changes, self.ended));
        (share, hooks)
    }

    fn hook_parts(&self, verifications: &Verifications) -> HookParts {
        HookParts {
            engine: self.engine.downgrade(),
            store: Arc::clone(self.sqlite) as _,
            providers: self.providers.clone(),
            logs: self.logs.clone(),
            checkouts: self.checkouts.clone(),
            sync: self.sync.clone(),
            gate: Arc::new(verifications.clone()),
            clock: Arc::clone(self.clock),
        }
    }

    fn run_parts(
        &self,
        share: &RunShare,
        verifications: Verifications,
        hooks: Arc<HookRunner>,
    ) -> RunParts {
        let store = Arc::clone(self.sqlite) as Arc<dyn Store>;
        let checkouts = self.checkouts.clone();
        let models = self.models.clone();
        let gate = WorkGate { store: Arc::clone(&store), verifications, checkouts, models };
        let runs_agents = self.providers.iter().filter(|(_, provider)| {
            provider.descriptor.capabilities.contains(&Capability::DetachedProcesses)
        });
        let processes = runs_agents.map(|(name, one)| (name.clone(), Arc::clone(&one.processes)));
        let places = match usize::try_from(self.config.quota.runs) {
            Ok(0) | Err(_) => Semaphore::MAX_PERMITS,
            Ok(runs) => runs.min(Semaphore::MAX_PERMITS),
        };
        let io = self.io.clone();
        RunParts {
            spawn: Arc::new(move |task| drop(io.spawn(task))),
            engine: self.engine.clone(),
            store,
            rows: Arc::clone(&share.rows),
            processes: processes.collect(),
            programs: share.programs.clone(),
            gate: Arc::new(gate),
            journals: Arc::clone(&share.journals),
            sessions: SessionCopies::new(self.config.server.data.join("sessions")),
            going: Arc::clone(&share.going),
            places: Arc::new(Semaphore::new(places)),
            hooks: Some(hooks),
            publish: self.config.github.publish,
            clock: Arc::clone(self.clock),
        }
    }
}
