//! Hooks: who carries them out, and what the timeline shows of them.

use std::sync::Arc;

use super::Engine;
use crate::engine::EngineError;
use crate::engine::hooks::LifecycleHooks;
use crate::issue::IssueEvent;
use crate::types::{Cause, HomeId, SandboxId};

impl Engine {
    /// Has the hooks that the lifecycle waits for carried out by these, until the server ends.
    pub fn set_hooks(&self, hooks: Arc<dyn LifecycleHooks>) {
        self.parts.env.hooks.set(hooks);
    }

    /// Adds an entry to the timeline of a sandbox; nothing happens if that is deleted by now.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn note(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
        what: &str,
        cause: &Cause,
    ) -> Result<(), EngineError> {
        let event = || IssueEvent::Noted {
            sandbox: sandbox.clone(),
            what: what.to_owned(),
            cause: cause.clone(),
        };
        self.parts.actors.apply(home, None, event).await.map(drop)
    }
}
