//! The port to the hooks of templates that the lifecycle waits for: the cold start, and what is done
//! before a stop or a delete. What carries them out is set once the server is built, since it uses the
//! engine itself.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::issue::Record;
use crate::issue::commit::Farewell;
use crate::issue::event::{CallError, ColdStartEnd};
use crate::types::{AccountName, ExternalId, HomeId};

/// A sandbox that is up at its provider, and whose hooks run.
#[derive(Clone, Debug)]
pub struct HookedSandbox {
    /// The home of its issue.
    pub home: HomeId,
    /// The account.
    pub account: AccountName,
    /// What it is.
    pub record: Record,
    /// Its object.
    pub external_id: ExternalId,
}

/// Carries out the hooks that the lifecycle waits for.
#[async_trait]
pub trait LifecycleHooks: Send + Sync + 'static {
    /// Runs a sandbox's cold start, if it needs that. It may be dropped before it returns: its command
    /// ends then.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] if the sandbox cannot be reached, so that its provider is looked at.
    async fn cold_start(&self, sandbox: HookedSandbox) -> Result<ColdStartEnd, CallError>;

    /// Does what is to be done before a stop or a delete. Failures are recorded, and nothing else. It
    /// is dropped when the grace time is over.
    async fn before_end(&self, sandbox: HookedSandbox, what: Farewell);

    /// Says that the grace time was over before [`before_end`](Self::before_end) returned.
    async fn out_of_grace(&self, sandbox: HookedSandbox, what: Farewell);
}

/// What carries the hooks out, as soon as that is built.
pub(super) struct LateHooks(watch::Sender<HooksState>);

#[derive(Clone)]
enum HooksState {
    /// The server is being built.
    Awaited,
    Set(Arc<dyn LifecycleHooks>),
    /// The server ends.
    Closed,
}

impl Default for LateHooks {
    fn default() -> Self {
        Self(watch::Sender::new(HooksState::Awaited))
    }
}

impl LateHooks {
    /// From now on these.
    pub fn set(&self, hooks: Arc<dyn LifecycleHooks>) {
        self.0.send_if_modified(|state| {
            let is_open = !matches!(state, HooksState::Closed);
            if is_open {
                *state = HooksState::Set(hooks);
            }
            is_open
        });
    }

    /// No hook runs any more.
    pub fn close(&self) {
        self.0.send_replace(HooksState::Closed);
    }

    /// The hooks, once they are set; `None` if the server ends before that.
    pub async fn get(&self) -> Option<Arc<dyn LifecycleHooks>> {
        let mut states = self.0.subscribe();
        let known = states.wait_for(|state| !matches!(state, HooksState::Awaited)).await;
        match known.map(|state| state.clone()) {
            Ok(HooksState::Set(hooks)) => Some(hooks),
            Ok(HooksState::Awaited | HooksState::Closed) | Err(_) => None,
        }
    }

    /// Returns when the server ends.
    pub async fn closed(&self) {
        // The sender is here.
        let mut states = self.0.subscribe();
        drop(states.wait_for(|state| matches!(state, HooksState::Closed)).await);
    }
}
