//! What failed only because the provider could not be reached is retried without anybody asking.
//!
//! The provider did not refuse anything: it was away, had no room, or did not answer in time. Such a
//! failure is retried after a pause that doubles, from a minute to half an hour, and at once when the
//! provider is back. Each retry is on the timeline. After a day a person must look. A stop or a
//! delete that is wanted meanwhile is done by that retry; but a sandbox that is to be stopped and has
//! no object is not created only to be stopped.

use std::time::Duration;

use crate::issue::state::{Goal, Healing, IssueState, Record, Step};
use crate::types::{Failure, FailureCode, ProviderName};

use super::transition::Transition;

/// The pause before the first retry; doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(60);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30 * 60);
/// How long it is retried.
const FOR_AT_MOST: Duration = Duration::from_secs(24 * 3600);

impl Transition<'_> {
    /// Plans the retry of a failure, if that makes sense; returns what is to be said of it.
    pub(super) fn plan_healing(&self, record: &mut Record, failure: &Failure) -> String {
        let before = record.healing.take();
        if !heals(failure.code) {
            return String::new();
        }
        let now = self.now();
        let (since, tries) = before.map_or((now, 0), |before| (before.since, before.tries));
        if now.since(since) >= FOR_AT_MOST {
            return "; it was retried for a day and waits for a person now".to_owned();
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << tries.min(8)).min(PAUSE_MAX);
        // A quarter by chance, so that many issues do not come back at once.
        let spread = pause.mul_f64(f64::from(self.context.jitter_permille) / 4000.0);
        let due = now.after(pause + spread);
        record.healing = Some(Healing { since, tries: tries + 1, due });
        format!("; it is retried automatically when the provider is back, or at {due}")
    }

    /// Retries a failure whose time has come, or whose provider is back.
    pub(super) fn heal(&mut self) {
        let denied = self.context.denial.is_some();
        let later = self.now().after(PAUSE_MAX);
        let IssueState::Failed { record, external_id, goal, .. } = &mut self.issue.state else {
            return;
        };
        let Some(healing) = &mut record.healing else { return };
        if external_id.is_none() && *goal != Goal::Running {
            record.healing = None;
        } else if denied && *goal == Goal::Running {
            healing.due = later;
        } else {
            self.retry_failed(None, "the provider may be back");
        }
    }

    /// A provider can be reached again: what waits for it goes on now.
    pub fn provider_back(&mut self, provider: &ProviderName) {
        let concerns = |record: &Record| record.template.provider == *provider;
        if !self.issue.state.record().is_some_and(concerns) {
            return;
        }
        match self.issue.state.step() {
            Some(Step::Waiting { .. }) => self.call_again(None),
            Some(Step::Asked { .. }) => {}
            None => self.heal(),
        }
    }
}

/// Whether a failure of this kind may pass by itself. What the provider refused does not, and what
/// happened to the object needs a person.
const fn heals(code: FailureCode) -> bool {
    match code {
        FailureCode::ProviderUnavailable
        | FailureCode::ProviderExhausted
        | FailureCode::DeadlineExceeded => true,
        FailureCode::ProviderBroken
        | FailureCode::ProviderRefused
        | FailureCode::ProviderUnknown
        | FailureCode::HookFailed
        | FailureCode::NameTaken
        | FailureCode::ObjectLost
        | FailureCode::KilledOutside
        | FailureCode::DuplicateObject => false,
    }
}
