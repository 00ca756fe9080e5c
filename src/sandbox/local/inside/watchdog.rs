//! When a workspace is looked at that nothing limits, and what is too much. Pure.
//!
//! The kernel tells nobody how large a tree is, so all of it is [walked through](super::usage), now
//! and then: soon where little is left of the limit or the host's disk has lost much in the
//! meantime, seldom where nothing changes, and never for more than a part of a processor.
//!
//! A sandbox that is too large when it starts was stopped for that, and is started to be cleaned up:
//! it may stay as large as it is, and become smaller. So may one that goes on after it was told.
//!
//! # Races it accepts
//! - What is written between two looks is there; the limit is met a moment late.
//! - What is written during the first walk of a start counts as having been there.
//! - Who moves a file during a walk may have it counted twice or not at all. So only two walks, one
//!   right after the other, make it too much.

use std::time::Duration;

use super::usage::WalkProgress;

/// The shortest rest between two walks.
const REST_MIN: Duration = Duration::from_millis(500);

/// The longest, where it has lately grown, and where it has not.
const REST_MAX: Duration = Duration::from_secs(10);
const REST_MAX_IDLE: Duration = Duration::from_secs(60);

/// How many times as long as a walk took is rested after it.
const REST_FACTOR: u32 = 10;

/// How fast it is assumed to grow, in bytes a second, where the host's disk does not tell more.
const GROWTH: u64 = 100 << 20;

/// What one that is too large may grow by: commands that clean up write a little as well.
const SLACK: u64 = 1 << 20;

/// How many times as long after an alarm.
const ALARM_FACTOR: u32 = 4;

/// How many walks in a row must find too much.
const OVER_MAX: u32 = 2;

/// How many walks may lose their way in a row before the sandbox counts as too large: who goes on
/// moving its deepest directories keeps its size from being seen.
const LOST_MAX: u32 = 8;

/// What is known of a workspace's use.
#[derive(Debug)]
pub struct Watchdog {
    limit: u64,
    /// What it may take; `None` before the first walk, and after it took too much.
    allowed: Option<u64>,
    used: u64,
    /// Walks in a row that found too much.
    over: u32,
    /// Walks in a row that were lost.
    lost: u32,
    rest: Duration,
}

impl Watchdog {
    /// One that has not looked yet; `limit` is in bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, allowed: None, used: 0, over: 0, lost: 0, rest: Duration::ZERO }
    }

    /// Whether a walk that has seen so much need not go on.
    pub fn is_enough(&self, bytes: u64) -> bool {
        self.allowed.is_some_and(|allowed| bytes > allowed)
    }

    /// Hears how a walk ended, what it saw and how long it took. Says whether it is too much now.
    pub fn hear(&mut self, seen: WalkProgress, bytes: u64, took: Duration) -> bool {
        let is_over = self.is_enough(bytes);
        let is_lost = seen == WalkProgress::Lost && !is_over;
        self.over = if is_over { self.over + 1 } else { 0 };
        self.lost = if is_lost { self.lost + 1 } else { 0 };
        if self.over >= OVER_MAX || self.lost >= LOST_MAX {
            *self = Self::new(self.limit);
            return true;
        }
        if is_over {
            self.rest = Duration::ZERO;
        } else if is_lost {
            self.rest = took.max(REST_MIN);
        } else {
            let most = self.allowed.unwrap_or(u64::MAX);
            self.allowed = Some(bytes.saturating_add(SLACK).min(most).max(self.limit));
            self.rest = self.rest_after(bytes, took);
            self.used = bytes;
        }
        false
    }

    /// How long to rest before the next walk.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    /// Whether the host's disk has lost so much since a walk began that the next should not wait,
    /// but for a little, as long as that walk took it.
    pub fn is_alarmed(&self, lost_bytes: u64, rested: Duration, took: Duration) -> bool {
        let is_rested = rested >= REST_MIN.max(took.saturating_mul(ALARM_FACTOR));
        is_rested && lost_bytes > self.left(self.used) / 2
    }

    fn left(&self, used: u64) -> u64 {
        self.allowed.unwrap_or(self.limit).saturating_sub(used)
    }

    fn rest_after(&self, bytes: u64, took: Duration) -> Duration {
        let until_full = Duration::from_secs(self.left(bytes) / GROWTH);
        let rest = until_full.clamp(REST_MIN, REST_MAX);
        let is_idle = bytes <= self.used;
        let longer = if is_idle { (self.rest * 2).min(REST_MAX_IDLE) } else { Duration::ZERO };
        rest.max(longer).max(took.saturating_mul(REST_FACTOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const NEVER: [usize; 0] = [];
    const QUICK: Duration = Duration::from_millis(2);

    /// What a series of whole walks comes to: at which of them it was too much.
    fn too_much(limit_mb: u64, found_mb: &[u64]) -> Vec<usize> {
        let mut dog = Watchdog::new(limit_mb * MB);
        let hear =
            |(at, mb): (usize, &u64)| dog.hear(WalkProgress::Whole, mb * MB, QUICK).then_some(at);
        found_mb.iter().enumerate().filter_map(hear).collect()
    }

    #[test]
    fn one_that_grows_past_its_limit_is_too_large_at_the_second_look() {
        assert_eq!(too_much(100, &[10, 100, 101, 150]), [3]);
        assert_eq!(too_much(100, &[10, 101, 99, 101, 50]), NEVER, "each time a file was moved");
        assert_eq!(too_much(100, &[0, 200, 200, 200, 200, 203, 203]), [2, 6], "and grew again");
    }

    #[test]
    fn one_that_starts_too_large_may_become_smaller_and_not_larger() {
        assert_eq!(too_much(100, &[300, 301, 300, 250, 200, 100, 99]), NEVER);
        assert_eq!(too_much(100, &[300, 302, 302]), [2]);
        assert_eq!(too_much(100, &[300, 200, 250, 250]), [3], "what was won back is lost");
        assert_eq!(too_much(100, &[300, 50, 101, 101]), [3]);
    }

    #[test]
    fn who_keeps_losing_the_walks_is_too_large_and_who_loses_some_is_not() {
        let mut dog = Watchdog::new(100 * MB);
        let lost = |dog: &mut Watchdog| dog.hear(WalkProgress::Lost, MB, QUICK);
        for _ in 0..3 {
            for _ in 1..LOST_MAX {
                assert!(!lost(&mut dog));
            }
            assert!(!dog.hear(WalkProgress::Whole, MB, QUICK));
        }
        assert_eq!((0..LOST_MAX).filter(|_| lost(&mut dog)).count(), 1);
        dog.hear(WalkProgress::Whole, MB, QUICK);
        assert!(!dog.hear(WalkProgress::Lost, 101 * MB, QUICK));
        assert!(dog.hear(WalkProgress::Lost, 101 * MB, QUICK), "what was seen is enough");
    }

    #[test]
    fn it_rests_the_longer_the_more_is_left_and_the_less_changes() {
        let mut dog = Watchdog::new(2_000 * MB);
        let mut rest = |used: u64, took: Duration| {
            assert!(!dog.hear(WalkProgress::Whole, used * MB, took));
            dog.rest().as_millis()
        };
        assert_eq!(rest(10, QUICK), 10_000);
        assert_eq!(rest(1_500, QUICK), 5_000);
        assert_eq!(rest(1_990, QUICK), 500);
        assert_eq!(rest(1_990, QUICK), 1_000);
        assert_eq!(rest(1_990, QUICK), 2_000);
        assert_eq!(rest(1_991, QUICK), 500, "it grows again");
        assert_eq!(rest(1_992, Duration::from_secs(3)), 30_000, "a tenth of a processor");
        assert_eq!(rest(1_992, QUICK), 60_000);
        let (second, none) = (Duration::from_secs(1), Duration::ZERO);
        assert!(dog.is_alarmed(5 * MB, second, QUICK));
        assert!(!dog.is_alarmed(5 * MB, none, QUICK) && !dog.is_alarmed(3 * MB, second, QUICK));
        assert!(!dog.is_alarmed(5 * MB, second, second));
    }
}
