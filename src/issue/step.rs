//! The whole lifecycle, synchronous and pure: one event in, one [`Commit`] out.
//!
//! This file only dispatches. What callers may want is in `pending_start` (ensure, commands, work), what
//! deliveries lead to is in `issue_delivery` (about the issue) and `scope_event` (about its
//! repository, and other homes of the same issue), in the order of `acts`; what providers answer is in `answer`, by phase,
//! and the template's hooks in `cold_start` and
//! `farewell`; what sweeps see in `observed` and `observed_failed`. Time leads on in `life` (idle, closed, too old), `deadline` (too slow), `healing`
//! (after an outage) and `recover` (waits that are over, restarts). `conversation` is the way of messages and runs. `said` asks for what is said on the issue. `transition` holds the pieces that all are made of.

mod acts;
mod answer;
mod cold_start;
mod conversation;
mod creating;
mod deadline;
mod deleting;
mod farewell;
mod healing;
mod issue_delivery;
mod life;
mod observed;
mod observed_failed;
mod pending_start;
mod recover;
mod said;
mod scope_event;
mod transition;

use super::commit::Commit;
use super::event::{IssueEvent, StepContext};
use super::state::Issue;
use crate::types::Cause;
pub use cold_start::{PREPARATION_TIME_MAX, cold_start_time_max};
pub use conversation::around;
pub use life::life_due;
use transition::Transition;

/// Decides what an event leads to.
///
/// The returned commit's `issue.version` is one more than the given one if `changed` says that
/// there is something to store, and the same if there is not.
pub fn step(issue: &Issue, event: IssueEvent, context: &StepContext<'_>) -> Commit {
    let mut transition = Transition::new(issue.clone(), context);
    match event {
        IssueEvent::Ensure(ask) => transition.ensure(ask),
        IssueEvent::Command(ask) => transition.command(ask),
        IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere } => {
            transition.taken_over = takes;
            transition.issue_delivery(issue_delivery, claims, place_elsewhere);
        }
        IssueEvent::ScopeEvent { news, delivery } => transition.scope_event(news, &delivery),
        IssueEvent::Learned { facts, asked_for, cause, .. } => {
            transition.learned(&facts, asked_for, &cause);
        }
        IssueEvent::Merged { into, cause } => transition.merged(into, &cause),
        IssueEvent::Observed(observation) => transition.observed(&observation),
        IssueEvent::Adopt(ask) => transition.adopt(ask),
        IssueEvent::Discard { provider, object, lost, cause } => {
            transition.discard(&provider, object, lost, &cause);
        }
        IssueEvent::Say(ask) => transition.say(ask),
        IssueEvent::Run(event) => transition.run_event(event),
        IssueEvent::Granted => transition.granted(),
        IssueEvent::ProviderBack(provider) => transition.provider_back(&provider),
        IssueEvent::Worked { sandbox, start, cause } => transition.worked(&sandbox, start, &cause),
        IssueEvent::SetMeta { sandbox, change, cause } => {
            transition.set_meta(&sandbox, change, &cause);
        }
        IssueEvent::LimitStruck { sandbox, reason, ended } => {
            transition.cause = Cause::PROVIDER_EVENT.to_string();
            transition.limit_struck(&sandbox, &reason, ended);
        }
        IssueEvent::Noted { sandbox, what, cause } => transition.noted(&sandbox, what, &cause),
        IssueEvent::Answered(answer) => transition.answered(answer),
        IssueEvent::Due { in_flight, busy } => transition.due(in_flight, busy),
        IssueEvent::Activated { in_flight, after_restart } => {
            transition.activated(in_flight, after_restart);
        }
    }
    transition.finish(issue)
}

#[cfg(test)]
mod tests;
