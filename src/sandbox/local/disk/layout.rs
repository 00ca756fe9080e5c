//! What is put into a new directory: the record, the lock, and the workspace.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::network::NetworkRow;
use super::{Disk, Owned, Row, private_dir, sync_dir, write_durably};
use crate::sandbox::local::image::{IMAGE, Templates};
use crate::types::ExternalId;

/// What a sandbox's workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// A file system of its own, of a fixed size.
    Image,
    /// A directory on the server's file system.
    Directory,
}

impl Workspace {
    /// What a new one is.
    pub(super) fn of(images: Option<&Templates>) -> Self {
        images.map_or(Self::Directory, |_| Self::Image)
    }

    /// What the one in an object's directory is.
    pub(super) fn found(object: &Path) -> Self {
        if object.join(IMAGE).exists() { Self::Image } else { Self::Directory }
    }
}

impl Disk {
    /// A directory like an object's that has no name, to try out whether a sandbox with so much
    /// disk can be made.
    pub fn make_probe(&self, incarnation: &str, disk_mb: u64) -> io::Result<Probe<'_>> {
        let path = self.dir.join("making").join(incarnation);
        let host_id = self.host_ids.as_ref().map(|ids| ids.take(incarnation)).transpose()?;
        let probe = Probe { disk: self, path, host_id };
        private_dir(&probe.path)?;
        lay_out_places(&probe.path, host_id, disk_mb, self.images.as_ref().ok())?;
        Ok(probe)
    }
}

/// A directory to try a sandbox out in; removed when dropped.
pub struct Probe<'a> {
    disk: &'a Disk,
    path: PathBuf,
    /// The host uid and gid of the sandbox.
    pub host_id: Option<u32>,
}

impl Probe<'_> {
    /// What its workspace is.
    pub fn workspace(&self) -> Workspace {
        Workspace::found(&self.path)
    }

    /// Opens the directory.
    pub fn open(&self) -> io::Result<OwnedFd> {
        File::open(&self.path).map(OwnedFd::from)
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // Nothing ever ran in it but PID 1; what can't be removed now is at the next start.
        let _ = fs::remove_dir_all(&self.path);
        self.disk.release_host_id(self.host_id);
    }
}

/// Fills the directory of a new object.
pub(super) fn lay_out(
    path: &Path,
    external_id: &ExternalId,
    owned: &Owned,
    images: Option<&Templates>,
) -> io::Result<()> {
    private_dir(path)?;
    lay_out_places(path, owned.host_id, owned.resources.disk_mb, images)?;
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
    };
    write_durably(&path.join("record.json"), &serde_json::to_vec_pretty(&row)?)?;
    sync_dir(path)
}

/// Makes the lock and the workspace. An image is given to its user by the launcher that mounts it.
fn lay_out_places(
    path: &Path,
    host_id: Option<u32>,
    disk_mb: u64,
    images: Option<&Templates>,
) -> io::Result<()> {
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

/// Says what an invalid owner means: nobody of that number exists where this server is root.
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
