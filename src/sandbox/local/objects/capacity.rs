//! The host's disk, as far as single objects are concerned with it.

use std::sync::Arc;

use super::Objects;
use crate::sandbox::local::cgroup::Group;
use crate::sandbox::local::disk::{Owned, Stored};
use crate::sandbox::local::host_disk::WatchedSandbox;
use crate::sandbox::local::link::Link;
use crate::sandbox::{Capacity, ProviderError};

impl Objects {
    /// The room on the host's disk, as of a moment ago.
    pub fn capacity(&self) -> Capacity {
        self.host_disk.capacity()
    }

    /// Whether there is room to bring something up, as of a moment ago.
    ///
    /// # Errors
    /// `Exhausted` if there is none.
    pub(super) fn has_room(&self) -> Result<(), ProviderError> {
        let shortage = self.capacity().shortage;
        shortage.map_or(Ok(()), |shortage| Err(ProviderError::exhausted(shortage)))
    }

    /// Watches a sandbox that has just come up, for as long as it runs.
    pub(super) fn watch_host_disk(
        &self,
        link: &Arc<Link>,
        group: &Arc<Group>,
        stored: &Stored,
        owned: &Owned,
    ) {
        self.host_disk.watch(WatchedSandbox {
            link: Arc::downgrade(link),
            labels: owned.labels.clone(),
            image: self.disk.image(stored),
            group: Arc::downgrade(group),
        });
    }
}
