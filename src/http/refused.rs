//! The last refused deliveries, in memory.
//!
//! Anyone can send badly signed deliveries, so they are not stored. To explain a webhook that does
//! not work, the last ones are kept here: their headers, in bounded length, and the reason. Bodies
//! and signatures are not kept. A restart forgets them, and new ones replace the oldest.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::types::Timestamp;

/// Deliveries that are kept, at most some 500 bytes each.
const ENTRIES_MAX: usize = 256;
/// Longest text that is kept of a header, in characters. GUIDs have 36.
const NAME_LEN_MAX: usize = 64;
/// Longest reason, in characters; ours are shorter.
const REASON_LEN_MAX: usize = 256;

/// A delivery that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number: later deliveries have greater ones, also after a restart.
    pub number: i64,
    /// When it arrived.
    pub received_at: Timestamp,
    /// The GUID in its header.
    pub delivery: Option<String>,
    /// The event in its header.
    pub event: Option<String>,
    /// Whether its signature is missing or wrong.
    pub is_badly_signed: bool,
    /// Why it was refused.
    pub reason: String,
}

/// The last deliveries that were refused.
#[derive(Debug)]
pub struct RefusedRing {
    entries: Mutex<VecDeque<Refused>>,
    first_number: i64,
}

impl RefusedRing {
    /// An empty ring of a server that started at this time.
    pub fn new(started_at: Timestamp) -> Self {
        // A million for each millisecond: no earlier server can have reached these numbers.
        let first_number = started_at.unix_ms().saturating_mul(1_000_000);
        Self { entries: Mutex::default(), first_number }
    }

    /// Adds a delivery; a full ring drops its oldest one.
    pub fn push(
        &self,
        received_at: Timestamp,
        delivery: Option<&str>,
        event: Option<&str>,
        is_badly_signed: bool,
        reason: &str,
    ) {
        let bounded = |text: &str, len_max| text.chars().take(len_max).collect::<String>();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let number = entries.back().map_or(self.first_number, |last| last.number + 1);
        if entries.len() == ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(Refused {
            number,
            received_at,
            delivery: delivery.map(|text| bounded(text, NAME_LEN_MAX)),
            event: event.map(|text| bounded(text, NAME_LEN_MAX)),
            is_badly_signed,
            reason: bounded(reason, REASON_LEN_MAX),
        });
    }

    /// All that are kept, newest first.
    pub fn newest_first(&self) -> Vec<Refused> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn the_last_ones_are_kept_in_bounded_length() {
        let ring = RefusedRing::new(at(5));
        for n in 0..ENTRIES_MAX + 10 {
            ring.push(at(n as i64), Some(&"x".repeat(9_999)), None, true, &"y".repeat(9_999));
        }
        let kept = ring.newest_first();
        assert_eq!(kept.len(), ENTRIES_MAX);
        assert_eq!(kept.first().map(|one| one.received_at), Some(at(265)));
        assert_eq!(kept.last().map(|one| one.received_at), Some(at(10)));
        let longest = kept.iter().map(|one| one.delivery.as_ref().map_or(0, String::len)).max();
        assert_eq!(longest, Some(NAME_LEN_MAX));
        assert!(kept.iter().all(|one| one.reason.len() == REASON_LEN_MAX));
    }

    #[test]
    fn numbers_grow_also_over_a_restart() {
        let (before, after) = (RefusedRing::new(at(1_000)), RefusedRing::new(at(1_001)));
        for ring in [&before, &after] {
            for _ in 0..3 {
                ring.push(at(0), None, None, false, "no");
            }
        }
        let mut numbers: Vec<_> = after.newest_first().iter().map(|one| one.number).collect();
        numbers.extend(before.newest_first().iter().map(|one| one.number));
        assert!(numbers.is_sorted_by(|newer, older| newer > older), "{numbers:?}");
    }
}
