//! The pull request of a sandbox's branch: looked for, opened once, and edited in our part alone.
//!
//! GitHub refuses a second pull request of a branch that has an open one, also where its list does not
//! show that one yet. So a call with an unknown outcome may be followed at once by another look and, if
//! nothing is there, another call.
//!
//! # Races it accepts
//! If a person closes the pull request within the minute in which an earlier call may still take effect,
//! that one opens a second.

use crate::github::api::{
    GitHubError, GitHubPull, NewPull, PullEdit, PullState, RepositoryTarget, WriteUrgency,
};
use crate::github::messages::{self, PullText};
use crate::issue::{GithubEffect, Issue};
use crate::sabotage::{Bug, on};
use crate::store::github::{GithubEnd, GithubRow, GithubState, ShownComment};
use crate::types::{PullRequestMode, SandboxId};

use super::GithubWorker;
use super::answers::{AttemptError, over};
use super::attempt::known_hash;
use super::look::hash;

/// How many texts of an issue are read for the names of who asked.
const ASKED_READ_MAX: usize = 20;

/// A pull request that is wanted.
struct WantedPull {
    /// Where the branch is: an issue that is transferred leaves it behind.
    repository: RepositoryTarget,
    /// The branch with the work.
    head: String,
    /// The branch that it is to be merged into.
    base: String,
    /// What is said in it.
    text: PullText,
    /// A hash of our part of that.
    hash: String,
}

impl GithubWorker {
    /// Brings the pull request of a sandbox's branch to what is stored now.
    pub(super) async fn show_pull(
        &self,
        row: &GithubRow,
        issue: &Issue,
        sandbox: &SandboxId,
    ) -> Result<GithubEnd, AttemptError> {
        let given_up = |why: &str| Ok(over(row, self.env.now(), GithubState::GivenUp, why));
        let mode =
            self.env.rules().github.map_or(PullRequestMode::None, |rules| rules.pull_request);
        let is_draft = match mode {
            PullRequestMode::None => return given_up("pull requests are turned off"),
            PullRequestMode::Draft => true,
            PullRequestMode::Ready => false,
        };
        let checkout = self.parts.checkouts.checkout(sandbox).await?;
        let Some(checkout) = checkout.filter(|checkout| checkout.tip.is_some()) else {
            // It comes with the first push.
            return Ok(over(row, self.env.now(), GithubState::Done, ""));
        };
        let (Some(head), Some(base)) = (checkout.branch.clone(), checkout.base.clone()) else {
            return given_up("the branch of the work is not known");
        };
        let asked = self.env.store.instructions(row.home, 0, ASKED_READ_MAX).await?;
        let asked = asked.iter().filter_map(|row| row.instruction.sender.as_ref());
        let answer = self.answer_of(row.home).await?;
        let repository = issue.facts.repository.as_ref();
        let texts = self.parts.texts.of(repository);
        let summary = answer.map(|answer| texts.public(&answer.words));
        let context = self.parts.context.of(repository);
        let text = messages::pull_text(context, issue, &checkout, asked, summary.as_deref());
        let repository = RepositoryTarget::of_checkout(&checkout, &issue.facts);
        let wanted = WantedPull { repository, head, base, hash: hash(&text.part), text };
        if row.shown.comment.is_some() && known_hash(row) == Some(&*wanted.hash) {
            let follow_ups = if row.reason.is_some() { self.status_again() } else { Vec::new() };
            return Ok(GithubEnd {
                follow_ups,
                ..over(row, self.env.now(), GithubState::Done, "")
            });
        }
        match self.find_pull(row, &wanted).await? {
            Some(pull) => self.edit_pull(row, &pull, &wanted).await,
            None => self.open_pull(row, &wanted, is_draft).await,
        }
    }

    /// The pull request that is there already: the one that we know of, an open one of the branch, or
    /// one that was ours and is over.
    async fn find_pull(
        &self,
        row: &GithubRow,
        wanted: &WantedPull,
    ) -> Result<Option<GitHubPull>, AttemptError> {
        let identity = self.parts.api.identity().await?;
        let mut pulls = self.parts.api.pulls_of(&wanted.repository, &wanted.head).await?;
        let is_ours = |pull: &GitHubPull| {
            identity.is_ours(pull.author.id, None)
                && messages::has_marker(&pull.body, &wanted.text.marker)
        };
        // The lower, the rather it is this one.
        let rank = |pull: &GitHubPull| match pull.state {
            _ if row.shown.comment == Some(pull.number.0) => Some(0),
            PullState::Open if pull.base == wanted.base => Some(1),
            PullState::Open => Some(2),
            PullState::Closed | PullState::Merged if on(Bug::ClosedPullForgotten) => None,
            PullState::Closed | PullState::Merged if is_ours(pull) => Some(3),
            PullState::Closed | PullState::Merged => None,
        };
        pulls.retain(|pull| rank(pull).is_some());
        // The first of equal ones is the newest.
        pulls.sort_by_key(rank);
        Ok(pulls.into_iter().next())
    }

    async fn open_pull(
        &self,
        row: &GithubRow,
        wanted: &WantedPull,
        is_draft: bool,
    ) -> Result<GithubEnd, AttemptError> {
        let api = &self.parts.api;
        let WantedPull { head, base, text, .. } = wanted;
        let mut new = NewPull {
            head: head.clone(),
            base: base.clone(),
            title: text.title.clone(),
            body: messages::comment_body(&text.marker, &text.part),
            draft: is_draft,
        };
        loop {
            let turn = api.turn(&wanted.repository, WriteUrgency::End).await?;
            let _call = self.begin(row).await?;
            let error = match api.create_pull(turn, &wanted.repository, &new).await {
                Ok(pull) => return Ok(self.pull_is_there(row, &pull, wanted)),
                Err(error) => error,
            };
            let words = error.to_string().to_lowercase();
            match error {
                GitHubError::AlreadyExists(_) => {
                    let found = self.find_pull(row, wanted).await?;
                    let found = found.ok_or_else(|| AttemptError::Hidden(error.to_string()))?;
                    return Ok(self.pull_is_there(row, &found, wanted));
                }
                // Not every plan of GitHub has drafts in private repositories.
                GitHubError::Refused { status: 422, .. }
                    if new.draft && words.contains("draft") =>
                {
                    new.draft = false;
                }
                GitHubError::Refused { status: 422, .. }
                    if words.contains("no commits between") =>
                {
                    let why = format!("nothing to propose: {base} has all commits of {head}");
                    return Ok(over(row, self.env.now(), GithubState::GivenUp, &why));
                }
                error => return Err(error.into()),
            }
        }
    }

    /// Edits our part of an open pull request of ours; what people wrote around it stays.
    async fn edit_pull(
        &self,
        row: &GithubRow,
        pull: &GitHubPull,
        wanted: &WantedPull,
    ) -> Result<GithubEnd, AttemptError> {
        let api = &self.parts.api;
        let is_ours = api.identity().await?.is_ours(pull.author.id, None);
        let part = messages::with_part(&pull.body, &wanted.text.part);
        let edit = part.filter(|body| is_ours && *body != pull.body);
        if let (PullState::Open, Some(body)) = (pull.state, edit) {
            let turn = api.turn(&wanted.repository, WriteUrgency::End).await?;
            let call = self.begin(row).await?;
            let edit = PullEdit { title: None, body: Some(body) };
            let edited = api.edit_pull(turn, &wanted.repository, pull.number, &edit).await;
            edited.map_err(|error| call.failed(error))?;
        }
        Ok(self.pull_is_there(row, pull, wanted))
    }

    /// The pull request is as it is wanted. If it was not known before, or the status may say why it was not
    /// so, the status is shown again.
    fn pull_is_there(&self, row: &GithubRow, pull: &GitHubPull, wanted: &WantedPull) -> GithubEnd {
        let now = self.env.now();
        let shown = ShownComment {
            comment: Some(pull.number.0),
            author: Some(pull.author.id),
            hash: Some(wanted.hash.clone()),
            phase: None,
            at: Some(now),
        };
        let is_news = row.shown.comment != Some(pull.number.0) || row.shown.hash != shown.hash;
        let follow_ups = if is_news { self.status_again() } else { Vec::new() };
        GithubEnd { shown, follow_ups, ..over(row, now, GithubState::Done, "") }
    }

    /// The end of a try, with the status if that is to say why there is no pull request.
    pub(super) fn with_status(&self, row: &GithubRow, end: GithubEnd) -> GithubEnd {
        match (&row.effect, end.state) {
            (GithubEffect::ShowPull { .. }, GithubState::Held | GithubState::GivenUp) => {
                GithubEnd { follow_ups: self.status_again(), ..end }
            }
            _ => end,
        }
    }

    fn status_again(&self) -> Vec<GithubEffect> {
        let status = GithubEffect::ShowStatus { version: 0, is_asked: false, can_wait: false };
        let is_said = self.env.rules().github.is_some_and(|rules| rules.comments);
        if is_said { vec![status] } else { Vec::new() }
    }
}
