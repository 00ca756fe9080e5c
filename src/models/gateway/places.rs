//! How much of the server one sandbox may use at the gateway at one time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::refusal::BODY_LEN_MAX;
use crate::types::SandboxId;

/// Requests of one sandbox at one time: agents with many sub-agents have some ten.
const REQUESTS_MAX: usize = 32;
/// Counts of tokens at one time, of which an agent may ask for dozens at once. The others wait.
const COUNTS_MAX: usize = 4;
/// Bodies of one sandbox in memory at one time, in KiB.
const BODIES_KIB_MAX: u32 = 64 * 1024;

/// The places of all sandboxes that have a request.
#[derive(Debug, Default)]
pub struct GatewayPlaces(Mutex<HashMap<SandboxId, Arc<SandboxPlaces>>>);

/// The places of one sandbox.
#[derive(Debug)]
pub struct SandboxPlaces {
    requests: Arc<Semaphore>,
    counts: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    /// Whether an answer fell silent since the last request came.
    fell_silent: AtomicBool,
}

impl GatewayPlaces {
    /// The places of a sandbox. Those of sandboxes without a request are forgotten.
    pub fn of(&self, sandbox: &SandboxId) -> Arc<SandboxPlaces> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = all.get(sandbox) {
            return Arc::clone(places);
        }
        all.retain(|_, places| !places.is_free());
        let places = Arc::new(SandboxPlaces {
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            counts: Arc::new(Semaphore::new(COUNTS_MAX)),
            bodies: Arc::new(Semaphore::new(BODIES_KIB_MAX as usize)),
            fell_silent: AtomicBool::new(false),
        });
        all.insert(sandbox.clone(), Arc::clone(&places));
        places
    }
}

impl SandboxPlaces {
    fn is_free(&self) -> bool {
        self.requests.available_permits() == REQUESTS_MAX
    }

    /// A place for a request; `None` if there are too many.
    pub fn request(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.requests).try_acquire_owned().ok()
    }

    /// An answer fell silent.
    pub fn note_silence(&self) {
        self.fell_silent.store(true, Ordering::Relaxed);
    }

    /// Whether this request, which has the only place, is a repetition of one whose answer fell silent. An
    /// agent that repeats it would wait as long again, several times.
    pub fn repeats_silence(&self) -> bool {
        let is_alone = self.requests.available_permits() == REQUESTS_MAX - 1;
        self.fell_silent.swap(false, Ordering::Relaxed) && is_alone
    }

    /// A place for counting tokens, once there is one.
    pub async fn count(&self) -> OwnedSemaphorePermit {
        let counts = Arc::clone(&self.counts);
        counts.acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Room for a body, once there is some. `len` is what its head says, in bytes.
    pub async fn body(&self, len: Option<u64>) -> OwnedSemaphorePermit {
        let len = len.unwrap_or(BODY_LEN_MAX as u64).min(BODY_LEN_MAX as u64);
        let kib = u32::try_from(len.div_ceil(1024)).unwrap_or(BODIES_KIB_MAX);
        let bodies = Arc::clone(&self.bodies);
        bodies.acquire_many_owned(kib).await.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_so_many_places_and_another_has_its_own() {
        let places = GatewayPlaces::default();
        let (one, other) = (SandboxId::trusted("one"), SandboxId::trusted("other"));
        let held: Vec<_> = (0..REQUESTS_MAX).map(|_| places.of(&one).request()).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(places.of(&one).request().is_none());
        assert!(places.of(&other).request().is_some());
        assert_eq!(places.0.lock().expect("no panic").len(), 2);
        drop(held);
        drop(places.of(&SandboxId::trusted("third")));
        assert_eq!(
            places.0.lock().expect("no panic").len(),
            1,
            "those of no request are forgotten"
        );
    }
}
