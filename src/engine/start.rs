//! How an engine begins and ends: live sandboxes are published, unfinished work is resumed, and at the
//! end provider calls in flight get time to finish.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dashmap::DashSet;

use crate::clock::{Clock, IdSource};
use crate::issue::Rules;
use crate::issue::step::life_due;
use crate::sandbox::Lifecycle;
use crate::store::Store;
use crate::types::{
    AccountName, Phase, ProviderName, Repository, Template, TemplateName, share_equal,
};

use super::actor::ActorParts;
use super::actors::Actors;
use super::admission::capacity::CapacityUse;
use super::admission::{Admission, Quotas, grant};
use super::api::{Change, EngineError, Publisher};
use super::busy::Busy;
use super::directory::Directory;
use super::effects::{self, EffectWorker};
use super::environment::Environment;
use super::executor::Executor;
use super::executor::calls::ProviderCalls;
use super::fanout::{self, FanOuts};
use super::github_effects::{self, GithubParts, GithubWorker};
use super::handle::{Engine, Parts};
use super::holds::Holds;
use super::identity::Identities;
use super::mailbox::{Activation, ActorMessage, ActorSender};
use super::merge::Merger;
use super::provider_events;
use super::providers::Providers;
use super::publication::Publication;
use super::reconciler::Reconciler;
use super::reconciler::sides::SweepParts;
use super::recovery;
use super::registry::Registry;
use super::restart_backoff::RestartBackoff;
use super::retention::{self, Retention};
use super::scheduler;
use super::spawner::Spawner;
use super::wait::Waits;

/// How many issues are read at once when the server starts.
const START_PAGE: usize = 1_000;

/// What the engine is made of.
pub struct EngineParts {
    /// The database.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ids and randomness.
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
    /// Takes what became durable.
    pub publisher: Arc<dyn Publisher>,
    /// Runs all work.
    pub spawner: Arc<dyn Spawner>,
    /// The pause between two sweeps of a provider; `None` sweeps only when asked.
    pub reconcile: Option<Duration>,
    /// How long deliveries and timelines are kept.
    pub retention: Retention,
    /// Says things on issues; `None` without credentials for GitHub.
    pub github: Option<GithubParts>,
}

impl Engine {
    /// Builds the engine, publishes every live sandbox, and resumes unfinished work: each issue in a
    /// transitional phase looks at its provider first.
    ///
    /// # Errors
    /// [`EngineError::StoreFailed`] when the store cannot be read.
    pub async fn start(setup: EngineParts) -> Result<Self, EngineError> {
        let (sweep_period, retention) = (setup.reconcile, setup.retention);
        let identities = setup.store.identities().await?;
        let holds = setup.store.holds().await?;
        let engine = Self { parts: Arc::new(Parts::new(setup, identities, sweep_period)) };
        let parts = &engine.parts;
        for hold in holds {
            parts.registry.actor_parts().holds.restore(hold).await?;
        }
        engine.resume().await?;
        parts.spawn_loops(retention);
        if let Some(github) = &parts.github {
            parts.spawn_github(github.clone());
        }
        Ok(engine)
    }

    /// Publishes what is live, and wakes the actors of what is unfinished.
    async fn resume(&self) -> Result<(), EngineError> {
        let Parts { env, registry, .. } = self.parts.as_ref();
        let ActorParts { publication, admission, restarting, .. } = registry.actor_parts();
        let (mut after, rules) = (None, env.rules());
        let (mut live, mut unfinished) = (0_usize, 0_usize);
        let mut common = CommonNames::default();
        loop {
            let page = env.store.live(after, START_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.home);
            live += page.len();
            for issue in page {
                publication.publish(common.in_change(Change::as_it_is(&issue)));
                admission.count(&issue);
                let dies = issue.state.record().is_some_and(|record| {
                    let rules = rules.providers.get(&record.template.provider);
                    rules.is_some_and(|rules| rules.dies_with_server)
                });
                let phase = issue.state.phase();
                let transitional = phase.is_some_and(Phase::is_transitional);
                let is_unfinished = transitional || (dies && phase == Some(Phase::Running));
                if is_unfinished {
                    unfinished += 1;
                    restarting.insert(issue.home);
                }
                // The configured idle time or lifetime may have changed since it was stored.
                let is_due_otherwise = issue.life_due != life_due(&issue, &rules);
                if is_unfinished || is_due_otherwise {
                    let (activation, wake) = (Activation::default(), ActorMessage::Wake);
                    // A new actor's queue has room; closed means that the arbiter has ended.
                    if registry.try_send(issue.home, activation, wake).is_err() {
                        return Err(EngineError::ShuttingDown);
                    }
                }
            }
        }
        tracing::info!(live, unfinished, "sandboxes were loaded from the store");
        Ok(())
    }

    /// Accepts nothing more, and waits up to `at_most` for provider calls in flight. The next start
    /// looks at what is left. Returns how many calls were left.
    pub async fn stop(&self, at_most: Duration) -> usize {
        self.parts.env.begin_stop();
        self.parts.registry.actor_parts().publication.wake_all();
        let tasks = &self.parts.executor.tasks;
        tasks.close();
        // Past the bound the calls go on until the process ends.
        drop(tokio::time::timeout(at_most, tasks.wait()).await);
        tasks.len()
    }
}

/// The names of the sandbox before: most have the same ones. Each row is read with its own copies, of
/// which memory keeps one.
#[derive(Default)]
struct CommonNames {
    account: Option<AccountName>,
    provider: Option<ProviderName>,
    template: Option<TemplateName>,
    repository: Option<Repository>,
}

impl CommonNames {
    fn in_change(&mut self, mut change: Change) -> Change {
        share_equal(&mut self.account, &mut change.account);
        // It was built just now, and is shared with no one.
        if let Some(sandbox) = change.sandbox.as_mut().and_then(Arc::get_mut) {
            share_equal(&mut self.account, &mut sandbox.account);
            share_equal(&mut self.provider, &mut sandbox.provider);
            share_equal(&mut self.template, &mut sandbox.template);
            if let Some(repository) = &mut sandbox.repository {
                share_equal(&mut self.repository, repository);
            }
        }
        change
    }
}

impl Parts {
    /// Builds the parts from the bottom up. `identities` are those in the store.
    fn new(
        setup: EngineParts,
        identities: Vec<(ProviderName, String)>,
        sweep_period: Option<Duration>,
    ) -> Self {
        let EngineParts { store, clock, ids, rules, spawner, publisher, quotas, .. } = setup;
        let env = Arc::new(Environment::new(store, clock, ids, rules, setup.templates, spawner));
        let providers: Providers = setup.providers.into_iter().collect();
        let identities = Arc::new(Identities::new(Arc::clone(&env), providers.clone(), identities));
        let calls = ProviderCalls::new(
            Arc::clone(&env),
            Arc::clone(&identities),
            &providers,
            setup.creates_in_flight,
        );
        let registry = registry(&env, &providers, calls, publisher, quotas);
        let actors = Actors::new(Arc::clone(&env), Arc::clone(&registry));
        let ActorParts { directory, executor, holds, publication, restarting, .. } =
            registry.actor_parts();
        let recorded = Arc::clone(&registry.actor_parts().effects_recorded);
        let effects = EffectWorker::new(Arc::clone(&env), Arc::clone(executor), recorded);
        let sweeps = SweepParts {
            env: Arc::clone(&env),
            providers: providers.clone(),
            identities,
            executor: Arc::clone(executor),
            actors: actors.clone(),
            restarting: Arc::clone(restarting),
        };
        let reconciler = Reconciler::new(sweeps, Arc::clone(directory), sweep_period);
        let fan_outs = FanOuts::new(Arc::clone(&env), Arc::clone(holds), actors.clone());
        let (waits_env, publication) = (Arc::clone(&env), Arc::clone(publication));
        Self {
            merger: Merger::new(Arc::clone(&env), Arc::clone(directory), actors.clone()),
            fan_outs: Arc::new(fan_outs),
            waits: Waits { env: waits_env, actors: actors.clone(), publication },
            effects: Arc::new(effects),
            github: setup.github,
            reconciler: Arc::new(reconciler),
            directory: Arc::clone(directory),
            executor: Arc::clone(executor),
            env,
            providers,
            registry,
            actors,
        }
    }

    /// Starts the worker that says things on issues.
    fn spawn_github(&self, github: GithubParts) {
        let recorded = Arc::clone(&self.registry.actor_parts().github_recorded);
        let calls = self.executor.tasks.clone();
        let worker = GithubWorker::new(Arc::clone(&self.env), github, calls, recorded);
        self.env.spawner.io(Box::pin(github_effects::run(Arc::new(worker))));
    }

    /// Starts everything that runs for as long as the server does.
    fn spawn_loops(&self, retention: Retention) {
        let Self { env, registry, .. } = self;
        let spawner = &env.spawner;
        let alarm = Arc::clone(&registry.actor_parts().alarm);
        spawner.io(Box::pin(scheduler::run(Arc::clone(env), alarm, Arc::clone(registry))));
        spawner.io(Box::pin(scheduler::passivate(Arc::clone(env), Arc::clone(registry))));
        let admission = Arc::clone(&registry.actor_parts().admission);
        let actors = Arc::<Registry>::clone(registry) as Arc<dyn ActorSender>;
        spawner.io(Box::pin(grant::run(Arc::clone(env), admission, actors)));
        spawner.io(Box::pin(retention::run(Arc::clone(env), retention)));
        spawner.io(Box::pin(effects::run(Arc::clone(&self.effects))));
        self.reconciler.begin();
        for (name, provider) in self.providers.all() {
            spawner.io(Box::pin(recovery::run(
                Arc::clone(env),
                Arc::clone(&self.executor),
                Arc::<Registry>::clone(registry),
                name.clone(),
            )));
            spawner.io(Box::pin(provider_events::follow(
                Arc::clone(env),
                self.actors.clone(),
                Arc::clone(&self.reconciler),
                name.clone(),
                provider.subscribe(),
            )));
        }
        spawner.io(Box::pin(fanout::run(Arc::clone(&self.fan_outs))));
    }
}

/// Builds the registry, with all that actors use. The executor answers to actors by way of the
/// registry, and actors submit calls to the executor: hence its weak reference.
fn registry(
    env: &Arc<Environment>,
    providers: &Providers,
    calls: ProviderCalls,
    publisher: Arc<dyn Publisher>,
    quotas: Quotas,
) -> Arc<Registry> {
    let directory = Arc::new(Directory::new(Arc::clone(env)));
    let admission = Arc::new(Admission::new(quotas));
    let holds = Holds::new(Arc::clone(env), Arc::clone(&admission), Arc::clone(&directory));
    let parts = |registry: &Weak<Registry>| {
        let actors = Weak::<Registry>::clone(registry) as Weak<dyn ActorSender>;
        ActorParts {
            env: Arc::clone(env),
            executor: Arc::new(Executor::new(calls, Arc::clone(&directory), actors)),
            directory,
            capacity: CapacityUse::new(Arc::clone(env), providers.clone()),
            holds: Arc::new(holds),
            publication: Arc::new(Publication::new(publisher, Arc::clone(&admission))),
            admission,
            alarm: Arc::default(),
            effects_recorded: Arc::default(),
            github_recorded: Arc::default(),
            busy: Busy::default(),
            restarting: Arc::default(),
            unfinished_commits: DashSet::new(),
            restart_backoff: RestartBackoff::default(),
            registry: Weak::clone(registry),
        }
    };
    Arc::new_cyclic(|registry| Registry::new(Arc::new(parts(registry))))
}
