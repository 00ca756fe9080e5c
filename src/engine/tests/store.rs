//! A store in memory that can be held, and told to fail; it outlives every engine of a test.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::issue::Issue;
use crate::store::{
    CommitError, DeliveryRow, Look, LookAsk, Page, PageAsk, SandboxFilter, Store, StoreError, Write,
};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, HomeId, InstanceId, Phase, Sandbox, SandboxId,
    TimelineEntry, Timestamp,
};

pub struct HeldStore {
    rows: Mutex<Rows>,
    last_home: AtomicI64,
    epoch: AtomicU64,
    /// Whether commits go through.
    open: watch::Sender<bool>,
}

#[derive(Default)]
struct Rows {
    issues: BTreeMap<HomeId, Issue>,
    aliases: HashMap<String, HomeId>,
    deliveries: HashMap<DeliveryId, DeliveryRow>,
    history: Vec<Sandbox>,
    fail_next: Option<CommitError>,
}

impl Default for HeldStore {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            last_home: AtomicI64::new(0),
            epoch: AtomicU64::new(0),
            open: watch::Sender::new(true),
        }
    }
}

impl HeldStore {
    pub fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Commits wait until [`Self::release`].
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn release(&self) {
        self.open.send_replace(true);
    }

    pub fn fail_next(&self, error: CommitError) {
        self.rows.lock().expect("no panic holds it").fail_next = Some(error);
    }

    /// Whether the failure that was armed has struck.
    pub fn has_failed(&self) -> bool {
        self.rows.lock().expect("no panic holds it").fail_next.is_none()
    }

    /// How many commits wait to be told how they ended.
    pub fn waiting(&self) -> usize {
        self.open.receiver_count()
    }

    pub fn issue(&self, home: i64) -> Option<Issue> {
        self.rows.lock().expect("no panic holds it").issues.get(&HomeId(home)).cloned()
    }

    pub fn deliveries(&self) -> usize {
        self.rows.lock().expect("no panic holds it").deliveries.len()
    }
}

fn key(alias: &Alias) -> String {
    alias.to_string().to_ascii_lowercase()
}

impl Rows {
    fn apply(&mut self, write: Write) -> Result<(), CommitError> {
        if let Some(error) = self.fail_next.take() {
            return Err(error);
        }
        if let Some(delivery) = &write.delivery
            && self.deliveries.contains_key(&delivery.id)
        {
            return Err(CommitError::DuplicateDelivery);
        }
        if let Some(issue) = &write.issue {
            let stored = self.issues.get(&issue.home).map_or(0, |issue| issue.version);
            if issue.version != stored + 1 {
                return Err(CommitError::Fenced);
            }
            let taken =
                |alias: &&Alias| self.aliases.get(&key(alias)).is_some_and(|h| *h != issue.home);
            if write.aliases.iter().any(|alias| taken(&alias)) {
                return Err(CommitError::AliasTaken);
            }
            self.aliases.extend(write.aliases.iter().map(|alias| (key(alias), issue.home)));
            self.issues.insert(issue.home, issue.clone());
        }
        self.history.extend(write.ended);
        self.deliveries.extend(write.delivery.map(|row| (row.id.clone(), row)));
        Ok(())
    }

    fn newest(&self, home: HomeId) -> Option<Sandbox> {
        let live = self.issues.get(&home).and_then(Issue::sandbox);
        live.or_else(|| self.history.iter().rfind(|sandbox| sandbox.home == home).cloned())
    }
}

#[async_trait]
impl Store for HeldStore {
    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    fn instance(&self) -> InstanceId {
        InstanceId::trusted("test-instance")
    }

    fn next_home(&self) -> HomeId {
        HomeId(self.last_home.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>> {
        // Applied in the order of calls, told once released.
        let result = self.rows.lock().expect("no panic holds it").apply(write);
        let mut open = self.open.subscribe();
        async move {
            open.wait_for(|open| *open).await.expect("the store lives as long as the test");
            result
        }
        .boxed()
    }

    async fn load(&self, home: HomeId) -> Result<Option<Issue>, StoreError> {
        Ok(self.rows.lock().expect("no panic holds it").issues.get(&home).cloned())
    }

    async fn resolve(&self, _: &AccountName, alias: &Alias) -> Result<Option<HomeId>, StoreError> {
        Ok(self.rows.lock().expect("no panic holds it").aliases.get(&key(alias)).copied())
    }

    async fn look(&self, _: &AccountName, ask: LookAsk<'_>) -> Result<Look, StoreError> {
        let rows = self.rows.lock().expect("no panic holds it");
        let home = |alias: Alias| rows.aliases.get(&key(&alias)).copied();
        Ok(Look {
            delivery: ask.delivery.and_then(|id| rows.deliveries.get(id).cloned()),
            by_issue: ask.issue.and_then(|id| home(Alias::Issue(id.clone()))),
            by_number: ask.numbered.and_then(|(of, nr)| home(Alias::Numbered(of.clone(), nr))),
        })
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<DeliveryRow>, StoreError> {
        Ok(self.rows.lock().expect("no panic holds it").deliveries.get(id).cloned())
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<HomeId>, StoreError> {
        let rows = self.rows.lock().expect("no panic holds it");
        let due = |issue: &&Issue| issue.due_at().is_some_and(|due| due <= now);
        Ok(rows.issues.values().filter(due).map(|issue| issue.home).take(limit).collect())
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let rows = self.rows.lock().expect("no panic holds it");
        Ok(rows.issues.values().filter_map(|issue| issue.due_at()).min())
    }

    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError> {
        let rows = self.rows.lock().expect("no panic holds it");
        let later = |issue: &&Issue| Some(issue.home) > after && issue.sandbox().is_some();
        Ok(rows.issues.values().filter(later).take(limit).cloned().collect())
    }

    async fn sandbox(
        &self,
        _: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError> {
        let rows = self.rows.lock().expect("no panic holds it");
        let live = rows.issues.values().filter_map(Issue::sandbox).find(|s| s.id == *id);
        Ok(live.or_else(|| rows.history.iter().find(|s| s.id == *id).cloned()))
    }

    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError> {
        Ok(self.rows.lock().expect("no panic holds it").newest(home))
    }

    async fn sandboxes(
        &self,
        _: &AccountName,
        _: &SandboxFilter,
        _: &PageAsk,
    ) -> Result<Page<Sandbox>, StoreError> {
        Err(StoreError::Failed("the engine never lists".into()))
    }

    async fn timeline(&self, _: HomeId, _: &PageAsk) -> Result<Page<TimelineEntry>, StoreError> {
        Err(StoreError::Failed("the engine never reads a timeline".into()))
    }

    async fn counts(&self, _: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        Err(StoreError::Failed("the engine never counts".into()))
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
