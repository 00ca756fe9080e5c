//! The embedded store: SQLite in the data directory.
//!
//! # How it keeps the contract
//! - **Atomicity, order, durability** come from one writer thread (`writer`): a queue in call
//!   order, one transaction for all that waits, a refused write undone alone, answers after the
//!   COMMIT, with `synchronous=FULL` in WAL mode.
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
//! way. Nobody was told of that write yet.

mod apply;
mod open;
mod pages;
mod read;
mod rows;
mod schema;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

pub use open::OpenError;
use read::Readers;
use writer::Writer;

use super::{
    CommitError, DeliveryRow, Look, LookAsk, Page, PageAsk, SandboxFilter, Store, StoreError, Write,
};
use crate::issue::Issue;
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, HomeId, InstanceId, Phase, Sandbox, SandboxId,
    TimelineEntry, Timestamp,
};

/// [`Store`] on SQLite. Dropping it makes durable what is queued, waits for that, and gives the
/// data directory free.
#[derive(Debug)]
pub struct SqliteStore {
    epoch: Epoch,
    instance: InstanceId,
    next_home: AtomicI64,
    // Dropped in this order: the writer's connection is the last one, which folds the log back,
    // and only then may another server come in.
    readers: Readers,
    writer: Writer,
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
    /// [`OpenError`], whose message says what to do.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let opened = open::open(dir)?;
        let (closing, closed) = mpsc::channel();
        Ok(Self {
            epoch: opened.epoch,
            instance: opened.instance,
            next_home: AtomicI64::new(opened.next_home),
            readers: Readers::new(opened.path),
            writer: Writer::start(opened.writer, opened.epoch).map_err(OpenError::NoThread)?,
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
        self.readers.read(|conn| read::live(conn, after, limit))
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
        self.readers.read(|conn| pages::sandboxes(conn, account, filter, page))
    }

    async fn timeline(
        &self,
        home: HomeId,
        page: &PageAsk,
    ) -> Result<Page<TimelineEntry>, StoreError> {
        self.readers.read(|conn| pages::timeline(conn, home, page))
    }

    async fn counts(&self, account: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError> {
        self.readers.read(|conn| read::counts(conn, account))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.writer.probe().await.map_err(|error| StoreError::Failed(error.to_string()))
    }
}
