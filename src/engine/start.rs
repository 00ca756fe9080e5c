//! How an engine begins and ends: what is live is published, what is unfinished is taken up, and
//! at the end provider calls in flight have their time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use tokio::sync::{Mutex, Notify};

use crate::clock::{Clock, IdSource};
use crate::issue::Rules;
use crate::issue::step::life_due;
use crate::sandbox::Lifecycle;
use crate::store::Store;
use crate::types::{Phase, ProviderName, Template, TemplateName};

use super::actor::{Activation, ActorMessage};
use super::admission::{self, Admission, Quotas};
use super::api::{Change, EngineError, Publisher};
use super::busy::Busy;
use super::core::Core;
use super::directory::{Directory, store_failed};
use super::executor::Executor;
use super::fanout;
use super::handle::Engine;
use super::identity::Identities;
use super::provider_events;
use super::reconciler::Reconciler;
use super::registry::Registry;
use super::restart_backoff::RestartBackoff;
use super::retention::{self, Retention};
use super::scheduler::{self, Alarm};
use super::spawner::Spawner;

/// How many issues are read at once when the server starts.
const START_PAGE: usize = 1_000;

/// What the engine is made of.
pub struct EngineParts {
    /// What is durable.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids and chance.
    pub ids: Arc<dyn IdSource>,
    /// What is configured of the lifecycle.
    pub rules: Rules,
    /// The templates, by name.
    pub templates: HashMap<TemplateName, Template>,
    /// The providers, by name.
    pub providers: HashMap<ProviderName, Arc<dyn Lifecycle>>,
    /// How many creates may be under way at once for one provider; 0 leaves it to the engine.
    pub creates_in_flight: u64,
    /// How many live sandboxes there may be.
    pub quotas: Quotas,
    /// Who is told what became durable.
    pub publisher: Arc<dyn Publisher>,
    /// Where all work runs.
    pub spawner: Arc<dyn Spawner>,
    /// The pause between two sweeps of a provider; `None` sweeps only when asked.
    pub reconcile: Option<Duration>,
    /// How long deliveries and timelines are kept.
    pub retention: Retention,
}

impl Engine {
    /// Builds the engine, publishes every live sandbox, and takes up what is unfinished: each
    /// issue in a transitional phase looks at its provider first.
    ///
    /// # Errors
    /// [`EngineError::StoreFailed`] when the store cannot be read.
    pub async fn start(parts: EngineParts) -> Result<Self, EngineError> {
        let kept = parts.store.identities().await.map_err(store_failed)?;
        let reconciler = Reconciler::new(parts.reconcile, parts.providers.keys().cloned());
        let executor =
            Executor::new(parts.providers, parts.store.instance(), parts.creates_in_flight);
        let holds = parts.store.holds().await.map_err(store_failed)?;
        let core = Arc::new(Core {
            store: parts.store,
            clock: parts.clock,
            ids: parts.ids,
            rules: Arc::new(parts.rules),
            publisher: parts.publisher,
            registry: Registry::default(),
            directory: Directory::default(),
            executor,
            identities: Identities::new(kept),
            reconciler,
            alarm: Alarm::default(),
            admission: Admission::new(parts.quotas),
            busy: Busy::default(),
            spawner: parts.spawner,
            watchers: DashMap::new(),
            restarting: DashSet::new(),
            holding: Mutex::default(),
            merging: Mutex::default(),
            fan_outs: Notify::new(),
            unfinished_commits: DashSet::new(),
            restart_backoff: RestartBackoff::default(),
            stopping: AtomicBool::new(false),
        });
        let engine = Self { core, templates: Arc::new(parts.templates) };
        for hold in holds {
            engine.hold_again(hold).await?;
        }
        engine.take_up().await?;
        let spawner = &engine.core.spawner;
        spawner.io(Box::pin(scheduler::run(Arc::clone(&engine.core))));
        spawner.io(Box::pin(scheduler::passivate(Arc::clone(&engine.core))));
        spawner.io(Box::pin(admission::grant(Arc::clone(&engine.core))));
        spawner.io(Box::pin(retention::run(Arc::clone(&engine.core), parts.retention)));
        engine.begin_sweeps();
        for (name, provider) in engine.providers() {
            let events = provider.subscribe();
            spawner.io(Box::pin(provider_events::follow(engine.clone(), name, events)));
        }
        spawner.io(Box::pin(fanout::run(engine.clone())));
        Ok(engine)
    }

    async fn take_up(&self) -> Result<(), EngineError> {
        let core = &self.core;
        let mut after = None;
        let (mut live, mut unfinished) = (0_usize, 0_usize);
        loop {
            let page = core.store.live(after, START_PAGE).await.map_err(store_failed)?;
            let Some(last) = page.last() else { break };
            after = Some(last.home);
            live += page.len();
            for issue in page {
                core.publish(Change::as_it_is(&issue));
                core.admission.confirm(&issue);
                let dies = issue.state.record().is_some_and(|record| {
                    let rules = core.rules.providers.get(&record.template.provider);
                    rules.is_some_and(|rules| rules.dies_with_server)
                });
                let phase = issue.state.phase();
                let transitional = phase.is_some_and(Phase::is_transitional);
                let taken_up = transitional || (dies && phase == Some(Phase::Running));
                if taken_up {
                    unfinished += 1;
                    core.restarting.insert(issue.home);
                }
                // What is configured of the life over time may be other than when it was stored.
                let is_due_otherwise = issue.life_due != life_due(&issue, &core.rules);
                if taken_up || is_due_otherwise {
                    let activation = Activation::default();
                    // A new actor's queue has room; closed means that the arbiter has ended.
                    if core
                        .registry
                        .try_send(core, issue.home, activation, ActorMessage::Wake)
                        .is_err()
                    {
                        return Err(EngineError::ShuttingDown);
                    }
                }
            }
        }
        tracing::info!(live, unfinished, "sandboxes were taken up from the store");
        Ok(())
    }

    /// Stops taking anything in, and waits up to `at_most` for provider calls in flight. What is
    /// left is looked for at the next start. Returns how many calls were left.
    pub async fn stop(&self, at_most: Duration) -> usize {
        self.core.begin_stop();
        let watchers = &self.core.watchers;
        let mut watched: Vec<_> = watchers.iter().map(|entry| *entry.key()).collect();
        // By home, since a map's own order differs from run to run.
        watched.sort_unstable();
        for watcher in watched.iter().filter_map(|home| watchers.get(home)) {
            watcher.send_modify(|version| *version += 1);
        }
        let tasks = &self.core.executor.tasks;
        tasks.close();
        // Past the bound the calls go on until the process ends.
        drop(tokio::time::timeout(at_most, tasks.wait()).await);
        tasks.len()
    }
}
