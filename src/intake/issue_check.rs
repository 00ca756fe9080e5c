//! Issues of live sandboxes of which nothing was heard for a while: they may be closed, without the
//! label or deleted by now, whatever became of the delivery that said so.

use std::collections::HashMap;
use std::time::Duration;

use super::recovery::{RecoveryError, RecoveryParts};
use super::synthetic::SyntheticDelivery;
use crate::github::api::{Conditional, GitHubError, GitHubIssue, RepositoryTarget};
use crate::issue::{Facts, Issue};
use crate::types::{HomeId, Timestamp};

/// After this time without news an issue is read.
const SILENCE: Duration = Duration::from_secs(15 * 60);
/// How many homes are read from the store at once.
const PAGE: usize = 200;

/// Reads issues of live sandboxes.
#[derive(Default)]
pub(super) struct IssueCheck {
    read: HashMap<HomeId, ReadIssue>,
}

/// When an issue was read, and its ETag then.
#[derive(Clone, Default)]
struct ReadIssue {
    at: Option<Timestamp>,
    etag: Option<String>,
}

impl IssueCheck {
    /// Reads every issue that is due.
    pub async fn check_all(&mut self, parts: &RecoveryParts) -> Result<(), RecoveryError> {
        let before = std::mem::take(&mut self.read);
        let mut after = None;
        let mut failed = Ok(());
        loop {
            let page = parts.store.live(after, PAGE).await?;
            let Some(last) = page.last() else { return failed };
            after = Some(last.home);
            for issue in page {
                let mut read = before.get(&issue.home).cloned().unwrap_or_default();
                if failed.is_ok() && is_due(&issue, &read, parts.clock.now()) {
                    failed = check(parts, &issue, &mut read).await;
                }
                self.read.insert(issue.home, read);
            }
        }
    }
}

/// Whether nothing was heard of the issue for a while.
fn is_due(issue: &Issue, read: &ReadIssue, now: Timestamp) -> bool {
    heard_of(&issue.facts).max(read.at).is_none_or(|at| now.since(at) >= SILENCE)
}

/// As of when GitHub last said something of the issue.
fn heard_of(facts: &Facts) -> Option<Timestamp> {
    let title = facts.title.as_ref().map(|title| title.as_of);
    let others = [&facts.open, &facts.labelled, &facts.assigned].into_iter().flatten();
    others.map(|fact| fact.as_of).max().max(title)
}

/// Reads an issue once and takes in what changed.
pub(super) async fn read(parts: &RecoveryParts, issue: &Issue) -> Result<(), RecoveryError> {
    check(parts, issue, &mut ReadIssue::default()).await
}

/// Reads an issue and takes in what changed.
async fn check(
    parts: &RecoveryParts,
    issue: &Issue,
    read: &mut ReadIssue,
) -> Result<(), RecoveryError> {
    let facts = &issue.facts;
    let (Some(target), Some(number)) = (RepositoryTarget::of(facts), facts.number) else {
        return Ok(());
    };
    if !parts.intake.triggers().usual().covers(target.name.as_str()) {
        return Ok(());
    }
    // What happens behind the answer is newer.
    let at = parts.api.github_now();
    match parts.api.issue(&target, number, read.etag.as_deref()).await {
        Ok(Conditional::Unchanged) => {}
        Ok(Conditional::Changed { value, etag }) => {
            take(parts, issue, &target, &IssueNow::Found(value), at).await?;
            read.etag = etag;
        }
        Err(GitHubError::Gone(_)) => take(parts, issue, &target, &IssueNow::Deleted, at).await?,
        Err(
            error @ (GitHubError::Limited { .. }
            | GitHubError::Unreachable(_)
            | GitHubError::Unauthorized(_)),
        ) => return Err(error.into()),
        // We may not see it, it is in another repository, or GitHub failed: nothing is known.
        Err(error) => {
            tracing::debug!(repository = %target.name, issue = number.0, %error, "cannot read an issue");
        }
    }
    read.at = Some(parts.clock.now());
    Ok(())
}

/// How an issue is at GitHub.
enum IssueNow {
    Found(GitHubIssue),
    Deleted,
}

/// Takes in that an issue was closed or deleted, or that the label was taken off.
async fn take(
    parts: &RecoveryParts,
    issue: &Issue,
    target: &RepositoryTarget,
    now: &IssueNow,
    at: Timestamp,
) -> Result<(), RecoveryError> {
    let (facts, policy) = (&issue.facts, parts.intake.triggers().of(&target.name));
    let is = |fact: &Option<crate::issue::Dated<bool>>| fact.as_ref().map(|fact| fact.value);
    let (action, id, labels) = match now {
        IssueNow::Deleted => match facts.issue_id.as_str().parse() {
            Ok(id) => ("deleted", id, &[][..]),
            // Its id is not one of GitHub's.
            Err(_) => return Ok(()),
        },
        IssueNow::Found(now) if !now.is_open && is(&facts.open) != Some(false) => {
            ("closed", now.id, &now.labels[..])
        }
        IssueNow::Found(now)
            if is(&facts.labelled) == Some(true)
                && !policy.label.is_empty()
                && !now.labels.iter().any(|label| policy.is_trigger_label(label)) =>
        {
            ("unlabeled", now.id, &now.labels[..])
        }
        IssueNow::Found(_) => return Ok(()),
    };
    let (Some(number), title) = (facts.number, facts.title.as_ref()) else { return Ok(()) };
    tracing::info!(repository = %target.name, issue = number.0, action, "GitHub says of an issue what no delivery said");
    let delivery = SyntheticDelivery {
        action,
        target,
        issue_id: id,
        number,
        title: match now {
            IssueNow::Found(now) => &now.title,
            IssueNow::Deleted => title.map_or("", |title| &title.value),
        },
        body: "",
        url: facts.url.as_deref(),
        is_open: matches!(now, IssueNow::Found(now) if now.is_open),
        labels,
        label: (action == "unlabeled").then_some(policy.label.as_str()),
        assignee: None,
        author: None,
        association: None,
        sender: None,
        at,
    };
    parts.take_synthetic(&delivery).await
}
