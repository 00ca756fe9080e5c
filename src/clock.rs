//! Time and chance, injected: the only callers of `now()` and of random numbers.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::types::{SandboxId, Timestamp};

/// Tells the time and waits.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Returns once the wall clock shows `at`, or at once where it has passed.
    async fn sleep_until(&self, at: Timestamp);
}

/// Hands out ids and chance.
pub trait IdSource: Send + Sync + 'static {
    /// An id that no sandbox has had.
    fn sandbox_id(&self) -> SandboxId;

    /// An id for one request, opaque and unique.
    fn request_id(&self) -> String;

    /// The wall clock in nanoseconds since 1970; never the same number twice in a process, so that
    /// an id that is made of it and a name is nobody else's.
    fn unix_ns(&self) -> i64;

    /// A random number in `0..=1000`, to spread retries.
    fn jitter_permille(&self) -> u16;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(jiff::Timestamp::now().as_millisecond())
    }

    async fn sleep_until(&self, at: Timestamp) {
        // A wall clock can step: look again at least once a second instead of trusting one sleep.
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
    }
}

/// The last number that [`SystemIds`] handed out as the time.
static LAST_UNIX_NS: AtomicI64 = AtomicI64::new(0);

/// Ids from the system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    fn sandbox_id(&self) -> SandboxId {
        SandboxId::trusted(uuid::Uuid::now_v7().to_string())
    }

    fn request_id(&self) -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }

    fn unix_ns(&self) -> i64 {
        let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
        let next = |last: i64| now.max(last.saturating_add(1));
        let last =
            LAST_UNIX_NS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| Some(next(l)));
        next(last.unwrap_or_else(|last| last))
    }

    fn jitter_permille(&self) -> u16 {
        let bytes = uuid::Uuid::now_v7().into_bytes();
        u16::from_be_bytes([bytes[14], bytes[15]]) % 1001
    }
}
