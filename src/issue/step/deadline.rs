//! By when a transitional phase must be left, and what happens when it is not.
//!
//! A phase has as long as all of its tries may take. Past its deadline one last call finds out
//! how things are, without grace (a stop kills at once); whatever that call brings, the phase ends:
//! up or down after all, or *failed* with the step and what may be left behind. *Deleting* goes on
//! for ever, and says from then on that it is stuck. Time in which a provider had no turn for us
//! does not count: nothing was asked. Time in which it was unreachable does.

use std::time::Duration;

use crate::issue::event::{CallError, StepRules};
use crate::issue::state::{IssueState, Record, Step, Verb};
use crate::types::{Failure, FailureCode, Phase, ProviderStep, Timestamp};

use super::farewell::grace;
use super::transition::{LOOK_TIMEOUT, Transition};

impl Transition<'_> {
    /// By when a phase that begins now must be left; `None` for phases that last.
    pub fn deadline_of(&self, phase: Phase, record: &Record) -> Option<Timestamp> {
        self.budget_of(phase, record).map(|budget| self.now().after(budget))
    }

    fn budget_of(&self, phase: Phase, record: &Record) -> Option<Duration> {
        let rules = self.context.rules;
        let all_tries = |step: StepRules, more: Duration| {
            Some((step.timeout + LOOK_TIMEOUT + more).saturating_mul(step.attempts))
        };
        match phase {
            // Behind each create of unknown outcome its settling may be waited for.
            Phase::Creating => {
                all_tries(rules.create, self.provider_rules(record).late_effect_window)
            }
            Phase::Starting => all_tries(rules.start, Duration::ZERO),
            Phase::Stopping => {
                all_tries(rules.stop, Duration::ZERO).map(|time| time + grace(record))
            }
            Phase::Deleting => {
                all_tries(rules.delete, Duration::ZERO).map(|time| time + grace(record))
            }
            Phase::Running | Phase::Stopped | Phase::Failed => None,
        }
    }

    /// Whether the phase should have been left by now.
    pub fn is_overdue(&self, record: &Record) -> bool {
        record.deadline.is_some_and(|deadline| deadline <= self.now())
    }

    /// Gives the phase its whole time again, since the provider had no turn for the last call.
    pub fn extend_deadline(&self, phase: Phase, record: &mut Record) {
        record.deadline = self.deadline_of(phase, record);
    }

    /// The deadline has passed while a call waited for its time: ask one last time, and if that
    /// was the last, end the phase.
    pub fn overdue(&mut self) {
        match self.take_state() {
            IssueState::Creating { mut record, goal, step, giving_up } => {
                let is_last = step.tries_left() <= 1;
                match giving_up {
                    // What was found out since the deadline is all there will be.
                    Some(failure) if is_last => {
                        let message = "its outcome was not known in time".to_owned();
                        let trouble = CallError::Unavailable { message, retry_after: None };
                        self.leftovers_unclear(record, goal, 0, failure, &trouble);
                    }
                    None if is_last => {
                        let failure = self.too_slow(ProviderStep::Create, &record);
                        self.give_up(record, goal, failure);
                    }
                    Some(_) | None => {
                        let step = self.ask(&mut record, None, Verb::Look, 1);
                        self.keep(IssueState::Creating { record, goal, step, giving_up });
                    }
                }
            }
            IssueState::Starting { mut record, external_id, goal, step } => {
                if step.tries_left() <= 1 {
                    let failure = self.too_slow(ProviderStep::Start, &record);
                    return self.fail(Phase::Starting, record, Some(external_id), goal, failure);
                }
                let step = self.ask(&mut record, Some(&external_id), Verb::Start, 1);
                self.keep(IssueState::Starting { record, external_id, goal, step });
            }
            IssueState::Stopping { mut record, external_id, by, goal, step } => {
                if step.tries_left() <= 1 {
                    let failure = self.too_slow(ProviderStep::Stop, &record);
                    return self.fail(Phase::Stopping, record, Some(external_id), goal, failure);
                }
                let step = self.ask(&mut record, Some(&external_id), Verb::Stop, 1);
                self.keep(IssueState::Stopping { record, external_id, by, goal, step });
            }
            IssueState::Deleting { record, external_id, step, failure, next } => {
                let failure =
                    failure.or_else(|| Some(self.too_slow(ProviderStep::Delete, &record)));
                let message = failure.as_ref().map(|failure| failure.message.clone());
                self.keep(IssueState::Deleting { record, external_id, step, failure, next });
                self.record_entry(message.unwrap_or_default());
            }
            state @ (IssueState::Absent
            | IssueState::Running { .. }
            | IssueState::Stopped { .. }
            | IssueState::Failed { .. }) => self.keep(state),
        }
    }

    /// The failure of a phase that was not left in time.
    pub fn too_slow(&self, step: ProviderStep, record: &Record) -> Failure {
        let since = record.phase_since;
        let left = match step {
            ProviderStep::Delete => "it is still retried; force=true deletes the record",
            ProviderStep::Look | ProviderStep::Create => "the provider may have created something",
            ProviderStep::Start | ProviderStep::ColdStart | ProviderStep::Stop => {
                "its object may still be running"
            }
        };
        Failure {
            code: FailureCode::DeadlineExceeded,
            step,
            message: format!("{step} has not finished since {since}; {left}"),
            retryable: true,
        }
    }
}

impl Step {
    /// How many more times a step of the phase may fail.
    pub(super) const fn tries_left(&self) -> u32 {
        match self {
            Self::Asked { tries_left, .. } | Self::Waiting { tries_left, .. } => *tries_left,
        }
    }
}
