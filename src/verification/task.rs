//! What an issue is about, as GitHub says: for the first prompt of an agent's session.
//!
//! Only what people wrote who may trigger, or the issue's author, is part of it; and nothing that others
//! edited after the trigger. What others wrote is counted.

use std::collections::HashMap;

use crate::github::api::{
    GitHubAccount, GitHubError, RepositoryTarget, VerifiedComment, VerifiedIssue,
};
use crate::github::policy::SAMPLE_REPOSITORY_ID;
use crate::github::task::{IssueAuthor, IssueComment, Task, TaskSource};
use crate::issue::instruction::GithubUser;
use crate::types::HomeId;

use super::edits::LatestWords;
use super::work::UnverifiedIssue;
use super::{ASK_TIME_MAX, IssueVerifier};

/// Of how many people GitHub is asked what they may do. Comments of others are left out.
const ASKED_MAX: usize = 20;

impl IssueVerifier {
    /// What the issue is about; `None` if GitHub does not know it, or is not asked about it.
    ///
    /// # Errors
    /// Why GitHub did not say, for people.
    pub async fn task(&self, home: HomeId) -> Result<Option<Task>, String> {
        match tokio::time::timeout(ASK_TIME_MAX, self.ask_task(home)).await {
            Ok(asked) => asked.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", ASK_TIME_MAX.as_secs())),
        }
    }

    async fn ask_task(&self, home: HomeId) -> Result<Option<Task>, UnverifiedIssue> {
        let Some(issue) = self.store.load(home).await? else { return Ok(None) };
        let facts = &issue.facts;
        let (Some(target), Some(number)) = (RepositoryTarget::of(facts), facts.number) else {
            return Ok(None);
        };
        if facts.repository_id == Some(SAMPLE_REPOSITORY_ID) {
            return Ok(None);
        }
        let verified = match self.api.verify(&target, number, "").await {
            Ok(verified) => verified,
            // Verification has the last word on that.
            Err(GitHubError::Gone(_) | GitHubError::NotFound(_) | GitHubError::Moved { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let words = self.latest_words(home).await?;
        Ok(Some(self.task_of(&target, &verified, &words).await?))
    }

    async fn task_of(
        &self,
        target: &RepositoryTarget,
        verified: &VerifiedIssue,
        words: &LatestWords,
    ) -> Result<Task, GitHubError> {
        let triggered_at = words.asked.as_ref().map_or(verified.at, |(_, at)| *at);
        let mut asked = AskedPeople { verifier: self, target, known: HashMap::new() };
        let author = match is_there(&verified.author) {
            Some(GitHubAccount { id, login }) => Some(IssueAuthor {
                id: *id,
                login: login.clone(),
                is_permitted: asked.may_trigger(&verified.author).await?,
            }),
            None => None,
        };
        let (title, body) = match &words.text {
            Some(text) => (text.title.as_deref().unwrap_or_default(), text.text.as_str()),
            None if asked.is_unchanged(verified, triggered_at).await? => {
                (verified.title.as_str(), verified.body.as_str())
            }
            None => ("", ""),
        };
        let mut comments = Vec::with_capacity(verified.comments.len());
        // The newest first: GitHub is asked of so many people and no more.
        for comment in verified.comments.iter().rev() {
            let is_permitted = asked.may_trigger(&comment.author).await?;
            comments.push(issue_comment(comment, is_permitted));
        }
        comments.reverse();
        let total = usize::try_from(verified.comments_total).unwrap_or(usize::MAX);
        Ok(Task::new(&TaskSource {
            title,
            body,
            author: author.as_ref(),
            own: &self.triggers.usual().bot_user_id,
            triggered_at,
            said_in: &words.said_in,
            comments: &comments,
            older: total.saturating_sub(comments.len()),
        }))
    }
}

/// Who may trigger, asked once for each person.
struct AskedPeople<'a> {
    verifier: &'a IssueVerifier,
    target: &'a RepositoryTarget,
    known: HashMap<u64, bool>,
}

impl AskedPeople<'_> {
    async fn may_trigger(&mut self, account: &GitHubAccount) -> Result<bool, GitHubError> {
        let Some(GitHubAccount { id, login }) = is_there(account) else { return Ok(false) };
        if let Some(known) = self.known.get(id) {
            return Ok(*known);
        }
        if self.known.len() >= ASKED_MAX {
            return Ok(false);
        }
        let user = GithubUser { id: *id, login: login.clone() };
        let may = self.verifier.may_trigger(self.target, &user).await?;
        self.known.insert(*id, may);
        Ok(may)
    }

    /// Whether title and text are as they were when it was triggered, or were edited by a person who may
    /// trigger.
    async fn is_unchanged(
        &mut self,
        verified: &VerifiedIssue,
        triggered_at: crate::types::Timestamp,
    ) -> Result<bool, GitHubError> {
        match (verified.edited_at, &verified.editor) {
            (None, _) => Ok(true),
            (Some(at), _) if at <= triggered_at => Ok(true),
            (Some(_), Some(editor)) => self.may_trigger(editor).await,
            (Some(_), None) => Ok(false),
        }
    }
}

fn is_there(account: &GitHubAccount) -> Option<&GitHubAccount> {
    Some(account).filter(|account| account.id != 0)
}

fn issue_comment(comment: &VerifiedComment, is_permitted: bool) -> IssueComment {
    IssueComment {
        id: comment.id,
        author: is_there(&comment.author).map(|author| author.id),
        login: comment.author.login.clone(),
        is_permitted,
        editor: comment.editor.as_ref().and_then(is_there).map(|editor| editor.id),
        created_at: comment.created_at,
        edited_at: comment.edited_at,
        is_minimized: comment.is_minimized,
        body: comment.body.clone(),
    }
}
