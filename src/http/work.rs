//! A running sandbox for commands, files and ports.

use std::sync::Arc;
use std::time::Duration;

use super::caller::Caller;
use super::error::ApiError;
use super::shared::{Shared, closed, sandbox_ref};
use crate::engine::{AtWork, EngineError, Work};
use crate::sandbox::{Capability, Provider, Target};
use crate::types::Sandbox;

/// A running sandbox and the provider that does the work in it.
#[derive(Clone)]
pub struct OpenSandbox {
    /// The provider that does the work.
    pub provider: Provider,
    /// The object at the provider.
    pub target: Target,
    /// The sandbox when it was found running.
    pub sandbox: Sandbox,
    /// Held until the work ends, so that the sandbox counts as active.
    pub at_work: Arc<AtWork>,
}

impl OpenSandbox {
    /// Finds a sandbox and, with `start`, starts it if it is stopped. A shutdown ends the
    /// wait. If the work needs a capability that the provider does not declare, it is refused
    /// before the provider is asked for anything.
    ///
    /// # Errors
    /// What [`Engine::work`](crate::engine::Engine::work) refuses; 501 for the capability.
    pub async fn open(
        shared: &Shared,
        caller: &Caller,
        id: &str,
        start: bool,
        at_most: Duration,
        needs: Option<Capability>,
    ) -> Result<Self, ApiError> {
        if let Some(capability) = needs {
            let sandbox =
                super::api::sandboxes::load(shared, &caller.account, &sandbox_ref(id)).await?;
            shared.provider(&sandbox.provider)?.descriptor.require(capability)?;
        }
        let (engine, of) = (&shared.edge.engine, sandbox_ref(id));
        let work = tokio::select! {
            biased;
            work = engine.work(&caller.account, &of, start, caller.cause(), at_most) => work?,
            () = closed(shared.edge.closing.clone()) => {
                return Err(EngineError::ShuttingDown.into());
            }
        };
        let Work { target, sandbox, at_work } = work;
        let provider = shared.provider(&sandbox.provider)?;
        Ok(Self { provider, target, sandbox, at_work })
    }
}
