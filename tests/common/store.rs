//! A store that works, fails or is overloaded as a test wants.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use issuebox::issue::{EffectKind, FanOut, Issue, Scope};
use issuebox::store::access::AccessStore;
use issuebox::store::*;
use issuebox::types::*;

/// How the store is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mood {
    /// Everything works.
    Works,
    /// Every read and write fails.
    Fails,
    /// Every write is refused for want of room.
    Overloaded,
}

/// The store and its mood.
pub struct MoodyStore {
    inner: Arc<dyn Store>,
    mood: AtomicU8,
    commit_ms: AtomicU64,
}

impl MoodyStore {
    /// A store that works.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, mood: AtomicU8::new(Mood::Works as u8), commit_ms: AtomicU64::new(0) }
    }

    /// From now on it is like this.
    pub fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// From now on a commit takes at least this many milliseconds.
    #[allow(dead_code, reason = "not every user of this file slows it down")]
    pub fn slow_down(&self, commit_ms: u64) {
        self.commit_ms.store(commit_ms, Ordering::SeqCst);
    }

    fn is(&self, mood: Mood) -> bool {
        self.mood.load(Ordering::SeqCst) == mood as u8
    }

    fn read(&self) -> Result<&Arc<dyn Store>, StoreError> {
        if self.is(Mood::Fails) {
            Err(StoreError::Failed("by a test".into()))
        } else {
            Ok(&self.inner)
        }
    }

    fn write(&self) -> Result<&Arc<dyn Store>, CommitError> {
        if self.is(Mood::Overloaded) {
            return Err(CommitError::Overloaded);
        }
        if self.is(Mood::Fails) {
            return Err(CommitError::Failed("by a test".into()));
        }
        Ok(&self.inner)
    }
}

#[async_trait]
impl Store for MoodyStore {
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }

    fn next_home(&self) -> HomeId {
        self.inner.next_home()
    }

    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>> {
        match self.write() {
            Ok(inner) => {
                let commit = inner.commit(write);
                match self.commit_ms.load(Ordering::SeqCst) {
                    0 => commit,
                    ms => Box::pin(async move {
                        let pause = tokio::time::sleep(Duration::from_millis(ms));
                        tokio::join!(commit, pause).0
                    }),
                }
            }
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    async fn load(&self, home: HomeId) -> Result<Option<Issue>, StoreError> {
        self.read()?.load(home).await
    }

    async fn resolve(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, StoreError> {
        self.read()?.resolve(account, alias).await
    }

    async fn look(&self, account: &AccountName, ask: LookAsk<'_>) -> Result<Look, StoreError> {
        self.read()?.look(account, ask).await
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<DeliveryRow>, StoreError> {
        self.read()?.delivery(id).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<HomeId>, StoreError> {
        self.read()?.due(now, limit).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read()?.next_due().await
    }

    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError> {
        self.read()?.live(after, limit).await
    }

    async fn sandbox(
        &self,
        account: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError> {
        self.read()?.sandbox(account, id).await
    }

    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError> {
        self.read()?.newest_sandbox(home).await
    }

    async fn sandboxes(
        &self,
        account: &AccountName,
        filter: &SandboxFilter,
        page: &PageAsk,
    ) -> Result<Page<Sandbox>, StoreError> {
        self.read()?.sandboxes(account, filter, page).await
    }

    async fn timeline(
        &self,
        home: HomeId,
        page: &PageAsk,
    ) -> Result<Page<TimelineListRow>, StoreError> {
        self.read()?.timeline(home, page).await
    }

    async fn reserve_homes(&self, above: HomeId) -> Result<(), CommitError> {
        self.write()?.reserve_homes(above).await
    }

    async fn homes(
        &self,
        scope: &Scope,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        self.read()?.homes(scope, after, limit).await
    }

    async fn unsettled_at(
        &self,
        provider: &ProviderName,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        self.read()?.unsettled_at(provider, after, limit).await
    }

    async fn pending_starts(
        &self,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<PendingStartRow>, StoreError> {
        self.read()?.pending_starts(skip, limit).await
    }

    async fn deleted(&self, ids: &[SandboxId]) -> Result<HashSet<SandboxId>, StoreError> {
        self.read()?.deleted(ids).await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        page: &PageAsk,
    ) -> Result<Page<DeliveryListRow>, StoreError> {
        self.read()?.deliveries(filter, page).await
    }

    async fn instructions(
        &self,
        home: HomeId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<InstructionRow>, StoreError> {
        self.read()?.instructions(home, after, limit).await
    }

    async fn effects(&self, now: Timestamp, limit: usize) -> Result<Vec<EffectRow>, StoreError> {
        self.read()?.effects(now, limit).await
    }

    async fn next_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.read()?.next_effect(now).await
    }

    async fn effect_counts(&self) -> Result<Vec<(EffectKind, u64)>, StoreError> {
        self.read()?.effect_counts().await
    }

    async fn finish_effect(&self, id: EffectId) -> Result<(), CommitError> {
        self.write()?.finish_effect(id).await
    }

    async fn delay_effect(&self, id: EffectId, delay: EffectDelay) -> Result<(), CommitError> {
        self.write()?.delay_effect(id, delay).await
    }

    async fn put_pending(&self, fan_out: FanOut) -> Result<(), CommitError> {
        self.write()?.put_pending(fan_out).await
    }

    async fn pending(&self, limit: usize) -> Result<Vec<PendingRow>, StoreError> {
        self.read()?.pending(limit).await
    }

    async fn advance_pending(&self, id: &DeliveryId, done_to: HomeId) -> Result<(), CommitError> {
        self.write()?.advance_pending(id, done_to).await
    }

    async fn finish_pending(
        &self,
        id: &DeliveryId,
        applied: bool,
        reason: String,
    ) -> Result<(), CommitError> {
        self.write()?.finish_pending(id, applied, reason).await
    }

    async fn fail_pending(&self, id: &DeliveryId, error: String) -> Result<(), CommitError> {
        self.write()?.fail_pending(id, error).await
    }

    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.read()?.holds().await
    }

    async fn put_holds(&self, holds: Vec<Hold>) -> Result<(), CommitError> {
        self.write()?.put_holds(holds).await
    }

    async fn remove_hold(&self, scope: &HoldScope) -> Result<bool, CommitError> {
        self.write()?.remove_hold(scope).await
    }

    async fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        self.read()?.orphans().await
    }

    async fn put_orphans(&self, orphans: Vec<Orphan>) -> Result<(), CommitError> {
        self.write()?.put_orphans(orphans).await
    }

    async fn remove_orphans(&self, keys: &[(ProviderName, ExternalId)]) -> Result<(), CommitError> {
        self.write()?.remove_orphans(keys).await
    }

    async fn identities(&self) -> Result<Vec<(ProviderName, String)>, StoreError> {
        self.read()?.identities().await
    }

    async fn put_identity(
        &self,
        provider: &ProviderName,
        identity: &str,
    ) -> Result<(), CommitError> {
        self.write()?.put_identity(provider, identity).await
    }

    async fn prune(&self, ask: PruneAsk) -> Result<u64, CommitError> {
        self.write()?.prune(ask).await
    }

    async fn counts(&self, account: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        self.read()?.counts(account).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.read()?.check().await
    }
}

/// Tokens and accounts in the mood of a store.
pub struct MoodyAccess {
    pub mood: Arc<MoodyStore>,
    pub inner: Arc<dyn AccessStore>,
}

#[async_trait]
impl AccessStore for MoodyAccess {
    async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        self.mood.read()?;
        self.inner.tokens().await
    }

    async fn put_token(&self, token: ApiToken) -> Result<(), CommitError> {
        self.mood.write()?;
        self.inner.put_token(token).await
    }

    async fn remove_token(&self, id: &TokenId) -> Result<(), CommitError> {
        self.mood.write()?;
        self.inner.remove_token(id).await
    }

    async fn note_uses(&self, uses: Vec<(TokenId, Timestamp)>) -> Result<(), CommitError> {
        self.mood.write()?;
        self.inner.note_uses(uses).await
    }

    async fn accounts(&self) -> Result<Vec<(AccountName, AccountRules)>, StoreError> {
        self.mood.read()?;
        self.inner.accounts().await
    }

    async fn put_account(&self, name: AccountName, rules: AccountRules) -> Result<(), CommitError> {
        self.mood.write()?;
        self.inner.put_account(name, rules).await
    }
}
