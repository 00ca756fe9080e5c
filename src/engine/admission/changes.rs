//! Tells those who wait that holds changed. They are woken in the order in which they began to wait, which a
//! channel of tokio's does not promise: a history of the simulation can so be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// How often a hold came into force or was released.
#[derive(Clone, Debug, Default)]
pub(super) struct HoldChanges(Arc<(AtomicU64, Notify)>);

impl HoldChanges {
    /// A hold came into force or was released.
    pub fn changed(&self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        self.0.1.notify_waiters();
    }

    /// Follows the changes from now on.
    pub fn follow(&self) -> HoldsWatch {
        HoldsWatch { seen: self.0.0.load(Ordering::SeqCst), changes: self.clone() }
    }
}

/// Follows which holds are on.
#[derive(Debug)]
pub struct HoldsWatch {
    changes: HoldChanges,
    seen: u64,
}

impl HoldsWatch {
    /// Only changes from now on count.
    pub fn mark_seen(&mut self) {
        self.seen = self.changes.0.0.load(Ordering::SeqCst);
    }

    /// Returns at the next change. It can be dropped and called again without missing one.
    pub async fn changed(&mut self) {
        loop {
            // It hears of what happens from here on, also before it is first polled.
            let changed = self.changes.0.1.notified();
            let now = self.changes.0.0.load(Ordering::SeqCst);
            if self.seen != now {
                self.seen = now;
                return;
            }
            changed.await;
        }
    }
}
