//! The outbox of what is said on issues, in the world: the embedded store's rows, with writes that are
//! slow, fail, and land or not at a crash. Beside it checkouts, and the pace of the write queue.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::store::SimStore;
use super::talk::StoredTalk;
use super::world::WorldState;
use crate::engine::tests::outbox::OutboxInMemory;
use crate::github::api::{PaceError, PaceRecord, WritePace, WriterId};
use crate::issue::{Effect, GithubEffect};
use crate::store::checkout::{CheckoutRow, CheckoutStore};
use crate::store::github::{GithubEnd, GithubOutbox, GithubRow, GithubState};
use crate::store::{CommitError, EffectId, StoreError, TimelineListRow, Write};
use crate::types::{HomeId, SandboxId, Timestamp};

/// What is durable of what is said on issues.
pub struct StoredSaid {
    pub outbox: OutboxInMemory,
    pub checkouts: BTreeMap<SandboxId, CheckoutRow>,
    /// Of each home, newest first.
    timelines: BTreeMap<HomeId, Vec<TimelineListRow>>,
    pace: BTreeMap<WriterId, PaceRecord>,
    pub talk: StoredTalk,
}

impl StoredSaid {
    pub fn new() -> Self {
        Self {
            outbox: OutboxInMemory::new(),
            checkouts: BTreeMap::new(),
            timelines: BTreeMap::new(),
            pace: BTreeMap::new(),
            talk: StoredTalk::default(),
        }
    }

    /// A step is durable, and what is to be said because of it.
    pub fn record(&mut self, write: &Write) -> Result<(), CommitError> {
        for new in &write.effects {
            if let Effect::Github(effect) = &new.effect {
                self.outbox.record(new.home, effect, new.due_at)?;
            }
        }
        for home in write.unlocks() {
            self.outbox.unlock(home)?;
        }
        self.talk.record(write);
        if let Some(issue) = &write.issue {
            let timeline = self.timelines.entry(issue.home).or_default();
            for entry in &write.timeline {
                timeline.insert(0, TimelineListRow { entry: entry.clone(), instruction: None });
            }
        }
        Ok(())
    }

    /// The newest entries of a home's timeline.
    pub fn latest(&self, home: HomeId, limit: usize) -> Vec<TimelineListRow> {
        self.timelines.get(&home).into_iter().flatten().take(limit).cloned().collect()
    }

    pub fn checkouts_of(&self, home: HomeId) -> Vec<CheckoutRow> {
        let all = self.checkouts.values();
        let mut its: Vec<_> = all.filter(|row| row.home == home).cloned().collect();
        its.sort_by_key(|row| row.changed_at);
        its
    }

    /// Until when writing calls rest.
    pub fn rests_until(&self) -> Option<Timestamp> {
        self.pace.values().filter_map(|record| record.rests_until).max()
    }

    /// Whether a call is recorded as under way.
    pub fn is_asked(&self) -> bool {
        let rows = self.outbox.unfinished(usize::MAX).expect("it is in memory");
        rows.iter().any(|row| row.state == GithubState::Asked)
    }
}

impl SimStore {
    /// Writes something about what is said, which sometimes takes seconds.
    async fn write_said<T>(
        &self,
        write: impl FnOnce(&mut WorldState) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let pause = self.life.world().with(WorldState::said_pause);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let written = self.write(write).await.and_then(|written| written);
        let pause = self.life.world().with(WorldState::said_pause);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        written
    }
}

impl WorldState {
    fn said_pause(&mut self) -> u64 {
        let is_slow = self.weather.slow_store && !self.weather.calm && self.chance.permille(100);
        if is_slow { self.chance.between(100, 30_000) } else { self.chance.below(4) }
    }
}

#[async_trait]
impl GithubOutbox for SimStore {
    async fn github_effects(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<GithubRow>, StoreError> {
        self.read(|inner| inner.stored.outbox.due(now, limit)).await?
    }

    async fn next_github_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.read(|inner| inner.stored.outbox.next_due(now)).await?
    }

    async fn github_counts(&self) -> Result<Vec<(GithubState, u64)>, StoreError> {
        self.read(|inner| inner.stored.outbox.counts()).await?
    }

    async fn comments_edited_since(&self, since: Timestamp) -> Result<u64, StoreError> {
        self.read(|inner| inner.stored.outbox.edited_since(since)).await?
    }

    async fn github_effects_of(&self, home: HomeId) -> Result<Vec<GithubRow>, StoreError> {
        self.read(|inner| inner.stored.outbox.of_home(home)).await?
    }

    async fn begin_github(&self, id: EffectId, at: Timestamp) -> Result<(), CommitError> {
        self.write_said(|inner| inner.stored.outbox.begin(id, at)).await
    }

    async fn end_github(&self, id: EffectId, end: GithubEnd) -> Result<(), CommitError> {
        self.write_said(|inner| {
            inner.note(None, || format!("effect {} ends: {end:?}", id.number));
            inner.stored.outbox.end(id, &end)
        })
        .await
    }

    async fn give_up_github(&self, home: HomeId, reason: String) -> Result<(), CommitError> {
        self.write_said(|inner| inner.stored.outbox.give_up(home, &reason)).await
    }

    async fn unfinished_github(&self, limit: usize) -> Result<Vec<GithubRow>, StoreError> {
        self.read(|inner| inner.stored.outbox.unfinished(limit)).await?
    }

    async fn retry_github(&self, number: i64, now: Timestamp) -> Result<(), CommitError> {
        self.write_said(|inner| inner.stored.outbox.retry(number, now)).await
    }

    async fn resume_github(&self, now: Timestamp) -> Result<(), CommitError> {
        self.write_said(|inner| inner.stored.outbox.resume(now)).await
    }
}

#[async_trait]
impl CheckoutStore for SimStore {
    async fn checkout(&self, sandbox: &SandboxId) -> Result<Option<CheckoutRow>, StoreError> {
        self.read(|inner| inner.stored.checkouts.get(sandbox).cloned()).await
    }

    async fn checkouts_of(&self, home: HomeId) -> Result<Vec<CheckoutRow>, StoreError> {
        self.read(|inner| inner.stored.checkouts_of(home)).await
    }

    async fn unfinished_pushes(&self) -> Result<Vec<CheckoutRow>, StoreError> {
        self.read(|_| Vec::new()).await
    }

    async fn put_checkout(
        &self,
        row: CheckoutRow,
        effects: Vec<GithubEffect>,
        now: Timestamp,
    ) -> Result<(), CommitError> {
        self.write_said(|inner| {
            for effect in &effects {
                inner.stored.outbox.record(row.home, effect, now)?;
            }
            inner.stored.checkouts.insert(row.sandbox.clone(), row);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl WritePace for SimStore {
    async fn load(&self) -> Result<Vec<PaceRecord>, PaceError> {
        let records = self.read(|inner| inner.stored.pace.values().cloned().collect()).await;
        records.map_err(|error| PaceError(error.to_string()))
    }

    async fn save(&self, record: PaceRecord) -> Result<(), PaceError> {
        let saved = self.write_said(|inner| {
            inner.stored.pace.insert(record.writer, record);
            Ok(())
        });
        saved.await.map_err(|error| PaceError(error.to_string()))
    }
}
