//! Reading within GitHub's hourly limits: places, what remains, and who stands back.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::types::Timestamp;

use super::super::api::{GitHubError, WriterId};
use super::answers::{remaining, reset_at};
use super::github_clock::GitHubClock;
use super::transport::HttpAnswer;

/// How many reads may be under way at once.
const PLACES: usize = 8;
/// Below this part of the hourly limit background work stands back.
const STAND_BACK_PART: u64 = 5;
/// The pause where GitHub names no end of a limit.
const PAUSE: Duration = Duration::from_secs(60);

/// Who GitHub counts a call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LimitKey {
    /// Calls without credentials.
    Anonymous,
    /// The App itself, by its JSON web token.
    App,
    /// An installation, or the token's user.
    Writer(WriterId),
}

/// What GitHub last said of one limit.
#[derive(Clone, Copy, Debug)]
struct HourlyLimit {
    limit: u64,
    remaining: u64,
    resets_at: Timestamp,
}

/// The limits of reading.
pub(super) struct ReadLimits {
    places: Semaphore,
    state: Mutex<LimitState>,
}

#[derive(Default)]
struct LimitState {
    hourly: HashMap<LimitKey, HourlyLimit>,
    rests: HashMap<LimitKey, Timestamp>,
}

impl ReadLimits {
    pub fn new() -> Self {
        Self { places: Semaphore::new(PLACES), state: Mutex::default() }
    }

    /// A place to read.
    ///
    /// # Errors
    /// [`GitHubError::Limited`] while the identity rests, and for background work while little of
    /// the limit is left.
    pub async fn enter(
        &self,
        key: LimitKey,
        is_background: bool,
        clock: &GitHubClock,
    ) -> Result<SemaphorePermit<'_>, GitHubError> {
        let place = self.places.acquire().await;
        // What was said of the limit while this waited counts.
        self.check(key, is_background, clock.ours())?;
        place.map_err(|_| GitHubError::Unreachable("the client has ended".to_owned()))
    }

    /// Whether a call may be made now.
    ///
    /// # Errors
    /// As for [`Self::enter`].
    pub fn check(
        &self,
        key: LimitKey,
        is_background: bool,
        now: Timestamp,
    ) -> Result<(), GitHubError> {
        let state = self.locked();
        if let Some(until) = state.rests.get(&key).filter(|until| **until > now) {
            return Err(GitHubError::Limited { until: *until });
        }
        let low = state.hourly.get(&key).filter(|hourly| {
            hourly.remaining.saturating_mul(STAND_BACK_PART) < hourly.limit
                && hourly.resets_at > now
        });
        match low {
            Some(hourly) if is_background => Err(GitHubError::Limited { until: hourly.resets_at }),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes an answer's headers into account. Returns until when the identity rests, if nothing
    /// remains.
    pub fn note(
        &self,
        key: LimitKey,
        answer: &HttpAnswer,
        clock: &GitHubClock,
    ) -> Option<Timestamp> {
        let number = |name: &str| answer.header(name)?.trim().parse::<u64>().ok();
        // Search and GraphQL have limits of their own.
        if answer.header("x-ratelimit-resource").is_some_and(|resource| resource != "core") {
            return None;
        }
        let (limit, remaining) = (number("x-ratelimit-limit")?, remaining(answer)?);
        let resets_at = reset_at(answer, clock)?;
        let mut state = self.locked();
        state.hourly.insert(key, HourlyLimit { limit, remaining, resets_at });
        if remaining == 0 && resets_at > answer.received_at {
            state.rests.insert(key, resets_at);
            return Some(resets_at);
        }
        None
    }

    /// The identity's reads rest until then, or for a minute.
    pub fn rest(&self, key: LimitKey, until: Option<Timestamp>, now: Timestamp) -> Timestamp {
        let until = until.unwrap_or_else(|| now.after(PAUSE));
        self.locked().rests.insert(key, until);
        until
    }

    /// The fewest calls that remain to one of our identities.
    pub fn lowest(&self) -> Option<u64> {
        let state = self.locked();
        let ours = state.hourly.iter().filter(|(key, _)| **key != LimitKey::Anonymous);
        ours.map(|(_, hourly)| hourly.remaining).min()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
