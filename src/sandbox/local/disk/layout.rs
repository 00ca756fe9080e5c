//! Fills a new directory: the lock and the workspace, then the record.

use std::fs;
use std::io;
use std::path::Path;

use super::{Owned, Row, private_dir, sync_dir, write_durably};
use crate::sandbox::local::image::{IMAGE, Templates};
use crate::sandbox::stored_network::NetworkRow;
use crate::sandbox::stored_workload::WorkloadRow;
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

/// The host id of a directory without a record.
pub(super) fn host_id_in(path: &Path) -> Option<u32> {
    fs::read_to_string(path.join("lock")).ok()?.parse().ok()
}

/// Makes the directory with the lock and the workspace, which the launcher gives to its user.
pub(super) fn lay_out(
    path: &Path,
    host_id: Option<u32>,
    disk_mb: u64,
    images: Option<&Templates>,
) -> io::Result<()> {
    private_dir(path)?;
    let host_id = host_id.map(|id| id.to_string()).unwrap_or_default();
    fs::write(path.join("lock"), host_id)?;
    if let Some(images) = images {
        return images.copy(disk_mb, &path.join(IMAGE));
    }
    private_dir(&path.join("workspace"))
}
