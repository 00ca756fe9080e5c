//! Whose the directories of a container are: its workspace and its home belong to the sandbox's user.

use bollard::errors::Error;
use bollard::query_parameters::UploadToContainerOptionsBuilder;
use bollard::{Docker, body_full};

use super::carrier::{create_carrier, remove_carrier, volume_mount};
use super::inside::{HOME, WORKSPACE};
use super::settings::ContainerUser;

/// The purpose of the carrier of a workspace.
const PURPOSE: &str = "workspace";

/// Whose directories are given, and where they are.
#[derive(Clone, Copy)]
pub struct DirectoryOwner {
    pub user: ContainerUser,
    /// Whether the container's root file system is read-only. Its home is in memory then, and an engine
    /// sends nothing to `/`.
    pub is_read_only: bool,
}

/// Gives the workspace and the home of a container that has never run to the sandbox's user. Of a
/// read-only container only the workspace, through a carrier.
///
/// # Errors
/// The engine's.
pub async fn give_directories(
    engine: &Docker,
    container: &str,
    owner: DirectoryOwner,
) -> Result<(), Error> {
    let DirectoryOwner { user, is_read_only } = owner;
    match is_read_only {
        true => give_workspace(engine, container, user).await,
        false => send_directories(engine, container, &[HOME, WORKSPACE], user).await,
    }
}

async fn give_workspace(
    engine: &Docker,
    container: &str,
    user: ContainerUser,
) -> Result<(), Error> {
    let found = engine.inspect_container(container, None).await?;
    let mut mounts = found.mounts.into_iter().flatten();
    let workspace = mounts.find(|mount| mount.destination.as_deref() == Some(WORKSPACE));
    // A container without one cannot be started either.
    let Some(volume) = workspace.and_then(|mount| mount.name) else { return Ok(()) };
    let mount = volume_mount(&volume, WORKSPACE, false);
    let image = found.image.unwrap_or_default();
    let carrier = create_carrier(engine, &image, PURPOSE, mount).await?;
    let sent = send_directories(engine, &carrier, &[WORKSPACE], user).await;
    let removed = remove_carrier(engine, &carrier).await;
    sent.and(removed)
}

/// Gives directories of a container that has never run to a user.
///
/// # Errors
/// The engine's.
pub async fn send_directories(
    engine: &Docker,
    container: &str,
    paths: &[&str],
    user: ContainerUser,
) -> Result<(), Error> {
    let options = UploadToContainerOptionsBuilder::new().path("/").build();
    let archive = directories(paths, user);
    engine.upload_to_container(container, Some(options), body_full(archive.into())).await
}

/// An archive of directories that belong to this user.
fn directories(paths: &[&str], user: ContainerUser) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for path in paths {
        let mut head = tar::Header::new_gnu();
        head.set_entry_type(tar::EntryType::Directory);
        head.set_mode(0o755);
        head.set_uid(u64::from(user.uid));
        head.set_gid(u64::from(user.gid));
        head.set_size(0);
        let path = path.trim_start_matches('/');
        archive.append_data(&mut head, path, std::io::empty()).expect("memory has room");
    }
    archive.into_inner().expect("memory has room")
}
