//! A store that works, fails or is overloaded as a test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use issuebox::issue::Issue;
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
}

impl MoodyStore {
    /// A store that works.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, mood: AtomicU8::new(Mood::Works as u8) }
    }

    /// From now on it is like this.
    pub fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
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
        if self.is(Mood::Overloaded) {
            return Box::pin(async { Err(CommitError::Overloaded) });
        }
        if self.is(Mood::Fails) {
            return Box::pin(async { Err(CommitError::Failed("by a test".into())) });
        }
        self.inner.commit(write)
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
    ) -> Result<Page<TimelineEntry>, StoreError> {
        self.read()?.timeline(home, page).await
    }

    async fn counts(&self, account: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        self.read()?.counts(account).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.read()?.check().await
    }
}
