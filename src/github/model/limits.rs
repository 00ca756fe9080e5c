//! GitHub's limits, counted as its documentation says: calls an hour for each identity, and content
//! that an App creates in a minute and in an hour. What passes them is a violation.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::auth::ModelCaller;
use super::rest::{RestReply, failure};
use super::state::ModelState;

/// Writing calls that GitHub allows in a minute.
pub const WRITES_PER_MINUTE: usize = 80;
/// Writing calls that GitHub allows in an hour.
pub const WRITES_PER_HOUR: usize = 500;

/// Calls counted in one hour.
#[derive(Clone, Copy, Debug)]
struct HourWindow {
    resets: Timestamp,
    used: u64,
}

/// The counts, by identity.
#[derive(Debug)]
pub(super) struct ModelLimits {
    /// Calls allowed in an hour.
    pub hourly: u64,
    windows: BTreeMap<String, HourWindow>,
    /// When content was created in the last hour, oldest first.
    writes: VecDeque<Timestamp>,
    in_flight: BTreeMap<String, usize>,
}

impl Default for ModelLimits {
    fn default() -> Self {
        let (windows, in_flight) = (BTreeMap::new(), BTreeMap::new());
        Self { hourly: 5000, windows, writes: VecDeque::new(), in_flight }
    }
}

impl ModelLimits {
    /// The identity's window at this time.
    fn window(&mut self, identity: &str, now: Timestamp) -> &mut HourWindow {
        let fresh = HourWindow { resets: now + SignedDuration::from_hours(1), used: 0 };
        let window = self.windows.entry(identity.to_owned()).or_insert(fresh);
        if window.resets <= now {
            *window = fresh;
        }
        window
    }

    /// The headers that every answer carries.
    pub fn headers(&mut self, identity: &str, now: Timestamp) -> Vec<(&'static str, String)> {
        let (limit, window) = (self.hourly, *self.window(identity, now));
        vec![
            ("x-ratelimit-limit", limit.to_string()),
            ("x-ratelimit-remaining", limit.saturating_sub(window.used).to_string()),
            ("x-ratelimit-reset", window.resets.as_second().to_string()),
            ("x-ratelimit-used", window.used.to_string()),
            ("x-ratelimit-resource", "core".to_owned()),
        ]
    }

    /// An answer was 304, which does not count.
    pub fn forgive(&mut self, identity: &str, now: Timestamp) {
        let window = self.window(identity, now);
        window.used = window.used.saturating_sub(1);
    }

    /// Sets what is left of an identity's hour.
    pub fn leave(&mut self, identity: &str, remaining: u64, now: Timestamp) {
        self.window(identity, now).used = self.hourly.saturating_sub(remaining);
    }

    /// A writing call ended.
    pub fn end_write(&mut self, identity: &str) {
        if let Some(count) = self.in_flight.get_mut(identity) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Whether a call creates or changes content. Minting and revoking tokens do not.
pub(super) fn is_write(method: &str, path: &str) -> bool {
    let is_credential = path.starts_with("/app") || path.starts_with("/installation/");
    method != "GET" && method != "HEAD" && !is_credential && !path.ends_with("/graphql")
}

impl ModelState {
    /// Counts a call. The error is GitHub's answer to one call too many.
    pub fn count_call(&mut self, caller: ModelCaller) -> Result<(), RestReply> {
        let (now, limit, identity) = (self.now(), self.limits.hourly, caller.identity());
        let window = self.limits.window(&identity, now);
        if window.used >= limit {
            self.violations.push(format!("{identity}: a call above {limit} in an hour"));
            let words = format!("API rate limit exceeded for {identity}.");
            return Err(failure(403, &words));
        }
        window.used += 1;
        Ok(())
    }

    /// The identity's limit, what it used, and when that is forgotten (seconds since 1970).
    pub fn limit_of(&mut self, caller: ModelCaller) -> (u64, u64, i64) {
        let (now, limit) = (self.now(), self.limits.hourly);
        let window = *self.limits.window(&caller.identity(), now);
        (limit, window.used, window.resets.as_second())
    }

    /// A writing call begins; [`ModelLimits::end_write`] ends it. Two at once are a violation.
    pub fn begin_write(&mut self, caller: ModelCaller, line: &str) {
        let identity = caller.identity();
        let count = self.limits.in_flight.entry(identity.clone()).or_default();
        *count += 1;
        if *count > 1 {
            self.violations.push(format!("{identity}: two writing calls at once, {line}"));
        }
    }

    /// Counts content for the whole App or token, the stricter reading of GitHub's limits.
    pub fn count_write(&mut self, line: &str) -> Result<(), RestReply> {
        let now = self.now();
        let writes = &mut self.limits.writes;
        let within = |at: &Timestamp, span| now.duration_since(*at) < span;
        writes.retain(|at| within(at, SignedDuration::from_hours(1)));
        let minute = SignedDuration::from_mins(1);
        let in_minute = writes.iter().filter(|at| within(at, minute)).count();
        if in_minute < WRITES_PER_MINUTE && writes.len() < WRITES_PER_HOUR {
            writes.push_back(now);
            return Ok(());
        }
        self.violations.push(format!("content above the limits: {line}"));
        Err(secondary(403, Some(60)))
    }
}

/// The answer to too much content.
pub(super) fn secondary(status: u16, retry_after: Option<u64>) -> RestReply {
    let mut reply = failure(
        status,
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    );
    reply.headers.extend(retry_after.map(|after| ("retry-after", after.to_string())));
    reply
}
