//! What is to be said on the issue: effects that are recorded with the step that leads to them. Without
//! credentials for GitHub there are none.

use crate::conversation::Run;
use crate::issue::commit::DeliveryResult;
use crate::issue::event::{DeliveryEffect, GithubRules, IssueDelivery, TriggerKind};
use crate::issue::state::Issue;
use crate::issue::{CommentAnswer, Effect, GithubEffect, ReactTo};
use crate::types::{Phase, PullRequestMode, Timestamp};

use super::transition::Transition;

impl Transition<'_> {
    /// What is said on this issue; `None` if nothing is, or it is not known where.
    fn github(&self) -> Option<GithubRules> {
        let facts = &self.issue.facts;
        let is_placed = facts.repository_id.is_some() && facts.number.is_some();
        self.context.rules.github.filter(|_| is_placed && !facts.deleted)
    }

    /// A delivery had this result, which is said where it asked for something: 👀 on a trigger that is
    /// granted, a reply to a question and to a command that is refused.
    pub fn say_result(&mut self, issue_delivery: &IssueDelivery, result: &DeliveryResult) {
        self.is_unlocked = issue_delivery.action == "unlocked";
        let Some(rules) = self.github() else { return };
        let comment = issue_delivery.comment;
        let reason = || result.reason.clone();
        let (to, answer) = match issue_delivery.effect {
            DeliveryEffect::Trigger(TriggerKind::OtherName) => (None, None),
            DeliveryEffect::Trigger(_) if result.applied => {
                (Some(comment.map_or(ReactTo::Issue, ReactTo::Comment)), None)
            }
            DeliveryEffect::Trigger(_)
            | DeliveryEffect::Command(_)
            | DeliveryEffect::Publish { .. }
                if !result.applied =>
            {
                (None, Some(CommentAnswer::Refused(reason())))
            }
            DeliveryEffect::Status => (None, Some(CommentAnswer::Status(reason()))),
            DeliveryEffect::Trigger(_)
            | DeliveryEffect::FollowUp { .. }
            | DeliveryEffect::Command(_)
            | DeliveryEffect::Stop(_)
            | DeliveryEffect::Delete
            | DeliveryEffect::Update
            | DeliveryEffect::Activity
            | DeliveryEffect::Publish { .. }
            | DeliveryEffect::Note(_) => (None, None),
        };
        self.is_asked = to.is_some();
        if let (DeliveryEffect::Publish { by }, true) = (&issue_delivery.effect, result.applied)
            && let (Some(comment), Some(record)) = (comment, self.issue.state.record())
        {
            let (sandbox, by) = (record.id.clone(), by.clone());
            self.effects.push(Effect::Github(GithubEffect::Publish { comment, sandbox, by }));
        }
        let mut say = |effect| self.effects.push(Effect::Github(effect));
        if let Some(to) = to.filter(|_| rules.reactions) {
            let generation = self.issue.generation;
            say(GithubEffect::React { to, generation });
        }
        if let (Some(comment), Some(answer), true) = (comment, answer, rules.comments) {
            say(GithubEffect::Reply { comment, answer });
        }
    }

    /// Asks for the status comment to be brought up to date, if the timeline has something new about a
    /// sandbox, what else the comment says changed, or a person asked for one.
    pub fn show_status(&mut self, before: &Issue) {
        let Some(rules) = self.github() else { return };
        let Issue { generation, pending_start, version, state, .. } = &self.issue;
        // Also if the start was just withdrawn.
        let is_pending = pending_start.is_some() || before.pending_start.is_some();
        let has_sandbox = generation.0 > 0 || is_pending;
        let is_other = said_of(before) != said_of(&self.issue);
        if !rules.comments || !has_sandbox || !(self.has_news() || self.is_asked || is_other) {
            return;
        }
        let can_wait = matches!(
            state.phase(),
            Some(Phase::Creating | Phase::Starting | Phase::Stopping | Phase::Deleting)
        );
        let (version, is_asked) = (*version, self.is_asked);
        let effect = GithubEffect::ShowStatus { version, is_asked, can_wait };
        self.effects.push(Effect::Github(effect));
    }

    /// Asks for the pull request of a run's sandbox to be brought to what the agent said last.
    pub fn show_answer(&mut self, run: &Run) {
        let Some(rules) = self.github() else { return };
        let wants = rules.pull_request != PullRequestMode::None;
        if let Some(sandbox) = run.sandbox.clone().filter(|_| wants && !run.summary.is_empty()) {
            self.effects.push(Effect::Github(GithubEffect::ShowPull { sandbox }));
        }
    }

    /// Asks for the marks that show whether a sandbox is at work, when its phase changed. A home that
    /// gives way may have changed the label of the issue's other home before, so it asks as well.
    pub fn mark_work(&mut self, before: &Issue) {
        let Some(rules) = self.github() else { return };
        let (was, now) = (before.state.phase(), self.issue.state.phase());
        let began_or_ended =
            was.is_some_and(Phase::is_at_work) != now.is_some_and(Phase::is_at_work);
        let gives_way = before.merged_into != self.issue.merged_into && self.issue.generation.0 > 0;
        if rules.working_label && (began_or_ended || gives_way) {
            self.effects.push(Effect::Github(GithubEffect::SetWorkingLabel));
        }
        if was == now {
            return;
        }
        let ended = self.ended.as_ref().map(|sandbox| &sandbox.id);
        let sandbox = self.issue.state.record().map(|record| &record.id).or(ended).cloned();
        if let Some(sandbox) = sandbox.filter(|_| rules.statuses) {
            self.effects.push(Effect::Github(GithubEffect::SetCommitStatus { sandbox }));
        }
    }
}

/// What the status comment says of an issue although the timeline has nothing of it.
fn said_of(issue: &Issue) -> (Option<bool>, Option<Timestamp>, bool, bool, Option<u64>) {
    let is_open = issue.facts.open.as_ref().map(|open| open.value);
    let (is_pending, is_merged) = (issue.pending_start.is_some(), issue.merged_into.is_some());
    // After a transfer the branch is in another repository than the issue.
    (is_open, issue.delete_due, is_pending, is_merged, issue.facts.repository_id)
}
