//! What the parts of the engine share: one of each for the whole server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dashmap::{DashMap, DashSet};
use tokio::sync::{Mutex, Notify, watch};

use crate::clock::{Clock, IdSource};
use crate::issue::Rules;
use crate::store::Store;
use crate::types::{HomeId, Timestamp};

use super::admission::Admission;
use super::api::{Change, Publisher};
use super::busy::Busy;
use super::directory::Directory;
use super::executor::Executor;
use super::identity::Identities;
use super::reconciler::Reconciler;
use super::registry::Registry;
use super::restart_backoff::RestartBackoff;
use super::scheduler::Alarm;
use super::spawner::Spawner;

/// One of each for the whole server.
pub(super) struct Core {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub rules: Arc<Rules>,
    pub publisher: Arc<dyn Publisher>,
    pub registry: Registry,
    pub directory: Directory,
    pub executor: Executor,
    /// Who each provider is.
    pub identities: Identities,
    pub reconciler: Reconciler,
    pub alarm: Alarm,
    pub admission: Admission,
    pub busy: Busy,
    /// Where all work runs.
    pub spawner: Arc<dyn Spawner>,
    /// Who waits for a home's next change. An entry lives as long as somebody waits.
    pub watchers: DashMap<HomeId, watch::Sender<u64>>,
    /// Homes whose first step after the server's start is not durable yet: whoever activates one
    /// of them takes it up as after a restart.
    pub restarting: DashSet<HomeId>,
    /// Held by who puts holds on or releases them: what is stored of them is what is in force.
    pub holding: Mutex<()>,
    /// Held by who makes one issue of two homes: one at a time, whatever the homes.
    pub merging: Mutex<()>,
    /// Told where a delivery that concerns many issues was stored.
    pub fan_outs: Notify,
    /// Homes whose last actor ended with commits on their way: the next one loads behind those.
    pub unfinished_commits: DashSet<HomeId>,
    /// Homes whose actors end again and again.
    pub restart_backoff: RestartBackoff,
    /// Whether the server is shutting down.
    pub stopping: AtomicBool,
}

impl Core {
    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Tells the world outside what has become durable.
    pub fn publish(&self, change: Change) {
        let (home, version) = (change.home, change.version);
        if !change.aliases.is_empty() || change.names_go_to.is_some() {
            self.admission.named(home, &change.aliases, change.names_go_to);
        }
        self.publisher.publish(Arc::new(change));
        if let Some(watcher) = self.watchers.get(&home) {
            watcher.send_replace(version);
        }
    }

    /// From now on nothing new is taken in.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
