//! What time and restarts lead to: waits that are over, and calls whose answer was lost.

use std::time::Duration;

use crate::issue::event::NotAsked;
use crate::issue::state::{Healing, IssueState, Record, Step, StoppedBy, Verb};
use crate::types::{Attempt, Cause, ExternalId, Phase};

use super::answer::stopped_reason;
use super::transition::{RETRY_AFTER_MAX, Transition};

/// How long a call that found no turn waits before it queues up again.
const TURN_PAUSE: Duration = Duration::from_secs(1);

/// How long a call that found no room waits when the provider does not say for how long.
const ROOM_PAUSE: Duration = Duration::from_secs(5);

impl Transition<'_> {
    /// The due time may have come: make the call that waited, or look if an answer is overdue
    /// and the executor no longer holds the call.
    pub fn due(&mut self, in_flight: Option<Attempt>, busy: bool) {
        self.cause = Cause::Service("scheduler").to_string();
        let now = self.now();
        self.run_due();
        if self.issue.life_due.is_some_and(|due| due <= now) {
            self.live_on(busy);
        }
        if matches!(self.issue.state, IssueState::Failed { .. })
            && self.issue.state.due_at().is_some_and(|due| due <= now)
        {
            return self.heal();
        }
        let overdue = self.issue.state.deadline().is_some_and(|deadline| deadline <= now);
        match self.issue.state.step() {
            Some(Step::Waiting { .. }) if overdue => self.overdue(),
            Some(Step::Waiting { due, .. }) if *due <= now => self.call_again(None),
            Some(Step::Asked { until, .. }) if *until <= now => self.answer_lost(in_flight, false),
            Some(Step::Waiting { .. } | Step::Asked { .. }) | None => {}
        }
    }

    /// The actor was built from the store: a call that the executor does not hold has been
    /// answered to an actor that is gone, or was never made.
    pub fn activated(&mut self, in_flight: Option<Attempt>, after_restart: bool) {
        self.cause = Cause::Service(if after_restart { "startup" } else { "engine" }).to_string();
        if after_restart
            && let IssueState::Running { record, .. } = &self.issue.state
            && self.provider_rules(record).dies_with_server
            && let IssueState::Running { record, external_id } = self.take_state()
        {
            let by = StoppedBy::Restart;
            let state = IssueState::Stopped { record, external_id, by };
            self.enter(Some(Phase::Running), state, stopped_reason(by).to_owned());
            return;
        }
        if after_restart {
            self.bound_times();
        }
        if matches!(self.issue.state.step(), Some(Step::Asked { .. })) {
            self.answer_lost(in_flight, after_restart);
        }
    }

    /// Brings times in the future back to what they can be at most: the clock may have been set
    /// back while the server was down, and a wait of a second must not become one of a day.
    fn bound_times(&mut self) {
        let now = self.now();
        let mut state = self.take_state();
        let phase = state.phase();
        if let Some(Step::Waiting { due, .. }) = state.step_mut() {
            *due = (*due).min(now.after(RETRY_AFTER_MAX));
        }
        if let (Some(phase), Some(record)) = (phase, state.record_mut()) {
            let longest = self.deadline_of(phase, record);
            record.deadline = record.deadline.min(longest);
            record.last_activity_at = record.last_activity_at.min(now);
            record.healing = record.healing.map(|healing| Healing {
                due: healing.due.min(now.after(RETRY_AFTER_MAX)),
                ..healing
            });
            let create = now.after(self.create_lands_within());
            record.may_land_until = record.may_land_until.map(|until| until.min(create));
            let stop =
                self.context.rules.stop.timeout + self.provider_rules(record).late_effect_window;
            record.stop_may_land_until = record.stop_may_land_until.map(|u| u.min(now.after(stop)));
        }
        self.keep(state);
    }

    /// How long after its call a create can come into effect. It may be one of an earlier generation,
    /// which was given up by force and was at another provider.
    fn create_lands_within(&self) -> Duration {
        let rules = self.context.rules;
        let windows = rules.providers.values().map(|provider| provider.late_effect_window);
        rules.create.timeout + windows.max().unwrap_or_default()
    }

    /// Nothing was asked: the same again a little later, at no cost.
    pub fn not_asked(&mut self, why: &NotAsked) {
        let due = self.now().after(match why {
            NotAsked::NoTurn => TURN_PAUSE,
            NotAsked::Unreachable { next_try, .. } => (*next_try).max(TURN_PAUSE),
        });
        let mut state = self.take_state();
        let phase = state.phase();
        if let (NotAsked::NoTurn, Some(phase), Some(record)) = (why, phase, state.record_mut()) {
            self.extend_deadline(phase, record);
        }
        if let (NotAsked::Unreachable { message, .. }, Some(record)) = (why, state.record_mut()) {
            // The reason of the state; not on the timeline each time.
            record.reason.clone_from(message);
        }
        if let Some(step) = state.step_mut()
            && let Step::Asked { verb, tries_left, .. } = step
        {
            *step = Step::Waiting { verb: verb.clone(), due, tries_left: *tries_left };
        }
        self.keep(state);
    }

    /// The provider has no room and did nothing: the same call is made again later and no try is
    /// spent. The phase's deadline goes on: in the end people learn what is used up.
    pub fn wait_for_room(&mut self, what: &str, retry_after: Option<Duration>) {
        let pause = retry_after.unwrap_or(ROOM_PAUSE).clamp(TURN_PAUSE, RETRY_AFTER_MAX);
        let due = self.now().after(pause);
        let mut state = self.take_state();
        let reason = format!("waiting: the provider has no room: {what}");
        let is_news = state.record().is_some_and(|record| record.reason != reason);
        if let Some(record) = state.record_mut() {
            record.reason.clone_from(&reason);
        }
        if let Some(step) = state.step_mut()
            && let Step::Asked { verb, tries_left, .. } = step
        {
            *step = Step::Waiting { verb: verb.clone(), due, tries_left: *tries_left };
        }
        self.keep(state);
        // Once for each cause: it may be tried many times.
        if is_news {
            self.record_entry(reason);
        }
    }

    fn answer_lost(&mut self, in_flight: Option<Attempt>, after_restart: bool) {
        let attempt = self.issue.state.record().map(|record| record.attempt);
        if in_flight.is_some() && in_flight == attempt {
            // The executor still has it: its answer will come.
            return;
        }
        let Some(Step::Asked { verb, until, .. }) = self.issue.state.step() else { return };
        let may_land = (*verb == Verb::Create).then_some(*until);
        let may_stop = (*verb == Verb::Stop).then_some(*until);
        let mut state = self.take_state();
        if let (Some(until), Some(record)) = (may_land, state.record_mut())
            // What dies with the server has landed before this one started, or never will.
            && !(after_restart && self.provider_rules(record).dies_with_server)
        {
            self.may_land(record, until);
        }
        if let (Some(until), Some(record)) = (may_stop, state.record_mut()) {
            self.may_stop(record, until);
        }
        self.keep(state);
        self.call_again(Some(Verb::Look));
    }

    /// Makes the phase's next call now: the one that waited, or, after a lost answer, the one that
    /// finds out. Starting and stopping are asked again, since already up or down is success.
    pub(super) fn call_again(&mut self, after_loss: Option<Verb>) {
        match self.take_state() {
            IssueState::Creating { mut record, goal, step, giving_up } => {
                let step = self.again(&mut record, None, step, after_loss);
                self.keep(IssueState::Creating { record, goal, step, giving_up });
            }
            IssueState::Starting { mut record, external_id, goal, step } => {
                let step = self.again(&mut record, Some(&external_id), step, Some(Verb::Start));
                self.keep(IssueState::Starting { record, external_id, goal, step });
            }
            IssueState::Stopping { mut record, external_id, by, goal, step } => {
                let step = self.again(&mut record, Some(&external_id), step, Some(Verb::Stop));
                self.keep(IssueState::Stopping { record, external_id, by, goal, step });
            }
            IssueState::Deleting { mut record, external_id, step, failure, next } => {
                let step = self.again(&mut record, external_id.as_ref(), step, after_loss);
                self.keep(IssueState::Deleting { record, external_id, step, failure, next });
            }
            state @ (IssueState::Absent
            | IssueState::Running { .. }
            | IssueState::Stopped { .. }
            | IssueState::Failed { .. }) => self.keep(state),
        }
    }

    fn again(
        &mut self,
        record: &mut Record,
        external_id: Option<&ExternalId>,
        step: Step,
        instead: Option<Verb>,
    ) -> Step {
        let (Step::Asked { verb, tries_left, .. } | Step::Waiting { verb, tries_left, .. }) = step;
        self.ask(record, external_id, instead.unwrap_or(verb), tries_left)
    }
}
