//! Deliveries about pull requests and commits: which issue they count for, and what a review says.
//!
//! # Races accepted
//! What comes before the store knows of its pull request is ignored: that is known milliseconds after
//! GitHub has made it, or when GitHub was asked again.

use super::Intake;
use super::permission::target_of;
use super::waiting::PermissionStage;
use crate::agents::prompt::{ReviewRemark, review_text};
use crate::engine::EngineError;
use crate::github::api::{GitHubError, PageCursor};
use crate::github::webhook::{Interpreted, PulledWork};
use crate::issue::IssueDelivery;
use crate::issue::instruction::{InstructionSource, bounded};
use crate::types::IssueNumber;

/// Why a delivery about a pull request or a commit has no effect.
pub(super) const NOT_OURS: &str =
    "it concerns a pull request or a commit that no sandbox of this server made";
/// How many pages of a review's remarks are read, of 100 each.
const PAGES_MAX: usize = 5;

/// The pull request and the review that a delivery says something of.
pub(super) fn review_of(delivery: &IssueDelivery) -> Option<(IssueNumber, u64)> {
    match delivery.instruction.as_ref()?.source {
        InstructionSource::Review { id, pull } => Some((IssueNumber(u64::from(pull)), id)),
        InstructionSource::Issue
        | InstructionSource::Comment(_)
        | InstructionSource::PlainComment(_)
        | InstructionSource::Check(_) => None,
    }
}

impl Intake {
    /// A delivery about a pull request or a commit as one about the issue whose sandbox made it. Stays as
    /// it is if none did.
    pub(super) async fn on_issue(&self, meaning: Interpreted) -> Result<Interpreted, EngineError> {
        let (Interpreted::OnPull(delivery), Some(stage)) = (&meaning, &self.permissions) else {
            return Ok(meaning);
        };
        let repository = delivery.repository_id;
        let home = match &delivery.work {
            PulledWork::Pull(number) => stage.owners.home_of_pull(repository, *number).await?,
            PulledWork::Commit(commit) => stage.owners.home_of_commit(repository, commit).await?,
        };
        let Some(home) = home else { return Ok(meaning) };
        let issue = stage.store.load(home).await?;
        // What is said where the issue was before it was transferred is not read: it would be looked for, and
        // answered, where the issue is.
        let issue = issue.filter(|issue| issue.facts.repository_id == Some(repository));
        let on_issue = issue.and_then(|issue| delivery.as_ref().clone().on(&issue.facts));
        Ok(on_issue.unwrap_or(meaning))
    }
}

impl PermissionStage {
    /// Adds the remarks of a review to its words. Returns whether it says anything.
    ///
    /// # Errors
    /// [`GitHubError`] if GitHub did not say.
    pub(super) async fn read_review(
        &self,
        delivery: &mut IssueDelivery,
    ) -> Result<bool, GitHubError> {
        let Some((pull, review)) = review_of(delivery) else { return Ok(true) };
        let target = target_of(delivery);
        let (mut remarks, mut page) = (Vec::new(), PageCursor::FIRST);
        for _ in 0..PAGES_MAX {
            let (more, next) = self.api.review_comments(&target, pull, review, &page).await?;
            remarks.extend(more);
            match next {
                Some(next) => page = next,
                None => break,
            }
        }
        let Some(words) = &mut delivery.instruction else { return Ok(true) };
        let remarks: Vec<ReviewRemark<'_>> = remarks
            .iter()
            .map(|remark| ReviewRemark {
                path: &remark.path,
                line: remark.line,
                hunk: &remark.hunk,
                text: &remark.body,
            })
            .collect();
        words.text = bounded(&review_text(&words.text, &remarks));
        Ok(!words.text.is_empty())
    }
}
