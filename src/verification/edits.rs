//! Whether an issue's text was edited after the trigger, by a person who may not trigger.
//!
//! The agent is given the text of the trigger's delivery. What others wrote into the issue since is not
//! part of it; the timeline says so.

use crate::github::api::{GitHubAccount, GitHubError, RepositoryTarget, VerifiedIssue};
use crate::github::permissions::Standing;
use crate::issue::instruction::{GithubUser, Instruction, InstructionSource, bounded};
use crate::store::StoreError;
use crate::types::{HomeId, Timestamp};

use super::IssueVerifier;
use super::work::UnverifiedIssue;

/// How many instructions are read together.
const PAGE: usize = 64;

impl IssueVerifier {
    /// When the issue was edited so, if it was.
    pub(super) async fn edited_since(
        &self,
        target: &RepositoryTarget,
        home: HomeId,
        verified: &VerifiedIssue,
    ) -> Result<Option<Timestamp>, UnverifiedIssue> {
        let Some(edited_at) = verified.edited_at else { return Ok(None) };
        let latest = self.latest_instruction(home, Some(InstructionSource::Issue)).await?;
        let Some(instruction) = latest else { return Ok(None) };
        let is_same = instruction.title.as_deref() == Some(verified.title.as_str())
            && instruction.text == bounded(&verified.body);
        if edited_at <= instruction.as_of || is_same {
            return Ok(None);
        }
        let by = verified.editor.as_ref();
        if let Some(editor) = by
            && (instruction.sender.as_ref().is_some_and(|sender| sender.id == editor.id)
                || self.may_trigger(target, editor).await?)
        {
            return Ok(None);
        }
        Ok(Some(edited_at))
    }

    /// The newest words for the agent, of this source if one is given.
    pub(super) async fn latest_instruction(
        &self,
        home: HomeId,
        source: Option<InstructionSource>,
    ) -> Result<Option<Instruction>, StoreError> {
        let (mut latest, mut after) = (None, 0);
        loop {
            let rows = self.store.instructions(home, after, PAGE).await?;
            let is_last = rows.len() < PAGE;
            for row in rows {
                after = row.number;
                if source.is_none_or(|source| source == row.instruction.source) {
                    latest = Some(row.instruction);
                }
            }
            if is_last {
                return Ok(latest);
            }
        }
    }

    /// Whether an account may trigger. What is no user is a bot: it passes by its configured id alone.
    pub(super) async fn may_trigger(
        &self,
        target: &RepositoryTarget,
        account: &GitHubAccount,
    ) -> Result<bool, GitHubError> {
        let triggers = &self.triggers;
        if triggers.bot_user_id.is(account.id) || triggers.bots.contains(&account.id) {
            return Ok(true);
        }
        let Some(level) = triggers.permission else { return Ok(false) };
        let GitHubAccount { id, login } = account.clone();
        let standing = self.permissions.ask(target, &GithubUser { id, login }, level).await?;
        Ok(standing == Standing::Reached)
    }
}
