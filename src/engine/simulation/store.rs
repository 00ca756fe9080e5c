//! The world's store: commits in groups, slow and failing by the seed, over rows that outlive
//! every server.
//!
//! A write that was handed in waits until a group begins, the group lands as one transaction, and
//! each writer gets its result some time later. A crash takes what waited, decides by chance whether the
//! group under way had landed, and answers no writer.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::counts::Happening;
use super::world::{ServerLife, SimEffect, WorldState};
use crate::issue::{EffectKind, FanOut, Issue, Scope};
use crate::store::{
    CommitError, DeliveryFilter, DeliveryListRow, DeliveryRow, DeliveryState, EffectDelay,
    EffectId, EffectRow, InstructionRow, Look, LookAsk, Orphan, Page, PageAsk, PendingRow,
    PendingStartRow, PruneAsk, SandboxFilter, Store, StoreError, TimelineListRow, Write,
};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, ExternalId, Hold, HoldScope, HomeId, InstanceId, Phase,
    ProviderName, Sandbox, SandboxId, Timestamp,
};

/// Which installation the world's objects belong to.
pub fn instance() -> InstanceId {
    InstanceId::trusted("simulation")
}

type CommitReply = oneshot::Sender<Result<(), CommitError>>;

/// What is handed in: a write, or a question that is answered behind what was handed in before.
type QueuedWrite = Option<Box<Write>>;

/// The writes of one life that are not answered yet.
#[derive(Default)]
pub struct SimWriter {
    waiting: Vec<(QueuedWrite, CommitReply)>,
    under_way: Option<Vec<(QueuedWrite, CommitReply)>>,
    to_reply: BTreeMap<u64, (CommitReply, Result<(), CommitError>)>,
}

impl WorldState {
    fn hand_in(&mut self, work: QueuedWrite) -> oneshot::Receiver<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        let rate = self.weather.overload;
        if self.weather.strikes(&mut self.chance, rate) {
            let home = home_of(&work);
            self.refused(home, &CommitError::Overloaded);
            // The receiver is right here.
            reply.send(Err(CommitError::Overloaded)).expect("it is received");
            return answer;
        }
        self.writer.waiting.push((work, reply));
        if self.writer.under_way.is_none() && self.writer.waiting.len() == 1 {
            let pause = self.commit_pause();
            self.after(pause, SimEffect::Begin);
        }
        answer
    }

    fn commit_pause(&mut self) -> u64 {
        if self.weather.slow_store && !self.weather.calm && self.chance.permille(250) {
            return self.chance.between(100, 2_000);
        }
        self.chance.below(8)
    }

    /// How much longer than usual a read takes.
    fn read_pause(&mut self) -> Duration {
        let is_slow = self.weather.slow_store && !self.weather.calm && self.chance.permille(50);
        Duration::from_millis(if is_slow { self.chance.between(100, 2_000) } else { 0 })
    }

    /// A group begins with all that waits.
    pub fn begin_group(&mut self) {
        self.writer.under_way = Some(std::mem::take(&mut self.writer.waiting));
        let pause = self.commit_pause();
        self.after(pause, SimEffect::Land);
    }

    /// The group lands: each write is applied or refused by itself, or all fail together.
    pub fn land_group(&mut self) {
        let Some(group) = self.writer.under_way.take() else { return };
        let rate = self.weather.store_faults;
        let down = self.elapsed_ms() < self.store_down_until_ms && !self.weather.calm;
        let all_fail = down || self.weather.strikes(&mut self.chance, rate / 2);
        for (work, reply) in group {
            let one_fails = self.weather.strikes(&mut self.chance, rate)
                || work.as_deref().is_some_and(|write| self.move_fails(write));
            let result = if all_fail || one_fails {
                Err(CommitError::Failed("the disk is full".into()))
            } else {
                work.as_deref().map_or(Ok(()), |write| self.apply(write))
            };
            match (home_of(&work), &result) {
                (home, Err(error)) => self.refused(home, error),
                (Some(home), Ok(())) => self.taken(home),
                (None, Ok(())) => {}
            }
            let number = self.fresh();
            self.writer.to_reply.insert(number, (reply, result));
            let pause = self.chance.below(5);
            self.after(pause, SimEffect::Reply(number));
        }
        if !self.writer.waiting.is_empty() {
            let pause = self.commit_pause();
            self.after(pause, SimEffect::Begin);
        }
    }

    /// Whether the write fails by which a live sandbox would take its slot to another repository. What
    /// comes of the slot until it is written is rare, so this fails more often than other writes.
    fn move_fails(&mut self, write: &Write) -> bool {
        let rate = self.weather.moves_fail;
        let moves = rate > 0
            && write.issue.as_ref().is_some_and(|after| {
                let before = self.rows.issues.get(&after.home);
                after.state.takes_slot()
                    && before.is_some_and(|before| {
                        before.state.takes_slot()
                            && before.facts.repository.is_some()
                            && before.facts.repository != after.facts.repository
                    })
            });
        let fails = moves && self.weather.strikes(&mut self.chance, rate);
        if fails {
            self.count(Happening::RefusedMove);
        }
        fails
    }

    fn apply(&mut self, write: &Write) -> Result<(), CommitError> {
        let home = write.issue.as_ref().map(|issue| issue.home);
        let before = home.and_then(|home| self.rows.issues.get(&home).cloned());
        let epoch = Epoch(self.rows.epoch);
        self.rows.apply(epoch, write)?;
        self.stored.record(write)?;
        self.check_commit(before.as_ref(), write);
        self.check_runs(before.as_ref(), write);
        Ok(())
    }

    pub fn reply(&mut self, number: u64) {
        if let Some((reply, result)) = self.writer.to_reply.remove(&number) {
            // The writer may be gone.
            drop(reply.send(result));
        }
    }

    /// The server is gone: chance decides whether the group under way had landed.
    pub fn crash_writer(&mut self) {
        if let Some(group) = self.writer.under_way.take()
            && self.chance.permille(500)
        {
            for write in group.into_iter().filter_map(|(work, _)| work) {
                if let Err(error) = self.apply(&write) {
                    self.note(None, || format!("at the crash a commit was refused: {error}"));
                }
            }
        }
        self.writer = SimWriter::default();
    }
}

fn home_of(work: &QueuedWrite) -> Option<HomeId> {
    Some(work.as_ref()?.issue.as_ref()?.home)
}

/// The store of one life. After that life it does nothing any more.
pub struct SimStore {
    pub life: Arc<ServerLife>,
}

impl SimStore {
    /// Opens the store, which begins an epoch.
    pub fn open(life: Arc<ServerLife>) -> Self {
        life.world().with(|inner| inner.rows.epoch += 1);
        Self { life }
    }

    /// Reads once the seed lets it.
    pub async fn read<T>(&self, read: impl FnOnce(&WorldState) -> T) -> Result<T, StoreError> {
        self.life.pause().await;
        if !self.life.step() {
            return std::future::pending().await;
        }
        let found = self.life.world().with(|inner| {
            let rate = inner.weather.read_faults;
            if inner.weather.strikes(&mut inner.chance, rate) {
                return Err(StoreError::Failed("the disk does not answer".into()));
            }
            Ok(read(inner))
        });
        let slow = self.life.world().with(WorldState::read_pause);
        tokio::time::sleep(slow).await;
        self.life.pause().await;
        if found.is_err() {
            // From when that is answered, a reader has to end.
            self.life.world().with(|inner| inner.actor_ends("a read failed"));
        }
        found
    }
}

impl SimStore {
    /// Writes something that is no step of an issue, once the seed lets it.
    pub async fn write<T>(
        &self,
        write: impl FnOnce(&mut WorldState) -> T,
    ) -> Result<T, CommitError> {
        self.life.pause().await;
        if !self.life.step() {
            return std::future::pending().await;
        }
        let written = self.life.world().with(|inner| {
            let rate = inner.weather.store_faults;
            if inner.weather.strikes(&mut inner.chance, rate) {
                inner.write_failed();
                return Err(CommitError::Failed("the disk is full".into()));
            }
            Ok(write(inner))
        });
        self.life.pause().await;
        written
    }
}

#[async_trait]
impl Store for SimStore {
    fn epoch(&self) -> Epoch {
        self.life.world().with(|inner| Epoch(inner.rows.epoch))
    }

    fn instance(&self) -> InstanceId {
        instance()
    }

    fn next_home(&self) -> HomeId {
        // Reserved at once, so that no later life gives it again.
        self.life.world().with(|inner| {
            inner.rows.reserved_homes += 1;
            HomeId(inner.rows.reserved_homes)
        })
    }

    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>> {
        if !self.life.step() {
            return std::future::pending().boxed();
        }
        let answer = self.life.world().with(|inner| inner.hand_in(Some(Box::new(write))));
        async move {
            match answer.await {
                Ok(result) => result,
                // A crash: there are no more answers.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }

    async fn load(&self, home: HomeId) -> Result<Option<Issue>, StoreError> {
        let found = self.read(|inner| inner.rows.issues.get(&home).cloned()).await;
        if let Ok(None) = found {
            self.life.world().with(|inner| inner.actor_ends("an issue is not stored yet"));
        }
        found
    }

    async fn resolve(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, StoreError> {
        self.read(|inner| inner.rows.resolve(account, alias)).await
    }

    async fn look(&self, account: &AccountName, ask: LookAsk<'_>) -> Result<Look, StoreError> {
        self.read(|inner| inner.rows.look(account, ask)).await
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<DeliveryRow>, StoreError> {
        self.read(|inner| inner.rows.deliveries.get(id).cloned()).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<HomeId>, StoreError> {
        self.read(|inner| inner.rows.due(now, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|inner| inner.rows.next_due()).await
    }

    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError> {
        self.read(|inner| inner.rows.live(after, limit)).await
    }

    async fn sandbox(
        &self,
        account: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError> {
        let its = |sandbox: &Sandbox| sandbox.account == *account;
        self.read(|inner| inner.rows.sandbox(id).filter(its)).await
    }

    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError> {
        self.read(|inner| inner.rows.newest(home)).await
    }

    async fn homes(
        &self,
        scope: &Scope,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        self.read(|inner| inner.rows.homes(scope, after, limit)).await
    }

    async fn unsettled_at(
        &self,
        provider: &ProviderName,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        self.read(|inner| inner.rows.unsettled_at(provider, after, limit)).await
    }

    async fn pending_starts(
        &self,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<PendingStartRow>, StoreError> {
        self.read(|inner| inner.rows.pending_starts(skip, limit)).await
    }

    async fn deleted(&self, ids: &[SandboxId]) -> Result<HashSet<SandboxId>, StoreError> {
        self.read(|inner| inner.rows.deleted(ids)).await
    }

    async fn pending(&self, limit: usize) -> Result<Vec<PendingRow>, StoreError> {
        self.read(|inner| inner.rows.pending(limit)).await
    }

    async fn effects(&self, now: Timestamp, limit: usize) -> Result<Vec<EffectRow>, StoreError> {
        self.read(|inner| inner.rows.effects(now, limit)).await
    }

    async fn next_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.read(|inner| inner.rows.next_effect(now)).await
    }

    async fn effect_counts(&self) -> Result<Vec<(EffectKind, u64)>, StoreError> {
        self.read(|inner| inner.rows.effect_counts()).await
    }

    async fn finish_effect(&self, id: EffectId) -> Result<(), CommitError> {
        let finish = |inner: &mut WorldState| {
            inner.count(Happening::CleanUp);
            inner.rows.finish_effect(id);
        };
        self.write(finish).await
    }

    async fn delay_effect(&self, id: EffectId, delay: EffectDelay) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.delay_effect(id, &delay)).await
    }

    async fn instructions(
        &self,
        _: HomeId,
        _: i64,
        _: usize,
    ) -> Result<Vec<InstructionRow>, StoreError> {
        // The world has no texts.
        self.read(|_| Vec::new()).await
    }

    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.read(|inner| inner.rows.holds.clone()).await
    }

    async fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        self.read(|inner| inner.rows.orphans()).await
    }

    async fn identities(&self) -> Result<Vec<(ProviderName, String)>, StoreError> {
        self.read(|inner| inner.rows.identities()).await
    }

    async fn reserve_homes(&self, above: HomeId) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.reserved_homes = inner.rows.reserved_homes.max(above.0)).await
    }

    async fn put_pending(&self, fan_out: FanOut) -> Result<(), CommitError> {
        let put = |inner: &mut WorldState| {
            inner.rows.put_pending(fan_out.clone())?;
            inner.fan_out_begins(fan_out);
            Ok(())
        };
        self.write(put).await?
    }

    async fn advance_pending(&self, id: &DeliveryId, done_to: HomeId) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.advance_pending(id, done_to)).await
    }

    async fn finish_pending(
        &self,
        id: &DeliveryId,
        applied: bool,
        reason: String,
    ) -> Result<(), CommitError> {
        let finish_delivery = |inner: &mut WorldState| {
            inner.rows.finish_delivery(id, DeliveryState::Done, applied, reason);
            inner.fan_out_ends(id);
        };
        self.write(finish_delivery).await
    }

    async fn fail_pending(&self, id: &DeliveryId, error: String) -> Result<(), CommitError> {
        let fail = |inner: &mut WorldState| {
            inner.rows.fail_pending(id, error);
            inner.fan_out_fails(id);
        };
        self.write(fail).await
    }

    async fn put_holds(&self, holds: Vec<Hold>) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.put_holds(holds)).await
    }

    async fn remove_hold(&self, scope: &HoldScope) -> Result<bool, CommitError> {
        // From when that is durable it may be on no more, also if a crash comes before the answer.
        let remove = |inner: &mut WorldState| {
            inner.ledger.held.remove(&scope.folded());
            inner.rows.remove_hold(scope)
        };
        self.write(remove).await
    }

    async fn put_orphans(&self, orphans: Vec<Orphan>) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.put_orphans(orphans)).await
    }

    async fn remove_orphans(&self, keys: &[(ProviderName, ExternalId)]) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.remove_orphans(keys)).await
    }

    async fn put_identity(
        &self,
        provider: &ProviderName,
        identity: &str,
    ) -> Result<(), CommitError> {
        self.write(|inner| inner.rows.put_identity(provider, identity)).await
    }

    async fn prune(&self, _: PruneAsk) -> Result<u64, CommitError> {
        Ok(0)
    }

    async fn deliveries(
        &self,
        _: &DeliveryFilter,
        _: &PageAsk,
    ) -> Result<Page<DeliveryListRow>, StoreError> {
        Err(StoreError::Failed("the engine never lists".into()))
    }

    async fn sandboxes(
        &self,
        _: &AccountName,
        _: &SandboxFilter,
        _: &PageAsk,
    ) -> Result<Page<Sandbox>, StoreError> {
        Err(StoreError::Failed("the engine never lists".into()))
    }

    async fn timeline(
        &self,
        home: HomeId,
        page: &PageAsk,
    ) -> Result<Page<TimelineListRow>, StoreError> {
        let items = self.read(|inner| inner.stored.latest(home, page.limit)).await?;
        let total = items.len() as u64;
        Ok(Page { items, next: None, total })
    }

    async fn counts(&self, _: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        Err(StoreError::Failed("the engine never counts".into()))
    }

    async fn check(&self) -> Result<(), StoreError> {
        if !self.life.step() {
            return std::future::pending().await;
        }
        let answer = self.life.world().with(|inner| inner.hand_in(None));
        match answer.await {
            Ok(result) => result.map_err(|error| StoreError::Failed(error.to_string())),
            Err(_) => std::future::pending().await,
        }
    }
}
