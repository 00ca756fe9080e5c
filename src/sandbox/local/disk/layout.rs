//! Fills a new directory: the lock and the workspace, then the record.

use std::fs::File;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use super::network::NetworkRow;
use super::workload::WorkloadRow;
use super::{Owned, Row, private_dir, sync_dir, write_durably};
use crate::sandbox::local::image::{IMAGE, Templates};
use crate::types::ExternalId;

/// The kind of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceKind {
    /// A file system of its own, of a fixed size.
    Image,
    /// A directory on the server's file system.
    Directory,
}

impl WorkspaceKind {
    /// The kind in an object's directory.
    pub(super) fn found(object: &Path) -> Self {
        if object.join(IMAGE).exists() { Self::Image } else { Self::Directory }
    }
}

/// Writes the record of an object, and returns once it is on disk.
pub(super) fn record(path: &Path, external_id: &ExternalId, owned: &Owned) -> io::Result<()> {
    let labels = owned.labels.to_pairs().map(|(key, value)| (key.to_string(), value));
    let row = Row {
        external_id: external_id.to_string(),
        labels: labels.into_iter().collect(),
        host_id: owned.host_id,
        processes_max: owned.resources.processes,
        cpu: Some(owned.resources.cpu.to_string()),
        memory_mb: Some(owned.resources.memory_mb),
        disk_mb: Some(owned.resources.disk_mb),
        network: NetworkRow::of(&owned.network),
        workload: WorkloadRow::of(&owned.workload),
    };
    write_durably(&path.join("record.json"), &serde_json::to_vec_pretty(&row)?)?;
    sync_dir(path)
}

/// Makes the directory with the lock and the workspace. The launcher that mounts an image gives it
/// to its user.
pub(super) fn lay_out(
    path: &Path,
    host_id: Option<u32>,
    disk_mb: u64,
    images: Option<&Templates>,
) -> io::Result<()> {
    private_dir(path)?;
    File::create(path.join("lock"))?;
    if let Some(images) = images {
        return images.copy(disk_mb, &path.join(IMAGE));
    }
    let workspace = path.join("workspace");
    private_dir(&workspace)?;
    match host_id {
        Some(id) => chown(&workspace, Some(id), Some(id)).map_err(|error| not_mapped(id, error)),
        None => Ok(()),
    }
}

/// Explains an invalid owner: the uid is not mapped in the server's user namespace.
fn not_mapped(id: u32, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::InvalidInput {
        return error;
    }
    let message = format!(
        "the host uid {id} of a sandbox is not mapped here (see /proc/self/uid_map). Run the server \
         as an ordinary user, or map the configured range of uids and gids into this container"
    );
    io::Error::new(error.kind(), message)
}
