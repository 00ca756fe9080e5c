//! The whole lifecycle, synchronous and pure: one event in, one [`Commit`] out.
//!
//! This file only dispatches. What callers may want is in `wish` (ensure, commands, work) and
//! `nudge` (GitHub); what providers answer is in `answer`, by phase; `draft` holds the pieces that
//! all of them are made of.

mod answer;
mod creating;
mod deleting;
mod draft;
mod nudge;
mod recover;
mod wish;

use super::commit::Commit;
use super::event::{IssueEvent, Moment};
use super::state::Issue;
use draft::Draft;

/// Decides what an event leads to.
///
/// The returned commit's `issue.version` is one more than the given one where `changed` says that
/// there is something to store, and the same where there is not.
pub fn step(issue: &Issue, event: IssueEvent, moment: &Moment<'_>) -> Commit {
    let mut draft = Draft::new(issue.clone(), moment);
    match event {
        IssueEvent::Ensure(ask) => draft.ensure(ask),
        IssueEvent::Command(ask) => draft.command(ask),
        IssueEvent::Nudge { nudge, claims, place_elsewhere } => {
            draft.nudge(nudge, claims, place_elsewhere);
        }
        IssueEvent::Worked { sandbox, start, cause } => draft.worked(&sandbox, start, &cause),
        IssueEvent::Answered(answer) => draft.answered(answer),
        IssueEvent::Due { in_flight, busy } => draft.due(in_flight, busy),
        IssueEvent::Activated { in_flight, after_restart } => {
            draft.activated(in_flight, after_restart);
        }
        IssueEvent::Around { .. }
        | IssueEvent::Merged { .. }
        | IssueEvent::Observed(_)
        | IssueEvent::Adopt(_)
        | IssueEvent::Discard { .. }
        | IssueEvent::Granted => {}
    }
    draft.finish(issue)
}

#[cfg(test)]
mod tests;
