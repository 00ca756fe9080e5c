//! Carries out the effects of the outbox: one worker for the whole server.
//!
//! A step's effects are durable with the state that asked for them. The worker reads them back and
//! carries each out until it is done, then removes it. A crash in between repeats it, so each kind
//! looks before it acts and is harmless when it is repeated.
//!
//! # Guarantees
//! - **At least once, or a reason.** An effect leaves the outbox when it was carried out, when the
//!   look shows that it is no longer needed, or after [`TRIES_MAX`] failed tries, which is logged.
//! - **Order and fairness.** Effects of one home and kind are carried out one after the other, in
//!   the order of recording. Only the first of each home competes for the [`IN_FLIGHT_MAX`] places,
//!   so that a home with many effects does not delay the others.
//!
//! # Races it accepts
//! An effect that is replaced while it is carried out is carried out once more, in its new version.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use crate::issue::{Effect, EffectKind, EffectQueue};
use crate::sabotage::{Bug, on};
use crate::store::{CommitError, EffectDelay, EffectId, EffectRow};
use crate::types::Timestamp;

use super::effect_end::EffectEnd;
use super::environment::Environment;
use super::executor::Executor;

/// How many effects are carried out at once. More wait in the outbox.
const IN_FLIGHT_MAX: usize = 16;
/// How many failed tries an effect has. With the backoff they take some 20 minutes. An orphan that
/// is still there after that is found again by the next sweep.
const TRIES_MAX: u32 = 10;
/// The pause after the first failed try; doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The longest pause between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// The pause when an effect cannot be tried now: its home's call slot is taken.
const SLOT_PAUSE: Duration = Duration::from_secs(2);
/// The pause after the store failed: what is done must not be repeated all the time.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep, in case the clock is set forward.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// How many effects of one kind ended in which way since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectCounts {
    /// Which kind.
    pub kind: EffectKind,
    /// In the outbox when the worker last looked.
    pub pending: u64,
    /// Carried out, or no longer needed.
    pub done: u64,
    /// Tries that failed and were followed by another one.
    pub retried: u64,
    /// Given up.
    pub failed: u64,
}

/// The counters of one kind.
#[derive(Default)]
struct Counters {
    pending: AtomicU64,
    done: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
}

/// Carries out effects.
pub(super) struct EffectWorker {
    env: Arc<Environment>,
    executor: Arc<Executor>,
    /// Notified when a step recorded effects.
    recorded: Arc<Notify>,
    /// In the order of [`EffectKind::ALL`].
    counters: [Counters; EffectKind::ALL.len()],
}

/// Carries out what is in the outbox and what comes into it, for ever.
pub(super) async fn run(worker: Arc<EffectWorker>) {
    let mut running = FuturesUnordered::new();
    let mut in_flight = HashSet::new();
    loop {
        let wake_at = worker.begin_due(&mut running, &mut in_flight).await;
        tokio::select! {
            biased;
            Some(id) = running.next(), if !running.is_empty() => {
                in_flight.remove(&id);
            }
            () = worker.recorded.notified() => {}
            () = worker.env.clock.sleep_until(wake_at) => {}
        }
    }
}

impl EffectWorker {
    /// Of an engine that makes calls by this executor.
    pub fn new(env: Arc<Environment>, executor: Arc<Executor>, recorded: Arc<Notify>) -> Self {
        Self { env, executor, recorded, counters: Default::default() }
    }

    /// How many effects ended in which way, by kind.
    pub fn counts(&self) -> Vec<EffectCounts> {
        let counted = EffectKind::ALL.into_iter().zip(&self.counters);
        let counted = counted.filter(|(kind, _)| kind.queue() == EffectQueue::Provider);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        counted
            .map(|(kind, of_kind)| EffectCounts {
                kind,
                pending: read(&of_kind.pending),
                done: read(&of_kind.done),
                retried: read(&of_kind.retried),
                failed: read(&of_kind.failed),
            })
            .collect()
    }

    /// Begins what is due, as far as there are places. Returns when to look again.
    async fn begin_due(
        self: &Arc<Self>,
        running: &mut FuturesUnordered<BoxFuture<'static, EffectId>>,
        in_flight: &mut HashSet<EffectId>,
    ) -> Timestamp {
        let now = self.env.now();
        let latest = now.after(SLEEP_MAX);
        if self.env.is_stopping() || in_flight.len() >= IN_FLIGHT_MAX {
            return latest;
        }
        // Those in flight are still in the outbox.
        let page = IN_FLIGHT_MAX + in_flight.len();
        let (due, next) = match self.read(now, page).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "failed to read the outbox; retrying");
                return now.after(STORE_PAUSE);
            }
        };
        let numbers: HashSet<i64> = in_flight.iter().map(|id| id.number).collect();
        let startable = due.into_iter().filter(|row| !numbers.contains(&row.id.number));
        for row in startable.take(IN_FLIGHT_MAX - in_flight.len()) {
            let id = row.id;
            in_flight.insert(id);
            let (done, ended) = oneshot::channel();
            let worker = Arc::clone(self);
            self.executor.spawn(async move {
                worker.carry_out(row).await;
                // Without a receiver the worker has ended.
                let _ = done.send(());
            });
            running.push(Box::pin(async move {
                // An error is a panic in there: it is tried again.
                let _ = ended.await;
                id
            }));
        }
        // What is due and has no place yet is looked for when one that is in flight ends.
        next.map_or(latest, |next| next.min(latest))
    }

    /// What is due, and when the next effect is.
    async fn read(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<(Vec<EffectRow>, Option<Timestamp>), crate::store::StoreError> {
        let store = &self.env.store;
        let due = store.effects(now, limit).await?;
        let counts = store.effect_counts().await?;
        for (kind, of_kind) in EffectKind::ALL.iter().zip(&self.counters) {
            let count = counts.iter().find(|(counted, _)| counted == kind);
            of_kind.pending.store(count.map_or(0, |(_, count)| *count), Ordering::Relaxed);
        }
        Ok((due, store.next_effect(now).await?))
    }

    /// Carries out one effect and records how that ended.
    async fn carry_out(&self, row: EffectRow) {
        if on(Bug::EffectRemovedFirst) {
            drop(self.env.store.finish_effect(row.id).await);
        }
        let end = match &row.effect {
            Effect::CleanUp(cleanup) => self.executor.clean_up(row.home, cleanup).await,
            Effect::Github(_) => EffectEnd::Obsolete("the other worker carries it out"),
        };
        if let Err(error) = self.record(&row, end).await {
            tracing::error!(
                home = row.home.0, kind = row.effect.kind().as_str(), %error,
                "failed to record how an effect ended; it is carried out again"
            );
            let env = &self.env;
            env.clock.sleep_until(env.now().after(STORE_PAUSE)).await;
        }
    }

    /// Records how a try ended: the effect leaves the outbox, or is tried again later.
    async fn record(&self, row: &EffectRow, end: EffectEnd) -> Result<(), CommitError> {
        let EffectRow { id, home, effect, tries, .. } = row;
        let (home, kind) = (home.0, effect.kind());
        let of_kind = &self.counters[kind as usize];
        let now = self.env.now();
        let store = &self.env.store;
        match end {
            EffectEnd::Done => {
                store.finish_effect(*id).await?;
                of_kind.done.fetch_add(1, Ordering::Relaxed);
            }
            EffectEnd::Obsolete(why) => {
                store.finish_effect(*id).await?;
                of_kind.done.fetch_add(1, Ordering::Relaxed);
                tracing::info!(home, kind = kind.as_str(), why, "an effect is no longer needed");
            }
            EffectEnd::SlotTaken => {
                let reason = "a provider call is under way for this issue".to_owned();
                let delay = EffectDelay { due_at: now.after(SLOT_PAUSE), tries: *tries, reason };
                store.delay_effect(*id, delay).await?;
            }
            EffectEnd::Unreachable(reason, due_at) => {
                store.delay_effect(*id, EffectDelay { due_at, tries: *tries, reason }).await?;
            }
            EffectEnd::Failed(reason) if tries + 1 < TRIES_MAX => {
                let due_at = now.after(backoff(*tries));
                let tries = tries + 1;
                tracing::info!(home, kind = kind.as_str(), tries, reason, "retrying an effect");
                store.delay_effect(*id, EffectDelay { due_at, tries, reason }).await?;
                of_kind.retried.fetch_add(1, Ordering::Relaxed);
            }
            EffectEnd::Failed(reason) | EffectEnd::Refused(reason) => {
                store.finish_effect(*id).await?;
                of_kind.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(home, kind = kind.as_str(), reason, "an effect was given up");
            }
        }
        Ok(())
    }
}

/// The pause after so many failed tries and one more.
fn backoff(tries: u32) -> Duration {
    BACKOFF_FIRST.saturating_mul(1 << tries.min(16)).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound() {
        let pauses: Vec<u64> = (0..11).map(|tries| backoff(tries).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff(u32::MAX), BACKOFF_MAX);
    }
}
