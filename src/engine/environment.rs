//! What every part of the engine gets from outside: the store, time, ids, the rules, the threads
//! to run on, and whether the server is shutting down.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::clock::{Clock, IdSource};
use crate::conversation::FreshIds;
use crate::issue::Rules;
use crate::store::Store;
use crate::types::{
    MessageId, PerRepository, RepositorySettings, RunId, SessionId, Template, TemplateName,
    Timestamp,
};

use super::hooks::LateHooks;
use super::spawner::Spawner;

/// What the engine's parts share. It knows none of them.
pub(super) struct Environment {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    configured: RwLock<Configured>,
    /// Runs all of the engine's work.
    pub spawner: Arc<dyn Spawner>,
    /// Carries out the hooks that the lifecycle waits for.
    pub hooks: LateHooks,
    stopping: AtomicBool,
}

/// What a reload of the configuration replaces.
#[derive(Clone)]
struct Configured {
    rules: Arc<Rules>,
    templates: Arc<HashMap<TemplateName, Template>>,
}

impl Environment {
    /// Of a server that is not shutting down.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        rules: Rules,
        templates: HashMap<TemplateName, Template>,
        spawner: Arc<dyn Spawner>,
    ) -> Self {
        let configured = Configured { rules: Arc::new(rules), templates: Arc::new(templates) };
        let (configured, stopping) = (RwLock::new(configured), AtomicBool::new(false));
        let hooks = LateHooks::default();
        Self { store, clock, ids, configured, spawner, hooks, stopping }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.configured.read().unwrap_or_else(PoisonError::into_inner).rules)
    }

    /// The templates of the configuration, by name.
    pub fn templates(&self) -> Arc<HashMap<TemplateName, Template>> {
        Arc::clone(&self.configured.read().unwrap_or_else(PoisonError::into_inner).templates)
    }

    /// From the next step on these templates and settings of repositories are in force. Sandboxes keep
    /// what they were made from.
    pub fn replace_templates(
        &self,
        default_template: Template,
        templates: HashMap<TemplateName, Template>,
        repositories: PerRepository<RepositorySettings>,
    ) {
        let mut configured = self.configured.write().unwrap_or_else(PoisonError::into_inner);
        let rules = Rules { default_template, repositories, ..(*configured.rules).clone() };
        *configured = Configured { rules: Arc::new(rules), templates: Arc::new(templates) };
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// From now on the engine accepts nothing new.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.hooks.close();
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// Ids for what is said in a step.
pub(super) fn fresh_ids(ids: &dyn IdSource) -> FreshIds {
    FreshIds {
        message: MessageId(ids.uuid()),
        run: RunId(ids.uuid()),
        session: SessionId(ids.uuid()),
    }
}
