//! *Deleting*: accepted deletes are final. It stays *deleting*, with the failure shown, until the
//! provider no longer has any object of this home, and is tried again for as long as that takes.

use crate::issue::event::{CallError, Done, ObservedObject, StepRules};
use crate::issue::state::{IssueState, Record, SandboxPlan, Step, Verb};
use crate::sabotage::{Bug, on};
use crate::types::{ExternalId, Failure, ObjectState};

use super::answer::unexpected;
use super::creating::{is_ours, removal};
use super::transition::Transition;

/// How often the wait between two tries is doubled at least.
const WAITS_GROWING: u32 = 8;

/// The parts of *deleting* that an answer decides about.
pub(super) struct Deleting {
    pub record: Record,
    pub external_id: Option<ExternalId>,
    pub tries_left: u32,
    pub failure: Option<Failure>,
    pub next: Option<SandboxPlan>,
}

impl Transition<'_> {
    /// Asks for the removal of what is known, or looks if nothing is.
    pub fn ask_removal(&mut self, record: &mut Record, external_id: Option<&ExternalId>) -> Step {
        let verb = match external_id {
            Some(id) => Verb::Delete { external_id: id.clone(), expected: record.id.clone() },
            None => Verb::Look,
        };
        self.ask(record, external_id, verb, self.patience().attempts)
    }

    /// A delete is tried for as long as it takes; its tries only say how far its waits have grown.
    pub fn patience(&self) -> StepRules {
        let rules = self.context.rules.delete;
        StepRules { attempts: rules.attempts.max(WAITS_GROWING), ..rules }
    }

    /// An answer while deleting: of the removal, or of the call that was in flight when the
    /// delete came.
    pub fn deleting_answered(
        &mut self,
        mut deleting: Deleting,
        verb: Verb,
        result: Result<Done, CallError>,
    ) {
        match (&verb, result) {
            (_, Ok(Done::Found(seen))) => self.deleting_found(deleting, &seen),
            // A create or start that was in flight ended well: now remove what it made.
            (Verb::Create | Verb::Start, Ok(Done::Up(seen)))
                if is_ours(&deleting.record, &seen) =>
            {
                self.deleting_found(deleting, &[seen]);
            }
            // What else came up says nothing of ours.
            (Verb::Create | Verb::Start, Ok(Done::Up(_))) => self.deleting_look(deleting),
            (Verb::Stop, Ok(Done::Down)) => self.deleting_remove_known(deleting),
            (Verb::ColdStart { .. }, Ok(Done::ColdStarted(_))) => {
                self.deleting_remove_known(deleting);
            }
            (Verb::Delete { .. }, Ok(Done::Removing)) if on(Bug::GoneByAsking) => {
                self.gone(deleting.record, deleting.next);
            }
            // Accepted is not gone: look.
            (Verb::Delete { .. }, Ok(Done::Removing)) => {
                deleting.tries_left = deleting.tries_left.min(self.patience().attempts - 1);
                if !self.is_overdue(&deleting.record) {
                    deleting.failure = None;
                }
                self.deleting_look(deleting);
            }
            // Where a create's outcome was ever unknown, a second object may have landed behind this
            // one: then only a look can say it.
            (Verb::Delete { expected, .. }, Err(CallError::Absent | CallError::Present(_)))
                if *expected == deleting.record.id && deleting.record.may_land_until.is_none() =>
            {
                self.gone(deleting.record, deleting.next);
            }
            (Verb::Create, Err(_)) => self.deleting_look(deleting),
            (
                Verb::Start | Verb::ColdStart { .. } | Verb::Stop | Verb::Delete { .. },
                Err(CallError::Absent | CallError::Present(_)),
            ) => {
                deleting.external_id = None;
                self.deleting_look(deleting);
            }
            (Verb::Start | Verb::ColdStart { .. } | Verb::Stop, Err(_)) => {
                self.deleting_remove_known(deleting);
            }
            (_, Ok(Done::Up(_) | Done::Down | Done::Removing | Done::ColdStarted(_))) => {
                self.deleting_stuck(deleting, &verb, &unexpected());
            }
            (Verb::Look | Verb::Delete { .. }, Err(trouble)) => {
                self.deleting_stuck(deleting, &verb, &trouble);
            }
        }
    }

    /// Removes the first object of this home that is there; with none, it is gone, unless a
    /// create may still land. The first removal is asked at once, each further one after a wait:
    /// an object that is still there, or being destroyed, may take its time.
    fn deleting_found(&mut self, deleting: Deleting, seen: &[ObservedObject]) {
        let Deleting { mut record, mut external_id, tries_left, failure, next } = deleting;
        // A later generation is none of this delete's business: it is of a record that was lost (a
        // restored backup), or never written, and sweeps know what becomes of it.
        let is_later = |seen: &ObservedObject| {
            seen.owner.as_ref().is_some_and(|o| o.generation > record.generation)
        };
        let found = (seen.iter().filter(|seen| !is_later(seen)))
            .find_map(|seen| Some((seen, removal(seen)?)));
        let mut waits_for_create = None;
        let step = match found {
            None => match record.may_land_until {
                Some(until) if self.seen_as_of < until && !on(Bug::GoneTooSoon) => {
                    waits_for_create = Some(until);
                    Step::Waiting { verb: Verb::Look, due: until, tries_left }
                }
                Some(_) | None => return self.gone(record, next),
            },
            Some((found, verb)) => {
                if is_ours(&record, found) {
                    external_id = Some(found.external_id.clone());
                }
                let is_first = tries_left == self.patience().attempts;
                let tries_left = tries_left.saturating_sub(1);
                if is_first && found.state != ObjectState::Destroying {
                    self.ask(&mut record, external_id.as_ref(), verb, tries_left)
                } else {
                    self.wait(verb, self.patience(), tries_left, None)
                }
            }
        };
        self.keep(IssueState::Deleting { record, external_id, step, failure, next });
        if let Some(until) = waits_for_create {
            self.record_entry(format!(
                "the provider has nothing yet; a create with an unknown outcome may still take effect until \
                 {until}"
            ));
        }
    }

    fn deleting_look(&mut self, deleting: Deleting) {
        let Deleting { mut record, external_id, tries_left, failure, next } = deleting;
        let step = self.ask(&mut record, external_id.as_ref(), Verb::Look, tries_left);
        self.keep(IssueState::Deleting { record, external_id, step, failure, next });
    }

    fn deleting_remove_known(&mut self, deleting: Deleting) {
        let Deleting { mut record, external_id, failure, next, .. } = deleting;
        let step = self.ask_removal(&mut record, external_id.as_ref());
        self.keep(IssueState::Deleting { record, external_id, step, failure, next });
    }

    /// Something stands in the way: say so, and look again later, for ever.
    fn deleting_stuck(&mut self, deleting: Deleting, verb: &Verb, trouble: &CallError) {
        let Deleting { record, external_id, tries_left, failure: before, next } = deleting;
        let failure = Failure { retryable: true, ..self.failure_of(verb.step(), trouble) };
        let is_news = before.as_ref().map(|failure| failure.code) != Some(failure.code);
        let again = match verb {
            Verb::Delete { .. } => verb.clone(),
            Verb::Look | Verb::Create | Verb::Start | Verb::ColdStart { .. } | Verb::Stop => {
                Verb::Look
            }
        };
        let step = self.wait(again, self.patience(), tries_left.saturating_sub(1), Some(trouble));
        let failure = Some(failure);
        self.keep(IssueState::Deleting { record, external_id, step, failure, next });
        // Once for each kind of trouble: it is tried for ever.
        if is_news {
            self.record_try(verb.step(), trouble);
        }
    }
}
