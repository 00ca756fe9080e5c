//! Sweeps: what providers list, sent as observations to the actors, which alone decide.
//!
//! Webhooks and calls tell what changed; a sweep finds what nobody told: an object that was killed or
//! removed from outside, one that a crash left behind, one that a restored backup does not know. At
//! start and once a period each provider's list is compared with the records ([`compare`]), and each
//! home about which they disagree is looked at once more and told to its actor ([`sweep`]). What is
//! left after that is drift ([`drift`]), for people to see and decide about ([`remedy`]).
//!
//! # Guarantees
//! - A list decides nothing by itself, and neither does a look that is older than a call.
//! - Unreachable is not gone: a provider that cannot be looked at, or is not who it was, has lost
//!   nothing.
//! - Too much at once is not believed: more than three and more than a tenth lost, or to be removed,
//!   and the sweep acts on none of what it found.
//! - Each provider has a loop of its own, each home its own time bound: trouble with one holds up no
//!   other.
//! - Objects of another installation are never touched.
//!
//! # Races that are accepted
//! - Homes of a restored backup are reserved by the first sweep. A new issue that is seen before it
//!   may be given a number that an object out there carries. Its first look finds that object.
//! - A list that shows an object no more begins its waiting time anew once it shows it again. It is
//!   kept longer, never shorter.

pub(super) mod compare;
pub(super) mod drift;
mod items;
mod remedy;
mod sweep;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, Semaphore};

use crate::types::{ProviderName, Timestamp};

use super::handle::Engine;
use drift::{Drift, DriftItem, DriftView};

/// What sweeps share.
pub(super) struct Reconciler {
    /// The pause between two sweeps of a provider; `None` sweeps only when asked.
    period: Option<Duration>,
    places: BTreeMap<ProviderName, ProviderSweep>,
    pub drift: Drift,
}

/// One provider's sweeps.
struct ProviderSweep {
    /// At most one at a time.
    turn: Semaphore,
    /// Somebody wants one before its time.
    wake: Notify,
}

impl Reconciler {
    pub fn new(period: Option<Duration>, providers: impl Iterator<Item = ProviderName>) -> Self {
        let place = |name| (name, ProviderSweep { turn: Semaphore::new(1), wake: Notify::new() });
        Self { period, places: providers.map(place).collect(), drift: Drift::default() }
    }
}

impl Engine {
    /// What our records and the providers disagree on, as of the last sweeps.
    pub fn drift(&self) -> DriftView {
        self.core.reconciler.drift.view()
    }

    /// What of it somebody should look at soon.
    pub fn drift_alarms(&self) -> Vec<DriftItem> {
        self.core.reconciler.drift.alarms()
    }

    /// Sweeps every provider now; returns once that is done.
    pub async fn sweep_now(&self) {
        let all = self.core.reconciler.places.keys().map(|name| self.sweep(name));
        futures_util::future::join_all(all).await;
    }

    /// Has a provider swept soon, where it is swept at all.
    pub fn sweep_soon(&self, provider: &ProviderName) {
        if let Some(place) = self.core.reconciler.places.get(provider) {
            place.wake.notify_one();
        }
    }

    /// Begins the loops, one for each provider.
    pub(super) fn begin_sweeps(&self) {
        let Some(period) = self.core.reconciler.period else { return };
        for name in self.core.reconciler.places.keys() {
            let looping = sweep_on(self.clone(), name.clone(), period);
            self.core.spawner.io(Box::pin(looping));
        }
    }

    /// Sweeps one provider; when something is due before the next sweep's time.
    async fn sweep(&self, name: &ProviderName) -> Option<Timestamp> {
        let reconciler = &self.core.reconciler;
        let place = reconciler.places.get(name)?;
        let _turn = place.turn.acquire().await.ok()?;
        let guarded = AssertUnwindSafe(sweep::sweep(self, name)).catch_unwind();
        let Ok(outcome) = guarded.await else {
            tracing::error!(provider = %name, "a sweep panicked; the next one tries again");
            return None;
        };
        for new in reconciler.drift.take(name, outcome.swept) {
            log(&new);
        }
        outcome.again_at
    }
}

/// Sweeps one provider, for as long as the server runs.
async fn sweep_on(engine: Engine, name: ProviderName, period: Duration) {
    while !engine.core.is_stopping() {
        let again_at = engine.sweep(&name).await;
        let core = &engine.core;
        let next = core.now().after(period);
        let until = again_at.map_or(next, |again| again.min(next));
        let Some(place) = core.reconciler.places.get(&name) else { return };
        tokio::select! {
            biased;
            () = place.wake.notified() => {}
            () = core.clock.sleep_until(until) => {}
        }
    }
}

fn log(new: &DriftItem) {
    let DriftItem { id, kind, reason, next, .. } = new;
    let kind = kind.as_str();
    if new.kind.is_alarm() {
        tracing::warn!(item = %id, kind, %reason, %next, "a sweep found what needs a person");
    } else {
        tracing::info!(item = %id, kind, %reason, %next, "a sweep found drift");
    }
}
