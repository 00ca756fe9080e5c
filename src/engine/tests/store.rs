//! A store in memory that can be held, and made to fail; it outlives every engine of a test.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::rows::TestRows;
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

pub struct HeldStore {
    rows: Mutex<TestRows>,
    fail_next: Mutex<Option<(u32, CommitError)>>,
    /// A home whose commits all fail.
    broken: Mutex<Option<HomeId>>,
    pruning: Mutex<Pruning>,
    fail_next_finish: AtomicBool,
    last_home: AtomicI64,
    /// Whether commits go through.
    open: watch::Sender<bool>,
    /// Whether the newest sandbox of a home is answered at once.
    reads_open: watch::Sender<bool>,
    /// Whether a provider's identity is stored at once.
    identities_open: watch::Sender<bool>,
}

/// What pruning was asked for, and how many rows it finds.
#[derive(Default)]
struct Pruning {
    asks: Vec<PruneAsk>,
    left: u64,
}

impl Default for HeldStore {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            fail_next: Mutex::default(),
            broken: Mutex::default(),
            pruning: Mutex::default(),
            fail_next_finish: AtomicBool::new(false),
            last_home: AtomicI64::new(0),
            open: watch::Sender::new(true),
            reads_open: watch::Sender::new(true),
            identities_open: watch::Sender::new(true),
        }
    }
}

impl HeldStore {
    fn rows(&self) -> MutexGuard<'_, TestRows> {
        self.rows.lock().expect("no panic holds it")
    }

    pub fn begin_epoch(&self) {
        self.rows().epoch += 1;
    }

    /// Commits wait until [`Self::release`].
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// Whether identities are stored at once, or wait.
    pub fn hold_identities(&self, held: bool) {
        self.identities_open.send_replace(!held);
    }

    /// How many identities wait to be stored.
    pub fn waiting_identities(&self) -> usize {
        self.identities_open.receiver_count()
    }

    /// The newest sandbox of a home is read and not answered until [`Self::release_reads`].
    pub fn hold_reads(&self) {
        self.reads_open.send_replace(false);
    }

    pub fn release_reads(&self) {
        self.reads_open.send_replace(true);
    }

    /// How many reads wait for their answer.
    pub fn waiting_reads(&self) -> usize {
        self.reads_open.receiver_count()
    }

    pub fn fail_next(&self, error: CommitError) {
        self.fail_after(0, error);
    }

    /// The commit behind the next `count` fails.
    pub fn fail_after(&self, count: u32, error: CommitError) {
        *self.fail_next.lock().expect("no panic holds it") = Some((count, error));
    }

    /// Every commit of this home fails, from now on.
    pub fn break_home(&self, home: Option<HomeId>) {
        *self.broken.lock().expect("no panic holds it") = home;
    }

    /// Whether the failure that was armed has struck.
    pub fn has_failed(&self) -> bool {
        self.fail_next.lock().expect("no panic holds it").is_none()
    }

    /// How many commits wait for their result.
    pub fn waiting(&self) -> usize {
        self.open.receiver_count()
    }

    /// The failure that strikes the commit which is handed in now.
    fn limit_event(&self) -> Option<CommitError> {
        let mut armed = self.fail_next.lock().expect("no panic holds it");
        match armed.take()? {
            (0, error) => Some(error),
            (count, error) => {
                *armed = Some((count - 1, error));
                None
            }
        }
    }

    /// So many rows are too old.
    pub fn set_prunable(&self, rows: u64) {
        self.pruning.lock().expect("no panic holds it").left = rows;
    }

    /// What pruning was asked for.
    pub fn prunes(&self) -> Vec<PruneAsk> {
        self.pruning.lock().expect("no panic holds it").asks.clone()
    }

    pub fn issue(&self, home: i64) -> Option<Issue> {
        self.rows().issues.get(&HomeId(home)).cloned()
    }

    /// How many effects are in the outbox.
    pub fn outbox(&self) -> usize {
        self.rows().outbox.len()
    }

    /// Whether an effect was delayed.
    pub fn is_delayed(&self) -> bool {
        self.rows().outbox.iter().any(|row| row.due_at > Timestamp::from_unix_ms(0))
    }

    /// Removing the next effect from the outbox fails.
    pub fn fail_next_finish(&self) {
        self.fail_next_finish.store(true, Ordering::SeqCst);
    }

    pub fn deliveries(&self) -> usize {
        self.rows().deliveries.len()
    }
}

#[async_trait]
impl Store for HeldStore {
    fn epoch(&self) -> Epoch {
        Epoch(self.rows().epoch)
    }

    fn instance(&self) -> InstanceId {
        InstanceId::trusted("test-instance")
    }

    fn next_home(&self) -> HomeId {
        HomeId(self.last_home.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>> {
        // Applied in the order of calls, answered once released.
        let broken = *self.broken.lock().expect("no panic holds it");
        let breaks = broken.is_some() && write.issue.as_ref().map(|issue| issue.home) == broken;
        let full = || CommitError::Failed("the disk is full".into());
        let armed = if breaks { Some(full()) } else { self.limit_event() };
        let mut rows = self.rows();
        let epoch = Epoch(rows.epoch);
        let result = armed.map_or_else(|| rows.apply(epoch, &write), Err);
        drop(rows);
        let mut open = self.open.subscribe();
        async move {
            open.wait_for(|open| *open).await.expect("the store lives as long as the test");
            result
        }
        .boxed()
    }

    async fn load(&self, home: HomeId) -> Result<Option<Issue>, StoreError> {
        Ok(self.rows().issues.get(&home).cloned())
    }

    async fn resolve(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, StoreError> {
        Ok(self.rows().resolve(account, alias))
    }

    async fn look(&self, account: &AccountName, ask: LookAsk<'_>) -> Result<Look, StoreError> {
        Ok(self.rows().look(account, ask))
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<DeliveryRow>, StoreError> {
        Ok(self.rows().deliveries.get(id).cloned())
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<HomeId>, StoreError> {
        Ok(self.rows().due(now, limit))
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.rows().next_due())
    }

    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError> {
        Ok(self.rows().live(after, limit))
    }

    async fn sandbox(
        &self,
        _: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError> {
        Ok(self.rows().sandbox(id))
    }

    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError> {
        let newest = self.rows().newest(home);
        let mut open = self.reads_open.subscribe();
        open.wait_for(|open| *open).await.expect("the store lives as long as the test");
        Ok(newest)
    }

    async fn homes(
        &self,
        scope: &Scope,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        Ok(self.rows().homes(scope, after, limit))
    }

    async fn unsettled_at(
        &self,
        provider: &ProviderName,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        Ok(self.rows().unsettled_at(provider, after, limit))
    }

    async fn pending_starts(
        &self,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<PendingStartRow>, StoreError> {
        Ok(self.rows().pending_starts(skip, limit))
    }

    async fn deleted(&self, ids: &[SandboxId]) -> Result<HashSet<SandboxId>, StoreError> {
        Ok(self.rows().deleted(ids))
    }

    async fn pending(&self, limit: usize) -> Result<Vec<PendingRow>, StoreError> {
        Ok(self.rows().pending(limit))
    }

    async fn effects(&self, now: Timestamp, limit: usize) -> Result<Vec<EffectRow>, StoreError> {
        Ok(self.rows().effects(now, limit))
    }

    async fn next_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.rows().next_effect(now))
    }

    async fn effect_counts(&self) -> Result<Vec<(EffectKind, u64)>, StoreError> {
        Ok(self.rows().effect_counts())
    }

    async fn finish_effect(&self, id: EffectId) -> Result<(), CommitError> {
        if self.fail_next_finish.swap(false, Ordering::SeqCst) {
            return Err(CommitError::Failed("the disk is full".into()));
        }
        self.rows().finish_effect(id);
        Ok(())
    }

    async fn delay_effect(&self, id: EffectId, delay: EffectDelay) -> Result<(), CommitError> {
        self.rows().delay_effect(id, &delay);
        Ok(())
    }

    async fn instructions(
        &self,
        _: HomeId,
        _: i64,
        _: usize,
    ) -> Result<Vec<InstructionRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        Ok(self.rows().holds.clone())
    }

    async fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        Ok(self.rows().orphans())
    }

    async fn identities(&self) -> Result<Vec<(ProviderName, String)>, StoreError> {
        Ok(self.rows().identities())
    }

    async fn reserve_homes(&self, above: HomeId) -> Result<(), CommitError> {
        self.last_home.fetch_max(above.0, Ordering::SeqCst);
        Ok(())
    }

    async fn put_pending(&self, fan_out: FanOut) -> Result<(), CommitError> {
        self.rows().put_pending(fan_out)
    }

    async fn advance_pending(&self, id: &DeliveryId, done_to: HomeId) -> Result<(), CommitError> {
        self.rows().advance_pending(id, done_to);
        Ok(())
    }

    async fn finish_pending(
        &self,
        id: &DeliveryId,
        applied: bool,
        reason: String,
    ) -> Result<(), CommitError> {
        self.rows().finish_delivery(id, DeliveryState::Done, applied, reason);
        Ok(())
    }

    async fn fail_pending(&self, id: &DeliveryId, error: String) -> Result<(), CommitError> {
        self.rows().fail_pending(id, error);
        Ok(())
    }

    async fn put_holds(&self, holds: Vec<Hold>) -> Result<(), CommitError> {
        self.rows().put_holds(holds);
        Ok(())
    }

    async fn remove_hold(&self, scope: &HoldScope) -> Result<bool, CommitError> {
        Ok(self.rows().remove_hold(scope))
    }

    async fn put_orphans(&self, orphans: Vec<Orphan>) -> Result<(), CommitError> {
        self.rows().put_orphans(orphans);
        Ok(())
    }

    async fn remove_orphans(&self, keys: &[(ProviderName, ExternalId)]) -> Result<(), CommitError> {
        self.rows().remove_orphans(keys);
        Ok(())
    }

    async fn put_identity(
        &self,
        provider: &ProviderName,
        identity: &str,
    ) -> Result<(), CommitError> {
        let mut open = self.identities_open.subscribe();
        open.wait_for(|open| *open).await.expect("the store lives as long as the test");
        self.rows().put_identity(provider, identity);
        Ok(())
    }

    async fn prune(&self, ask: PruneAsk) -> Result<u64, CommitError> {
        let mut pruning = self.pruning.lock().expect("no panic holds it");
        pruning.asks.push(ask);
        if let Some(error) = self.limit_event() {
            return Err(error);
        }
        let removed = pruning.left.min(ask.limit as u64);
        pruning.left -= removed;
        Ok(removed)
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

    async fn timeline(&self, _: HomeId, _: &PageAsk) -> Result<Page<TimelineListRow>, StoreError> {
        Err(StoreError::Failed("the engine never reads a timeline".into()))
    }

    async fn counts(&self, _: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        Err(StoreError::Failed("the engine never counts".into()))
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
