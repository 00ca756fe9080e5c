//! Wakes the scheduler when a commit makes something due earlier than the scheduler sleeps.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::types::Timestamp;

/// The earliest time at which something is known to be due.
pub(super) struct Alarm {
    next_ms: AtomicI64,
    wake: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { next_ms: AtomicI64::new(i64::MAX), wake: Notify::new() }
    }
}

impl Alarm {
    /// Something is due at that time.
    pub fn set(&self, due: Timestamp) {
        if self.next_ms.fetch_min(due.unix_ms(), Ordering::SeqCst) > due.unix_ms() {
            self.wake.notify_one();
        }
    }

    /// Forgets every due time: the scheduler is about to read them from the store, and each later
    /// [`Self::set`] wakes it.
    pub fn clear(&self) {
        self.next_ms.store(i64::MAX, Ordering::SeqCst);
    }

    /// The scheduler sleeps until then; only an earlier time wakes it.
    pub fn sleeps_until(&self, until: Timestamp) {
        self.next_ms.fetch_min(until.unix_ms(), Ordering::SeqCst);
    }

    /// Returns once something is due earlier.
    pub async fn rings(&self) {
        self.wake.notified().await;
    }
}
