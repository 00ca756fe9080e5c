//! One try to say something: what each kind of effect does.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::github::api::{
    GitHubComment, GitHubError, GitHubIdentity, PageCursor, Reaction, ReactionTarget,
    RepositoryTarget, WriteUrgency,
};
use crate::github::messages::{self, StatusText};
use crate::issue::{CommentAnswer, GithubEffect, Issue, ReactTo};
use crate::sabotage::{Bug, on};
use crate::store::PageAsk;
use crate::store::github::{GithubEnd, GithubRow, GithubState, ShownComment};
use crate::types::{IssueNumber, Timestamp};

use super::answers::{AttemptError, over, unchanged};
use super::{GithubWorker, LANDED_AFTER};

/// The shortest pause between two edits that show progress alone.
const PROGRESS_PAUSE_MIN: Duration = Duration::from_secs(30);
/// How much of that pause each comment adds that is being edited: together 300 an hour.
const PROGRESS_PAUSE_EACH: Duration = Duration::from_secs(12);
/// A comment is being edited if it was within this time.
const EDITED_WITHIN: Duration = Duration::from_secs(600);

/// A call that writes, which the server's end waits for.
struct WritingCall {
    begun_at: Timestamp,
    _counted: TaskTrackerToken,
}

/// Where an issue is at GitHub.
struct SaidWhere {
    repository: RepositoryTarget,
    number: IssueNumber,
}

impl SaidWhere {
    fn of(issue: &Issue) -> Option<Self> {
        let facts = &issue.facts;
        let repository = RepositoryTarget {
            name: facts.repository.clone()?,
            id: facts.repository_id,
            installation: facts.installation_id,
        };
        Some(Self { repository, number: facts.number? })
    }
}

impl GithubWorker {
    /// Carries one effect out, as far as that is possible now.
    pub(super) async fn attempt(&self, row: &GithubRow) -> Result<GithubEnd, AttemptError> {
        let now = self.env.now();
        let given_up = |why: &str| Ok(over(row, now, GithubState::GivenUp, why));
        let Some(issue) = self.env.store.load(row.home).await? else {
            return given_up("the issue has no record");
        };
        if issue.facts.deleted {
            return given_up("the issue is deleted");
        }
        let Some(place) = SaidWhere::of(&issue) else {
            return given_up("it is not known where the issue is");
        };
        match &row.effect {
            GithubEffect::React { to, .. } => self.react(row, &place, *to).await,
            GithubEffect::Reply { comment, answer } => {
                self.reply(row, &place, *comment, answer).await
            }
            GithubEffect::ShowStatus { .. } => self.show_status(row, &place).await,
        }
    }

    async fn react(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        to: ReactTo,
    ) -> Result<GithubEnd, AttemptError> {
        let api = &self.parts.api;
        let to = match to {
            ReactTo::Issue => ReactionTarget::Issue(place.number),
            ReactTo::Comment(id) => ReactionTarget::Comment(id),
        };
        let turn = api.turn(&place.repository, WriteUrgency::Person).await?;
        let _call = self.begin(row).await?;
        api.react(turn, &place.repository, to, Reaction::Eyes).await?;
        Ok(over(row, self.env.now(), GithubState::Done, ""))
    }

    async fn reply(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        comment: u64,
        answer: &CommentAnswer,
    ) -> Result<GithubEnd, AttemptError> {
        let context = &self.parts.context;
        let marker = messages::reply_marker(context, row.home, comment);
        let is_done = |found: &GitHubComment| GithubEnd {
            shown: shown(found, String::new(), String::new(), self.env.now()),
            ..over(row, self.env.now(), GithubState::Done, "")
        };
        match self.look(row, place, &marker).await? {
            Looked::TooEarly(at) => return Ok(too_early(row, self.env.now(), at)),
            Looked::Found(found) => return Ok(is_done(&found)),
            Looked::Nothing => {}
        }
        let turn = self.parts.api.turn(&place.repository, WriteUrgency::Person).await?;
        let call = self.begin(row).await?;
        let body = messages::reply_body(&marker, answer, context);
        let created = self.parts.api.create_comment(turn, &place.repository, place.number, &body);
        match created.await {
            Ok(created) => Ok(is_done(&created)),
            Err(error) => Err(AttemptError::Creating(error, call.begun_at)),
        }
    }

    /// Brings the status comment to what is stored now.
    async fn show_status(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
    ) -> Result<GithubEnd, AttemptError> {
        let now = self.env.now();
        let marker = messages::status_marker(&self.parts.context, row.home);
        let text = self.compose(row).await?;
        let done = || Ok(over(row, now, GithubState::Done, ""));
        if row.shown.comment.is_some() && row.shown.hash.as_deref() == Some(&*hash(&text.part)) {
            return done();
        }
        if let Some(at) = self.progress_due(row, &text).await?.filter(|at| *at > now) {
            return Ok(GithubEnd { due_at: Some(at), ..unchanged(row, now) });
        }
        let known = match row.shown.comment {
            Some(id) => match self.known(place, id, &marker).await? {
                Some(comment) => Some(comment),
                None => return Ok(over(row, now, GithubState::Gone, "the comment was deleted")),
            },
            None => match self.look(row, place, &marker).await? {
                Looked::TooEarly(at) => return Ok(too_early(row, now, at)),
                Looked::Found(comment) => Some(comment),
                Looked::Nothing if text.is_end => return done(),
                Looked::Nothing => None,
            },
        };
        let identity = self.parts.api.identity().await?;
        let (ours, earlier) = match known {
            Some(comment) if is_ours(&identity, &comment) => (Some(comment), None),
            other => (None, other.map(|comment| comment.html_url)),
        };
        match ours {
            Some(comment) => self.edit(row, place, &comment).await,
            None => self.create(row, place, &marker, earlier).await,
        }
    }

    /// When progress may be shown again; `None` if more than progress is to be shown.
    async fn progress_due(
        &self,
        row: &GithubRow,
        text: &StatusText,
    ) -> Result<Option<Timestamp>, AttemptError> {
        let ShownComment { comment: Some(_), at: Some(at), phase: Some(phase), .. } = &row.shown
        else {
            return Ok(None);
        };
        if *phase != text.phase {
            return Ok(None);
        }
        let since = self.env.now().before(EDITED_WITHIN);
        let edited = self.parts.outbox.comments_edited_since(since).await?;
        let each = PROGRESS_PAUSE_EACH.saturating_mul(u32::try_from(edited).unwrap_or(u32::MAX));
        Ok(Some(at.after(each.max(PROGRESS_PAUSE_MIN))))
    }

    async fn create(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        marker: &str,
        earlier: Option<String>,
    ) -> Result<GithubEnd, AttemptError> {
        let api = &self.parts.api;
        let turn = api.turn(&place.repository, WriteUrgency::FirstComment).await?;
        let call = self.begin(row).await?;
        let text = self.compose(row).await?;
        let earlier = earlier.map(|url| format!("\n\nThis goes on from {url}."));
        let part = format!("{}{}", text.part, earlier.unwrap_or_default());
        let body = messages::comment_body(marker, &part);
        match api.create_comment(turn, &place.repository, place.number, &body).await {
            Ok(created) => Ok(self.shown_now(row, &created, &text)),
            Err(error) => Err(AttemptError::Creating(error, call.begun_at)),
        }
    }

    /// Edits our part of the comment; what people wrote around it stays.
    async fn edit(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        comment: &GitHubComment,
    ) -> Result<GithubEnd, AttemptError> {
        let api = &self.parts.api;
        let urgency = match self.compose(row).await?.is_end {
            true => WriteUrgency::End,
            false => WriteUrgency::Progress,
        };
        let turn = api.turn(&place.repository, urgency).await?;
        // As of now: it may have waited for long.
        let text = self.compose(row).await?;
        let Some(body) = messages::with_part(&comment.body, &text.part) else {
            let why = "the marks around our part were removed";
            return Ok(over(row, self.env.now(), GithubState::Gone, why));
        };
        if body != comment.body {
            let _call = self.begin(row).await?;
            api.edit_comment(turn, &place.repository, comment.id, &body).await?;
        }
        Ok(self.shown_now(row, comment, &text))
    }

    fn shown_now(&self, row: &GithubRow, comment: &GitHubComment, text: &StatusText) -> GithubEnd {
        let now = self.env.now();
        let shown = shown(comment, hash(&text.part), text.phase.clone(), now);
        GithubEnd { shown, ..over(row, now, GithubState::Done, "") }
    }

    /// What the comment is to say, as of what is stored.
    async fn compose(&self, row: &GithubRow) -> Result<StatusText, AttemptError> {
        let store = &self.env.store;
        let issue = store.load(row.home).await?;
        let issue = issue.ok_or_else(|| AttemptError::Store("the issue has no record".into()))?;
        let page = PageAsk { limit: messages::REASONS_MAX, cursor: None };
        let latest = store.timeline(row.home, &page).await?.items;
        Ok(messages::status_text(&self.parts.context, &issue, &latest))
    }

    /// A call is about to begin; this is durable.
    async fn begin(&self, row: &GithubRow) -> Result<WritingCall, AttemptError> {
        if self.env.is_stopping() {
            return Err(AttemptError::Store("the server ends".into()));
        }
        let _counted = self.calls.token();
        let begun_at = self.env.now();
        self.parts.outbox.begin_github(row.id, begun_at).await?;
        Ok(WritingCall { begun_at, _counted })
    }

    /// Looks for a comment whose creation has an unknown outcome.
    async fn look(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        marker: &str,
    ) -> Result<Looked, AttemptError> {
        let unknown = row.first_begun_at.filter(|_| !on(Bug::AskedForgotten));
        let (Some(first), Some(latest)) = (unknown, row.begun_at) else {
            return Ok(Looked::Nothing);
        };
        let landed = latest.after(LANDED_AFTER);
        if self.env.now() < landed {
            return Ok(Looked::TooEarly(landed));
        }
        let found = self.find(place, marker, first.before(LANDED_AFTER)).await?;
        Ok(found.map_or(Looked::Nothing, Looked::Found))
    }

    /// The status comment that we know of; under another id if the issue was transferred.
    async fn known(
        &self,
        place: &SaidWhere,
        id: u64,
        marker: &str,
    ) -> Result<Option<GitHubComment>, AttemptError> {
        match self.parts.api.comment(&place.repository, id, None).await {
            Ok(comment) => Ok(comment.changed()),
            Err(GitHubError::NotFound(_)) => {
                self.find(place, marker, Timestamp::from_unix_ms(0)).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Our comment with this marker. The marker alone can be a quote, the author alone another comment.
    async fn find(
        &self,
        place: &SaidWhere,
        marker: &str,
        since: Timestamp,
    ) -> Result<Option<GitHubComment>, AttemptError> {
        let api = &self.parts.api;
        let identity = api.identity().await?;
        let mut page = PageCursor::FIRST;
        loop {
            let (comments, next) =
                api.comments_since(&place.repository, place.number, since, &page).await?;
            let found = comments.into_iter().find(|comment| {
                messages::has_marker(&comment.body, marker) && is_ours(&identity, comment)
            });
            match (found, next) {
                (Some(found), _) => return Ok(Some(found)),
                (None, None) => return Ok(None),
                (None, Some(next)) => page = next,
            }
        }
    }
}

/// What a look found.
enum Looked {
    /// It counts only from then on.
    TooEarly(Timestamp),
    /// This.
    Found(GitHubComment),
    /// Nothing, or there is nothing to look for.
    Nothing,
}

/// Whether our own account wrote a comment.
fn is_ours(identity: &GitHubIdentity, comment: &GitHubComment) -> bool {
    identity.is_ours(comment.author.id, comment.via_app) || on(Bug::MarkerAlone)
}

fn too_early(row: &GithubRow, now: Timestamp, at: Timestamp) -> GithubEnd {
    GithubEnd { due_at: Some(at), ..unchanged(row, now) }
}

fn shown(comment: &GitHubComment, hash: String, phase: String, at: Timestamp) -> ShownComment {
    ShownComment {
        comment: Some(comment.id),
        author: Some(comment.author.id),
        hash: Some(hash),
        phase: Some(phase),
        at: Some(at),
    }
}

fn hash(part: &str) -> String {
    hex::encode(&Sha256::digest(part)[..16])
}
