//! A directory that is not an object yet, because it has no name. A sandbox can already run in it.
//!
//! Its record and then its name come last. A directory dropped before that has never been an
//! object.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::layout::{lay_out, record};
use super::{Disk, Owned, Stored, StoredIn, WorkspaceKind};
use crate::sandbox::CreateSpec;
use crate::types::ExternalId;

/// A directory to become an object or to probe a sandbox in; removed when dropped.
pub struct Unnamed {
    disk: Arc<Disk>,
    incarnation: String,
    path: PathBuf,
    is_named: bool,
    /// The host uid and gid of the sandbox; `None` if it runs as the server's own user.
    pub host_id: Option<u32>,
}

/// The result of naming a directory.
pub enum Naming {
    /// It is an object now.
    Named(Box<Stored>),
    /// The name is taken.
    Taken,
    /// The caller no longer wanted it.
    Unwanted,
}

impl Disk {
    /// Makes a directory for an object of this incarnation with this disk size.
    ///
    /// # Errors
    /// The file system's error. The next start removes what is left.
    pub fn lay_out(self: &Arc<Self>, incarnation: String, disk_mb: u64) -> io::Result<Unnamed> {
        let path = self.dir.join("making").join(&incarnation);
        let host_id = self.host_ids.take(&incarnation)?;
        let disk = Arc::clone(self);
        let made = Unnamed { disk, incarnation, path, is_named: false, host_id };
        lay_out(&made.path, host_id, disk_mb, self.images.templates().as_deref())?;
        Ok(made)
    }
}

impl Unnamed {
    /// Writes the record and gives the directory its name, unless it is no longer `wanted`. The
    /// name is durable only after [`Disk::sync_new`].
    ///
    /// The file system's error; it has no name then.
    /// What the file system answers; it has no name then.
    pub fn name(&mut self, spec: &CreateSpec, wanted: impl FnOnce() -> bool) -> io::Result<Naming> {
        let external_id = ExternalId::trusted(format!("{}@{}", spec.name, self.incarnation));
        let owned = Owned {
            labels: spec.labels.clone(),
            host_id: self.host_id,
            resources: spec.template.resources.clone(),
            network: spec.template.network.clone(),
            workload: Arc::clone(&spec.template.workload),
        };
        let workspace = self.workspace();
        record(&self.path, &external_id, &owned)?;
        if !wanted() {
            return Ok(Naming::Unwanted);
        }
        let object = self.disk.object_dir(&spec.name);
        match renameat_with(CWD, &self.path, CWD, &object, RenameFlags::NOREPLACE) {
            Ok(()) => self.is_named = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Ok(Naming::Taken),
            Err(errno) => return Err(errno.into()),
        }
        Ok(Naming::Named(Box::new(Stored {
            name: spec.name.clone(),
            external_id,
            place: StoredIn::Objects,
            made: false,
            workspace,
            owned: Some(owned),
        })))
    }

    /// The kind of its workspace.
    pub fn workspace(&self) -> WorkspaceKind {
        WorkspaceKind::found(&self.path)
    }

    /// Whether a new workspace would be of the same kind. This may try again whether images are
    /// usable. Blocks.
    pub fn is_as_new(&self) -> bool {
        (self.workspace() == WorkspaceKind::Image) == self.disk.images.templates().is_some()
    }

    /// Opens the directory, for its launcher.
    pub fn open(&self) -> io::Result<OwnedFd> {
        File::open(&self.path).map(OwnedFd::from)
    }

    /// Syncs an empty workspace, so that naming it waits less for the disk.
    pub fn sync(&self) -> io::Result<()> {
        super::sync_image(&self.path)
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        // Only PID 1 ran in it; the next start removes what can't be removed now.
        let _ = self.disk.remove_unnamed(&self.incarnation);
        self.disk.host_ids.release(self.host_id);
    }
}
