//! The volumes with files of the server, which containers mount read-only.
//!
//! Several servers share an engine, and each content is sent to it once. A server fills a volume of its
//! own and then creates a second, empty volume, the *mark*, whose name has the hash of the content and
//! whose label names the filled volume. The engine creates a mark once: of several servers that fill
//! volumes at the same time, all use the volume that the first mark names, and none ever sees half a
//! file. The content goes in through a [carrier](super::carrier).
//!
//! People remove volumes, and an engine makes an empty one in place of a missing one that a container
//! mounts. So each create looks for the volumes, and a container that does not start is looked at for
//! empty ones.

use std::collections::HashMap;
use std::io;

use bollard::errors::Error;
use bollard::models::{
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, Mount, Volume,
    VolumeCreateRequest,
};
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bollard::{Docker, body_try_stream};
use tokio::net::unix::pipe;
use tokio_util::io::ReaderStream;

use super::bundle::{PIECE_LEN, VolumeContent};
use super::carrier::{PURPOSE_LABEL, create_carrier, remove_carrier, volume_mount};
use super::engine::{remove_unmounted, status};
use super::spec::INSTANCE_LABEL;
use super::workspaces::WorkspaceOwner;
use crate::clock::IdSource;
use crate::sandbox::confined::pipe as new_pipe;
use crate::types::Timestamp;

/// The label of a mark: the volume that is filled.
const FILLED_LABEL: &str = "issuebox.filled";

/// How long filling a volume takes at most, in seconds.
const FILL_SECONDS_MAX: i64 = 900;

/// A volume with files of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVolume {
    name: String,
    target: &'static str,
}

impl ServerVolume {
    /// Its mount in a sandbox.
    pub fn read_only(&self) -> Mount {
        volume_mount(&self.name, self.target, true)
    }
}

/// The volume with a content, which is filled if there is none. `image` is any image that is there.
///
/// # Errors
/// The engine's; 404 if it has no such image.
pub async fn filled(
    engine: &Docker,
    content: &VolumeContent,
    image: &str,
    ids: &dyn IdSource,
) -> Result<ServerVolume, Error> {
    let hashed = content.name().await?;
    let mark = mark_of(hashed);
    let target = content.target();
    if let Some(marked) = inspect(engine, &mark).await? {
        if let Some(name) = filled_by(marked)
            && inspect(engine, &name).await?.is_some()
        {
            return Ok(ServerVolume { name, target });
        }
        // The volume was removed.
        remove_unmounted(engine, &mark).await?;
    }
    let name = format!("{hashed}-{}", ids.request_id());
    let own = ServerVolume { name, target };
    fill(engine, content, image, &own).await?;
    let labels = [(PURPOSE_LABEL, content.purpose()), (FILLED_LABEL, &own.name)];
    let request = VolumeCreateRequest {
        name: Some(mark),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..VolumeCreateRequest::default()
    };
    // The engine answers with the mark that is there already, if one is.
    let first = filled_by(engine.create_volume(request).await?);
    let Some(name) = first.filter(|first| *first != own.name) else { return Ok(own) };
    remove_unmounted(engine, &own.name).await?;
    Ok(ServerVolume { name, target })
}

/// Fills the volume with a content that a container mounts, if it is empty; says whether it was.
///
/// # Errors
/// The engine's; 404 if it has no such container.
pub async fn refill(
    engine: &Docker,
    content: &VolumeContent,
    container: &str,
) -> Result<bool, Error> {
    let Some(file) = content.a_file() else { return Ok(false) };
    let options = ContainerArchiveInfoOptionsBuilder::new().path(&file).build();
    match engine.get_container_archive_info(container, Some(options)).await {
        Ok(_) => return Ok(false),
        Err(error) if status(&error) != Some(404) => return Err(error),
        Err(_) => {}
    }
    let found = engine.inspect_container(container, None).await?;
    let Some(volume) = mounted_at(&found, content.target()) else { return Ok(false) };
    tracing::warn!(
        container,
        volume = volume.name,
        "fills a volume of the server that was emptied"
    );
    fill(engine, content, found.image.as_deref().unwrap_or_default(), &volume).await?;
    Ok(true)
}

/// The volume that a container mounts at a directory.
fn mounted_at(container: &ContainerInspectResponse, target: &'static str) -> Option<ServerVolume> {
    let mounts = container.mounts.iter().flatten();
    let mut at_target = mounts.filter(|mount| mount.destination.as_deref() == Some(target));
    Some(ServerVolume { name: at_target.next()?.name.clone()?, target })
}

/// Sends a content into a volume, which the engine makes if it is missing.
async fn fill(
    engine: &Docker,
    content: &VolumeContent,
    image: &str,
    volume: &ServerVolume,
) -> Result<(), Error> {
    let mount = volume_mount(&volume.name, volume.target, false);
    let carrier = create_carrier(engine, image, content.purpose(), mount).await?;
    let sent = send(engine, content, &carrier).await;
    let removed = remove_carrier(engine, &carrier).await;
    sent.and(removed)
}

/// Sends the files of a content to their directory in a container.
async fn send(engine: &Docker, content: &VolumeContent, container: &str) -> Result<(), Error> {
    let (reader, writer) = new_pipe().map_err(io::Error::other)?;
    let reader = pipe::Receiver::from_owned_fd(reader)?;
    let packed = content.clone();
    let packing = tokio::task::spawn_blocking(move || packed.pack(writer));
    let options = UploadToContainerOptionsBuilder::new().path(content.target()).build();
    let pieces = body_try_stream(ReaderStream::with_capacity(reader, PIECE_LEN));
    let sent = engine.upload_to_container(container, Some(options), pieces).await;
    // Packing that failed is the reason of what the engine says of a cut archive.
    packing.await.map_err(io::Error::other)??;
    sent
}

/// Removes the containers through which volumes were to be filled by servers that ended meanwhile, and
/// the volumes that no mark names.
///
/// # Errors
/// The engine's.
pub async fn remove_abandoned(engine: &Docker, now: Timestamp) -> Result<(), Error> {
    let filters = HashMap::from([("label", vec![PURPOSE_LABEL])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let listed = engine.list_containers(Some(options)).await?;
    for container in listed.into_iter().filter(|container| is_abandoned(container, now)) {
        let id = container.id.unwrap_or_default();
        tracing::info!(
            container = id,
            "removes a container through which a volume was to be filled"
        );
        let removal = RemoveContainerOptionsBuilder::new().build();
        match engine.remove_container(&id, Some(removal)).await {
            // Another server has removed it, or is removing it.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            removed => removed?,
        }
        for volume in container.mounts.into_iter().flatten().filter_map(|mount| mount.name) {
            // A workspace is its sandbox's.
            if WorkspaceOwner::of(&volume).is_some() {
                continue;
            }
            let marked = match volume.rsplit_once('-') {
                Some((hashed, _)) => inspect(engine, &mark_of(hashed)).await?.and_then(filled_by),
                None => None,
            };
            if marked.as_ref() != Some(&volume) {
                remove_unmounted(engine, &volume).await?;
            }
        }
    }
    Ok(())
}

/// Whether no server fills a volume through this container any more.
fn is_abandoned(container: &ContainerSummary, now: Timestamp) -> bool {
    let abandoned_from =
        |seconds: i64| seconds.saturating_add(FILL_SECONDS_MAX).saturating_mul(1000);
    // Checked here, too: engines differ in what several filters mean.
    // A sandbox's container has the labels of a carrier through which its image was prepared.
    let is_carrier = |labels: &HashMap<String, String>| {
        labels.contains_key(PURPOSE_LABEL) && !labels.contains_key(INSTANCE_LABEL)
    };
    container.labels.as_ref().is_some_and(is_carrier)
        && container.state == Some(ContainerSummaryStateEnum::CREATED)
        && container.created.is_some_and(|at| at > 0 && abandoned_from(at) < now.unix_ms())
}

/// The name of the mark of a content.
fn mark_of(hashed: &str) -> String {
    format!("{hashed}-filled")
}

/// The volume that a mark names.
fn filled_by(mark: Volume) -> Option<String> {
    let mut labels = mark.labels;
    labels.remove(FILLED_LABEL)
}

async fn inspect(engine: &Docker, volume: &str) -> Result<Option<Volume>, Error> {
    match engine.inspect_volume(volume).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if status(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_container_is_abandoned() {
        let now = Timestamp::from_unix_ms(10_000_000_000);
        let of = |created| ContainerSummary {
            created,
            labels: Some(HashMap::from([(PURPOSE_LABEL.to_owned(), "helper".to_owned())])),
            state: Some(ContainerSummaryStateEnum::CREATED),
            ..ContainerSummary::default()
        };
        for (created, expected) in [
            (Some(10_000_000), false),
            (Some(10_000_000 - 900), false),
            (Some(10_000_000 - 901), true),
            (Some(-1), false),
            (None, false),
        ] {
            assert_eq!(is_abandoned(&of(created), now), expected, "{created:?}");
        }
        let another_s = ContainerSummary { labels: None, ..of(Some(1)) };
        let state = Some(ContainerSummaryStateEnum::RUNNING);
        let running = ContainerSummary { state, ..of(Some(1)) };
        let labels = [PURPOSE_LABEL, INSTANCE_LABEL].map(|key| (key.to_owned(), "x".to_owned()));
        let sandbox = ContainerSummary { labels: Some(labels.into()), ..of(Some(1)) };
        for kept in [another_s, running, sandbox] {
            assert!(!is_abandoned(&kept, now), "{kept:?}");
        }
    }
}
