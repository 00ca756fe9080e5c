//! Waits until a sandbox is up, down or gone.

use super::{SandboxError, SandboxServices};
use crate::engine::{EngineError, SandboxRef, WaitFor};
use crate::types::{AccountName, Phase, Sandbox, SandboxId};

/// The sandbox, or its successor, once it runs.
pub(super) async fn when_up(
    services: &SandboxServices,
    account: &AccountName,
    sandbox: Sandbox,
) -> Result<Sandbox, SandboxError> {
    match sandbox.phase {
        Some(Phase::Running) => Ok(sandbox),
        _ => {
            let of = SandboxRef::Id(sandbox.id);
            settled(services, account, &of, Phase::Running).await
        }
    }
}

/// The sandbox once it is stopped.
pub(super) async fn when_down(
    services: &SandboxServices,
    account: &AccountName,
    sandbox: Sandbox,
) -> Result<Sandbox, SandboxError> {
    settled(services, account, &SandboxRef::Id(sandbox.id), Phase::Stopped).await
}

/// Returns once this very sandbox is gone.
pub(super) async fn when_gone(
    services: &SandboxServices,
    account: &AccountName,
    id: &SandboxId,
) -> Result<(), SandboxError> {
    let of = SandboxRef::Id(id.clone());
    let waited = services.engine.wait(account, &of, WaitFor::Absent, services.up_within()).await?;
    match (waited.settled, waited.sandbox) {
        (false, Some(sandbox)) => Err(too_slow(services, &sandbox)),
        (true, _) | (false, None) => Ok(()),
    }
}

/// The sandbox once it is in this phase, or has failed.
async fn settled(
    services: &SandboxServices,
    account: &AccountName,
    of: &SandboxRef,
    phase: Phase,
) -> Result<Sandbox, SandboxError> {
    let until = WaitFor::Phase(phase);
    let waited = services.engine.wait(account, of, until, services.up_within()).await?;
    let sandbox = waited.sandbox.ok_or(EngineError::SandboxNotFound)?;
    match (sandbox.phase, &sandbox.failure) {
        (Some(now), _) if now == phase => Ok(sandbox),
        (Some(Phase::Failed), Some(failure)) => {
            let failure = Box::new(failure.clone());
            Err(SandboxError::Failed { sandbox: sandbox.id, failure })
        }
        _ => Err(too_slow(services, &sandbox)),
    }
}

fn too_slow(services: &SandboxServices, sandbox: &Sandbox) -> SandboxError {
    SandboxError::TooSlow {
        sandbox: sandbox.id.clone(),
        phase: sandbox.phase.map_or("deleted", Phase::as_str),
        seconds: services.up_within().as_secs(),
        reason: sandbox.reason.clone(),
    }
}
