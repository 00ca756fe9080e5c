//! What carries out syncs, pushes running sandboxes now and then, and collects old versions.

use std::sync::Arc;

use anyhow::Context;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Adapters;
use crate::config::Config;
use crate::sync::{OpenStorage, SyncRetention, SyncWorker, SyncsInBackground};

/// Starts it, if an object storage is configured. What runs in the background ends with `ended`.
///
/// # Errors
/// Why the storage cannot be used.
pub(super) fn start(
    config: &Config,
    adapters: &Adapters,
    io: &Handle,
    ended: &watch::Receiver<bool>,
) -> anyhow::Result<Option<SyncWorker>> {
    let Some(sync) = &config.sync else { return Ok(None) };
    let storage = OpenStorage::open(&sync.location);
    let storage = storage.context("cannot use the storage in sync.url")?;
    let (rows, clock) = (Arc::clone(&adapters.sqlite) as _, Arc::clone(&adapters.clock));
    let worker = SyncWorker::new(storage, rows, clock, io.clone());
    let background = SyncsInBackground {
        worker: worker.clone(),
        store: Arc::clone(&adapters.sqlite) as _,
        providers: adapters.providers.clone(),
        retention: SyncRetention { versions_max: sync.keep_versions, age_max: sync.keep },
        every: sync.every,
    };
    io.spawn(background.run(ended.clone()));
    Ok(Some(worker))
}
