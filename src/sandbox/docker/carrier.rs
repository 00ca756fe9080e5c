//! A container that is never started, through which files come into a volume or an image.

use std::collections::HashMap;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};

/// The label of carriers, and of the server's own volumes: what they hold.
pub const PURPOSE_LABEL: &str = "issuebox.purpose";

/// A volume at a directory of a container. Nothing of the image is copied into it.
pub fn volume_mount(volume: &str, target: &str, is_read_only: bool) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(volume.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(is_read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// Creates a carrier and returns its id; a volume that is missing comes into being with it.
///
/// # Errors
/// The engine's; 404 if it has no such image.
pub async fn create_carrier(
    engine: &Docker,
    image: &str,
    purpose: &str,
    volume: Mount,
) -> Result<String, Error> {
    create_labelled_carrier(engine, image, purpose, Some(volume), &[]).await
}

/// Creates a carrier through which an image is made, which gets its labels; returns its id.
///
/// # Errors
/// The engine's; 404 if it has no such image.
pub async fn create_labelled_carrier(
    engine: &Docker,
    image: &str,
    purpose: &str,
    volume: Option<Mount>,
    labels: &[(&str, &str)],
) -> Result<String, Error> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let mut labels: HashMap<_, _> = labels.collect();
    labels.insert(PURPOSE_LABEL.to_owned(), purpose.to_owned());
    let host_config = HostConfig {
        mounts: volume.map(|volume| vec![volume]),
        network_mode: Some("none".to_owned()),
        ..HostConfig::default()
    };
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        // An image may have none of its own.
        entrypoint: Some(vec!["/issuebox".to_owned()]),
        labels: Some(labels),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new().build();
    Ok(engine.create_container(Some(options), body).await?.id)
}

/// Removes a carrier; its volume stays.
///
/// # Errors
/// The engine's.
pub async fn remove_carrier(engine: &Docker, id: &str) -> Result<(), Error> {
    let removal = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    engine.remove_container(id, Some(removal)).await
}
