//! What a provider's answer leads to. The fence stands here: only the answer to the call that is
//! in flight counts. *Creating* and *deleting* have files of their own.

use crate::issue::event::{CallAnswer, CallError, Done};
use crate::issue::state::{Goal, IssueState, Record, Step, StoppedBy, Verb};
use crate::sabotage::{Bug, on};
use crate::types::{ExternalId, Phase, ProviderStep};

use super::cold_start::CameUp;
use super::creating::is_ours;
use super::transition::{LOOK_TIMEOUT, Transition};

impl Transition<'_> {
    /// Takes a provider's answer; one of any other attempt than the latest, or if none is in
    /// flight, changes nothing.
    pub fn answered(&mut self, answer: CallAnswer) {
        let is_current =
            |record: &Record| (&record.id, record.attempt) == (&answer.sandbox, answer.attempt);
        let current = self.issue.state.record().is_some_and(is_current);
        let Some(Step::Asked { verb, until, .. }) = self.issue.state.step() else { return };
        if !current && !on(Bug::NoAttemptFence) {
            return;
        }
        let may_land = match (verb, &answer.result) {
            (Verb::Create, Err(CallError::Unavailable { .. })) => Some(*until),
            (Verb::Create, Ok(_) | Err(_))
            | (
                Verb::Look
                | Verb::Start
                | Verb::ColdStart { .. }
                | Verb::Stop
                | Verb::Delete { .. },
                _,
            ) => None,
        };
        if *verb == Verb::Look && !on(Bug::LookShowsItsAnswersTime) {
            // What lands between the look and its answer is not in the answer.
            self.seen_as_of = until.before(LOOK_TIMEOUT);
        }
        // A delete has no use for the call that it found waiting: it goes on with its own.
        let is_deleting = matches!(self.issue.state, IssueState::Deleting { .. });
        let overdue = self.issue.state.deadline().is_some_and(|deadline| deadline <= self.now());
        if let (Err(CallError::NotAsked(why)), false) = (&answer.result, is_deleting || overdue) {
            return self.not_asked(why);
        }
        if let (Err(CallError::Exhausted { what, retry_after }), false) =
            (&answer.result, is_deleting || overdue)
        {
            return self.wait_for_room(what, *retry_after);
        }
        let may_stop = match (verb, &answer.result) {
            (Verb::Stop, Err(CallError::Unavailable { .. })) => Some(*until),
            (Verb::Stop, Ok(_) | Err(_))
            | (
                Verb::Look
                | Verb::Create
                | Verb::Start
                | Verb::ColdStart { .. }
                | Verb::Delete { .. },
                _,
            ) => None,
        };
        let is_last = matches!(verb, Verb::Stop | Verb::Delete { .. });
        let mut state = self.take_state();
        if let (Some(until), Some(record)) = (may_land, state.record_mut()) {
            self.may_land(record, until);
        }
        if let (Some(until), Some(record)) = (may_stop, state.record_mut()) {
            self.may_stop(record, until);
        }
        let was_asked =
            !matches!(answer.result, Err(CallError::NotAsked(_))) || on(Bug::FarewellWithoutCall);
        if let (true, Some(record)) = (was_asked && is_last, state.record_mut()) {
            record.owes_farewell = false;
        }
        self.answered_in(state, answer.result);
    }

    /// Continues in the phase whose call was answered.
    fn answered_in(&mut self, state: IssueState, result: Result<Done, CallError>) {
        match state {
            IssueState::Creating {
                record,
                goal,
                step: Step::Asked { verb, tries_left, .. },
                giving_up,
            } => match giving_up {
                None => self.creating_answered(record, goal, verb, tries_left, result),
                Some(failure) => {
                    self.giving_up_answered(record, goal, tries_left, failure, result);
                }
            },
            IssueState::Starting {
                record,
                external_id,
                goal,
                step: Step::Asked { verb, tries_left, .. },
            } => {
                let from = Phase::Starting;
                let starting = CameUp { from, record, external_id, goal, tries_left };
                self.starting_answered(starting, &verb, result);
            }
            IssueState::Stopping {
                record,
                external_id,
                by,
                goal,
                step: Step::Asked { tries_left, .. },
            } => {
                let stopping = Stopping { record, external_id, by, goal, tries_left };
                self.stopping_answered(stopping, result);
            }
            IssueState::Deleting {
                record,
                external_id,
                step: Step::Asked { verb, tries_left, .. },
                failure,
                next,
            } => {
                let deleting =
                    super::deleting::Deleting { record, external_id, tries_left, failure, next };
                self.deleting_answered(deleting, verb, result);
            }
            // Nothing is in flight in these; the check above let none of them through.
            state @ (IssueState::Absent
            | IssueState::Running { .. }
            | IssueState::Stopped { .. }
            | IssueState::Failed { .. }
            | IssueState::Creating { step: Step::Waiting { .. }, .. }
            | IssueState::Starting { step: Step::Waiting { .. }, .. }
            | IssueState::Stopping { step: Step::Waiting { .. }, .. }
            | IssueState::Deleting { step: Step::Waiting { .. }, .. }) => self.keep(state),
        }
    }

    fn starting_answered(
        &mut self,
        starting: CameUp,
        verb: &Verb,
        result: Result<Done, CallError>,
    ) {
        let trouble = match result {
            Ok(Done::ColdStarted(end)) if matches!(verb, Verb::ColdStart { .. }) => {
                return self.cold_started(starting, end);
            }
            Ok(Done::Up(seen)) if is_ours(&starting.record, &seen) => {
                return self.came_up(starting, "it is up again");
            }
            Ok(Done::Up(seen)) => CallError::Present(seen),
            Ok(Done::Found(_) | Done::Down | Done::Removing | Done::ColdStarted(_)) => unexpected(),
            Err(trouble) => trouble,
        };
        let CameUp { record, external_id, goal, tries_left, .. } = starting;
        let rules = self.context.rules.start;
        let tries_left = self.tries_in_time(&record, tries_left);
        match self.after_trouble(ProviderStep::Start, &trouble, tries_left) {
            NextTry::TryAgain(tries_left) => {
                let step = self.wait(Verb::Start, rules, tries_left, Some(&trouble));
                self.keep(IssueState::Starting { record, external_id, goal, step });
                self.record_try(ProviderStep::Start, &trouble);
            }
            NextTry::Lost(failure) => self.fail(Phase::Starting, record, None, goal, failure),
            NextTry::GiveUp(failure) => {
                self.fail(Phase::Starting, record, Some(external_id), goal, failure);
            }
        }
    }

    fn stopping_answered(&mut self, stopping: Stopping, result: Result<Done, CallError>) {
        let Stopping { record, external_id, by, goal, tries_left } = stopping;
        let trouble = match (result, goal) {
            (Ok(Done::Down), Goal::Stopped(by)) => {
                let state = IssueState::Stopped { record, external_id, by };
                return self.enter(Some(Phase::Stopping), state, stopped_reason(by).to_owned());
            }
            (Ok(Done::Down), Goal::Running) if self.context.denial.is_some() => {
                let state = IssueState::Stopped { record, external_id, by };
                self.enter(Some(Phase::Stopping), state, stopped_reason(by).to_owned());
                return self.pending_start("asked for while it was being stopped", None);
            }
            (Ok(Done::Down), Goal::Running) => {
                let reason = "it is down; it was asked for meanwhile".to_owned();
                return self.start(Some(Phase::Stopping), record, external_id, goal, reason);
            }
            (Ok(Done::Found(_) | Done::Up(_) | Done::Removing | Done::ColdStarted(_)), _) => {
                unexpected()
            }
            (Err(trouble), _) => trouble,
        };
        let rules = self.context.rules.stop;
        let tries_left = self.tries_in_time(&record, tries_left);
        match self.after_trouble(ProviderStep::Stop, &trouble, tries_left) {
            NextTry::TryAgain(tries_left) => {
                let step = self.wait(Verb::Stop, rules, tries_left, Some(&trouble));
                self.keep(IssueState::Stopping { record, external_id, by, goal, step });
                self.record_try(ProviderStep::Stop, &trouble);
            }
            NextTry::Lost(failure) => self.fail(Phase::Stopping, record, None, goal, failure),
            NextTry::GiveUp(failure) => {
                self.fail(Phase::Stopping, record, Some(external_id), goal, failure);
            }
        }
    }

    /// Records a failed try that another one follows.
    pub fn record_try(&mut self, step: ProviderStep, trouble: &CallError) {
        let message = self.failure_of(step, trouble).message;
        self.record_entry(format!("{step} is tried again: {message}"));
    }

    /// Past the phase's deadline the try that just ended was the last.
    pub fn tries_in_time(&self, record: &Record, tries_left: u32) -> u32 {
        if self.is_overdue(record) { tries_left.min(1) } else { tries_left }
    }

    /// What trouble with an object that was there means for its phase.
    fn after_trouble(&self, step: ProviderStep, trouble: &CallError, tries_left: u32) -> NextTry {
        let tries_left = tries_left.saturating_sub(1);
        match trouble {
            // The object with our external id is gone, or another one has its id: ours is lost.
            CallError::Absent | CallError::Present(_) => {
                NextTry::Lost(self.failure_of(step, &CallError::Absent))
            }
            CallError::Refused(_) | CallError::Unknown(_) => {
                NextTry::GiveUp(self.failure_of(step, trouble))
            }
            CallError::NotAsked(_)
            | CallError::Unavailable { .. }
            | CallError::Exhausted { .. }
            | CallError::Broken(_) => match tries_left {
                0 => NextTry::GiveUp(self.failure_of(step, trouble)),
                left => NextTry::TryAgain(left),
            },
        }
    }
}

/// The parts of *stopping* that an answer decides about.
struct Stopping {
    record: Record,
    external_id: ExternalId,
    by: StoppedBy,
    goal: Goal,
    tries_left: u32,
}

enum NextTry {
    TryAgain(u32),
    Lost(crate::types::Failure),
    GiveUp(crate::types::Failure),
}

/// An answer that does not fit its call: the provider is not understood.
pub(super) fn unexpected() -> CallError {
    CallError::Broken("its answer does not match the call".to_owned())
}

/// Why a sandbox is stopped, in words.
pub(super) const fn stopped_reason(by: StoppedBy) -> &'static str {
    match by {
        StoppedBy::Person => "stopped by a caller",
        StoppedBy::Issue => "stopped by an event of the issue",
        StoppedBy::Restart => "server_restarted: its provider's sandboxes end with the server",
        StoppedBy::Provider => "found stopped at the provider",
        StoppedBy::Idle => "stopped: idle for too long",
        StoppedBy::Limit => "stopped: it reached a limit of its template",
        StoppedBy::Host => "stopped: its provider ended it",
    }
}
