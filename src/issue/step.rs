//! The whole lifecycle, synchronous and pure: one event in, one [`Commit`] out.
//!
//! This file only dispatches. What callers may want is in `pending_start` (ensure, commands, work), what
//! GitHub tells in `issue_delivery` (of the issue) and `scope_event` (of its repository, and of other homes that
//! are the same issue); what providers answer is in `answer`, by phase, and what sweeps see in
//! `observed`. Time leads on in `life` (idle, closed, too old), `deadline` (too slow) and
//! `recover` (waits that are over, restarts). `draft` holds the pieces that all are made of.

mod answer;
mod creating;
mod deadline;
mod deleting;
mod draft;
mod issue_delivery;
mod life;
mod observed;
mod pending_start;
mod recover;
mod scope_event;

use super::commit::Commit;
use super::event::{IssueEvent, StepContext};
use super::state::Issue;
use draft::Draft;
pub use life::life_due;

/// Decides what an event leads to.
///
/// The returned commit's `issue.version` is one more than the given one where `changed` says that
/// there is something to store, and the same where there is not.
pub fn step(issue: &Issue, event: IssueEvent, context: &StepContext<'_>) -> Commit {
    let mut draft = Draft::new(issue.clone(), context);
    match event {
        IssueEvent::Ensure(ask) => draft.ensure(ask),
        IssueEvent::Command(ask) => draft.command(ask),
        IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere } => {
            draft.taken_over = takes;
            draft.issue_delivery(issue_delivery, claims, place_elsewhere);
        }
        IssueEvent::ScopeEvent { news, delivery } => draft.scope_event(news, &delivery),
        IssueEvent::Learned { facts, asked_for, cause } => {
            draft.learned(&facts, asked_for, &cause);
        }
        IssueEvent::Merged { into, cause } => draft.merged(into, &cause),
        IssueEvent::Observed(observation) => draft.observed(&observation),
        IssueEvent::Adopt(ask) => draft.adopt(ask),
        IssueEvent::Discard { provider, object, lost, cause } => {
            draft.discard(&provider, object, lost, &cause);
        }
        IssueEvent::Granted => draft.granted(),
        IssueEvent::Worked { sandbox, start, cause } => draft.worked(&sandbox, start, &cause),
        IssueEvent::LimitStruck { sandbox, reason, ended } => {
            draft.limit_struck(&sandbox, &reason, ended);
        }
        IssueEvent::Answered(answer) => draft.answered(answer),
        IssueEvent::Due { in_flight, busy } => draft.due(in_flight, busy),
        IssueEvent::Activated { in_flight, after_restart } => {
            draft.activated(in_flight, after_restart);
        }
    }
    draft.finish(issue)
}

#[cfg(test)]
mod tests;
