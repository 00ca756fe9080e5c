//! Backoff of homes whose actors end one after the other before anything was durable. A store that
//! refuses again and again, or a row that cannot be read, must neither keep a core busy nor fill the
//! log. A message to the home does not wait for the backoff: it starts an actor at once.

use std::time::Duration;

use dashmap::DashMap;

use crate::types::HomeId;

/// The first pause; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often the last actors of a home ended like that. Homes without such an end are not in it.
#[derive(Default)]
pub(super) struct RestartBackoff {
    ends: DashMap<HomeId, u32>,
}

impl RestartBackoff {
    /// One more has ended; how long to wait before the next one is started.
    pub fn pause(&self, home: HomeId) -> Duration {
        let mut ends = self.ends.entry(home).or_insert(0);
        let pause = PAUSE_FIRST.saturating_mul(1 << (*ends).min(16)).min(PAUSE_MAX);
        *ends = ends.saturating_add(1);
        pause
    }

    /// A commit of it is durable, or there is nothing to resume.
    pub fn reset(&self, home: HomeId) {
        self.ends.remove(&home);
    }

    /// How many homes have a backoff.
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
        restart_backoff.reset(home);
        assert_eq!(restart_backoff.pause(home), PAUSE_FIRST);
    }
}
