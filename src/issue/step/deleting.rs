//! *Deleting*: accepted deletes are final. It stays *deleting*, with the failure shown, until the
//! provider no longer has any object of this home, and is tried again for as long as that takes.

use crate::issue::event::{Done, Seen, Trouble};
use crate::issue::state::{IssueState, Record, Step, Verb};
use crate::types::{ExternalId, Failure, ObjectState, Template};

use super::answer::unexpected;
use super::creating::{removal, step_of};
use super::draft::Draft;

/// The parts of *deleting* that an answer decides about.
pub(super) struct Deleting {
    pub record: Record,
    pub external_id: Option<ExternalId>,
    pub tries_left: u32,
    pub next: Option<Template>,
}

impl Draft<'_> {
    /// Asks for the removal of what is known, or looks where nothing is.
    pub fn ask_removal(&mut self, record: &mut Record, external_id: Option<&ExternalId>) -> Step {
        let verb = match external_id {
            Some(id) => Verb::Delete { external_id: id.clone(), expected: record.id.clone() },
            None => Verb::Look,
        };
        self.ask(record, external_id, verb, self.moment.rules.delete.attempts)
    }

    /// An answer while deleting: of the removal, or of the call that was in flight when the
    /// delete came.
    pub fn deleting_answered(
        &mut self,
        mut deleting: Deleting,
        verb: Verb,
        result: Result<Done, Trouble>,
    ) {
        match (&verb, result) {
            (_, Ok(Done::Seen(seen))) => self.deleting_found(deleting, &seen),
            // A create or start that was in flight ended well: now remove what it made.
            (Verb::Create | Verb::Start, Ok(Done::Up(seen))) => {
                self.deleting_found(deleting, &[seen]);
            }
            (Verb::Stop, Ok(Done::Down)) => self.deleting_remove_known(deleting),
            // Accepted is not gone: look.
            (Verb::Delete { .. }, Ok(Done::Removing)) => self.deleting_look(deleting),
            // Where a create's outcome was ever unknown, a second object may have landed behind this
            // one: then only a look tells.
            (Verb::Delete { expected, .. }, Err(Trouble::Absent | Trouble::Present(_)))
                if *expected == deleting.record.id && deleting.record.may_land_until.is_none() =>
            {
                self.gone(deleting.record, deleting.next);
            }
            (Verb::Create, Err(_)) => self.deleting_look(deleting),
            (
                Verb::Start | Verb::Stop | Verb::Delete { .. },
                Err(Trouble::Absent | Trouble::Present(_)),
            ) => {
                deleting.external_id = None;
                self.deleting_look(deleting);
            }
            (Verb::Start | Verb::Stop, Err(_)) => self.deleting_remove_known(deleting),
            (_, Ok(Done::Up(_) | Done::Down | Done::Removing)) => {
                self.deleting_stuck(deleting, &verb, &unexpected());
            }
            (Verb::Look | Verb::Delete { .. }, Err(trouble)) => {
                self.deleting_stuck(deleting, &verb, &trouble);
            }
        }
    }

    /// Removes the first object of this home that is there; with none, it is gone, unless a
    /// create may still land.
    fn deleting_found(&mut self, deleting: Deleting, seen: &[Seen]) {
        let Deleting { mut record, mut external_id, tries_left, next } = deleting;
        let ours = seen.iter().find(|seen| seen.owner.is_some());
        let step = match ours {
            None => match record.may_land_until {
                Some(until) if self.now() < until => {
                    Step::Waiting { verb: Verb::Look, due: until, tries_left }
                }
                Some(_) | None => return self.gone(record, next),
            },
            Some(found) => {
                if found.owner.as_ref().is_some_and(|(sandbox, _)| *sandbox == record.id) {
                    external_id = Some(found.external_id.clone());
                }
                match removal(found) {
                    Some(verb) => self.ask(&mut record, external_id.as_ref(), verb, tries_left),
                    None => {
                        debug_assert_eq!(found.state, ObjectState::Destroying);
                        let rules = self.moment.rules.delete;
                        self.wait(Verb::Look, rules, tries_left.saturating_sub(1), None)
                    }
                }
            }
        };
        self.keep(IssueState::Deleting { record, external_id, step, failure: None, next });
    }

    fn deleting_look(&mut self, deleting: Deleting) {
        let Deleting { mut record, external_id, tries_left, next } = deleting;
        let step = self.ask(&mut record, external_id.as_ref(), Verb::Look, tries_left);
        self.keep(IssueState::Deleting { record, external_id, step, failure: None, next });
    }

    fn deleting_remove_known(&mut self, deleting: Deleting) {
        let Deleting { mut record, external_id, next, .. } = deleting;
        let step = self.ask_removal(&mut record, external_id.as_ref());
        self.keep(IssueState::Deleting { record, external_id, step, failure: None, next });
    }

    /// Something stands in the way: say so, and look again later, for ever.
    fn deleting_stuck(&mut self, deleting: Deleting, verb: &Verb, trouble: &Trouble) {
        let Deleting { record, external_id, tries_left, next } = deleting;
        let failure = Failure { retryable: true, ..self.failure_of(step_of(verb), trouble) };
        let rules = self.moment.rules.delete;
        let again = match verb {
            Verb::Delete { .. } => verb.clone(),
            Verb::Look | Verb::Create | Verb::Start | Verb::Stop => Verb::Look,
        };
        let step = self.wait(again, rules, tries_left.saturating_sub(1), Some(trouble));
        let failure = Some(failure);
        self.keep(IssueState::Deleting { record, external_id, step, failure, next });
    }
}
