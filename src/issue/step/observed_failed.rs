//! What a sweep saw of the object of a failed sandbox.
//!
//! The sandbox stays failed: a person, or the end of an outage, leads on. But what they do must be done
//! with what is there, so the record learns whether its object is, and a failed sandbox that is to be
//! stopped and runs is stopped.

use crate::issue::event::Observation;
use crate::issue::state::{Goal, IssueState};
use crate::types::{ObjectState, Phase};

use super::observed::is_of;
use super::transition::Transition;

impl Transition<'_> {
    /// Is the object of a failed sandbox there?
    pub(super) fn look_at_failed(&mut self, observation: &Observation) {
        let IssueState::Failed { record, external_id, goal, .. } = &self.issue.state else {
            return;
        };
        if record.template.provider != observation.provider {
            return;
        }
        let own = observation.objects.iter().map(|object| &object.seen).find(|seen| {
            is_of(seen, &record.id)
                && external_id.as_ref().is_none_or(|known| *known == seen.external_id)
        });
        let known = external_id.clone();
        let news = match (own, &known) {
            (None, Some(_)) => {
                Some("its object is gone: retry creates another, without its workspace".to_owned())
            }
            (Some(seen), None) if seen.state != ObjectState::Destroying => {
                Some(format!("its object is there, {}: retry goes on with it", seen.state))
            }
            (Some(_), Some(_) | None) | (None, None) => None,
        };
        let is_up = own.is_some_and(|seen| seen.state == ObjectState::Running);
        let goal = *goal;
        let found = own.map(|seen| seen.external_id.clone());
        if let Some(news) = news {
            self.object_of_failed(found.clone());
            self.record_entry(news);
        }
        if let (true, Goal::Stopped(by), Some(found)) = (is_up, goal, found)
            && let IssueState::Failed { record, .. } = self.take_state()
        {
            let reason = "it has failed, and runs although it is to be stopped".to_owned();
            self.stop(Some(Phase::Failed), record, found, by, reason);
        }
    }

    fn object_of_failed(&mut self, found: Option<crate::types::ExternalId>) {
        if let IssueState::Failed { external_id, record, .. } = &mut self.issue.state {
            record.left_nothing = false;
            *external_id = found;
        }
    }
}
