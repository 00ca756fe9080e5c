//! Syncs without a caller: pushes of running sandboxes every so often, and collections of old
//! versions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;

use super::read::SyncPlace;
use super::retention::SyncRetention;
use super::worker::{SyncSubject, SyncWorker};
use crate::sandbox::{Capability, Provider, Target};
use crate::store::{Store, StoreError};
use crate::types::{Phase, ProviderName, Sandbox};

/// Pushes that are under way at once.
const PUSHES_AT_ONCE: usize = 2;

/// Live sandboxes that are read at once.
const PAGE: usize = 200;

/// How long between two collections.
const COLLECT_EVERY: Duration = Duration::from_secs(3600);

/// What is done in the background.
pub struct SyncsInBackground {
    /// What carries out syncs.
    pub worker: SyncWorker,
    /// Where the running sandboxes are found.
    pub store: Arc<dyn Store>,
    /// Their providers.
    pub providers: BTreeMap<ProviderName, Provider>,
    /// What is kept.
    pub retention: SyncRetention,
    /// How often running sandboxes are pushed; `None` for never.
    pub every: Option<Duration>,
}

impl SyncsInBackground {
    /// Runs until the server ends.
    pub async fn run(self, mut ended: watch::Receiver<bool>) {
        let work = async { tokio::join!(self.push_now_and_then(), self.collect_now_and_then()) };
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => {}
            _ = work => {}
        }
    }

    async fn push_now_and_then(&self) {
        let Some(every) = self.every else { return };
        loop {
            tokio::time::sleep(every).await;
            if let Err(error) = self.push_running(every).await {
                tracing::warn!(%error, "cannot read which sandboxes run, so none is pushed now");
            }
        }
    }

    async fn collect_now_and_then(&self) {
        loop {
            if let Err(error) = self.worker.collect_all(self.retention).await {
                tracing::warn!(%error, "cannot read which sandboxes were synced; it is tried again");
            }
            tokio::time::sleep(COLLECT_EVERY).await;
        }
    }

    /// Pushes the running sandboxes, a few at once, but for those that were synced meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]. A push that fails is logged, and the others go on.
    pub async fn push_running(&self, every: Duration) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.store.live(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.home);
            let running = page.iter().filter_map(|issue| issue.sandbox());
            let running = running.filter(|sandbox| sandbox.phase == Some(Phase::Running));
            let places = running.filter_map(|sandbox| Some((self.place(&sandbox)?, sandbox)));
            let pushing = places.map(|(place, sandbox)| self.push(place, sandbox, every));
            let pushing = pushing.collect::<Vec<_>>();
            futures_util::stream::iter(pushing)
                .for_each_concurrent(PUSHES_AT_ONCE, |push| push)
                .await;
        }
    }

    /// Where a sandbox's files are; `None` if its provider has no archives.
    fn place(&self, sandbox: &Sandbox) -> Option<SyncPlace> {
        let provider = self.providers.get(&sandbox.provider)?;
        provider.descriptor.require(Capability::Archives).ok()?;
        let external_id = sandbox.external_id.clone()?;
        let target = Target { external_id, expected: sandbox.id.clone() };
        Some(SyncPlace { workspace: Arc::clone(&provider.workspace), target })
    }

    /// The sandbox does not count as active by this, and a stop or delete ends it.
    async fn push(&self, place: SyncPlace, sandbox: Sandbox, every: Duration) {
        let id = sandbox.id.clone();
        let subject = SyncSubject { account: sandbox.account, sandbox: sandbox.id };
        // The last push of this kind ended less than `every` ago.
        if let Err(error) = self.worker.sync_if_stale(subject, place, every / 2, ()).await {
            tracing::warn!(
                sandbox = id.as_str(),
                %error,
                "cannot push the workspace of a running sandbox; it is tried again next time"
            );
        }
    }
}
