//! What providers list: late, out of date, not complete, or nothing at all.

use std::time::Duration;

use super::world::WorldState;
use crate::issue::Issue;
use crate::issue::state::IssueState;
use crate::sandbox::{Object, ProviderError};

/// How long a slow list takes at most, in milliseconds.
const LIST_TIME_MAX_MS: u64 = 10_000;
/// So many may be missing at once; what is more a sweep does not believe.
const TO_BE_BELIEVED_MAX: usize = 3;
/// How long a sweep reads records at most before it lists.
const RECORDS_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a start takes at most to take up all that it finds, in milliseconds.
const TAKING_UP_MAX_MS: u64 = 120_000;

impl WorldState {
    pub fn is_down(&self, cloud: usize) -> bool {
        self.elapsed_ms() < self.clouds[cloud].down_until_ms && !self.weather.calm
    }

    /// Another, empty provider answers in its place: no contract covers that, only the bound on
    /// what a sweep believes.
    pub fn forgets(&self, cloud: usize) -> bool {
        self.elapsed_ms() < self.clouds[cloud].forgets_until_ms && !self.weather.calm
    }

    /// What a list shows, and how long it takes until it is there: now and then it shows what was,
    /// or not all of it.
    pub fn list(&mut self, cloud: usize) -> (Result<Vec<Object>, ProviderError>, Duration) {
        let slow = self.weather.slow_providers && !self.weather.calm;
        let takes = if slow { self.chance.below(LIST_TIME_MAX_MS) } else { 0 };
        (self.listed(cloud), Duration::from_millis(takes))
    }

    fn listed(&mut self, cloud: usize) -> Result<Vec<Object>, ProviderError> {
        if self.is_impostor(cloud) {
            return Ok(Vec::new());
        }
        if self.is_down(cloud) {
            return Err(ProviderError::unavailable("the provider does not answer"));
        }
        if self.forgets(cloud) {
            self.clouds[cloud].list_is_absurd = self.settled_at(cloud) > TO_BE_BELIEVED_MAX;
            return Ok(Vec::new());
        }
        self.clouds[cloud].list_is_absurd = false;
        let mut objects: Vec<_> =
            self.clouds[cloud].objects.iter().map(|o| o.object.clone()).collect();
        let rate = self.weather.bad_lists;
        if self.weather.strikes(&mut self.chance, rate) {
            match self.chance.below(3) {
                0 => return Err(ProviderError::unavailable("the provider does not answer")),
                1 => objects = self.clouds[cloud].earlier.front().cloned().unwrap_or_default(),
                _ => {
                    let chance = &mut self.chance;
                    objects.retain(|_| chance.permille(500));
                }
            }
        }
        Ok(objects)
    }

    /// How many records a sweep that lists now surely misses if the list is empty.
    fn settled_at(&self, cloud: usize) -> usize {
        if self.life_lasts_ms() < TAKING_UP_MAX_MS {
            return 0;
        }
        let (now, name) = (self.now(), &self.clouds[cloud].name);
        let is_settled = |issue: &&Issue| match &issue.state {
            IssueState::Running { record, .. } | IssueState::Stopped { record, .. } => {
                record.template.provider == *name
                    && now.since(record.phase_since) > RECORDS_TIME_MAX
            }
            IssueState::Absent
            | IssueState::Creating { .. }
            | IssueState::Stopping { .. }
            | IssueState::Starting { .. }
            | IssueState::Failed { .. }
            | IssueState::Deleting { .. } => false,
        };
        self.rows.issues.values().filter(is_settled).count()
    }
}
