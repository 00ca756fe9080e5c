//! Builds what carries out runs of agents.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, watch};

use super::gate::WorkGate;
use super::providers::ProviderMap;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::Engine;
use crate::runs::{RunChange, RunParts, RunShare, RunWorker, SessionCopies};
use crate::sandbox::Capability;
use crate::store::Store;

/// Carries out runs until the server ends.
pub(super) fn start(
    config: &Config,
    share: &RunShare,
    (engine, store): (&Engine, &Arc<dyn Store>),
    providers: &ProviderMap,
    (gate, clock): (WorkGate, &Arc<dyn Clock>),
    changes: mpsc::UnboundedReceiver<RunChange>,
    (ended, io): (watch::Receiver<bool>, &tokio::runtime::Handle),
) {
    let runs_agents = providers.iter().filter(|(_, provider)| {
        provider.descriptor.capabilities.contains(&Capability::DetachedProcesses)
    });
    let processes = runs_agents.map(|(name, one)| (name.clone(), Arc::clone(&one.processes)));
    let places = match usize::try_from(config.quota.runs) {
        Ok(0) | Err(_) => Semaphore::MAX_PERMITS,
        Ok(runs) => runs.min(Semaphore::MAX_PERMITS),
    };
    let worker = RunWorker::new(RunParts {
        engine: engine.clone(),
        store: Arc::clone(store),
        rows: Arc::clone(&share.rows),
        processes: processes.collect(),
        programs: share.programs.clone(),
        gate: Arc::new(gate),
        journals: Arc::clone(&share.journals),
        sessions: SessionCopies::new(config.server.data.join("sessions")),
        going: Arc::clone(&share.going),
        places: Arc::new(Semaphore::new(places)),
        publish: config.github.publish,
        clock: Arc::clone(clock),
    });
    io.spawn(worker.run(changes, ended));
}
