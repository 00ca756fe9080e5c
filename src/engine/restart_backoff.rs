//! Homes whose actors end one after the other before anything was durable, and how long each waits
//! for the next one: a store that refuses again and again, or a row that cannot be read, must
//! neither keep a core busy nor fill the log. Whoever speaks to the home meanwhile is not kept
//! waiting: that begins an actor at once.

use std::time::Duration;

use dashmap::DashMap;

use crate::types::HomeId;

/// The first pause; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often the last actors of a home ended like that. A home that rests is not in it.
#[derive(Default)]
pub(super) struct RestartBackoff {
    ends: DashMap<HomeId, u32>,
}

impl RestartBackoff {
    /// One more has ended; how long the next one is to be waited for.
    pub fn pause(&self, home: HomeId) -> Duration {
        let mut ends = self.ends.entry(home).or_insert(0);
        let pause = PAUSE_FIRST.saturating_mul(1 << (*ends).min(16)).min(PAUSE_MAX);
        *ends = ends.saturating_add(1);
        pause
    }

    /// Something of it is durable, or there is nothing to take up.
    pub fn rests(&self, home: HomeId) {
        self.ends.remove(&home);
    }

    /// How many homes are restless.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_as_long_up_to_a_bound_until_something_is_durable() {
        let restart_backoff = RestartBackoff::default();
        let (home, other) = (HomeId(1), HomeId(2));
        for pause_ms in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(restart_backoff.pause(home), Duration::from_millis(pause_ms));
        }
        assert_eq!(restart_backoff.pause(other), PAUSE_FIRST);
        restart_backoff.rests(home);
        assert_eq!(restart_backoff.pause(home), PAUSE_FIRST);
    }
}
