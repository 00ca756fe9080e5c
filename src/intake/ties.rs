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
use super::recovery::{RecoveryError, RecoveryParts};
use super::standing::{StandingRequest, stored, take, verified};
use crate::github::api::RepositoryTarget;
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
            | DeliveryEffect::FollowUp { .. }
            | DeliveryEffect::Command(_)
            | DeliveryEffect::Status
            | DeliveryEffect::Publish { .. }
            | DeliveryEffect::Note(_) => return None,
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
    let Some(verified) = verified(parts, &target, changed.id, number).await? else { return Ok(()) };
    let request = StandingRequest::of(parts.intake.triggers().of(&target.name), &verified);
    let Some(request) = request else { return Ok(()) };
    let at = request.act().map_or(changed.at, |act| act.at);
    take(parts, &target, &verified, request, Some(&issue), at).await
}
