//! The embedded store: SQLite in the data directory.
//!
//! # How it keeps the contract
//! - **Atomicity, order, durability** come from one writer thread (`writer`): a queue in call
//!   order, one transaction for all that waits, a refused write undone alone, answers after the
//!   COMMIT, with `synchronous=FULL` in WAL mode. A second thread folds the log back (`checkpoints`).
//! - **Fencing** has three walls: the kernel's lock on the data directory keeps a second server
//!   out, the stored epoch is compared in every transaction, and an update names the version that
//!   it follows.
//! - **Uniqueness** is what the tables' keys refuse (`apply`).
//!
//! Reads run on the calling thread and return ready futures. They take tens of microseconds from
//! the page cache; handing them to another thread would cost more than that.
//!
//! # Races it accepts
//! A read sees what was committed when it began, so it may be older than a write that is under
//! way. That write was not acknowledged yet.

mod access;
mod apply;
mod backup;
mod checkouts;
mod checkpoints;
mod columns;
mod conversations;
mod github;
mod holds;
mod inspect;
mod installation;
mod instructions;
mod log_sync;
mod misplaced;
mod open;
mod outbox;
mod pages;
mod pending;
mod presence;
mod prune;
mod pulls;
mod read;
mod recovered;
mod reports;
mod schema;
mod sessions;
mod sweeps;
mod syncs;
mod trouble;
mod usage;
mod waiting;
mod writer;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rusqlite::Connection;

pub use backup::{BackupError, Restored};
use checkpoints::Checkpoints;
#[cfg(test)]
pub(crate) use github::OutboxInMemory;
pub use inspect::Inspected;
use log_sync::LogFile;
pub use misplaced::{LookError, Misplaced, MisplacedIssue};
pub use open::OpenError;
use presence::Presence;
use read::Readers;
use trouble::Troubles;
use writer::StoreWriter;

use super::{
    CommitError, DELIVERIES_KEPT_MIN, DeliveryFilter, DeliveryListRow, DeliveryRow, EffectDelay,
    EffectId, EffectRow, InstructionRow, Look, LookAsk, Orphan, Page, PageAsk, PendingRow,
    PendingStartRow, PruneAsk, SandboxFilter, Store, StoreError, TimelineListRow, Write,
    directory_of,
};
use crate::issue::{EffectKind, FanOut, Issue, Scope};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, ExternalId, Hold, HoldScope, HomeId, InstanceId, Phase,
    ProviderName, Sandbox, SandboxId, Timestamp,
};

/// [`Store`] on SQLite. Dropping it makes durable what is queued, waits for that, and gives the
/// data directory free.
#[derive(Debug)]
pub struct SqliteStore {
    epoch: Epoch,
    instance: InstanceId,
    next_home: AtomicI64,
    troubles: Arc<Troubles>,
    // Dropped in this order: the writer's connection is the last one, which folds the log back,
    // and only then may another server come in.
    readers: Readers,
    writer: StoreWriter,
    _lock: File,
    /// Dropped last: who holds the other end sees that everything else is closed.
    _closing: mpsc::Sender<()>,
    closed: Mutex<Option<mpsc::Receiver<()>>>,
}

impl SqliteStore {
    /// Opens the store in this data directory, with whatever is missing made (directory 0700,
    /// files 0600), an older layout migrated after a copy was kept, and a new epoch begun.
    ///
    /// # Errors
    /// [`OpenError`], whose message says what to do; [`OpenError::Gone`] if the database is missing
    /// or empty in a directory that was used.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::start(open::open(dir, false)?)
    }

    /// Begins a new installation in this data directory, whether it was used or not.
    ///
    /// # Errors
    /// As for [`SqliteStore::open`]; [`OpenError::NotNew`] if there is a database, and
    /// [`OpenError::LogLeft`] if there is the write-ahead log of one.
    pub fn open_new(dir: &Path) -> Result<Self, OpenError> {
        Self::start(open::open(dir, true)?)
    }

    fn start(opened: open::Opened) -> Result<Self, OpenError> {
        let (closing, closed) = mpsc::channel();
        let troubles = Arc::new(Troubles::default());
        let unusable = |error| OpenError::from_io(directory_of(&opened.path), error);
        let files = LogFile::open(&opened.path)
            .and_then(|log| Ok((log, Presence::of(&opened.path)?)))
            .map_err(unusable)?;
        let checkpoints = Checkpoints::start(&opened.path).map_err(OpenError::NoThread)?;
        let (epoch, noted) = (opened.epoch, Arc::clone(&troubles));
        let writer = StoreWriter::start(opened.writer, checkpoints, epoch, files, noted)
            .map_err(OpenError::NoThread)?;
        Ok(Self {
            epoch: opened.epoch,
            instance: opened.instance,
            next_home: AtomicI64::new(opened.next_home),
            readers: Readers::new(opened.path, Arc::clone(&troubles)),
            writer,
            troubles,
            _lock: opened.lock,
            _closing: closing,
            closed: Mutex::new(Some(closed)),
        })
    }

    /// A channel that is disconnected once the store is closed and the data directory is free.
    /// Given out once.
    pub fn closed(&self) -> Option<mpsc::Receiver<()>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Makes a change beside the steps of issues durable.
    async fn change(
        &self,
        chore: impl Fn(&Connection) -> Result<usize, CommitError> + Send + 'static,
    ) -> Result<(), CommitError> {
        self.writer.chore(chore).await.map(|_changed| ())
    }

    /// Removes at most `limit` old rows, bite by bite; says how many went.
    async fn prune_with(
        &self,
        bite: fn(&Connection, Timestamp, usize) -> Result<usize, CommitError>,
        before: Timestamp,
        limit: usize,
    ) -> Result<usize, CommitError> {
        let mut left = limit;
        while left > 0 {
            let rows = left.min(prune::BITE_ROWS_MAX);
            let removed = self.writer.chore(move |conn| bite(conn, before, rows)).await?;
            left -= removed.min(left);
            if removed < rows {
                break;
            }
        }
        Ok(limit - left)
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn instance(&self) -> InstanceId {
        self.instance.clone()
    }

    fn next_home(&self) -> HomeId {
        HomeId(self.next_home.fetch_add(1, Ordering::Relaxed))
    }

    async fn reserve_homes(&self, above: HomeId) -> Result<(), CommitError> {
        sweeps::check_reserved(above)?;
        self.next_home.fetch_max(above.0 + 1, Ordering::Relaxed);
        self.change(move |conn| sweeps::reserve_homes(conn, above)).await
    }

    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(self.writer.write(write))
    }

    async fn load(&self, home: HomeId) -> Result<Option<Issue>, StoreError> {
        self.readers.read(|conn| read::load(conn, home))
    }

    async fn resolve(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, StoreError> {
        self.readers.read(|conn| read::resolve(conn, account, alias))
    }

    async fn look(&self, account: &AccountName, ask: LookAsk<'_>) -> Result<Look, StoreError> {
        self.readers.read(|conn| read::look(conn, account, &ask))
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<DeliveryRow>, StoreError> {
        self.readers.read(|conn| read::delivery(conn, id))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<HomeId>, StoreError> {
        self.readers.read(|conn| read::due(conn, now, limit))
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(read::next_due)
    }

    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError> {
        self.readers.read(|conn| read::live(conn, &self.troubles, after, limit))
    }

    async fn sandbox(
        &self,
        account: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError> {
        self.readers.read(|conn| read::sandbox(conn, account, id))
    }

    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError> {
        self.readers.read(|conn| read::newest_sandbox(conn, home))
    }

    async fn sandboxes(
        &self,
        account: &AccountName,
        filter: &SandboxFilter,
        page: &PageAsk,
    ) -> Result<Page<Sandbox>, StoreError> {
        self.readers.read(|conn| pages::sandboxes(conn, &self.troubles, account, filter, page))
    }

    async fn timeline(
        &self,
        home: HomeId,
        page: &PageAsk,
    ) -> Result<Page<TimelineListRow>, StoreError> {
        self.readers.read(|conn| pages::timeline(conn, home, page))
    }

    async fn homes(
        &self,
        scope: &Scope,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        self.readers.read(|conn| read::homes(conn, scope, after, limit))
    }

    async fn unsettled_at(
        &self,
        provider: &ProviderName,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError> {
        self.readers.read(|conn| read::unsettled_at(conn, provider, after, limit))
    }

    async fn pending_starts(
        &self,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<PendingStartRow>, StoreError> {
        self.readers.read(|conn| read::pending_starts(conn, skip, limit))
    }

    async fn deleted(&self, ids: &[SandboxId]) -> Result<HashSet<SandboxId>, StoreError> {
        self.readers.read(|conn| sweeps::deleted(conn, ids))
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        page: &PageAsk,
    ) -> Result<Page<DeliveryListRow>, StoreError> {
        self.readers.read(|conn| pages::deliveries(conn, filter, page))
    }

    async fn instructions(
        &self,
        home: HomeId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<InstructionRow>, StoreError> {
        self.readers.read(|conn| instructions::list(conn, home, after, limit))
    }

    async fn effects(&self, now: Timestamp, limit: usize) -> Result<Vec<EffectRow>, StoreError> {
        self.readers.read(|conn| outbox::list(conn, &self.troubles, now, limit))
    }

    async fn next_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(|conn| outbox::next_due(conn, now))
    }

    async fn effect_counts(&self) -> Result<Vec<(EffectKind, u64)>, StoreError> {
        self.readers.read(outbox::counts)
    }

    async fn finish_effect(&self, id: EffectId) -> Result<(), CommitError> {
        self.change(move |conn| outbox::finish(conn, id)).await
    }

    async fn delay_effect(&self, id: EffectId, delay: EffectDelay) -> Result<(), CommitError> {
        self.change(move |conn| outbox::delay(conn, id, &delay)).await
    }

    async fn put_pending(&self, fan_out: FanOut) -> Result<(), CommitError> {
        self.change(move |conn| pending::put(conn, &fan_out)).await
    }

    async fn pending(&self, limit: usize) -> Result<Vec<PendingRow>, StoreError> {
        self.readers.read(|conn| pending::list(conn, &self.troubles, limit))
    }

    async fn advance_pending(&self, id: &DeliveryId, done_to: HomeId) -> Result<(), CommitError> {
        let id = id.clone();
        self.change(move |conn| pending::advance(conn, &id, done_to)).await
    }

    async fn finish_pending(
        &self,
        id: &DeliveryId,
        applied: bool,
        reason: String,
    ) -> Result<(), CommitError> {
        let id = id.clone();
        self.change(move |conn| pending::finish(conn, &id, applied, &reason)).await
    }

    async fn fail_pending(&self, id: &DeliveryId, error: String) -> Result<(), CommitError> {
        let id = id.clone();
        self.change(move |conn| pending::fail(conn, &id, &error)).await
    }

    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.readers.read(holds::list)
    }

    async fn put_holds(&self, all: Vec<Hold>) -> Result<(), CommitError> {
        self.change(move |conn| holds::put(conn, &all)).await
    }

    async fn remove_hold(&self, scope: &HoldScope) -> Result<bool, CommitError> {
        let scope = scope.clone();
        let removed = self.writer.chore(move |conn| holds::remove(conn, &scope)).await?;
        Ok(removed > 0)
    }

    async fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        self.readers.read(sweeps::orphans)
    }

    async fn put_orphans(&self, orphans: Vec<Orphan>) -> Result<(), CommitError> {
        self.change(move |conn| sweeps::put_orphans(conn, &orphans)).await
    }

    async fn remove_orphans(&self, keys: &[(ProviderName, ExternalId)]) -> Result<(), CommitError> {
        let keys = keys.to_vec();
        self.change(move |conn| sweeps::remove_orphans(conn, &keys)).await
    }

    async fn identities(&self) -> Result<Vec<(ProviderName, String)>, StoreError> {
        self.readers.read(sweeps::identities)
    }

    async fn put_identity(
        &self,
        provider: &ProviderName,
        identity: &str,
    ) -> Result<(), CommitError> {
        let (provider, identity) = (provider.clone(), identity.to_owned());
        self.change(move |conn| sweeps::put_identity(conn, &provider, &identity)).await
    }

    async fn prune(&self, ask: PruneAsk) -> Result<u64, CommitError> {
        let PruneAsk { now, deliveries_before, timeline_before, deleted_before, limit } = ask;
        let redelivered_since = now.before(DELIVERIES_KEPT_MIN);
        let mut left = limit;
        if let Some(before) = deliveries_before {
            let before = before.min(redelivered_since);
            left -= self.prune_with(prune::deliveries, before, left).await?;
        }
        if let Some(before) = timeline_before {
            left -= self.prune_with(prune::timeline, before, left).await?;
        }
        if let Some(before) = deleted_before {
            left -= self.prune_with(prune::deleted, before, left).await?;
        }
        Ok((limit - left) as u64)
    }

    async fn counts(&self, account: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        self.readers.read(|conn| read::counts(conn, account))
    }

    async fn check(&self) -> Result<(), StoreError> {
        match self.writer.probe().await {
            Ok(_changed) => Ok(()),
            Err(CommitError::Damaged { path, what }) => Err(StoreError::Damaged { path, what }),
            Err(error) => {
                let failed = || StoreError::Failed(error.to_string());
                Err(self.troubles.replaced().unwrap_or_else(failed))
            }
        }
    }

    fn troubles(&self) -> Vec<StoreError> {
        self.troubles.list()
    }
}
