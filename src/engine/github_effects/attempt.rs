//! One try to carry an effect out: a reaction, a reply, or the publication of work. The other kinds have
//! a file each.

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::git::PublishRefusal;
use crate::github::api::{GitHubComment, GitHubError, Reaction, ReactionTarget, WriteUrgency};
use crate::github::messages;
use crate::issue::{CommentAnswer, GithubEffect, Issue, ReactTo};
use crate::sabotage::{Bug, on};
use crate::store::github::{GithubEnd, GithubRow, GithubState};
use crate::types::{SandboxId, Timestamp};

use super::answers::{AttemptError, over, unchanged};
use super::look::shown;
use super::place::SaidWhere;
use super::{BEGUN_WITHIN, GithubWorker, LANDED_AFTER};

/// A call that writes, which the server's end waits for.
pub(super) struct WritingCall {
    begun_at: Timestamp,
    _counted: TaskTrackerToken,
}

impl WritingCall {
    /// It ended with this.
    pub fn failed(&self, error: GitHubError) -> AttemptError {
        AttemptError::Writing(error, self.begun_at)
    }
}

impl GithubWorker {
    /// Carries one effect out, as far as that is possible now.
    pub(super) async fn attempt(&self, row: &GithubRow) -> Result<GithubEnd, AttemptError> {
        let now = self.env.now();
        if let Some(landed) = landed_at(row).filter(|at| *at > now) {
            return Ok(GithubEnd { due_at: Some(landed), ..unchanged(row, now) });
        }
        let given_up = |why: &str| Ok(over(row, now, GithubState::GivenUp, why));
        let Some(issue) = self.env.store.load(row.home).await? else {
            return given_up("the issue has no record");
        };
        if issue.facts.deleted {
            return given_up("the issue is deleted");
        }
        let survivor = self.survivor(&issue).await?;
        let Some(place) = SaidWhere::of(&survivor) else {
            return given_up("it is not known where the issue is");
        };
        match &row.effect {
            GithubEffect::React { to, .. } => self.react(row, &place, *to).await,
            GithubEffect::Reply { comment, answer } => {
                self.reply(row, &place, &issue, (*comment, answer)).await
            }
            GithubEffect::Publish { comment, sandbox, by } => {
                self.publish(row, *comment, sandbox, by).await
            }
            GithubEffect::SetCommitStatus { sandbox } => {
                self.set_commit_status(row, &issue, sandbox).await
            }
            GithubEffect::SetWorkingLabel => self.set_working_label(row, &place, &survivor).await,
            GithubEffect::ShowPull { sandbox } => self.show_pull(row, &issue, sandbox).await,
            GithubEffect::ShowStatus { .. } => self.show_status(row, &place).await,
        }
    }

    /// The home that the issue has by now: the one that its own gave way to, if it did. Where the issue
    /// is at GitHub only that one learns.
    async fn survivor(&self, issue: &Issue) -> Result<Issue, AttemptError> {
        let mut last = issue.clone();
        while let Some(home) = last.merged_into {
            let next = self.env.store.load(home).await?;
            last = next.ok_or_else(|| AttemptError::Store("the issue has no record".into()))?;
        }
        Ok(last)
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
        issue: &Issue,
        (comment, answer): (u64, &CommentAnswer),
    ) -> Result<GithubEnd, AttemptError> {
        let context = self.parts.context.of(issue.facts.repository.as_ref());
        let marker = messages::reply_marker(context, row.home, comment);
        let is_done = |found: &GitHubComment| GithubEnd {
            shown: shown(found, String::new(), String::new(), self.env.now()),
            ..over(row, self.env.now(), GithubState::Done, "")
        };
        if let Some(found) = self.look(row, place, &marker).await? {
            return Ok(is_done(&found));
        }
        let turn = self.parts.api.turn(&place.repository, WriteUrgency::Person).await?;
        let work = match answer {
            CommentAnswer::Status(_) => self.work_of(issue).await?,
            CommentAnswer::Refused(_) => messages::WorkShown::default(),
        };
        let body = messages::reply_body(&marker, answer, &work, (context, issue));
        let call = self.begin(row).await?;
        let created = self.parts.api.create_comment(turn, &place.repository, place.number, &body);
        match created.await {
            Ok(created) => Ok(is_done(&created)),
            Err(error) => Err(call.failed(error)),
        }
    }

    /// Publishes the work of a sandbox, and answers the comment that asked for it if that fails.
    async fn publish(
        &self,
        row: &GithubRow,
        comment: u64,
        sandbox: &SandboxId,
        by: &str,
    ) -> Result<GithubEnd, AttemptError> {
        let Some(publisher) = self.parts.publisher.get() else {
            return Err(AttemptError::Store("the server starts or ends".into()));
        };
        let end = |state, why: &str| over(row, self.env.now(), state, why);
        match publisher.publish(sandbox, by).await {
            Ok(_) => Ok(end(GithubState::Done, "")),
            Err(PublishRefusal::NotRecorded(why)) => Err(AttemptError::Store(why)),
            Err(refusal) => {
                let why = refusal.to_string();
                let answer = CommentAnswer::Refused(why.clone());
                let is_said = self.env.rules().github.is_some_and(|rules| rules.comments);
                let reply = is_said.then_some(GithubEffect::Reply { comment, answer });
                let follow_ups = reply.into_iter().collect();
                Ok(GithubEnd { follow_ups, ..end(GithubState::GivenUp, &why) })
            }
        }
    }

    /// A call is about to begin; this is durable.
    pub(super) async fn begin(&self, row: &GithubRow) -> Result<WritingCall, AttemptError> {
        if self.env.is_stopping() {
            return Err(AttemptError::Store("the server ends".into()));
        }
        let _counted = self.calls.token();
        loop {
            let begun_at = self.env.now();
            self.parts.outbox.begin_github(row.id, begun_at).await?;
            if self.env.now().since(begun_at) < BEGUN_WITHIN {
                return Ok(WritingCall { begun_at, _counted });
            }
        }
    }
}

/// The hash of what is known to be at GitHub; `None` while a call has an unknown outcome.
pub(super) fn known_hash(row: &GithubRow) -> Option<&str> {
    let is_known = row.first_begun_at.is_none() || on(Bug::ShownBelieved);
    row.shown.hash.as_deref().filter(|_| is_known)
}

/// When a call of unknown outcome has come into effect, if it ever does: only then the next one of the
/// effect may be made. Otherwise an earlier text could replace a later one, or there could be two
/// comments. A reaction may be repeated at any time, and GitHub refuses a second pull request of a branch.
fn landed_at(row: &GithubRow) -> Option<Timestamp> {
    let opens_pull =
        matches!(row.effect, GithubEffect::ShowPull { .. }) && row.shown.comment.is_none();
    let is_harmless = opens_pull || matches!(row.effect, GithubEffect::React { .. });
    if is_harmless || row.first_begun_at.is_none() || on(Bug::RepeatedInFlight) {
        return None;
    }
    row.begun_at.map(|latest| latest.after(LANDED_AFTER))
}
