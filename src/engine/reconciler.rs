//! Sweeps: what providers list, sent as observations to the actors, which alone decide.
//!
//! Webhooks and calls report what changed. A sweep finds what was not reported: an object that was killed
//! or removed from outside, one that a crash left behind, one that a restored backup does not know. At
//! start and once a period each provider's list is compared with the records ([`compare`]). Each home
//! about which they disagree is looked at once more, and its actor gets what was seen ([`sweep`]). What
//! is left after that is drift ([`drift`]), for people to see and decide about ([`remedy`]). A provider
//! that reports the end of an object has its home looked at at once ([`hinted`]).
//!
//! # Guarantees
//! - A list decides nothing by itself, and neither does a look that is older than a call.
//! - Unreachable is not gone: a provider that cannot be looked at, or has another identity, has lost
//!   nothing.
//! - Too much at once is not believed: if more than three and more than a tenth are lost, or would be
//!   removed, the sweep acts on none of what it found.
//! - Each provider has a loop of its own, each home its own timeout: trouble with one holds up no
//!   other.
//! - Objects of another installation are never touched.
//!
//! # Races that are accepted
//! - Homes of a restored backup are reserved by the first sweep. A new issue that is seen before it
//!   may be given a number that an existing object carries. Its first look finds that object.
//! - If a list leaves an orphan out once, its waiting time starts again: it is kept longer, never
//!   shorter.

pub(super) mod compare;
pub(super) mod drift;
mod hinted;
mod items;
mod read;
mod records;
mod remedy;
mod second_look;
pub(super) mod sides;
mod sweep;
pub(super) mod view;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, Semaphore};

use crate::types::{ProviderName, Timestamp};

use super::directory::Directory;
use drift::Drift;
use sides::SweepParts;
use view::{DriftAttention, DriftItem};

/// Sweeps the providers.
pub(super) struct Reconciler {
    parts: SweepParts,
    directory: Arc<Directory>,
    /// The pause between two sweeps of a provider; `None` sweeps only when asked.
    period: Option<Duration>,
    sweeps: BTreeMap<ProviderName, ProviderSweep>,
    /// Bounds the looks that providers' hints ask for.
    hinted: Arc<Semaphore>,
    pub drift: Drift,
}

/// One provider's sweeps.
struct ProviderSweep {
    /// At most one at a time.
    turn: Semaphore,
    /// A sweep is wanted before its time.
    wake: Notify,
}

impl Reconciler {
    /// Of all providers.
    pub fn new(parts: SweepParts, directory: Arc<Directory>, period: Option<Duration>) -> Self {
        let sweep = |name: &ProviderName| {
            (name.clone(), ProviderSweep { turn: Semaphore::new(1), wake: Notify::new() })
        };
        let sweeps = parts.providers.all().map(|(name, _)| sweep(name)).collect();
        let hinted = Arc::new(Semaphore::new(hinted::LOOKS_MAX));
        Self { parts, directory, period, sweeps, hinted, drift: Drift::default() }
    }

    /// Sweeps every provider now; returns once that is done.
    pub async fn sweep_now(&self) {
        let all = self.sweeps.keys().map(|name| self.sweep(name));
        futures_util::future::join_all(all).await;
    }

    /// Has a provider swept soon, if it is swept at all.
    pub fn sweep_soon(&self, provider: &ProviderName) {
        if let Some(sweep) = self.sweeps.get(provider) {
            sweep.wake.notify_one();
        }
    }

    /// Begins the loops, one for each provider.
    pub fn begin(self: &Arc<Self>) {
        let Some(period) = self.period else { return };
        for name in self.sweeps.keys() {
            let looping = sweep_on(Arc::clone(self), name.clone(), period);
            self.parts.env.spawner.io(Box::pin(looping));
        }
    }

    /// Sweeps one provider; when something is due before the next sweep's time.
    async fn sweep(&self, name: &ProviderName) -> Option<Timestamp> {
        let _turn = self.sweeps.get(name)?.turn.acquire().await.ok()?;
        let guarded = AssertUnwindSafe(sweep::sweep(&self.parts, &self.drift, name)).catch_unwind();
        let Ok(outcome) = guarded.await else {
            tracing::error!(provider = %name, "a sweep panicked; the next one retries");
            return None;
        };
        for new in self.drift.take(name, outcome.swept) {
            log(&new);
        }
        outcome.again_at
    }
}

/// Sweeps one provider, for as long as the server runs.
async fn sweep_on(reconciler: Arc<Reconciler>, name: ProviderName, period: Duration) {
    let env = &reconciler.parts.env;
    while !env.is_stopping() {
        let again_at = reconciler.sweep(&name).await;
        let next = env.now().after(period);
        let until = again_at.map_or(next, |again| again.min(next));
        let Some(sweep) = reconciler.sweeps.get(&name) else { return };
        tokio::select! {
            biased;
            () = sweep.wake.notified() => {}
            () = env.clock.sleep_until(until) => {}
        }
    }
}

fn log(new: &DriftItem) {
    let DriftItem { id, kind, reason, next, .. } = new;
    let kind = kind.as_str();
    match new.attention() {
        DriftAttention::Decision => {
            tracing::warn!(item = %id, kind, %reason, %next, "found drift that needs a person's decision: see issuebox drift");
        }
        DriftAttention::Provider => {
            tracing::warn!(item = %id, kind, %reason, %next, "a provider could not be compared with the records; it is asked again");
        }
        DriftAttention::Choice => {
            tracing::info!(item = %id, kind, %reason, %next, "found drift that a person may decide about: see issuebox drift");
        }
        DriftAttention::None => {
            tracing::info!(item = %id, kind, %reason, %next, "found drift, which is repaired automatically");
        }
    }
}
