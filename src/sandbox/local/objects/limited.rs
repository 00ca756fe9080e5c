//! How the limits hold: for new objects, and for an object that was made when less was possible.

use super::LocalObjects;
use crate::sandbox::local::cgroup::Controller;
use crate::sandbox::local::disk::{Disk, WorkspaceKind};
use crate::sandbox::local::limits;
use crate::sandbox::local::own_uids::OwnUids;
use crate::sandbox::{Enforcements, LimitsInForce, Target};

impl LocalObjects {
    /// How each limit holds.
    pub fn limits(&self) -> Enforcements {
        let why_no_image = self.disk.why_no_images();
        let why_shared = self.disk.host_ids.why_shared();
        limits::holds(&self.starter.cgroups, why_no_image.as_deref(), why_shared)
    }

    /// What the limit on memory counts.
    pub fn memory_counts(&self) -> &'static str {
        limits::memory_counts(self.starter.cgroups.version_of(Controller::Memory))
    }

    /// The limits of one object and how each holds; `None` if it does not exist.
    pub async fn limits_of(&self, target: &Target) -> Option<LimitsInForce> {
        let name = Disk::name_of(&target.external_id)?;
        let stored = self.blocking(move |disk| disk.object(&name)).await.ok()??;
        let is_meant = stored.external_id == target.external_id;
        let owned =
            stored.owned.filter(|owned| is_meant && owned.labels.sandbox == target.expected)?;
        let why_no_image = self.why_no_image(stored.workspace);
        let why_shared = self.why_shared(owned.host_id);
        let holds =
            limits::holds(&self.starter.cgroups, why_no_image.as_deref(), why_shared.as_deref());
        Some(LimitsInForce { resources: owned.resources, holds })
    }

    /// Why the disk of an object is not limited; `None` if it is.
    fn why_no_image(&self, workspace: WorkspaceKind) -> Option<String> {
        match workspace {
            WorkspaceKind::Image => None,
            WorkspaceKind::Directory => {
                Some(self.disk.why_no_images().unwrap_or_else(|| limits::MADE_WITHOUT.into()))
            }
        }
    }

    /// Why an object has the server's user; `None` if it has its own.
    fn why_shared(&self, host_id: Option<u32>) -> Option<String> {
        match (host_id, self.disk.host_ids.why_shared()) {
            (Some(_), _) => None,
            (None, Some(why)) => Some(why.to_owned()),
            (None, None) => Some(limits::MADE_SHARED.into()),
        }
    }

    /// Which limits are not enforced for a sandbox as a whole, and why.
    pub fn limits_not_enforced(&self) -> Option<String> {
        let why_no_image = self.disk.why_no_images();
        let why_shared = self.disk.host_ids.why_shared();
        limits::not_enforced(&self.starter.cgroups, why_no_image.as_deref(), why_shared)
    }

    /// Why sandboxes are refused although this host can make them.
    pub(super) fn refused(&self, workspace: WorkspaceKind, host_id: Option<u32>) -> Option<String> {
        let why_shared = self.why_shared(host_id);
        if let (OwnUids::Required, Some(why)) = (self.config.own_uids, &why_shared) {
            return Some(format!(
                "providers.local.own_uids is \"required\", but the sandbox would have the server's \
                 host uid: {why}"
            ));
        }
        if !self.config.require_limits {
            return None;
        }
        let (why_no_image, cgroups) = (self.why_no_image(workspace), &self.starter.cgroups);
        let missing =
            limits::not_enforced(cgroups, why_no_image.as_deref(), why_shared.as_deref())?;
        Some(format!("providers.local.require_limits is set, but on this host {missing}"))
    }
}
