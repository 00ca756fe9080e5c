//! Publishes durable changes: to the edge, to admission, and to callers that follow a home.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::watch;

use crate::types::HomeId;

use super::admission::Admission;
use super::api::{Change, Publisher};

/// Publishes durable changes.
pub(super) struct Publication {
    publisher: Arc<dyn Publisher>,
    admission: Arc<Admission>,
    /// Callers that wait for a home's next change. An entry lives as long as its last subscription.
    watchers: DashMap<HomeId, watch::Sender<u64>>,
}

impl Publication {
    /// With no subscriptions.
    pub fn new(publisher: Arc<dyn Publisher>, admission: Arc<Admission>) -> Self {
        Self { publisher, admission, watchers: DashMap::new() }
    }

    /// Publishes a change that is durable.
    pub fn publish(&self, change: Change) {
        let (home, version) = (change.home, change.version);
        if !change.aliases.is_empty() || change.names_go_to.is_some() {
            self.admission.named(&change.account, home, &change.aliases, change.names_go_to);
        }
        self.publisher.publish(Arc::new(change));
        if let Some(watcher) = self.watchers.get(&home) {
            watcher.send_replace(version);
        }
    }

    /// Subscribes to a home's changes.
    pub fn subscribe(self: &Arc<Self>, home: HomeId) -> HomeSubscription {
        let sender = self.watchers.entry(home).or_insert_with(|| watch::Sender::new(0));
        HomeSubscription { publication: Arc::clone(self), home, changes: Some(sender.subscribe()) }
    }

    /// Wakes every subscription, so that each sees that the server is shutting down.
    pub fn wake_all(&self) {
        let mut watched: Vec<_> = self.watchers.iter().map(|entry| *entry.key()).collect();
        // By home, since a map's own order differs from run to run.
        watched.sort_unstable();
        for watcher in watched.iter().filter_map(|home| self.watchers.get(home)) {
            watcher.send_modify(|version| *version += 1);
        }
    }
}

/// A subscription to a home's changes; the last one to end clears the entry.
pub(super) struct HomeSubscription {
    publication: Arc<Publication>,
    home: HomeId,
    changes: Option<watch::Receiver<u64>>,
}

impl HomeSubscription {
    /// Only changes from now on count.
    pub fn mark_seen(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
    }

    /// Waits for the next change.
    pub async fn next(&mut self) {
        if let Some(changes) = &mut self.changes
            && changes.changed().await.is_ok()
        {
            return;
        }
        // The sender lives as long as the entry, and the entry as long as this.
        std::future::pending().await
    }
}

impl Drop for HomeSubscription {
    fn drop(&mut self) {
        self.changes = None;
        let watchers = &self.publication.watchers;
        watchers.remove_if(&self.home, |_, sender| sender.receiver_count() == 0);
    }
}
