//! *Creating*: from the record to an object that is up, or to *failed* with nothing left behind.
//!
//! A create whose outcome is unknown is followed by a look, never by a blind second create. Only
//! an object that carries this very sandbox id is adopted; an older generation of this home is
//! removed first; anybody else's is a failure and stays untouched.

use crate::issue::event::{CallError, Done, ObservedObject, Owner};
use crate::issue::state::{Goal, IssueState, Record, Step, Verb};
use crate::sabotage::{Bug, on};
use crate::types::{Failure, FailureCode, Mode, ObjectState, Phase, ProviderStep};

use super::answer::unexpected;
use super::cold_start::{CameUp, cold_start_end};
use super::transition::Transition;

impl Transition<'_> {
    /// An answer while the sandbox is still meant to come up.
    pub fn creating_answered(
        &mut self,
        record: Record,
        goal: Goal,
        verb: Verb,
        tries_left: u32,
        result: Result<Done, CallError>,
    ) {
        let asked = verb.step();
        if let Verb::ColdStart { external_id } = verb {
            let from = Phase::Creating;
            return match cold_start_end(result) {
                Ok(end) => {
                    self.cold_started(CameUp { from, record, external_id, goal, tries_left }, end);
                }
                Err(trouble) => self.creating_trouble(record, goal, tries_left, asked, trouble),
            };
        }
        match result {
            Ok(Done::Up(seen)) if is_ours(&record, &seen) => {
                let came_up = CameUp {
                    from: Phase::Creating,
                    record,
                    external_id: seen.external_id,
                    goal,
                    tries_left,
                };
                self.came_up(came_up, "it is up");
            }
            Ok(Done::Up(seen)) | Err(CallError::Present(seen)) => {
                self.creating_found(record, goal, tries_left, vec![seen]);
            }
            Ok(Done::Found(seen)) => self.creating_found(record, goal, tries_left, seen),
            // What was in the way is being removed, or is gone: look again.
            Ok(Done::Removing) | Err(CallError::Absent) if matches!(verb, Verb::Delete { .. }) => {
                self.creating_look(record, goal, tries_left);
            }
            Ok(Done::Removing | Done::Down | Done::ColdStarted(_)) => {
                self.creating_trouble(record, goal, tries_left, asked, unexpected());
            }
            Err(trouble) => self.creating_trouble(record, goal, tries_left, asked, trouble),
        }
    }

    /// Decides about what is there for this home while creating.
    fn creating_found(
        &mut self,
        record: Record,
        goal: Goal,
        tries_left: u32,
        seen: Vec<ObservedObject>,
    ) {
        let (mut ours, others): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|seen| is_ours(&record, seen));
        // Several objects of one sandbox id (a provider that does not enforce names made a second
        // one): keep the same one at every look.
        ours.sort_by(|a, b| a.external_id.as_str().cmp(b.external_id.as_str()));
        // An older generation; or one of fast mode whose record was never written, so that this
        // record was given the same generation.
        let older = |seen: &ObservedObject| {
            seen.owner.as_ref().is_some_and(|owner| {
                owner.generation < record.generation
                    || owner.generation == record.generation && owner.mode == Mode::Fast
            })
        };
        if let Some(foreign) = others.iter().find(|seen| !older(seen)) {
            let trouble = CallError::Present(foreign.clone());
            let failure = self.failure_of(ProviderStep::Create, &trouble);
            return self.give_up(record, goal, failure);
        }
        let surplus = others.first().or_else(|| ours.get(1));
        if let Some(surplus) = surplus {
            return self.creating_remove(record, goal, tries_left, &surplus.clone());
        }
        let Some(found) = ours.into_iter().next() else {
            return self.creating_absent(record, goal, tries_left);
        };
        self.creating_adopt(record, goal, tries_left, found);
    }

    /// The sandbox's object is there: goes on by its state.
    fn creating_adopt(
        &mut self,
        record: Record,
        goal: Goal,
        tries_left: u32,
        found: ObservedObject,
    ) {
        let creating = Some(Phase::Creating);
        match found.state {
            ObjectState::Running => {
                let how = "adopted: the provider had it running";
                let (from, external_id) = (Phase::Creating, found.external_id);
                if on(Bug::AdoptedWithoutColdStart) {
                    return self.up(from, record, external_id, goal, how);
                }
                self.came_up(CameUp { from, record, external_id, goal, tries_left }, how);
            }
            ObjectState::Stopped => {
                let reason = "adopted: the provider had it stopped".to_owned();
                self.start(creating, record, found.external_id, goal, reason);
            }
            ObjectState::Partial if self.provider_rules(&record).names_enforced => {
                // Costs a try: what is completed and found half made again must come to an end.
                match tries_left.checked_sub(1) {
                    Some(tries_left) => self.creating_create(record, goal, tries_left),
                    None => {
                        let half = CallError::Broken("the object stays incomplete".to_owned());
                        let failure = self.failure_of(ProviderStep::Create, &half);
                        self.give_up(record, goal, failure);
                    }
                }
            }
            ObjectState::Partial | ObjectState::Destroying => {
                self.creating_remove(record, goal, tries_left, &found);
            }
            // Before the first try of this phase it is left from an earlier failure, and a retry
            // was asked for: delete it and create another.
            ObjectState::Error { .. } if tries_left >= self.context.rules.create.attempts => {
                self.creating_remove(record, goal, tries_left, &found);
            }
            ObjectState::Error { message } => {
                let failure = self.failure_of(ProviderStep::Create, &CallError::Broken(message));
                self.give_up(record, goal, failure);
            }
        }
    }

    /// There is nothing: ask for it, unless a create that was asked before may still land.
    fn creating_absent(&mut self, record: Record, goal: Goal, tries_left: u32) {
        if self.is_overdue(&record) {
            let failure = self.too_slow(ProviderStep::Create, &record);
            return self.give_up(record, goal, failure);
        }
        match record.may_land_until {
            Some(until)
                if !self.provider_rules(&record).names_enforced
                    && self.seen_as_of < until
                    && !on(Bug::CreateTooSoon) =>
            {
                let step = Step::Waiting { verb: Verb::Look, due: until, tries_left };
                self.keep(IssueState::Creating { record, goal, step, giving_up: None });
            }
            Some(_) | None => self.creating_create(record, goal, tries_left),
        }
    }

    fn creating_create(&mut self, mut record: Record, goal: Goal, tries_left: u32) {
        let step = self.ask(&mut record, None, Verb::Create, tries_left);
        self.keep(IssueState::Creating { record, goal, step, giving_up: None });
    }

    fn creating_look(&mut self, mut record: Record, goal: Goal, tries_left: u32) {
        let step = self.ask(&mut record, None, Verb::Look, tries_left);
        self.keep(IssueState::Creating { record, goal, step, giving_up: None });
    }

    /// Removes what is in the way; costs a try, so that it cannot go on for ever.
    fn creating_remove(
        &mut self,
        mut record: Record,
        goal: Goal,
        tries_left: u32,
        seen: &ObservedObject,
    ) {
        let Some(tries_left) = tries_left.checked_sub(1) else {
            let failure = self.failure_of(ProviderStep::Create, &CallError::Present(seen.clone()));
            return self.give_up(record, goal, failure);
        };
        let step = self.remove_or_wait(&mut record, seen, tries_left);
        self.keep(IssueState::Creating { record, goal, step, giving_up: None });
    }

    /// Asks for the removal of an object of this home; for one that is being removed already it
    /// asks again later, since the process that began it may be gone.
    fn remove_or_wait(
        &mut self,
        record: &mut Record,
        seen: &ObservedObject,
        tries_left: u32,
    ) -> Step {
        match removal(seen) {
            Some(verb) if seen.state == ObjectState::Destroying => {
                self.wait(verb, self.context.rules.create, tries_left, None)
            }
            Some(verb) => self.ask(record, None, verb, tries_left),
            None => self.wait(Verb::Look, self.context.rules.create, tries_left, None),
        }
    }

    fn creating_trouble(
        &mut self,
        record: Record,
        goal: Goal,
        tries_left: u32,
        asked: ProviderStep,
        trouble: CallError,
    ) {
        let tries_left = self.tries_in_time(&record, tries_left).saturating_sub(1);
        let hopeless = matches!(trouble, CallError::Refused(_) | CallError::Unknown(_));
        if hopeless || tries_left == 0 {
            let failure = self.failure_of(asked, &trouble);
            return self.give_up(record, goal, failure);
        }
        let next = if on(Bug::AskAgainWithoutLook) { Verb::Create } else { Verb::Look };
        let step = self.wait(next, self.context.rules.create, tries_left, Some(&trouble));
        self.keep(IssueState::Creating { record, goal, step, giving_up: None });
        self.record_try(asked, &trouble);
    }

    /// The tries are used up: remove what they may have left, then say *failed*.
    pub fn give_up(&mut self, mut record: Record, goal: Goal, failure: Failure) {
        if failure.code == FailureCode::ProviderUnknown {
            return self.fail(Phase::Creating, record, None, goal, failure);
        }
        // Clearing up has a time of its own, which begins once nothing can land any more.
        let from = record.may_land_until.map_or(self.now(), |until| until.max(self.now()));
        let span = self.deadline_of(Phase::Deleting, &record).map(|end| end.since(self.now()));
        record.deadline = span.map(|span| from.after(span));
        let step = self.ask(&mut record, None, Verb::Look, self.context.rules.create.attempts);
        self.keep(IssueState::Creating { record, goal, step, giving_up: Some(failure) });
    }

    /// An answer while leftovers are being removed.
    pub fn giving_up_answered(
        &mut self,
        mut record: Record,
        goal: Goal,
        tries_left: u32,
        failure: Failure,
        result: Result<Done, CallError>,
    ) {
        let leftover = match result {
            Ok(Done::Found(seen)) => seen.into_iter().find(|seen| is_ours(&record, seen)),
            Ok(Done::Up(seen)) if is_ours(&record, &seen) => Some(seen),
            Ok(Done::Removing | Done::Up(_) | Done::Down | Done::ColdStarted(_)) => {
                let step = self.ask(&mut record, None, Verb::Look, tries_left);
                let giving_up = Some(failure);
                return self.keep(IssueState::Creating { record, goal, step, giving_up });
            }
            Err(trouble @ (CallError::Absent | CallError::Present(_))) => {
                // Gone, as far as a removal is concerned; a look that answers so costs a try.
                let Some(tries_left) = tries_left.checked_sub(1) else {
                    return self.leftovers_unclear(record, goal, 0, failure, &trouble);
                };
                let step = self.ask(&mut record, None, Verb::Look, tries_left);
                let giving_up = Some(failure);
                return self.keep(IssueState::Creating { record, goal, step, giving_up });
            }
            Err(
                trouble @ (CallError::NotAsked(_)
                | CallError::Unavailable { .. }
                | CallError::Exhausted { .. }
                | CallError::Broken(_)
                | CallError::Refused(_)
                | CallError::Unknown(_)),
            ) => return self.leftovers_unclear(record, goal, tries_left, failure, &trouble),
        };
        let step = match (leftover, record.may_land_until) {
            (Some(seen), _) => match tries_left.checked_sub(1) {
                Some(tries_left) => self.remove_or_wait(&mut record, &seen, tries_left),
                None => {
                    let trouble = CallError::Broken(format!("{} is still there", seen.external_id));
                    return self.leftovers_unclear(record, goal, 0, failure, &trouble);
                }
            },
            (None, Some(until)) if self.seen_as_of < until => {
                Step::Waiting { verb: Verb::Look, due: until, tries_left }
            }
            (None, _) => {
                record.left_nothing = true;
                return self.fail(Phase::Creating, record, None, goal, failure);
            }
        };
        self.keep(IssueState::Creating { record, goal, step, giving_up: Some(failure) });
    }

    /// Leftovers could not be looked for or removed: try again, and in the end say so.
    pub fn leftovers_unclear(
        &mut self,
        record: Record,
        goal: Goal,
        tries_left: u32,
        mut failure: Failure,
        trouble: &CallError,
    ) {
        let tries_left = tries_left.saturating_sub(1);
        if tries_left == 0 {
            let left = self.failure_of(ProviderStep::Delete, trouble).message;
            failure.message = format!(
                "{}; an object named {} may be left at the provider ({left})",
                failure.message, record.object_name
            );
            return self.fail(Phase::Creating, record, None, goal, failure);
        }
        let step = self.wait(Verb::Look, self.context.rules.create, tries_left, Some(trouble));
        self.keep(IssueState::Creating { record, goal, step, giving_up: Some(failure) });
    }
}

/// Whether an object carries this very sandbox id.
pub(super) fn is_ours(record: &Record, seen: &ObservedObject) -> bool {
    let carries = |owner: &Owner| owner.sandbox == record.id || on(Bug::AdoptAnyLabelled);
    seen.owner.as_ref().is_some_and(carries)
}

/// The call that removes an object of this home; `None` for anybody else's.
pub(super) fn removal(seen: &ObservedObject) -> Option<Verb> {
    let expected = seen.owner.as_ref()?.sandbox.clone();
    Some(Verb::Delete { external_id: seen.external_id.clone(), expected })
}
