//! The write queues: one writing call of an identity at a time, in order and at GitHub's pace.
//!
//! # Guarantees
//! - Two writing calls of an identity begin at least a second apart and never overlap.
//! - All identities together make at most [`MINUTE_MAX`] in any minute and [`HOUR_MAX`] in any hour,
//!   also across restarts: what a turn counts for is durable before it is given out.
//! - No turn is given out while the identity rests. Those that wait are refused when a rest begins.
//! - Of those that wait, the most urgent is next; of equals, the one that came first.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};

use crate::clock::Clock;
use crate::sabotage::{Bug, on};
use crate::types::Timestamp;

use super::super::api::{GitHubError, PaceRecord, WritePace, WriteTurn, WriteUrgency, WriterId};

/// Shortest time between the beginnings of two writing calls of an identity.
const APART: Duration = Duration::from_secs(1);
/// Most writing calls in a minute; GitHub allows 80.
pub(super) const MINUTE_MAX: usize = 60;
/// Most writing calls in an hour; GitHub allows 500.
pub(super) const HOUR_MAX: usize = 400;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE_MS: i64 = 60_000;
/// The first rest after a limit without a time; doubled with each further one.
const REST_FIRST: Duration = Duration::from_secs(60);
/// The longest of these rests.
const REST_MAX: Duration = Duration::from_secs(900);

/// All write queues. Clones share them.
#[derive(Clone)]
pub(crate) struct WriteQueues(Arc<SharedQueues>);

struct SharedQueues {
    clock: Arc<dyn Clock>,
    pace: Arc<dyn WritePace>,
    is_loaded: OnceCell<()>,
    state: Mutex<QueueState>,
    changed: Notify,
}

#[derive(Default)]
struct QueueState {
    number: u64,
    /// In the order of their turns.
    waiting: BTreeSet<WriteTicket>,
    writers: HashMap<WriterId, Writer>,
    /// When the writing calls of the last hour began, oldest first.
    begun: VecDeque<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WriteTicket {
    urgency: WriteUrgency,
    number: u64,
    writer: WriterId,
}

#[derive(Default)]
struct Writer {
    is_busy: bool,
    last_at: Option<Timestamp>,
    rests_until: Option<Timestamp>,
    strikes: u32,
    /// The rest could not be kept; that is tried again.
    is_unkept: bool,
    /// By minutes since 1970.
    writes: BTreeMap<i64, u32>,
}

enum NextTurn {
    /// The turn is taken; this must be durable first.
    Taken(PaceRecord),
    Rests(Timestamp),
    At(Timestamp),
    /// Another one's turn.
    Later,
}

impl WriteQueues {
    pub fn new(clock: Arc<dyn Clock>, pace: Arc<dyn WritePace>) -> Self {
        let (is_loaded, state, changed) = (OnceCell::new(), Mutex::default(), Notify::new());
        Self(Arc::new(SharedQueues { clock, pace, is_loaded, state, changed }))
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// [`GitHubError::Limited`] while the identity rests; [`GitHubError::Unreachable`] if the pace
    /// can't be read or kept.
    pub async fn turn(
        &self,
        writer: WriterId,
        urgency: WriteUrgency,
    ) -> Result<WriteTurn, GitHubError> {
        let shared = &self.0;
        shared.load().await?;
        let waiting = Waiting::new(shared, writer, urgency);
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let next = shared.locked().next(waiting.ticket, shared.clock.now());
            match next {
                NextTurn::Taken(record) => {
                    let turn = Turn { shared: Arc::clone(shared), writer };
                    drop(waiting);
                    shared.keep(record).await?;
                    return Ok(WriteTurn::new(turn));
                }
                NextTurn::Rests(until) => {
                    shared.keep_rest(writer).await;
                    return Err(GitHubError::Limited { until });
                }
                NextTurn::At(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = shared.clock.sleep_until(at) => {}
                },
                NextTurn::Later => changed.await,
            }
        }
    }

    /// A writing call was accepted: the next limit without a time is the first again.
    pub fn went_well(&self, writer: WriterId) {
        if let Some(of_writer) = self.0.locked().writers.get_mut(&writer) {
            of_writer.strikes = 0;
        }
    }

    /// The identity rests until then; without a time for a minute, doubled each time up to 15
    /// minutes. Returns until when.
    pub async fn rest(&self, writer: WriterId, until: Option<Timestamp>) -> Timestamp {
        // What is written below replaces what was kept, so that must be known.
        if let Err(error) = self.0.load().await {
            tracing::error!(%writer, %error, "the pace of writing is not known");
        }
        let now = self.0.clock.now();
        let until = {
            let mut state = self.0.locked();
            let of_writer = state.writers.entry(writer).or_default();
            let until = until.unwrap_or_else(|| {
                let rest = REST_FIRST.saturating_mul(1 << of_writer.strikes.min(8)).min(REST_MAX);
                of_writer.strikes = of_writer.strikes.saturating_add(1);
                now.after(rest)
            });
            // A shorter limit does not end a longer one.
            let until = of_writer.rests_until.map_or(until, |before| before.max(until));
            of_writer.rests_until = Some(until);
            of_writer.is_unkept = true;
            until
        };
        self.0.changed.notify_waiters();
        self.0.keep_rest(writer).await;
        tracing::warn!(%writer, %until, "writing at GitHub rests");
        until
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.locked().waiting.len()
    }
}

impl SharedQueues {
    fn locked(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn load(&self) -> Result<(), GitHubError> {
        let load = || async {
            let records = self.pace.load().await.map_err(unkept)?;
            self.locked().restore(records, self.clock.now());
            Ok(())
        };
        self.is_loaded.get_or_try_init(load).await.copied()
    }

    /// Keeps the rest of an identity, if it is not kept.
    async fn keep_rest(&self, writer: WriterId) {
        let record = {
            let mut state = self.locked();
            let Some(of_writer) = state.writers.get_mut(&writer) else { return };
            if !std::mem::take(&mut of_writer.is_unkept) {
                return;
            }
            of_writer.record(writer)
        };
        if let Err(error) = self.keep(record).await {
            tracing::error!(%writer, %error, "a rest of the write queue is not durable");
            if let Some(of_writer) = self.locked().writers.get_mut(&writer) {
                of_writer.is_unkept = true;
            }
        }
    }

    async fn keep(&self, record: PaceRecord) -> Result<(), GitHubError> {
        self.pace.save(record).await.map_err(unkept)
    }
}

fn unkept(error: super::super::api::PaceError) -> GitHubError {
    GitHubError::Unreachable(format!("the pace of writing cannot be kept: {error}"))
}

impl QueueState {
    /// Takes over what was kept. Each write counts as of the latest time that it can have been.
    fn restore(&mut self, records: Vec<PaceRecord>, now: Timestamp) {
        let mut begun = Vec::new();
        for PaceRecord { writer, rests_until, strikes, writes } in records {
            for (minute, count) in &writes {
                let end = Timestamp::from_unix_ms((minute + 1).saturating_mul(MINUTE_MS));
                let count = usize::try_from(*count).unwrap_or(HOUR_MAX).min(HOUR_MAX);
                begun.extend(std::iter::repeat_n(end.min(now), count));
            }
            let writes = writes.into_iter().collect();
            let rests_until = rests_until.filter(|_| !on(Bug::RestForgotten));
            let last_at = Some(now);
            let kept = Writer { last_at, rests_until, strikes, writes, ..Writer::default() };
            self.writers.insert(writer, kept);
        }
        begun.sort_unstable();
        self.begun = begun.into();
    }

    /// What is next for the one that waits with this ticket.
    fn next(&mut self, ticket: WriteTicket, now: Timestamp) -> NextTurn {
        let of_writer = self.writers.entry(ticket.writer).or_default();
        if let Some(until) = of_writer.rests_until.filter(|until| *until > now) {
            return NextTurn::Rests(until);
        }
        if of_writer.is_busy {
            return NextTurn::Later;
        }
        if let Some(at) = of_writer.last_at.map(|last| last.after(APART)).filter(|at| *at > now) {
            return NextTurn::At(at);
        }
        if let Some(at) = self.full_until(now) {
            return NextTurn::At(at);
        }
        let is_ready = |other: &WriteTicket| match self.writers.get(&other.writer) {
            Some(of_other) => of_other.is_ready(now),
            None => true,
        };
        if self.waiting.range(..ticket).any(is_ready) {
            return NextTurn::Later;
        }
        self.waiting.remove(&ticket);
        self.begun.push_back(now);
        let of_writer = self.writers.entry(ticket.writer).or_default();
        of_writer.is_busy = true;
        of_writer.last_at = Some(now);
        of_writer.rests_until = None;
        let minute = now.unix_ms().div_euclid(MINUTE_MS);
        *of_writer.writes.entry(minute).or_default() += 1;
        of_writer.writes = of_writer.writes.split_off(&(minute - 60));
        NextTurn::Taken(of_writer.record(ticket.writer))
    }

    /// When the next writing call may begin, if the limits of all identities are reached.
    fn full_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        let hour_ago = now.before(HOUR);
        while self.begun.front().is_some_and(|at| *at <= hour_ago) {
            self.begun.pop_front();
        }
        let free_at = |most: usize, span: Duration| {
            let nth_last = self.begun.len().checked_sub(most)?;
            Some(self.begun.get(nth_last)?.after(span)).filter(|at| *at > now)
        };
        free_at(HOUR_MAX, HOUR).max(free_at(MINUTE_MAX, MINUTE))
    }
}

impl Writer {
    fn is_ready(&self, now: Timestamp) -> bool {
        let is_apart = self.last_at.is_none_or(|last| last.after(APART) <= now);
        !self.is_busy && is_apart && self.rests_until.is_none_or(|until| until <= now)
    }

    fn record(&self, writer: WriterId) -> PaceRecord {
        let writes = self.writes.iter().map(|(minute, count)| (*minute, *count)).collect();
        PaceRecord { writer, rests_until: self.rests_until, strikes: self.strikes, writes }
    }
}

/// A place in the queue, which a drop gives up.
struct Waiting<'a> {
    shared: &'a SharedQueues,
    ticket: WriteTicket,
}

impl<'a> Waiting<'a> {
    fn new(shared: &'a SharedQueues, writer: WriterId, urgency: WriteUrgency) -> Self {
        let mut state = shared.locked();
        state.number += 1;
        let ticket = WriteTicket { urgency, number: state.number, writer };
        state.waiting.insert(ticket);
        Self { shared, ticket }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.locked().waiting.remove(&self.ticket);
        self.shared.changed.notify_waiters();
    }
}

/// The turn of an identity.
struct Turn {
    shared: Arc<SharedQueues>,
    writer: WriterId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(of_writer) = self.shared.locked().writers.get_mut(&self.writer) {
            of_writer.is_busy = false;
        }
        self.shared.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
