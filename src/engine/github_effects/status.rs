//! The status comment: one for each issue, edited as its sandbox changes.

use std::time::Duration;

use crate::github::api::{GitHubComment, WriteUrgency};
use crate::github::messages::{self, StatusText, WorkShown};
use crate::issue::{GithubEffect, Issue};
use crate::store::PageAsk;
use crate::store::github::{GithubEnd, GithubRow, GithubState, ShownComment};
use crate::types::Timestamp;

use super::GithubWorker;
use super::answers::{AttemptError, over, unchanged};
use super::attempt::known_hash;
use super::look::{hash, is_ours, shown};
use super::place::SaidWhere;

/// The shortest pause between two edits that show progress alone.
const PROGRESS_PAUSE_MIN: Duration = Duration::from_secs(30);
/// How much of that pause each comment adds that is being edited: together 300 an hour.
const PROGRESS_PAUSE_EACH: Duration = Duration::from_secs(12);
/// A comment is being edited if it was within this time.
const EDITED_WITHIN: Duration = Duration::from_secs(600);

impl GithubWorker {
    /// Brings the status comment to what is stored now.
    pub(super) async fn show_status(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
    ) -> Result<GithubEnd, AttemptError> {
        let now = self.env.now();
        let marker = messages::status_marker(self.parts.context.usual(), row.home);
        let text = self.compose(row).await?;
        let done = || Ok(over(row, now, GithubState::Done, ""));
        if row.shown.comment.is_some() && known_hash(row) == Some(&*hash(&text.part)) {
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
                None if text.is_end => return done(),
                found => found,
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
        let text = self.compose(row).await?;
        let earlier = earlier.map(|url| format!("\n\nThis goes on from {url}."));
        let part = format!("{}{}", text.part, earlier.unwrap_or_default());
        let body = messages::comment_body(marker, &part);
        let call = self.begin(row).await?;
        match api.create_comment(turn, &place.repository, place.number, &body).await {
            Ok(created) => Ok(self.shown_now(row, &created, &text)),
            Err(error) => Err(call.failed(error)),
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
        let text = self.compose(row).await?;
        let is_end = text.is_end || text.is_closed;
        let urgency = if is_end { WriteUrgency::End } else { WriteUrgency::Progress };
        let turn = api.turn(&place.repository, urgency).await?;
        // As of now: it may have waited for long.
        let text = self.compose(row).await?;
        let Some(body) = messages::with_part(&comment.body, &text.part) else {
            let why = "the marks around our part were removed";
            return Ok(over(row, self.env.now(), GithubState::Gone, why));
        };
        if body != comment.body {
            let call = self.begin(row).await?;
            let edited = api.edit_comment(turn, &place.repository, comment.id, &body).await;
            edited.map_err(|error| call.failed(error))?;
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
        let work = self.work_of(&issue).await?;
        let context = self.parts.context.of(issue.facts.repository.as_ref());
        Ok(messages::status_text(context, &issue, &work, &latest))
    }

    /// What is known of the branch that an issue's sandbox works on, or its last one did.
    pub(super) async fn work_of(&self, issue: &Issue) -> Result<WorkShown, AttemptError> {
        let rows = self.parts.checkouts.checkouts_of(issue.home).await?;
        let checkout = match issue.state.record() {
            Some(record) => rows.into_iter().find(|row| row.sandbox == record.id),
            None => rows.into_iter().next_back(),
        };
        let agent = self.agent_of(issue).await?;
        let texts = self.parts.texts.of(issue.facts.repository.as_ref());
        let shown = WorkShown {
            agent: agent.paragraphs(texts),
            answered: agent.answer.as_ref().map(|answer| answer.run),
            asks: agent.asks.as_ref().map(|asks| format!("{} {}", asks.run, asks.question.id)),
            ..WorkShown::default()
        };
        let Some(checkout) = checkout else { return Ok(shown) };
        let effects = self.parts.outbox.github_effects_of(issue.home).await?;
        let of_sandbox = |row: &GithubRow| matches!(&row.effect, GithubEffect::ShowPull { sandbox } if *sandbox == checkout.sandbox);
        let pull = effects.into_iter().find(of_sandbox);
        let waits = |row: &GithubRow| matches!(row.state, GithubState::Held | GithubState::GivenUp);
        Ok(WorkShown {
            pull: pull.as_ref().and_then(|row| row.shown.comment),
            pull_trouble: pull.filter(waits).and_then(|row| row.reason),
            checkout: Some(checkout),
            ..shown
        })
    }
}
