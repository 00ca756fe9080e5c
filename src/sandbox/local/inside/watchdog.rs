//! Decides when to measure an unlimited workspace, and when it is too large. Pure.
//!
//! The kernel does not report the size of a tree, so the launcher [walks through it](super::usage)
//! from time to time: soon if little is left of the limit or the host's disk has lost much, rarely
//! if nothing changes, and never for more than a part of a processor.
//!
//! A sandbox that starts too large was stopped for that, and is started to be cleaned up: it may
//! keep its size and shrink. The same holds for one that goes on after it hit the limit.
//!
//! # Accepted races
//! - Between two walks the workspace can grow past the limit.
//! - Data written during the first walk after a start counts as old.
//! - A file that is moved during a walk may count twice or not at all. So only two walks in a row
//!   make it too large.

use std::time::Duration;

use super::usage::WalkProgress;

/// The shortest pause between two walks.
const REST_MIN: Duration = Duration::from_millis(500);

/// The longest pause, after recent growth and without.
const REST_MAX: Duration = Duration::from_secs(10);
const REST_MAX_IDLE: Duration = Duration::from_secs(60);

/// The pause as a multiple of the last walk's duration.
const REST_FACTOR: u32 = 10;

/// The assumed growth, in bytes a second, if the host's disk does not show more.
const GROWTH: u64 = 100 << 20;

/// The growth that is allowed to one that is too large: commands that clean up write a little too.
const SLACK: u64 = 1 << 20;

/// The same multiple after an alarm.
const ALARM_FACTOR: u32 = 4;

/// How many walks in a row must find too much.
const OVER_MAX: u32 = 2;

/// How many walks may be lost in a row before the sandbox counts as too large: a process that
/// keeps moving deep directories hides its size.
const LOST_MAX: u32 = 8;

/// The known size of a workspace.
#[derive(Debug)]
pub struct Watchdog {
    limit: u64,
    /// The allowed size; `None` before the first walk, and after it was too large.
    allowed: Option<u64>,
    used: u64,
    /// Walks in a row that found too much.
    over: u32,
    /// Walks in a row that were lost.
    lost: u32,
    rest: Duration,
}

impl Watchdog {
    /// A watchdog before its first walk; `limit` is in bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, allowed: None, used: 0, over: 0, lost: 0, rest: Duration::ZERO }
    }

    /// Whether a walk that has seen this much can stop.
    pub fn is_enough(&self, bytes: u64) -> bool {
        self.allowed.is_some_and(|allowed| bytes > allowed)
    }

    /// Takes the end, the bytes and the duration of a walk; returns whether the workspace is too
    /// large now.
    pub fn judge(&mut self, seen: WalkProgress, bytes: u64, took: Duration) -> bool {
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

    /// The pause before the next walk.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    /// Whether the host's disk has lost so much since a walk began that the next one should start
    /// after only a short pause, as long as the last walk.
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

    /// The numbers of the walks at which a series is too large.
    fn too_much(limit_mb: u64, found_mb: &[u64]) -> Vec<usize> {
        let mut dog = Watchdog::new(limit_mb * MB);
        let hear =
            |(at, mb): (usize, &u64)| dog.judge(WalkProgress::Whole, mb * MB, QUICK).then_some(at);
        found_mb.iter().enumerate().filter_map(hear).collect()
    }

    #[test]
    fn growth_past_the_limit_counts_at_the_second_walk() {
        assert_eq!(too_much(100, &[10, 100, 101, 150]), [3]);
        assert_eq!(too_much(100, &[10, 101, 99, 101, 50]), NEVER, "each time a file was moved");
        assert_eq!(too_much(100, &[0, 200, 200, 200, 200, 203, 203]), [2, 6], "and grew again");
    }

    #[test]
    fn a_workspace_that_starts_too_large_may_only_shrink() {
        assert_eq!(too_much(100, &[300, 301, 300, 250, 200, 100, 99]), NEVER);
        assert_eq!(too_much(100, &[300, 302, 302]), [2]);
        assert_eq!(too_much(100, &[300, 200, 250, 250]), [3], "freed space may not be used again");
        assert_eq!(too_much(100, &[300, 50, 101, 101]), [3]);
    }

    #[test]
    fn many_lost_walks_in_a_row_count_as_too_large_and_a_few_do_not() {
        let mut dog = Watchdog::new(100 * MB);
        let lost = |dog: &mut Watchdog| dog.judge(WalkProgress::Lost, MB, QUICK);
        for _ in 0..3 {
            for _ in 1..LOST_MAX {
                assert!(!lost(&mut dog));
            }
            assert!(!dog.judge(WalkProgress::Whole, MB, QUICK));
        }
        assert_eq!((0..LOST_MAX).filter(|_| lost(&mut dog)).count(), 1);
        dog.judge(WalkProgress::Whole, MB, QUICK);
        assert!(!dog.judge(WalkProgress::Lost, 101 * MB, QUICK));
        assert!(dog.judge(WalkProgress::Lost, 101 * MB, QUICK), "the bytes seen suffice");
    }

    #[test]
    fn the_pause_grows_with_the_room_left_and_shrinks_with_growth() {
        let mut dog = Watchdog::new(2_000 * MB);
        let mut rest = |used: u64, took: Duration| {
            assert!(!dog.judge(WalkProgress::Whole, used * MB, took));
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
