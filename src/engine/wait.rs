//! Follows an issue until something holds: what `?wait=` does.

use std::sync::Arc;
use std::time::Duration;

use crate::types::{HomeId, Phase, Sandbox, SandboxId};

use super::actors::Actors;
use super::api::{EngineError, WaitFor, Waited};
use super::environment::Environment;
use super::publication::Publication;

/// Follows homes.
pub(super) struct Waits {
    pub env: Arc<Environment>,
    pub actors: Actors,
    pub publication: Arc<Publication>,
}

impl Waits {
    /// Follows a home until `until` holds for it or the time is up. `sandbox` is the one that the
    /// caller meant.
    pub async fn follow(
        &self,
        home: HomeId,
        sandbox: Option<&SandboxId>,
        until: WaitFor,
        at_most: Duration,
    ) -> Result<Waited, EngineError> {
        let deadline = tokio::time::Instant::now() + at_most;
        // Subscribed before the first look, so that no change falls in between.
        let mut changes = self.publication.subscribe(home);
        loop {
            changes.mark_seen();
            let newest = self.env.store.newest_sandbox(home).await?;
            let settled = holds(until, newest.as_ref(), sandbox);
            if settled {
                // The store may show a commit before its actor has published it. Look-ups must show it
                // too before the caller hears of it, as long as there is time.
                drop(tokio::time::timeout_at(deadline, self.actors.published(home)).await);
            }
            if settled || self.env.is_stopping() {
                return Ok(Waited { settled, sandbox: newest });
            }
            if tokio::time::timeout_at(deadline, changes.next()).await.is_err() {
                return Ok(Waited { settled: false, sandbox: newest });
            }
        }
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
