//! A GitHub in memory with one repository: comments, reactions and pull requests, and faults to order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use super::SetForward;
use crate::clock::Clock;
use crate::github::api::*;
use crate::types::{IssueNumber, Timestamp};

/// Our own account.
pub const OWN: u64 = 77;
/// Another account.
pub const STRANGER: u64 = 78;

/// What goes wrong with the next call that writes.
pub enum WriteFault {
    /// It fails and has no effect.
    Before(GitHubError),
    /// It has its effect, and fails.
    After(GitHubError),
    /// It has its effect, and is never answered.
    Hangs,
}

#[derive(Default)]
struct FakeState {
    comments: Vec<GitHubComment>,
    reactions: Vec<ReactionTarget>,
    /// Comments given so far.
    last_id: u64,
    faults: VecDeque<WriteFault>,
    reaction_faults: VecDeque<WriteFault>,
    pulls: Vec<GitHubPull>,
    pull_faults: VecDeque<WriteFault>,
    refuses_drafts: bool,
    /// How many lists of pull requests are still empty.
    hidden_lists: usize,
    labels: Vec<String>,
    statuses: Vec<(String, StatusEntry)>,
    /// The error of every call.
    down: Option<GitHubError>,
    /// How many calls wrote.
    writes: usize,
}

/// A GitHub in a test's hands.
pub struct FakeGitHub {
    clock: Arc<SetForward>,
    state: Mutex<FakeState>,
}

impl FakeGitHub {
    pub fn new(clock: Arc<SetForward>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().expect("no panic holds it")
    }

    /// The next calls that write or edit a comment fail like this.
    pub fn fail(&self, faults: impl IntoIterator<Item = WriteFault>) {
        self.state().faults.extend(faults);
    }

    /// The next reaction fails like this.
    pub fn fail_reaction(&self, fault: WriteFault) {
        self.state().reaction_faults.push_back(fault);
    }

    /// The next calls that open or edit a pull request fail like this.
    pub fn fail_pull(&self, faults: impl IntoIterator<Item = WriteFault>) {
        self.state().pull_faults.extend(faults);
    }

    /// The next list of pull requests is empty: one is opened right after it.
    pub fn hide_pulls_once(&self) {
        self.state().hidden_lists += 1;
    }

    /// From now on drafts are refused.
    pub fn refuse_drafts(&self) {
        self.state().refuses_drafts = true;
    }

    pub fn labels(&self) -> Vec<String> {
        self.state().labels.clone()
    }

    /// Every commit status that was set, with its commit.
    pub fn statuses(&self) -> Vec<(String, StatusEntry)> {
        self.state().statuses.clone()
    }

    pub fn pulls(&self) -> Vec<GitHubPull> {
        self.state().pulls.clone()
    }

    /// A person changes the pull requests.
    pub fn pulls_by_hand(&self, change: impl FnOnce(&mut Vec<GitHubPull>)) {
        change(&mut self.state().pulls);
    }

    /// A pull request of this account.
    pub fn pull_of(&self, author: u64, new: &NewPull) -> GitHubPull {
        let mut state = self.state();
        state.last_id += 1;
        let number = IssueNumber(100 + state.last_id);
        GitHubPull {
            number,
            state: PullState::Open,
            is_draft: new.draft,
            title: new.title.clone(),
            body: new.body.clone(),
            head_commit: "a".into(),
            base: new.base.clone(),
            author: GitHubAccount { id: author, login: format!("user{author}") },
            html_url: format!("https://github.com/octo/hello/pull/{number}"),
        }
    }

    /// Every call fails with this; `None` ends it.
    pub fn down(&self, error: Option<GitHubError>) {
        self.state().down = error;
    }

    pub fn faults_left(&self) -> usize {
        self.state().faults.len()
    }

    pub fn writes(&self) -> usize {
        self.state().writes
    }

    pub fn reactions(&self) -> Vec<ReactionTarget> {
        self.state().reactions.clone()
    }

    pub fn bodies(&self) -> Vec<String> {
        self.state().comments.iter().map(|comment| comment.body.clone()).collect()
    }

    /// How many comments are ours.
    pub fn ours(&self) -> usize {
        self.state().comments.iter().filter(|comment| comment.author.id == OWN).count()
    }

    /// A person changes the comments.
    pub fn by_hand(&self, change: impl FnOnce(&mut Vec<GitHubComment>)) {
        change(&mut self.state().comments);
    }

    /// A comment of this account.
    pub fn comment_of(&self, author: u64, body: &str) -> GitHubComment {
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        let now = self.clock.now();
        GitHubComment {
            id,
            author: GitHubAccount { id: author, login: format!("user{author}") },
            via_app: None,
            body: body.into(),
            created_at: now,
            updated_at: now,
            html_url: format!("https://github.com/octo/hello/issues/1#issuecomment-{id}"),
        }
    }

    fn up(&self) -> Result<(), GitHubError> {
        self.state().down.clone().map_or(Ok(()), Err)
    }

    async fn write<T: Send>(
        &self,
        fault: Option<WriteFault>,
        change: impl FnOnce(&mut FakeState) -> Result<T, GitHubError> + Send,
    ) -> Result<T, GitHubError> {
        if let Some(WriteFault::Before(error)) = fault {
            return Err(error);
        }
        let changed = {
            let mut state = self.state();
            state.writes += 1;
            change(&mut state)
        };
        match fault {
            Some(WriteFault::After(error)) => Err(error),
            Some(WriteFault::Hangs) => std::future::pending().await,
            Some(WriteFault::Before(_)) | None => changed,
        }
    }
}

#[async_trait]
impl GitHubWriter for FakeGitHub {
    async fn identity(&self) -> Result<GitHubIdentity, GitHubError> {
        Ok(GitHubIdentity {
            kind: IdentityKind::Token,
            user_id: OWN,
            login: "box".into(),
            slug: "box".into(),
            token_expires_at: None,
        })
    }

    fn github_now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn turn(&self, _: &RepositoryTarget, _: WriteUrgency) -> Result<WriteTurn, GitHubError> {
        Ok(WriteTurn::unlimited())
    }

    async fn comments_since(
        &self,
        _: &RepositoryTarget,
        _: IssueNumber,
        since: Timestamp,
        page: &PageCursor,
    ) -> Result<(Vec<GitHubComment>, Option<PageCursor>), GitHubError> {
        self.up()?;
        let at: usize = page.0.as_deref().map_or(0, |at| at.parse().expect("ours"));
        let state = self.state();
        let mut newer = state.comments.iter().filter(|comment| comment.updated_at >= since);
        // One on each page.
        let one: Vec<GitHubComment> = newer.nth(at).cloned().into_iter().collect();
        let next = (!one.is_empty()).then(|| PageCursor(Some((at + 1).to_string())));
        Ok((one, next))
    }

    async fn comment(
        &self,
        _: &RepositoryTarget,
        id: u64,
        _: Option<&str>,
    ) -> Result<Conditional<GitHubComment>, GitHubError> {
        self.up()?;
        let found = self.state().comments.iter().find(|comment| comment.id == id).cloned();
        let value = found.ok_or_else(|| GitHubError::NotFound("comment".into()))?;
        Ok(Conditional::Changed { value, etag: None })
    }

    async fn create_comment(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        _: IssueNumber,
        body: &str,
    ) -> Result<GitHubComment, GitHubError> {
        self.up()?;
        let comment = self.comment_of(OWN, body);
        let fault = self.state().faults.pop_front();
        self.write(fault, |state| {
            state.comments.push(comment.clone());
            Ok(comment)
        })
        .await
    }

    async fn edit_comment(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        id: u64,
        body: &str,
    ) -> Result<GitHubComment, GitHubError> {
        self.up()?;
        let fault = self.state().faults.pop_front();
        self.write(fault, |state| {
            let comment = state.comments.iter_mut().find(|comment| comment.id == id);
            let comment = comment.ok_or_else(|| GitHubError::NotFound("comment".into()))?;
            body.clone_into(&mut comment.body);
            Ok(comment.clone())
        })
        .await
    }

    async fn react(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        to: ReactionTarget,
        _: Reaction,
    ) -> Result<(), GitHubError> {
        self.up()?;
        let fault = self.state().reaction_faults.pop_front();
        self.write(fault, |state| {
            state.reactions.push(to);
            Ok(())
        })
        .await
    }

    async fn pulls_of(
        &self,
        _: &RepositoryTarget,
        _: &str,
    ) -> Result<Vec<GitHubPull>, GitHubError> {
        self.up()?;
        let mut state = self.state();
        if state.hidden_lists > 0 {
            state.hidden_lists -= 1;
            return Ok(Vec::new());
        }
        Ok(state.pulls.iter().rev().cloned().collect())
    }

    async fn add_label(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        _: IssueNumber,
        label: &str,
    ) -> Result<(), GitHubError> {
        self.up()?;
        let mut state = self.state();
        if !state.labels.iter().any(|known| known == label) {
            state.labels.push(label.to_owned());
        }
        Ok(())
    }

    async fn remove_label(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        _: IssueNumber,
        label: &str,
    ) -> Result<(), GitHubError> {
        self.up()?;
        self.state().labels.retain(|known| known != label);
        Ok(())
    }

    async fn create_pull(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        new: &NewPull,
    ) -> Result<GitHubPull, GitHubError> {
        self.up()?;
        let pull = self.pull_of(OWN, new);
        let fault = self.state().pull_faults.pop_front();
        self.write(fault, |state| {
            let refused = |words: &str| GitHubError::Refused { status: 422, words: words.into() };
            if new.draft && state.refuses_drafts {
                return Err(refused("Draft pull requests are not supported in this repository."));
            }
            if state.pulls.iter().any(|pull| pull.state == PullState::Open) {
                let words = "A pull request already exists for octo:branch.";
                return Err(GitHubError::AlreadyExists(words.into()));
            }
            state.pulls.push(pull.clone());
            Ok(pull)
        })
        .await
    }

    async fn edit_pull(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        number: IssueNumber,
        edit: &PullEdit,
    ) -> Result<GitHubPull, GitHubError> {
        self.up()?;
        let fault = self.state().pull_faults.pop_front();
        self.write(fault, |state| {
            let pull = state.pulls.iter_mut().find(|pull| pull.number == number);
            let pull = pull.ok_or_else(|| GitHubError::NotFound("pull request".into()))?;
            pull.body.clone_from(edit.body.as_ref().unwrap_or(&pull.body.clone()));
            Ok(pull.clone())
        })
        .await
    }

    async fn set_status(
        &self,
        _: WriteTurn,
        _: &RepositoryTarget,
        commit: &str,
        status: &StatusEntry,
    ) -> Result<(), GitHubError> {
        self.up()?;
        self.state().statuses.push((commit.to_owned(), status.clone()));
        Ok(())
    }
}
