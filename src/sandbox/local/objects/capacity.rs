//! Connects the watch over the host's disk with single objects.

use std::sync::Arc;

use super::LocalObjects;
use crate::sandbox::local::cgroup::Group;
use crate::sandbox::local::disk::{Owned, Stored};
use crate::sandbox::local::host_disk::WatchedSandbox;
use crate::sandbox::local::link::Link;
use crate::sandbox::{Capacity, ProviderError};

impl LocalObjects {
    /// The room on the host's disk at the last look.
    pub fn capacity(&self) -> Capacity {
        self.host_disk.capacity()
    }

    /// Whether the host's disk had room for a start at the last look.
    ///
    /// # Errors
    /// `Exhausted` if there is none.
    pub(super) fn has_room(&self) -> Result<(), ProviderError> {
        let shortage = self.capacity().shortage;
        shortage.map_or(Ok(()), |shortage| Err(ProviderError::exhausted(shortage)))
    }

    /// Watches a sandbox that has just started, while it runs.
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
