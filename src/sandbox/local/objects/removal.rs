//! Removes what is in the trash. A removal that failed is tried again by itself, with a growing
//! pause, and at once by a delete of that object or a create of its name. So a failure that passes,
//! such as too few descriptors, keeps neither the name nor the files.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::{LocalObjects, locked};
use crate::sandbox::ProviderError;
use crate::sandbox::local::disk::Stored;
use crate::types::{ExternalId, ObjectName};

/// How long a call waits for a removal. Most trees are gone by then, and the caller's next look
/// finds them absent.
const REMOVAL_WAIT: Duration = Duration::from_secs(1);

/// The pause before a failed removal is tried again. Each further one doubles.
pub(super) const REMOVAL_AGAIN: Duration = Duration::from_secs(1);

/// The longest pause.
const REMOVAL_AGAIN_MAX: Duration = Duration::from_secs(300);

/// The result of a removal; `None` while it is under way.
pub(super) type Removal = watch::Receiver<Option<Result<(), String>>>;

/// The removals of a provider.
#[derive(Default)]
pub(super) struct Removals {
    under_way: Mutex<HashMap<ExternalId, Removal>>,
    /// Those that failed and wait for their next try.
    waiting: Mutex<HashSet<ExternalId>>,
}

/// Waits for a removal; `None` if it goes on, or if its thread has ended.
pub(super) async fn ended(mut removal: Removal) -> Option<Result<(), String>> {
    let ended = removal.wait_for(Option::is_some);
    let ended = tokio::time::timeout(REMOVAL_WAIT, ended).await;
    ended.ok().and_then(Result::ok).and_then(|ended| ended.clone())
}

impl LocalObjects {
    /// Removes what still has a name from before. If that takes longer, the object is there; remains
    /// without a record are only in the way.
    pub(super) async fn free(&self, name: &ObjectName) -> Result<(), ProviderError> {
        for stored in self.blocking(|disk| disk.trashed()).await? {
            if stored.name != *name {
                continue;
            }
            let is_object = stored.owned.is_some();
            let object = self.object(&stored);
            let why = match ended(self.removal(stored, REMOVAL_AGAIN)).await {
                Some(Ok(())) => continue,
                Some(Err(why)) => why,
                None => "it takes long".into(),
            };
            if is_object {
                return Err(ProviderError::Present(Box::new(object)));
            }
            return Err(ProviderError::Broken(format!(
                "the sandbox that had the name {name} before is still being removed: {why}"
            )));
        }
        Ok(())
    }

    /// The removal of an object in the trash; begins it unless it is under way. If it fails, it is
    /// tried again after `pause`.
    pub(super) fn removal(&self, trashed: Stored, pause: Duration) -> Removal {
        let mut under_way = locked(&self.removals.under_way);
        if let Some(removal) = under_way.get(&trashed.external_id) {
            return removal.clone();
        }
        let (sender, removal) = watch::channel(None);
        under_way.insert(trashed.external_id.clone(), removal.clone());
        let (disk, removals) = (Arc::clone(&self.disk), Arc::clone(&self.removals));
        let (itself, runtime) = (Weak::clone(&self.itself), self.runtime.clone());
        self.runtime.spawn_blocking(move || {
            let emptied = disk.lock(&trashed).and_then(|lock| disk.empty(&trashed, &lock));
            let ended = match emptied {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(format!("removing {} failed: {error}", trashed.external_id))
                }
                Ok(()) | Err(_) => Ok(()),
            };
            locked(&removals.under_way).remove(&trashed.external_id);
            if let Err(why) = &ended
                && locked(&removals.waiting).insert(trashed.external_id.clone())
            {
                tracing::warn!(why, "a deleted sandbox is not removed yet; it is tried again");
                runtime.spawn(again(itself, trashed, pause));
            }
            // The caller may have stopped waiting.
            let _ = sender.send(Some(ended));
        });
        removal
    }
}

/// Tries a removal again after a pause.
async fn again(objects: Weak<LocalObjects>, trashed: Stored, pause: Duration) {
    tokio::time::sleep(pause).await;
    if let Some(objects) = objects.upgrade() {
        locked(&objects.removals.waiting).remove(&trashed.external_id);
        objects.removal(trashed, pause.saturating_mul(2).min(REMOVAL_AGAIN_MAX));
    }
}
