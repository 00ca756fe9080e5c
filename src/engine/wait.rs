//! Following an issue until something holds: what `?wait=` does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::types::{HomeId, Phase, Sandbox, SandboxId};

use super::actor::{Activation, ActorMessage};
use super::api::{EngineError, WaitFor, Waited};
use super::core::Core;
use super::directory::store_failed;

/// Follows a home until `until` holds for it or the time is up. `sandbox` is the one that the
/// caller meant.
pub(super) async fn follow(
    core: &Arc<Core>,
    home: HomeId,
    sandbox: Option<&SandboxId>,
    until: WaitFor,
    at_most: Duration,
) -> Result<Waited, EngineError> {
    let deadline = tokio::time::Instant::now() + at_most;
    // Subscribed before the first look, so that no change falls in between.
    let mut changes = HomeSubscription::new(core, home);
    loop {
        changes.seen();
        let newest = core.store.newest_sandbox(home).await.map_err(store_failed)?;
        let settled = holds(until, newest.as_ref(), sandbox);
        if settled {
            // However long that takes, it holds.
            drop(tokio::time::timeout_at(deadline, published(core, home)).await);
        }
        if settled || core.is_stopping() {
            return Ok(Waited { settled, sandbox: newest });
        }
        if tokio::time::timeout_at(deadline, changes.next()).await.is_err() {
            return Ok(Waited { settled: false, sandbox: newest });
        }
    }
}

/// Waits until look-ups say what is durable of a home: the store may show a commit before its actor
/// has published it, and whoever was told here that something holds must not read what was before.
async fn published(core: &Arc<Core>, home: HomeId) {
    if !core.registry.is_active(home) {
        return;
    }
    let (reply, told) = oneshot::channel();
    let flush = ActorMessage::Flush(reply);
    if core.registry.try_send(core, home, Activation::default(), flush).is_ok() {
        // Dropped where the actor ends: its successor publishes what it loads.
        drop(told.await);
    }
}

fn holds(until: WaitFor, newest: Option<&Sandbox>, meant: Option<&SandboxId>) -> bool {
    let phase = newest.and_then(|sandbox| sandbox.phase);
    match until {
        WaitFor::Phase(wanted) => {
            phase == Some(wanted) || matches!(phase, None | Some(Phase::Failed))
        }
        WaitFor::Settled => phase.is_none_or(|phase| !phase.is_transitional()),
        WaitFor::Absent => match (newest, meant) {
            (Some(newest), Some(meant)) => newest.id != *meant || phase.is_none(),
            (_, None) | (None, Some(_)) => phase.is_none(),
        },
    }
}

/// A subscription to a home's changes; the last one to end clears the entry.
struct HomeSubscription {
    core: Arc<Core>,
    home: HomeId,
    changes: Option<watch::Receiver<u64>>,
}

impl HomeSubscription {
    fn new(core: &Arc<Core>, home: HomeId) -> Self {
        let changes =
            core.watchers.entry(home).or_insert_with(|| watch::Sender::new(0)).subscribe();
        Self { core: Arc::clone(core), home, changes: Some(changes) }
    }

    fn seen(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
    }

    async fn next(&mut self) {
        if let Some(changes) = &mut self.changes
            && changes.changed().await.is_ok()
        {
            return;
        }
        // The sender lives as long as the entry, and the entry as long as this.
        std::future::pending().await
    }
}

impl Drop for HomeSubscription {
    fn drop(&mut self) {
        self.changes = None;
        self.core.watchers.remove_if(&self.home, |_, sender| sender.receiver_count() == 0);
    }
}
