//! What is left at an engine by killed servers and by people, and is removed.

use std::collections::HashMap;
use std::time::Duration;

use bollard::query_parameters::ListVolumesOptionsBuilder;

use super::engine::{ContainerEngine, remove_unmounted};
use super::prepared::remove_outdated;
use super::server_volumes::remove_abandoned;
use super::workspaces::{WorkspaceOwner, is_older};
use crate::sandbox::ProviderError;
use crate::types::{InstanceId, SandboxId, Timestamp};

/// How old a workspace without a container must be to be an orphan: its container may be being made.
const ORPHAN_AGE: Duration = Duration::from_secs(600);

/// Removes the workspaces of a sandbox that no container has.
///
/// # Errors
/// The engine's.
pub async fn remove_workspaces(
    engine: &ContainerEngine,
    sandbox: &SandboxId,
) -> Result<(), ProviderError> {
    let is_its_own = |owner: &WorkspaceOwner<'_>| owner.sandbox == sandbox.as_str();
    for name in loose_workspaces(engine, is_its_own, None).await? {
        remove_volume(engine, &name).await?;
    }
    Ok(())
}

/// Removes workspaces of an instance without a container, carriers that no server uses any more, and
/// images that were prepared from older ones.
pub async fn remove_orphans(engine: &ContainerEngine, instance: &InstanceId, now: Timestamp) {
    let orphans = async {
        let is_ours = |owner: &WorkspaceOwner<'_>| owner.instance == instance.as_str();
        for name in loose_workspaces(engine, is_ours, Some(now)).await? {
            tracing::info!(volume = name, "removes a workspace whose container is gone");
            remove_volume(engine, &name).await?;
        }
        let client = engine.client().await?;
        remove_abandoned(client, now).await.map_err(|error| engine.failed(error))?;
        remove_outdated(client).await.map_err(|error| engine.failed(error))
    };
    if let Err(error) = orphans.await {
        tracing::debug!(%error, "cannot remove what killed servers and people left");
    }
}

/// The workspaces of these owners that no container has; with a time, only those that are old by then.
async fn loose_workspaces(
    engine: &ContainerEngine,
    is_owner: impl Fn(&WorkspaceOwner<'_>) -> bool,
    old_at: Option<Timestamp>,
) -> Result<Vec<String>, ProviderError> {
    // One filter only: of two, Podman lists what passes either.
    let filters = HashMap::from([("dangling".to_owned(), vec!["true".to_owned()])]);
    let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
    let listed = engine.client().await?.list_volumes(Some(options)).await;
    let listed = listed.map_err(|error| engine.failed(error))?.volumes.unwrap_or_default();
    let ours = listed
        .into_iter()
        .filter(|volume| WorkspaceOwner::of(&volume.name).is_some_and(|owner| is_owner(&owner)));
    let is_old =
        |created: Option<&str>| old_at.is_none_or(|now| is_older(created, ORPHAN_AGE, now));
    let old = ours.filter(|volume| is_old(volume.created_at.as_deref()));
    Ok(old.map(|volume| volume.name).collect())
}

async fn remove_volume(engine: &ContainerEngine, name: &str) -> Result<(), ProviderError> {
    let removed = remove_unmounted(engine.client().await?, name).await;
    removed.map_err(|error| engine.failed(error))
}
