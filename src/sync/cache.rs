//! Decoded manifests: those in use and the last ones, within one bound of memory.
//!
//! A manifest counts with the length of its JSON, which is about what it takes when it is decoded,
//! and twice while it is decoded. Readers of the same version share one. Who finds no room waits,
//! and unused ones give way.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use object_store::path::Path;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SyncError;
use super::manifest::{MANIFEST_LEN_MAX, Manifest};
use super::turns::Turns;

/// Most manifests in memory together, in KiB.
const MEMORY_KB_MAX: u64 = 4 * MANIFEST_LEN_MAX / 1024;

/// Most unused manifests that are kept: their length in bytes, and their number.
const KEPT_LEN_MAX: u64 = MANIFEST_LEN_MAX;
const KEPT_MAX: usize = 256;

/// A decoded manifest, which counts against the bound while it is held.
#[derive(Debug)]
pub struct LoadedManifest {
    manifest: Manifest,
    /// The length of its JSON, in bytes.
    len: u64,
    _memory: OwnedSemaphorePermit,
}

impl Deref for LoadedManifest {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.manifest
    }
}

/// A decoded manifest of several users.
pub type SharedManifest = Arc<LoadedManifest>;

/// Room for a manifest that is about to be decoded.
pub struct ManifestRoom {
    len: u64,
    memory: OwnedSemaphorePermit,
}

impl ManifestRoom {
    /// The decoded manifest takes half of the room.
    pub fn fill(mut self, manifest: Manifest) -> LoadedManifest {
        let half = self.memory.num_permits() / 2;
        drop(self.memory.split(half));
        LoadedManifest { manifest, len: self.len, _memory: self.memory }
    }
}

/// The decoded manifests of a server.
#[derive(Clone)]
pub struct ManifestCache {
    memory: Arc<Semaphore>,
    entries: Arc<Mutex<CacheEntries>>,
    loads: Turns<Path>,
}

#[derive(Default)]
struct CacheEntries {
    /// By the place of the manifest: those that may be in use.
    used: HashMap<Path, Weak<LoadedManifest>>,
    /// The last ones, oldest first.
    kept: VecDeque<(Path, SharedManifest)>,
    /// The sum of their lengths.
    kept_len: u64,
    /// How many wait for room: nothing is kept meanwhile.
    waiting: usize,
}

impl Default for ManifestCache {
    fn default() -> Self {
        let kb = usize::try_from(MEMORY_KB_MAX).expect("some MiB");
        Self {
            memory: Arc::new(Semaphore::new(kb)),
            entries: Arc::default(),
            loads: Turns::default(),
        }
    }
}

impl ManifestCache {
    /// The manifest at a place, which is loaded if it is not in memory. Others that ask for it meanwhile
    /// wait for this.
    ///
    /// # Errors
    /// Those of `load`.
    pub async fn get(
        &self,
        path: &Path,
        load: impl Future<Output = Result<LoadedManifest, SyncError>>,
    ) -> Result<SharedManifest, SyncError> {
        if let Some(found) = self.entries().find(path) {
            return Ok(found);
        }
        let _turn = self.loads.take(path).await;
        if let Some(found) = self.entries().find(path) {
            return Ok(found);
        }
        let loaded = Arc::new(load.await?);
        self.entries().keep(path.clone(), &loaded);
        Ok(loaded)
    }

    /// Waits until there is room for a manifest with this length, in bytes.
    pub async fn room(&self, len: u64) -> ManifestRoom {
        let kb = permits(len);
        let memory = match Arc::clone(&self.memory).try_acquire_many_owned(kb) {
            Ok(memory) => memory,
            Err(_) => {
                let _waiting = WaitingForRoom::begin(self);
                let memory = Arc::clone(&self.memory).acquire_many_owned(kb).await;
                memory.expect("it is never closed")
            }
        };
        ManifestRoom { len, memory }
    }

    /// Keeps a manifest that was just made, if there is room for it.
    pub fn keep(&self, path: Path, manifest: Manifest, len: u64) {
        if let Ok(memory) = Arc::clone(&self.memory).try_acquire_many_owned(permits(len) / 2) {
            let loaded = Arc::new(LoadedManifest { manifest, len, _memory: memory });
            self.entries().keep(path, &loaded);
        }
    }

    /// Forgets the manifest of a version that is removed.
    pub fn forget(&self, path: &Path) {
        self.entries().forget(path);
    }

    fn entries(&self) -> MutexGuard<'_, CacheEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permits of a manifest and of its JSON.
fn permits(len: u64) -> u32 {
    let kb = 2 * (len.min(MANIFEST_LEN_MAX) / 1024 + 1);
    u32::try_from(kb.min(MEMORY_KB_MAX)).expect("some MiB")
}

impl CacheEntries {
    fn find(&mut self, path: &Path) -> Option<SharedManifest> {
        let found = self.used.get(path)?.upgrade();
        if found.is_none() {
            self.used.remove(path);
        }
        if let Some(at) = self.kept.iter().position(|(kept, _)| kept == path)
            && let Some(entry) = self.kept.remove(at)
        {
            self.kept.push_back(entry);
        }
        found
    }

    fn keep(&mut self, path: Path, loaded: &SharedManifest) {
        self.forget(&path);
        if self.used.len() > 2 * KEPT_MAX {
            self.used.retain(|_, used| used.strong_count() > 0);
        }
        self.used.insert(path.clone(), Arc::downgrade(loaded));
        if self.waiting > 0 || loaded.len > KEPT_LEN_MAX {
            return;
        }
        self.kept_len += loaded.len;
        self.kept.push_back((path, Arc::clone(loaded)));
        while self.kept_len > KEPT_LEN_MAX || self.kept.len() > KEPT_MAX {
            let Some((_, oldest)) = self.kept.pop_front() else { return };
            self.kept_len -= oldest.len;
        }
    }

    fn forget(&mut self, path: &Path) {
        self.used.remove(path);
        if let Some(at) = self.kept.iter().position(|(kept, _)| kept == path)
            && let Some((_, gone)) = self.kept.remove(at)
        {
            self.kept_len -= gone.len;
        }
    }
}

/// A reader waits for room.
struct WaitingForRoom<'a>(&'a ManifestCache);

impl<'a> WaitingForRoom<'a> {
    fn begin(cache: &'a ManifestCache) -> Self {
        let mut entries = cache.entries();
        entries.waiting += 1;
        entries.kept_len = 0;
        let kept = std::mem::take(&mut entries.kept);
        drop(entries);
        drop(kept);
        Self(cache)
    }
}

impl Drop for WaitingForRoom<'_> {
    fn drop(&mut self) {
        self.0.entries().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::types::{SyncStats, SyncVersion, Timestamp};

    fn manifest() -> Manifest {
        Manifest {
            version: SyncVersion { seconds: 1, number: 1 },
            walked_at: Timestamp::from_unix_ms(0),
            stats: SyncStats::default(),
            left_out: Vec::new(),
            entries: Vec::new(),
        }
    }

    async fn loaded(cache: &ManifestCache, name: &str, len: u64) -> SharedManifest {
        let load = async { Ok(cache.room(len).await.fill(manifest())) };
        cache.get(&Path::from(name), load).await.expect("loaded")
    }

    #[tokio::test]
    async fn readers_of_one_version_share_one_manifest() {
        let (cache, loads) = (ManifestCache::default(), AtomicUsize::new(0));
        let path = Path::from("a");
        let load = || async {
            loads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(cache.room(1000).await.fill(manifest()))
        };
        let (one, two) = tokio::join!(cache.get(&path, load()), cache.get(&path, load()));
        assert!(Arc::ptr_eq(&one.expect("loaded"), &two.expect("loaded")));
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        // Also when the first one could not load it.
        let fails = async { Err(SyncError::NoVersion) };
        let other = Path::from("b");
        let (one, two) = tokio::join!(cache.get(&other, fails), cache.get(&other, load()));
        assert!(one.is_err() && two.is_ok());
        cache.forget(&path);
        cache.get(&path, load()).await.expect("loaded");
        assert_eq!(loads.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn the_memory_of_all_is_bounded_and_unused_ones_give_way() {
        let cache = ManifestCache::default();
        let long = MANIFEST_LEN_MAX;
        // The last ones are kept, up to a bound, and those in use as well.
        let held = loaded(&cache, "held", long - 4096).await;
        drop(loaded(&cache, "small", 1000).await);
        assert_eq!(cache.entries().kept.len(), 2);
        drop(loaded(&cache, "kept", long / 2).await);
        assert_eq!(cache.entries().kept.len(), 2, "the oldest gave way");
        // Half of the bound is in use.
        let held = [held, loaded(&cache, "second", long).await];
        let half = MEMORY_KB_MAX / 2 - 64;
        let left = cache.memory.available_permits() as u64;
        assert!((half - 64..=half + 128).contains(&left), "{left} of {half}");
        let third = cache.room(long).await;
        let mut fourth = Box::pin(cache.room(long));
        assert!(futures_util::poll!(&mut fourth).is_pending(), "there is no room");
        let third = Arc::new(third.fill(manifest()));
        cache.entries().keep(Path::from("third"), &third);
        assert_eq!(cache.entries().kept.len(), 0, "nothing is kept meanwhile");
        drop(third);
        let fourth = fourth.await;
        drop((held, fourth));
        assert_eq!(cache.memory.available_permits() as u64, MEMORY_KB_MAX);
        assert_eq!(cache.entries().waiting, 0);
    }
}
