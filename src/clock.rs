//! Time and randomness behind traits: only this module calls `now()` or generates random numbers.

mod steady;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::types::{SandboxId, Timestamp};
use steady::{ClockReading, Steady};

/// A clock and its timer.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Returns when the wall clock reaches `at`, or at once if it has passed.
    async fn sleep_until(&self, at: Timestamp);
}

/// Generates ids and random numbers.
pub trait IdSource: Send + Sync + 'static {
    /// A new sandbox id.
    fn sandbox_id(&self) -> SandboxId;

    /// A new id of a message, a run or a session.
    fn uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// An id for one request, opaque and unique.
    fn request_id(&self) -> String;

    /// The wall clock in nanoseconds since 1970; never the same number twice in a process, so that an id
    /// made of it and a name is unique.
    fn unix_ns(&self) -> i64;

    /// A random number in `0..=1000`, to spread retries.
    fn jitter_permille(&self) -> u16;
}

/// The system's clock without steps: it follows the wall clock, and absorbs a step slowly. All instances
/// in a process show the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // Read under the lock, so that readings are used in the order in which they were taken.
        let mut steady = STEADY.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, boot) = read_clocks();
        let (now, look) = steady.get_or_insert(Steady::new(wall, boot)).advance(wall, boot);
        drop(steady);
        match look {
            ClockReading::Usual => {}
            ClockReading::Stepped(by) => tracing::warn!(
                by_seconds = by / 1_000_000_000,
                "the system clock was set; timestamps approach it at a tenth of real time"
            ),
            ClockReading::Absorbed => {
                tracing::info!("the difference to the system clock is absorbed")
            }
        }
        Timestamp::from_unix_ms(now / 1_000_000)
    }

    async fn sleep_until(&self, at: Timestamp) {
        // Time may run faster or slower than the timer, so check at least once a second.
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
    }
}

/// The process's clock; `None` before its first use.
static STEADY: Mutex<Option<Steady>> = Mutex::new(None);

/// The wall clock and the boot clock (which counts suspend), in nanoseconds.
fn read_clocks() -> (i64, i64) {
    let mut before = boot_ns();
    for _ in 0..3 {
        let wall = wall_ns();
        let after = boot_ns();
        // If the thread was suspended in between, the pair would look like a step.
        if after - before < READING_MAX_NS {
            return (wall, after);
        }
        before = after;
    }
    (wall_ns(), boot_ns())
}

/// Longest time between the two readings.
const READING_MAX_NS: i64 = 50_000_000;

fn wall_ns() -> i64 {
    // Sufficient until the year 2262.
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

fn boot_ns() -> i64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    boot.tv_sec * 1_000_000_000 + boot.tv_nsec
}

/// The last time that [`SystemIds::unix_ns`] returned.
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
        let now = wall_ns();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_nanosecond_is_handed_out_twice() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| (0..5_000).map(|_| SystemIds.unix_ns()).collect::<Vec<_>>())
            })
            .collect();
        let all: Vec<i64> =
            threads.into_iter().flat_map(|thread| thread.join().expect("it ends well")).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn the_clock_follows_the_systems() {
        let before = jiff::Timestamp::now().as_millisecond();
        let now = SystemClock.now().unix_ms();
        let after = jiff::Timestamp::now().as_millisecond();
        assert!((before..=after).contains(&now), "{before} {now} {after}");
        assert!(SystemClock.now().unix_ms() >= now);
    }
}
