//! GitHub's clock: tokens and limits are judged by it, and ours may be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::fmt::rfc2822;

use crate::clock::Clock;
use crate::types::Timestamp;

/// Smaller differences are the network's and the header's resolution.
const SLACK_MS: i64 = 30_000;

/// Our clock and how far GitHub's is from it.
pub(super) struct GitHubClock {
    clock: Arc<dyn Clock>,
    /// GitHub's minus ours, in milliseconds; 0 within the slack.
    ahead_ms: AtomicI64,
}

impl GitHubClock {
    /// GitHub's clock is taken to be ours until an answer says otherwise.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, ahead_ms: AtomicI64::new(0) }
    }

    /// Our clock.
    pub fn ours(&self) -> Timestamp {
        self.clock.now()
    }

    /// GitHub's clock.
    pub fn now(&self) -> Timestamp {
        shifted(self.ours(), self.ahead_ms())
    }

    /// How far GitHub's clock is ahead of ours, in milliseconds; 0 within 30 s.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    /// A time of GitHub's clock by ours.
    pub fn by_ours(&self, at: Timestamp) -> Timestamp {
        shifted(at, -self.ahead_ms())
    }

    /// Takes an answer's `Date` into account.
    pub fn note(&self, date: Timestamp, received_at: Timestamp) {
        let ahead = date.unix_ms().saturating_sub(received_at.unix_ms());
        let ahead = if ahead.abs() > SLACK_MS { ahead } else { 0 };
        let before = self.ahead_ms.swap(ahead, Ordering::Relaxed);
        if ahead != 0 && before == 0 {
            tracing::warn!(
                seconds = ahead / 1_000,
                "GitHub's clock is ahead of ours by this much (behind if negative), and is used for \
                 its tokens; set this machine's: timedatectl set-ntp true"
            );
        }
    }
}

fn shifted(at: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(at.unix_ms().saturating_add(by_ms))
}

/// Reads the date of an HTTP header.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_unix_ms(date.as_millisecond()))
}
