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
use super::news::IssueNote;
use super::work::UnverifiedIssue;

/// How many instructions are read together.
const PAGE: usize = 64;
/// What the timeline says of an edit by a person who may not trigger.
const EDITED: &str = "the issue was edited since by a person who may not trigger; the agent has \
                      the text of the trigger";

/// The newest words for the agent of an issue.
#[derive(Default)]
pub(super) struct LatestWords {
    /// Who caused the latest trigger, if that is known, and as of when.
    pub asked: Option<(GithubUser, Timestamp)>,
    /// Those that are the issue's text.
    pub text: Option<Instruction>,
    /// Those that came last, if they are not the issue's text.
    pub request: Option<Instruction>,
    /// The comments whose words they are.
    pub said_in: Vec<u64>,
}

impl IssueVerifier {
    /// What to say of such an edit, if there was one.
    pub(super) async fn edited_since(
        &self,
        target: &RepositoryTarget,
        instruction: Option<&Instruction>,
        verified: &VerifiedIssue,
    ) -> Result<Option<IssueNote>, UnverifiedIssue> {
        let (Some(edited_at), Some(instruction)) = (verified.edited_at, instruction) else {
            return Ok(None);
        };
        let is_same = instruction.title.as_deref() == Some(verified.title.as_str())
            && instruction.text == bounded(&verified.body);
        if edited_at <= instruction.as_of || is_same {
            return Ok(None);
        }
        let Some(GitHubAccount { id, login }) = verified.editor.clone() else {
            return Ok(Some(edit_note(edited_at)));
        };
        let is_sender = instruction.sender.as_ref().is_some_and(|sender| sender.id == id);
        if is_sender || self.may_trigger(target, &GithubUser { id, login }).await? {
            return Ok(None);
        }
        Ok(Some(edit_note(edited_at)))
    }

    /// The newest words for the agent.
    pub(super) async fn latest_words(&self, home: HomeId) -> Result<LatestWords, StoreError> {
        let (mut latest, mut after) = (LatestWords::default(), 0);
        loop {
            let rows = self.store.instructions(home, after, PAGE).await?;
            let is_last = rows.len() < PAGE;
            for row in rows {
                after = row.number;
                let instruction = row.instruction;
                if let InstructionSource::Comment(id) | InstructionSource::PlainComment(id) =
                    instruction.source
                {
                    latest.said_in.push(id);
                }
                let asked = || instruction.sender.clone().map(|by| (by, instruction.as_of));
                match instruction.source {
                    InstructionSource::Issue => {
                        latest.asked = asked();
                        (latest.text, latest.request) = (Some(instruction), None);
                    }
                    InstructionSource::Comment(_) => {
                        latest.asked = asked();
                        latest.request = Some(instruction);
                    }
                    // What follows a trigger asks for no sandbox.
                    InstructionSource::PlainComment(_) | InstructionSource::Review { .. } => {
                        latest.request = Some(instruction);
                    }
                    // No person wrote it: its hidden parts are removed, and nothing else follows.
                    InstructionSource::Check(_) => {}
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
        user: &GithubUser,
    ) -> Result<bool, GitHubError> {
        let triggers = self.triggers.of(&target.name);
        if triggers.bot_user_id.is(user.id) || triggers.bots.contains(&user.id) {
            return Ok(true);
        }
        let Some(level) = triggers.permission else { return Ok(false) };
        Ok(self.permissions.ask(target, user, level).await? == Standing::Reached)
    }
}

fn edit_note(edited_at: Timestamp) -> IssueNote {
    IssueNote { kind: "edited_since", as_of: edited_at, text: EDITED.to_owned() }
}
