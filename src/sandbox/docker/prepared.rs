//! Images whose workspace and home belong to a user already.
//!
//! To give a container's directories to its user costs the engine a fifth of a create (70 of 350 ms in one
//! measurement, with Docker 20.10), since it executes itself again to unpack them. So a server does it once
//! for an image and a user, in a [carrier](super::carrier), and commits that as an image of its own, from
//! which it creates containers. An empty volume that is mounted takes over what the image has there, the
//! owner too.
//!
//! An image that has files in its workspace, or keeps either directory in a volume of its own, is not
//! prepared: each container gets its directories by itself then.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerConfig, ImageInspect, ImageSummary};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, DownloadFromContainerOptionsBuilder, ListImagesOptionsBuilder,
    RemoveImageOptionsBuilder,
};
use futures_util::StreamExt;

use super::carrier::{create_labelled_carrier, remove_carrier};
use super::directories::send_directories;
use super::engine::{ContainerEngine, status};
use super::inside::{HOME, WORKSPACE};
use super::settings::ContainerUser;

/// The repository of prepared images.
const REPOSITORY: &str = "issuebox-prepared";
/// The purpose of the carrier of a prepared image.
const PURPOSE: &str = "image";
/// The label of a prepared image, and of the containers made from it: the image's name in the template.
const FROM_LABEL: &str = "issuebox.prepared-from";
/// The label with the id of that image.
const FROM_ID_LABEL: &str = "issuebox.prepared-from-id";
/// Hexadecimal digits of an image's id in the name of the prepared one.
const ID_LEN: usize = 32;
/// How much is read of an archive to see whether a directory is empty, in bytes.
const ARCHIVE_LEN_MAX: usize = 16 << 10;

/// An image, and the one that is prepared from it.
#[derive(Clone)]
pub struct ImageToPrepare {
    /// The name of the prepared image, whether there is one or not.
    pub prepared: String,
    image: String,
    id: String,
    user: ContainerUser,
    has_volumes: bool,
}

impl ImageToPrepare {
    /// Of an image and the user of its containers.
    ///
    /// # Errors
    /// The engine's; 404 if it has no such image.
    pub async fn of(engine: &Docker, image: &str, user: ContainerUser) -> Result<Self, Error> {
        let found = engine.inspect_image(image).await?;
        let has_volumes = has_volumes_at_directories(&found);
        let id = found.id.unwrap_or_default();
        let digits = id.rsplit(':').next().unwrap_or_default();
        let digits = &digits[..digits.len().min(ID_LEN)];
        let ContainerUser { uid, gid } = user;
        let prepared = format!("{REPOSITORY}:{digits}-{uid}-{gid}");
        Ok(Self { prepared, image: image.to_owned(), id, user, has_volumes })
    }

    /// Prepares the image; says whether that can be done.
    async fn prepare(&self, engine: &Docker) -> Result<bool, Error> {
        if self.has_volumes {
            return Ok(false);
        }
        // The carrier's own labels: Podman gives the image none beside.
        let labels = [(FROM_LABEL, self.image.as_str()), (FROM_ID_LABEL, self.id.as_str())];
        let carrier = create_labelled_carrier(engine, &self.id, PURPOSE, None, &labels).await?;
        let committed = self.commit(engine, &carrier).await;
        let removed = remove_carrier(engine, &carrier).await;
        let is_prepared = committed?;
        removed?;
        Ok(is_prepared)
    }

    async fn commit(&self, engine: &Docker, carrier: &str) -> Result<bool, Error> {
        if !is_empty(engine, carrier, WORKSPACE).await? {
            return Ok(false);
        }
        send_directories(engine, carrier, &[HOME, WORKSPACE], self.user).await?;
        let (repository, tag) = self.prepared.split_once(':').unwrap_or_default();
        let options = CommitContainerOptionsBuilder::new().container(carrier);
        let options = options.repo(repository).tag(tag).build();
        engine.commit_container(options, ContainerConfig::default()).await?;
        Ok(true)
    }
}

/// Prepares images, one at a time.
#[derive(Default)]
pub struct ImagePreparation {
    turn: tokio::sync::Mutex<()>,
    /// Those that cannot be prepared.
    unprepared: Mutex<HashSet<String>>,
}

impl ImagePreparation {
    /// Prepares an image, unless there is the prepared one by now; says whether there is. It goes on if
    /// its caller gives up, so that the next one finds it done.
    pub async fn prepare(
        self: &Arc<Self>,
        engine: &Arc<ContainerEngine>,
        image: &ImageToPrepare,
    ) -> bool {
        if self.unprepared().contains(&image.prepared) {
            return false;
        }
        let (this, engine, image) = (Arc::clone(self), Arc::clone(engine), image.clone());
        let preparing = tokio::spawn(async move { this.prepare_in_turn(&engine, &image).await });
        preparing.await.unwrap_or(false)
    }

    fn unprepared(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unprepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn prepare_in_turn(&self, engine: &ContainerEngine, image: &ImageToPrepare) -> bool {
        let _turn = self.turn.lock().await;
        let Ok(engine) = engine.client().await else { return false };
        if engine.inspect_image(&image.prepared).await.is_ok() {
            return true;
        }
        let prepared = image.prepare(engine).await;
        // What an engine refuses it refuses again.
        let is_refused = |error: &Error| matches!(status(error), Some(400..=403 | 405..=408));
        if prepared.as_ref().map_or_else(is_refused, |is_prepared| !is_prepared) {
            self.unprepared().insert(image.prepared.clone());
        }
        prepared.unwrap_or_else(|error| {
            tracing::warn!(
                image = image.image,
                %error,
                "cannot prepare an image for its user; its container is created more slowly"
            );
            false
        })
    }
}

/// Removes prepared images whose image is gone or was replaced by a newer one of its name. The engine
/// keeps those from which there are containers.
///
/// # Errors
/// The engine's.
pub async fn remove_outdated(engine: &Docker) -> Result<(), Error> {
    let filters = HashMap::from([("label", vec![FROM_ID_LABEL])]);
    let options = ListImagesOptionsBuilder::new().filters(&filters).build();
    for listed in engine.list_images(Some(options)).await? {
        let Some(PreparedImage { name, image, id }) = prepared(&listed) else { continue };
        match engine.inspect_image(image).await {
            Ok(found) if found.id.as_deref() == Some(id) => continue,
            Err(error) if status(&error) != Some(404) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        // What it was made from is not ours to remove.
        let options = RemoveImageOptionsBuilder::new().noprune(true).build();
        match engine.remove_image(name, Some(options), None).await {
            Ok(_) => tracing::info!(image, "removed what was prepared from an older image"),
            // It is in use, or another server has removed it.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A prepared image.
#[derive(Debug, PartialEq, Eq)]
struct PreparedImage<'a> {
    name: &'a str,
    /// The name of the image that it was prepared from.
    image: &'a str,
    /// The id of that image.
    id: &'a str,
}

/// The prepared image of a list's entry. People's images that were made from one have its labels, too.
fn prepared(listed: &ImageSummary) -> Option<PreparedImage<'_>> {
    let is_prepared = |name: &&String| {
        // Podman names a place.
        let places = ["", "localhost/", "docker.io/library/"];
        places.iter().any(|place| {
            let name = name.strip_prefix(place).and_then(|name| name.strip_prefix(REPOSITORY));
            name.is_some_and(|rest| rest.starts_with(':'))
        })
    };
    let name = listed.repo_tags.iter().find(is_prepared)?;
    let (image, id) = (listed.labels.get(FROM_LABEL)?, listed.labels.get(FROM_ID_LABEL)?);
    Some(PreparedImage { name, image, id })
}

/// Whether an image keeps the workspace or the home in a volume of its own.
fn has_volumes_at_directories(image: &ImageInspect) -> bool {
    let volumes = image.config.as_ref().and_then(|config| config.volumes.as_ref());
    let covers = |volume: &String, directory: &str| {
        let rest = directory.strip_prefix(volume.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    volumes.into_iter().flatten().any(|volume| covers(volume, HOME) || covers(volume, WORKSPACE))
}

/// Whether a directory of a container is empty or missing.
async fn is_empty(engine: &Docker, container: &str, directory: &str) -> Result<bool, Error> {
    let options = DownloadFromContainerOptionsBuilder::new().path(directory).build();
    let mut pieces = std::pin::pin!(engine.download_from_container(container, Some(options)));
    let mut archive = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => archive.extend_from_slice(&piece),
            Err(error) if status(&error) == Some(404) => return Ok(true),
            Err(error) => return Err(error),
        }
        if archive.len() > ARCHIVE_LEN_MAX {
            return Ok(false);
        }
    }
    Ok(tar::Archive::new(archive.as_slice()).entries()?.count() <= 1)
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;

    use super::*;

    #[test]
    fn a_volume_at_or_above_a_directory_covers_it() {
        let image = |volume: &str| ImageInspect {
            config: Some(ImageConfig {
                volumes: Some(vec![volume.to_owned()]),
                ..ImageConfig::default()
            }),
            ..ImageInspect::default()
        };
        for volume in ["/workspace", "/workspace/", "/home", "/home/agent", "/"] {
            assert!(has_volumes_at_directories(&image(volume)), "{volume}");
        }
        for volume in ["/data", "/work", "/home/agent/.cache", "/workspaces"] {
            assert!(!has_volumes_at_directories(&image(volume)), "{volume}");
        }
        assert!(!has_volumes_at_directories(&ImageInspect::default()));
    }

    #[test]
    fn only_what_was_prepared_is_known_as_that() {
        let image = |tags: &[&str], labels: &[(&str, &str)]| ImageSummary {
            repo_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ImageSummary::default()
        };
        let labels = [(FROM_LABEL, "debian:12"), (FROM_ID_LABEL, "sha256:a")];
        let plain = "issuebox-prepared:a-1-1";
        for place in ["", "localhost/", "docker.io/library/"] {
            let name = &*format!("{place}{plain}");
            let expected = PreparedImage { name, image: "debian:12", id: "sha256:a" };
            assert_eq!(prepared(&image(&["own:1", name], &labels)), Some(expected));
            assert_eq!(prepared(&image(&[name], &labels[..1])), None);
        }
        for tags in [&["own:1"][..], &["<none>:<none>"], &["issuebox-prepared-own:1"], &[]] {
            assert_eq!(prepared(&image(tags, &labels)), None, "{tags:?}");
        }
    }
}
