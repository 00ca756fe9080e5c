//! What an issue comes to when its records are restored from a backup.
//!
//! A backup is older than what the provider has: a create or a start that it shows under way ended
//! long ago, one way or the other, and may have been undone since. Going on with it, as after a
//! restart, would create what is no longer asked for. So nothing is under way after a restore but
//! what takes sandboxes down; a person decides about the rest once the hold is released.

use super::state::{Goal, Issue, IssueState, StoppedBy};
use crate::types::{Cause, Failure, FailureCode, ProviderStep, TimelineEntry, Timestamp};

/// Brings a restored issue to rest. Returns the entry for its timeline, or `None` if it was at rest
/// and stays as it was.
pub fn restored(issue: &mut Issue, now: Timestamp) -> Option<TimelineEntry> {
    let from = issue.state.phase();
    let state = std::mem::replace(&mut issue.state, IssueState::Absent);
    let (state, reason) = match state {
        IssueState::Creating { record, goal, giving_up, .. } => {
            let unknown = || Failure {
                code: FailureCode::ProviderUnavailable,
                step: ProviderStep::Create,
                message: "it was being made when the backup was taken, and what came of it is not \
                          known; it may be there"
                    .to_owned(),
                retryable: true,
            };
            let failure = giving_up.unwrap_or_else(unknown);
            let reason = failure.message.clone();
            (IssueState::Failed { record, external_id: None, goal, failure }, reason)
        }
        IssueState::Starting { record, external_id, .. } => {
            let by = StoppedBy::Restart;
            let reason = "it was being started when the backup was taken".to_owned();
            (IssueState::Stopped { record, external_id, by }, reason)
        }
        IssueState::Stopping { record, external_id, by, goal: Goal::Running, step } => {
            let goal = Goal::Stopped(StoppedBy::Restart);
            let reason = "it was to be started again when the backup was taken".to_owned();
            (IssueState::Stopping { record, external_id, by, goal, step }, reason)
        }
        IssueState::Deleting { record, external_id, step, failure, next: Some(_) } => {
            let reason = "a next one was asked for when the backup was taken".to_owned();
            (IssueState::Deleting { record, external_id, step, failure, next: None }, reason)
        }
        at_rest @ (IssueState::Absent
        | IssueState::Running { .. }
        | IssueState::Stopping { goal: Goal::Stopped(_), .. }
        | IssueState::Stopped { .. }
        | IssueState::Failed { .. }
        | IssueState::Deleting { next: None, .. }) => {
            issue.state = at_rest;
            return None;
        }
    };
    issue.state = state;
    issue.version += 1;
    let to = issue.state.phase();
    let mut generation = issue.generation;
    if let Some(record) = issue.state.record_mut() {
        generation = record.generation;
        record.reason.clone_from(&reason);
        if from != to {
            record.phase_since = now;
            record.deadline = None;
        }
    }
    let cause = Cause::Service("restore").to_string();
    Some(TimelineEntry { at: now, generation, from, to, reason, cause })
}
