//! Deliveries that contradict what their issue comes to. GitHub's times have a resolution of one second,
//! and a label may move none at all, so they do not always say which of two acts came last. What counts
//! by its time counts at once; two seconds later GitHub is asked how the issue is, and what it shows
//! counts as of its answer.
//!
//! What is not asked before the server ends is found by the label check, and by that of silent issues.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::issue_check;
use super::label_check::{StandingRequest, counts_as_of, stored, take};
use super::recovery::{RecoveryError, RecoveryParts};
use crate::github::api::{GitHubError, RepositoryTarget, VerifiedAct, VerifiedIssue};
use crate::github::policy::TriggerPolicy;
use crate::issue::IssueDelivery;
use crate::issue::event::DeliveryEffect;
use crate::types::Timestamp;

/// How long after a delivery GitHub is asked: then its answer is of a later second.
pub(super) const SETTLE_PAUSE: Duration = Duration::from_secs(2);
/// Most issues that wait to be looked at.
const WAITING_MAX: usize = 10_000;

/// An issue of which a delivery asked for a sandbox, or against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangedIssue {
    /// Its global id.
    pub id: u64,
    /// When the delivery arrived.
    pub at: Timestamp,
    /// Whether the delivery asked for a sandbox.
    asks: bool,
}

/// Issues that changed lately, in order.
#[derive(Debug, Default)]
pub(super) struct ChangedIssues {
    waiting: Mutex<VecDeque<ChangedIssue>>,
    changed: Notify,
}

impl ChangedIssues {
    /// The issue of a delivery that may contradict what the issue comes to.
    pub fn of(delivery: &IssueDelivery) -> Option<ChangedIssue> {
        let asks = match delivery.effect {
            DeliveryEffect::Trigger(_) => true,
            DeliveryEffect::Stop(_) => false,
            DeliveryEffect::Delete
            | DeliveryEffect::Update
            | DeliveryEffect::Activity
            | DeliveryEffect::Command(_)
            | DeliveryEffect::Status
            | DeliveryEffect::Publish { .. } => return None,
        };
        // A comment's time is its own.
        let id = delivery.news.issue_id.as_str().parse().ok();
        let id = id.filter(|_| delivery.event == "issues")?;
        Some(ChangedIssue { id, at: delivery.received_at, asks })
    }

    /// Remembers it. What is too much is left to the label check.
    pub fn push(&self, issue: ChangedIssue) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push_back(issue);
            self.changed.notify_one();
        }
    }

    /// The next one, when there is one. One waits.
    pub async fn next(&self) -> ChangedIssue {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(issue) => return issue,
                None => self.changed.notified().await,
            }
        }
    }
}

/// Asks GitHub how an issue is, if the delivery contradicts what it comes to.
pub(super) async fn settle(
    parts: &RecoveryParts,
    changed: &ChangedIssue,
) -> Result<(), RecoveryError> {
    let Some(issue) = stored(parts, changed.id).await? else { return Ok(()) };
    if issue.is_asked_for() == changed.asks {
        return Ok(());
    }
    if !changed.asks {
        return issue_check::read(parts, &issue).await;
    }
    let (Some(target), Some(number)) = (RepositoryTarget::of(&issue.facts), issue.facts.number)
    else {
        return Ok(());
    };
    let verified = match parts.api.verify(&target, number, "").await {
        Ok(verified) if verified.id == changed.id => verified,
        // It was deleted or transferred in between.
        Ok(_)
        | Err(GitHubError::NotFound(_) | GitHubError::Gone(_) | GitHubError::Moved { .. }) => {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let Some(request) = standing_request(parts.intake.triggers(), &verified) else { return Ok(()) };
    let at = request.act().map_or(changed.at, |act| act.at);
    match counts_as_of(Some(&issue), at, verified.at) {
        Some(at) => take(parts, &target, &verified, request, at).await,
        None => Ok(()),
    }
}

/// What of an issue asks for a sandbox, as GitHub shows it.
fn standing_request<'a>(
    policy: &TriggerPolicy,
    verified: &'a VerifiedIssue,
) -> Option<StandingRequest<'a>> {
    if !verified.is_open {
        return None;
    }
    let is_trigger = |label: &String| policy.is_trigger_label(label);
    let last = |action: &str, is_it: &dyn Fn(&VerifiedAct) -> bool| {
        verified.acts.iter().rev().find(|act| act.action == action && is_it(act))
    };
    if verified.labels.iter().any(is_trigger) {
        let act = last("labeled", &|act| act.label.as_ref().is_some_and(is_trigger));
        return Some(StandingRequest::Label(act));
    }
    let bot = policy.assignee;
    if bot != 0 && verified.assignees.contains(&bot) {
        let act = last("assigned", &|act| act.assignee == Some(bot));
        return act.map(StandingRequest::Assignee);
    }
    // The label or the assignee was taken away, unless it was closed last and is open now.
    let last_change = verified.acts.last().filter(|act| act.action == "reopened");
    last_change.map(StandingRequest::Reopened)
}
