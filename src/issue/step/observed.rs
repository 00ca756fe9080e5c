//! What a sweep observed at the provider leads to, and what people decide when no rule can.
//!
//! An observation counts only if the provider was not called since the sweep read the state (see
//! [`Observation`]). While a call is under way, its answer is newer.

use std::time::Duration;

use crate::issue::acts::ActKind;
use crate::issue::commit::{CommandRefusal, Reply};
use crate::issue::event::{
    AdoptAsk, FAST_ORPHAN_MAX, ListedObject, Observation, ObservedObject, Owner, QUARANTINE,
};
use crate::issue::state::{Goal, IssueState, Record, StoppedBy};
use crate::issue::{Cleanup, CleanupAction, Effect};
use crate::sabotage::{Bug, on};
use crate::types::{
    Attempt, Cause, ExternalId, Failure, FailureCode, Mode, ObjectState, Phase, ProviderName,
    ProviderStep, SandboxId, SandboxMeta, Timestamp,
};

use super::transition::Transition;

/// How long the bug that trusts the clock doubts a late stop.
const DOUBTED_FOR: Duration = Duration::from_secs(300);

impl Transition<'_> {
    /// Takes an observation of this home's objects.
    pub fn observed(&mut self, observation: &Observation) {
        self.cause = match observation.by_event {
            true => Cause::PROVIDER_EVENT,
            false => Cause::Service("sweep"),
        }
        .to_string();
        let now = (self.issue.generation, self.attempt(), self.issue.state.phase());
        let is_behind = now != (observation.generation, observation.attempt, observation.phase);
        if is_behind && !on(Bug::ObservationBehindCall) {
            return;
        }
        if self.issue.state.phase().is_some_and(Phase::is_transitional) {
            return;
        }
        self.look_at_own(observation);
        self.clean_up_orphans(observation);
    }

    fn attempt(&self) -> Attempt {
        self.issue.state.record().map_or_else(Attempt::default, |record| record.attempt)
    }

    /// Is the recorded object there, and in the state that the record says?
    fn look_at_own(&mut self, observation: &Observation) {
        if matches!(self.issue.state, IssueState::Failed { .. }) {
            return self.look_at_failed(observation);
        }
        let (record, external_id) = match &self.issue.state {
            IssueState::Running { record, external_id }
            | IssueState::Stopped { record, external_id, .. } => (record, external_id),
            IssueState::Absent
            | IssueState::Creating { .. }
            | IssueState::Stopping { .. }
            | IssueState::Starting { .. }
            | IssueState::Failed { .. }
            | IssueState::Deleting { .. } => return,
        };
        if record.template.provider != observation.provider {
            return;
        }
        let recorded = observation
            .objects
            .iter()
            .find(|swept| swept.seen.external_id == *external_id && is_of(&swept.seen, &record.id));
        let Some(recorded) = recorded else {
            return self.lost();
        };
        let is_running = matches!(self.issue.state, IssueState::Running { .. });
        if let Some(other) = self.second_of(observation) {
            return self.fail_without_call(duplicate(&recorded.seen.external_id, &other), false);
        }
        match (&recorded.seen.state, is_running) {
            (ObjectState::Running, true) => self.stop_has_settled(observation.asked_at),
            (ObjectState::Stopped, false) => {}
            // A stop of ours from before it was started again, that took effect only now.
            (ObjectState::Stopped, true) if self.a_stop_may_land() => {
                if let IssueState::Running { record, external_id } = self.take_state() {
                    let reason = "a stop from before took effect late; it is started again";
                    let from = Some(Phase::Running);
                    self.start(from, record, external_id, Goal::Running, reason.to_owned());
                }
            }
            (ObjectState::Stopped | ObjectState::Partial, true) => {
                self.fail_without_call(killed(), false)
            }
            (ObjectState::Running, false) => {
                if let IssueState::Stopped { record, external_id, by } = self.take_state() {
                    let reason = "it was found running although it is to be stopped".to_owned();
                    self.stop(Some(Phase::Stopped), record, external_id, by, reason);
                }
            }
            // Retry does not bring this object up again: it removes it and makes another.
            (ObjectState::Error { message }, _) => self.fail_without_call(in_error(message), true),
            // Half made while stopped, or on its way out: the next sweep sees what comes of it.
            (ObjectState::Partial, false) | (ObjectState::Destroying, _) => {}
        }
    }

    /// Whether a stop of unknown outcome may be why it is down. It may have taken effect long ago: no
    /// sweep looks while the provider is away. Only a look or a start from after it says that it did not.
    fn a_stop_may_land(&self) -> bool {
        let until = self.issue.state.record().and_then(|record| record.stop_may_land_until);
        until.is_some_and(|until| {
            !on(Bug::LateStopForgotten) || self.now() <= until.after(DOUBTED_FOR)
        })
    }

    /// It is up by a look that was asked for then: if every stop of unknown outcome must have taken
    /// effect before, none is why it is found down later.
    fn stop_has_settled(&mut self, asked_at: Timestamp) {
        if let Some(record) = self.issue.state.record_mut() {
            record.settle_stop(asked_at);
        }
    }

    /// Another object that could be this home's sandbox as well: the same sandbox once more, or
    /// one that no rule explains.
    fn second_of(&self, observation: &Observation) -> Option<ExternalId> {
        let recorded = self.issue.state.external_id()?;
        let record = self.issue.state.record()?;
        let is_second = |swept: &&ListedObject| {
            let Some(owner) = &swept.seen.owner else { return false };
            swept.seen.external_id != *recorded
                && !swept.known_deleted
                && swept.seen.state != ObjectState::Destroying
                && (owner.sandbox == record.id || !self.is_fast_orphan(owner))
        };
        observation.objects.iter().find(is_second).map(|swept| swept.seen.external_id.clone())
    }

    /// Whether an object may be one of fast mode whose record was never written.
    fn is_fast_orphan(&self, owner: &Owner) -> bool {
        owner.mode == Mode::Fast && owner.generation == self.issue.generation.next()
    }

    /// Cleans up the first orphan; the next sweep comes to the next one.
    fn clean_up_orphans(&mut self, observation: &Observation) {
        let own = self.issue.state.record().map(|record| &record.id);
        let now = self.now();
        let found = observation.objects.iter().find_map(|swept| {
            let owner = swept.seen.owner.as_ref().filter(|owner| Some(&owner.sandbox) != own)?;
            let seen_for = now.since(swept.first_seen_at);
            let state = &swept.seen.state;
            // Also one that is being destroyed: the process that began that may be gone.
            let action = if swept.known_deleted {
                Some(CleanupAction::Remove)
            } else if self.is_fast_orphan(owner) {
                (seen_for >= FAST_ORPHAN_MAX).then_some(CleanupAction::Remove)
            } else if seen_for >= QUARANTINE {
                Some(CleanupAction::Remove)
            } else {
                (*state == ObjectState::Running).then_some(CleanupAction::Stop)
            };
            Some(cleanup(&observation.provider, &swept.seen, owner, action?))
        });
        self.effects.extend(found);
    }

    /// A person decided that an object is this home's sandbox.
    pub fn adopt(&mut self, ask: AdoptAsk) {
        self.cause = ask.cause.to_string();
        let over = Reply::Refused(CommandRefusal::ObservationOutdated);
        let AdoptAsk { object, name, template, claims, .. } = ask;
        let is_absent = matches!(self.issue.state, IssueState::Absent);
        let Some(owner) = object.owner.filter(|owner| {
            is_absent
                && self.issue.merged_into.is_none()
                && owner.generation > self.issue.generation
        }) else {
            self.reply = over;
            return;
        };
        let now = self.now();
        let template = self.context.rules.laid_over(template, self.issue.facts.repository.as_ref());
        let record = Record {
            id: owner.sandbox,
            name: self.issue.facts.issue_id.sandbox_name(),
            object_name: name,
            generation: owner.generation,
            template_version: template.version(),
            template,
            agent_id: None,
            meta: SandboxMeta::default(),
            mode: owner.mode,
            created_at: now,
            phase_since: now,
            last_activity_at: now,
            reason: String::new(),
            attempt: Attempt::default(),
            may_land_until: None,
            stop_may_land_until: None,
            deadline: None,
            made_at_ns: None,
            healing: None,
            left_nothing: false,
            needs_cold_start: false,
            owes_farewell: false,
        };
        let external_id = object.external_id;
        let state = match object.state {
            ObjectState::Running => IssueState::Running { record, external_id },
            ObjectState::Stopped => {
                IssueState::Stopped { record, external_id, by: StoppedBy::Provider }
            }
            ObjectState::Partial | ObjectState::Destroying | ObjectState::Error { .. } => {
                self.reply = over;
                return;
            }
        };
        self.aliases = claims;
        self.issue.generation = owner.generation;
        self.issue.pending_start = None;
        self.acted_here(ActKind::Asked);
        self.enter(None, state, "adopted: a person decided that it is this issue's".to_owned());
        self.reply = Reply::Accepted;
    }

    /// A person decided that an object is to be removed, or that a record's object is lost.
    pub fn discard(
        &mut self,
        provider: &ProviderName,
        object: Option<ObservedObject>,
        lost: Option<SandboxId>,
        cause: &Cause,
    ) {
        self.cause = cause.to_string();
        self.reply = Reply::Accepted;
        let own = self.issue.state.record().map(|record| record.id.clone());
        if let Some(lost) = lost {
            if own.as_ref() == Some(&lost) && self.is_settled_with_object() {
                return self.lost();
            }
            self.reply = Reply::Refused(CommandRefusal::ObservationOutdated);
            return;
        }
        let is_own = |seen: &ObservedObject| {
            self.issue.state.external_id().is_none_or(|id| *id == seen.external_id)
                && seen.owner.as_ref().map(|owner| &owner.sandbox) == own.as_ref()
        };
        match object {
            Some(seen) if !is_own(&seen) => match &seen.owner {
                Some(owner) => {
                    self.effects.push(cleanup(provider, &seen, owner, CleanupAction::Remove));
                }
                None => self.reply = Reply::Refused(CommandRefusal::ObservationOutdated),
            },
            Some(_) | None => self.reply = Reply::Refused(CommandRefusal::ObservationOutdated),
        }
    }

    fn is_settled_with_object(&self) -> bool {
        matches!(self.issue.state, IssueState::Running { .. } | IssueState::Stopped { .. })
    }

    fn lost(&mut self) {
        let message =
            "the provider no longer has the object, and issuebox did not remove it; retry looks \
             once more and creates it again, without its workspace, if it is gone"
                .to_owned();
        let failure = Failure {
            code: FailureCode::ObjectLost,
            step: ProviderStep::Look,
            message,
            retryable: true,
        };
        self.fail_without_call(failure, true);
    }

    /// Fails a sandbox that was running or stopped. One whose object is lost has none any more.
    fn fail_without_call(&mut self, failure: Failure, is_lost: bool) {
        let (from, record, external_id, goal) = match self.take_state() {
            IssueState::Running { record, external_id } => {
                (Phase::Running, record, external_id, Goal::Running)
            }
            IssueState::Stopped { record, external_id, by } => {
                (Phase::Stopped, record, external_id, Goal::Stopped(by))
            }
            state @ (IssueState::Absent
            | IssueState::Creating { .. }
            | IssueState::Stopping { .. }
            | IssueState::Starting { .. }
            | IssueState::Failed { .. }
            | IssueState::Deleting { .. }) => return self.keep(state),
        };
        let external_id = (!is_lost).then_some(external_id);
        self.fail(from, record, external_id, goal, failure);
    }
}

pub(super) fn is_of(seen: &ObservedObject, sandbox: &SandboxId) -> bool {
    seen.owner.as_ref().is_some_and(|owner| owner.sandbox == *sandbox)
}

fn cleanup(
    provider: &ProviderName,
    seen: &ObservedObject,
    owner: &Owner,
    action: CleanupAction,
) -> Effect {
    Effect::CleanUp(Cleanup {
        provider: provider.clone(),
        external_id: seen.external_id.clone(),
        expected: owner.sandbox.clone(),
        action,
    })
}

fn killed() -> Failure {
    Failure {
        code: FailureCode::KilledOutside,
        step: ProviderStep::Look,
        message: "the object is stopped, and issuebox did not stop it; retry starts it again"
            .to_owned(),
        retryable: true,
    }
}

fn in_error(message: &str) -> Failure {
    Failure {
        code: FailureCode::ProviderBroken,
        step: ProviderStep::Look,
        message: format!(
            "the provider says that it cannot run: {message}; retry deletes it with its workspace \
             and creates another"
        ),
        retryable: true,
    }
}

fn duplicate(recorded: &ExternalId, other: &ExternalId) -> Failure {
    Failure {
        code: FailureCode::DuplicateObject,
        step: ProviderStep::Look,
        message: format!(
            "the provider has two objects for this issue: {recorded}, which is recorded, and \
             {other}; remove the wrong one (issuebox drift), then retry"
        ),
        retryable: true,
    }
}
