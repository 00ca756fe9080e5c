//! Deliveries since the start by what came of them, for the log.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many deliveries came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// That had an effect.
    pub applied: u64,
    /// That had none.
    pub ignored: u64,
    /// That had come before.
    pub duplicate: u64,
    /// That were refused: nothing was stored.
    pub refused: u64,
}

impl DeliveryCounts {
    /// How many came since then.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            applied: self.applied - before.applied,
            ignored: self.ignored - before.ignored,
            duplicate: self.duplicate - before.duplicate,
            refused: self.refused - before.refused,
        }
    }
}

/// Counts deliveries.
#[derive(Debug, Default)]
pub(super) struct DeliveryCounters {
    applied: AtomicU64,
    ignored: AtomicU64,
    duplicate: AtomicU64,
    refused: AtomicU64,
}

impl DeliveryCounters {
    /// Counts one by its status or the code of its error.
    pub fn count(&self, result: &str) {
        let counter = match result {
            "accepted" => &self.applied,
            "ignored" => &self.ignored,
            "duplicate" => &self.duplicate,
            _ => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts now.
    pub fn now(&self) -> DeliveryCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeliveryCounts {
            applied: of(&self.applied),
            ignored: of(&self.ignored),
            duplicate: of(&self.duplicate),
            refused: of(&self.refused),
        }
    }
}
