//! Signals of the webhook endpoint to the recovery worker, and the counters of recovery.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::ties::ChangedIssues;
use crate::types::Timestamp;

/// Most webhooks that are remembered until the worker stores them.
const HOOKS_MAX: usize = 10_000;

/// What was recovered since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeFigures {
    /// Deliveries that did not arrive and were read from GitHub.
    pub recovered: u64,
    /// When GitHub's delivery log was last compared to its end; `None` if it was not yet.
    pub compared_at: Option<Timestamp>,
}

/// Shared by all clones of an [`Intake`](super::Intake).
#[derive(Debug, Default)]
pub(super) struct IntakeSignals {
    /// Issues whose latest acts may be of one second; nobody asks without credentials.
    pub changed: ChangedIssues,
    settles_ties: AtomicBool,
    missed: Notify,
    /// Repositories and their webhooks, as deliveries named them.
    hooks: Mutex<HashMap<u64, u64>>,
    recovered: AtomicU64,
    /// Milliseconds since 1970; 0 for never.
    compared_at: AtomicI64,
}

impl IntakeSignals {
    pub fn missed_one(&self) {
        self.missed.notify_one();
    }

    /// Returns when a delivery was turned away, also if that was before.
    pub async fn missed(&self) {
        self.missed.notified().await;
    }

    pub fn note_hook(&self, repository_id: u64, hook: u64) {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if hooks.len() < HOOKS_MAX || hooks.contains_key(&repository_id) {
            hooks.insert(repository_id, hook);
        }
    }

    /// The webhooks that were noted since the last call.
    pub fn take_hooks(&self) -> HashMap<u64, u64> {
        std::mem::take(&mut *self.hooks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on the recovery worker takes what is in [`Self::changed`].
    pub fn settle_ties(&self) {
        self.settles_ties.store(true, Ordering::Relaxed);
    }

    /// Whether the recovery worker takes what is in [`Self::changed`].
    pub fn settles_ties(&self) -> bool {
        self.settles_ties.load(Ordering::Relaxed)
    }

    pub fn recovered_one(&self) {
        self.recovered.fetch_add(1, Ordering::Relaxed);
    }

    pub fn compared(&self, at: Timestamp) {
        self.compared_at.store(at.unix_ms(), Ordering::Relaxed);
    }

    pub fn figures(&self) -> IntakeFigures {
        let compared_at = self.compared_at.load(Ordering::Relaxed);
        IntakeFigures {
            recovered: self.recovered.load(Ordering::Relaxed),
            compared_at: (compared_at != 0).then(|| Timestamp::from_unix_ms(compared_at)),
        }
    }
}
