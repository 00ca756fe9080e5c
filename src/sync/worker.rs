//! Carries out syncs, one of a sandbox at a time, and records the last one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use super::cache::ManifestCache;
use super::collect::{Collected, collect};
use super::pull::pull;
use super::push::{Pushed, Unchanged, push};
use super::read::SyncPlace;
use super::retention::SyncRetention;
use super::storage::SandboxStorage;
use super::turns::Turns;
use super::view::{SyncedTree, SyncedVersions};
use super::{OpenStorage, SyncError};
use crate::clock::Clock;
use crate::store::StoreError;
use crate::store::sync::{SyncRow, SyncStore};
use crate::types::{AccountName, SandboxId, SyncDirection, SyncVersion};

/// Sandboxes whose syncs are read at once for a collection.
const COLLECT_PAGE: usize = 100;

/// Carries out syncs.
#[derive(Clone)]
pub struct SyncWorker {
    storage: Arc<dyn ObjectStore>,
    prefix: Path,
    rows: Arc<dyn SyncStore>,
    clock: Arc<dyn Clock>,
    io: Handle,
    manifests: ManifestCache,
    /// Of the sandboxes with a sync under way.
    turns: Turns<SandboxId>,
    collected: Arc<Mutex<CollectedVersions>>,
}

/// The sandboxes that need no collection as long as they have so many versions, and this newest one.
type CollectedVersions = HashMap<SandboxId, (usize, Option<SyncVersion>)>;

/// A sandbox, by whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncSubject {
    /// Its account.
    pub account: AccountName,
    /// Its id.
    pub sandbox: SandboxId,
}

/// What is asked of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOrder {
    /// Store the workspace as a new version.
    Push,
    /// The same if the last sync ended longer ago than this, and if something changed since.
    PushIfStale(Duration),
    /// Bring the workspace to a version, or to the newest one.
    Pull(Option<SyncVersion>),
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// The sandbox's last sync.
    pub row: SyncRow,
    /// Whether that is an earlier one, since it ended recently enough.
    pub is_skipped: bool,
}

impl SyncWorker {
    /// A worker with an object storage. A sync runs on `io` and outlives the call that asks for it.
    pub fn new(
        storage: OpenStorage,
        rows: Arc<dyn SyncStore>,
        clock: Arc<dyn Clock>,
        io: Handle,
    ) -> Self {
        let OpenStorage { store, prefix } = storage;
        Self {
            storage: store,
            prefix,
            rows,
            clock,
            io,
            manifests: ManifestCache::default(),
            turns: Turns::default(),
            collected: Arc::default(),
        }
    }

    /// A sandbox's last sync.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn last(&self, sandbox: &SandboxId) -> Result<Option<SyncRow>, StoreError> {
        self.rows.last_sync(sandbox).await
    }

    /// Pushes a workspace if something changed, unless its last sync ended less than `threshold` ago;
    /// see [`SyncWorker::sync`].
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn sync_if_stale(
        &self,
        subject: SyncSubject,
        place: SyncPlace,
        threshold: Duration,
        held: impl Send + 'static,
    ) -> Result<Synced, SyncError> {
        self.sync(subject, place, SyncOrder::PushIfStale(threshold), held).await
    }

    /// The last sync of a sandbox, if it ended less than `threshold` ago.
    ///
    /// # Errors
    /// [`SyncError::NotRecorded`].
    pub async fn fresh(
        &self,
        sandbox: &SandboxId,
        threshold: Duration,
    ) -> Result<Option<SyncRow>, SyncError> {
        let last = self.rows.last_sync(sandbox).await;
        let last = last.map_err(|error| SyncError::NotRecorded(error.to_string()))?;
        let now = self.clock.now();
        // One of the future is of a clock that was set back since.
        let is_fresh = |row: &SyncRow| row.synced_at <= now && now.since(row.synced_at) < threshold;
        Ok(last.filter(is_fresh))
    }

    /// Carries a sync out, after those of the same sandbox that were asked for before. `held` is
    /// dropped at its end.
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn sync(
        &self,
        subject: SyncSubject,
        place: SyncPlace,
        order: SyncOrder,
        held: impl Send + 'static,
    ) -> Result<Synced, SyncError> {
        self.begin(subject, place, order, held).await.unwrap_or(Err(SyncError::Ended))
    }

    /// The same, but dropping the future ends the sync, and leaves what a killed server leaves: the last
    /// whole version, and of a pull a part.
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn sync_while_awaited(
        &self,
        subject: SyncSubject,
        place: SyncPlace,
        order: SyncOrder,
    ) -> Result<Synced, SyncError> {
        let task = AbortOnDropHandle::new(self.begin(subject, place, order, ()));
        task.await.unwrap_or(Err(SyncError::Ended))
    }

    fn begin(
        &self,
        subject: SyncSubject,
        place: SyncPlace,
        order: SyncOrder,
        held: impl Send + 'static,
    ) -> JoinHandle<Result<Synced, SyncError>> {
        let worker = self.clone();
        self.io.spawn(async move {
            let turn = worker.turns.take(&subject.sandbox).await;
            let synced = worker.carry_out(&subject, &place, order).await;
            drop((turn, held));
            synced
        })
    }

    async fn carry_out(
        &self,
        subject: &SyncSubject,
        place: &SyncPlace,
        order: SyncOrder,
    ) -> Result<Synced, SyncError> {
        let (storage, clock) = (self.of(subject), &*self.clock);
        if let SyncOrder::PushIfStale(threshold) = order
            && let Some(row) = self.fresh(&subject.sandbox, threshold).await?
        {
            return Ok(Synced { row, is_skipped: true });
        }
        let (version, direction, stats) = match order {
            SyncOrder::Push | SyncOrder::PushIfStale(_) => {
                let unchanged = match order {
                    SyncOrder::PushIfStale(_) => Unchanged::LastVersion,
                    SyncOrder::Push | SyncOrder::Pull(_) => Unchanged::NewVersion,
                };
                let Pushed { version, stats } = push(place, &storage, clock, unchanged).await?;
                (version, SyncDirection::Push, stats)
            }
            SyncOrder::Pull(version) => {
                let (manifest, stats) = pull(place, &storage, version, clock).await?;
                (manifest.version, SyncDirection::Pull, stats)
            }
        };
        let (sandbox, synced_at) = (subject.sandbox.clone(), clock.now());
        let row = SyncRow { sandbox, version, direction, synced_at, stats };
        let recorded = self.rows.put_sync(row.clone()).await;
        recorded.map_err(|error| SyncError::NotRecorded(error.to_string()))?;
        tracing::info!(
            sandbox = subject.sandbox.as_str(),
            %version,
            direction = direction.as_str(),
            files = stats.files_processed,
            bytes = stats.bytes_transferred,
            "a workspace was synced"
        );
        Ok(Synced { row, is_skipped: false })
    }

    /// Collects the garbage of every sandbox with a sync, one after the other. What another server has
    /// in the same storage is left alone.
    ///
    /// # Errors
    /// [`StoreError`]. What the storage refuses is logged, and the others go on.
    pub async fn collect_all(&self, retention: SyncRetention) -> Result<(), StoreError> {
        let mut after: Option<SandboxId> = None;
        loop {
            let page = self.rows.synced_sandboxes(after.as_ref(), COLLECT_PAGE).await?;
            let Some((_, last)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for (account, sandbox) in page {
                let subject = SyncSubject { account, sandbox };
                if let Err(error) = self.collect(&subject, retention).await {
                    tracing::warn!(
                        sandbox = subject.sandbox.as_str(),
                        %error,
                        "cannot collect old versions of a workspace; it is tried again later"
                    );
                }
            }
        }
    }

    /// Collects the garbage of a sandbox, if there can be any. A sync that is under way is waited for.
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn collect(
        &self,
        subject: &SyncSubject,
        retention: SyncRetention,
    ) -> Result<Collected, SyncError> {
        let (worker, subject) = (self.clone(), subject.clone());
        self.on_io(async move {
            let _turn = worker.turns.take(&subject.sandbox).await;
            let (storage, now) = (worker.of(&subject), worker.clock.now());
            let versions = storage.versions().await?.versions;
            let (count, newest) = (versions.len(), versions.first().copied());
            let is_known = worker.collected().get(&subject.sandbox) == Some(&(count, newest));
            if is_known
                && newest.is_none_or(|newest| retention.past(&versions, newest, now).is_empty())
            {
                return Ok(Collected { is_done: true, ..Collected::default() });
            }
            let collected = collect(&storage, retention, now).await?;
            if collected.is_done {
                let left = (count - collected.versions, newest);
                worker.collected().insert(subject.sandbox.clone(), left);
            }
            if collected.versions + collected.contents > 0 {
                tracing::info!(
                    sandbox = subject.sandbox.as_str(),
                    versions = collected.versions,
                    contents = collected.contents,
                    "old versions of a workspace were removed"
                );
            }
            Ok(collected)
        })
        .await
    }

    fn collected(&self) -> MutexGuard<'_, CollectedVersions> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The versions of a sandbox, newest first: at most `limit`, older than `after`. What is no whole
    /// version is passed over.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub async fn versions(
        &self,
        subject: SyncSubject,
        after: Option<SyncVersion>,
        limit: usize,
    ) -> Result<SyncedVersions, SyncError> {
        let storage = self.of(&subject);
        self.on_io(async move {
            let names = storage.versions().await?.versions;
            let total = names.len();
            let mut older =
                names.into_iter().filter(|name| after.is_none_or(|after| *name < after));
            let mut found = SyncedVersions { versions: Vec::new(), next: None, total };
            for version in older.by_ref().take(limit) {
                match storage.head(version).await {
                    Ok(head) => found.versions.push(head),
                    Err(SyncError::NoSuchVersion(_) | SyncError::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                }
                found.next = Some(version);
            }
            if older.next().is_none() {
                found.next = None;
            }
            Ok(found)
        })
        .await
    }

    /// What a version has, or the newest whole one.
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn tree(
        &self,
        subject: SyncSubject,
        version: Option<SyncVersion>,
    ) -> Result<SyncedTree, SyncError> {
        let storage = self.of(&subject);
        self.on_io(async move {
            let manifest = match version {
                Some(version) => storage.manifest(version).await?,
                None => storage.newest().await?.manifest.ok_or(SyncError::NoVersion)?,
            };
            Ok(SyncedTree::new(storage, manifest))
        })
        .await
    }

    /// Connections to the storage belong to the runtime on which they were made.
    async fn on_io<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SyncError>> + Send + 'static,
    ) -> Result<T, SyncError> {
        self.io.spawn(work).await.unwrap_or(Err(SyncError::Ended))
    }

    fn of(&self, subject: &SyncSubject) -> SandboxStorage {
        let SyncSubject { account, sandbox } = subject;
        let (store, manifests) = (Arc::clone(&self.storage), self.manifests.clone());
        SandboxStorage::new(store, &self.prefix, account, sandbox, manifests)
    }
}
