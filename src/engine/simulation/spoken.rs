//! What must be true of what was said once all is at rest: GitHub has what the state asks for.

use super::people::context;
use super::said::{OWN, SimComment};
use super::world::WorldState;
use crate::github::api::CommitState;
use crate::github::messages::{self, WorkShown};
use crate::issue::{GithubEffect, Issue, ReactTo};
use crate::store::github::{GithubRow, GithubState};
use crate::types::{Generation, HomeId, Phase};

impl WorldState {
    /// What is still to be said, if something is.
    pub fn unsaid(&self) -> Option<(Option<HomeId>, String)> {
        let rows = self.stored.outbox.unfinished(usize::MAX).expect("it is in memory");
        let waits = rows.into_iter().find(|row| match row.state {
            GithubState::Due | GithubState::Asked | GithubState::Look | GithubState::Held => {
                !self.is_misplaced(row)
            }
            GithubState::Done | GithubState::Gone | GithubState::GivenUp => false,
        });
        waits.map(|row| {
            let kind = row.effect.kind().as_str();
            (Some(row.home), format!("{kind} is {:?}: {:?}", row.state, row.reason))
        })
    }

    /// Whether it is asked for where the issue was before, because our clock was so far behind GitHub's
    /// that the older of two transfers counted as the later: it is tried for a day.
    fn is_misplaced(&self, row: &GithubRow) -> bool {
        let reason = row.reason.as_deref().unwrap_or_default();
        self.ledger.is_clock_behind && reason.starts_with("it moved to repository")
    }

    /// At rest everything is said that is to be said.
    pub fn check_said(&mut self) {
        let homes: Vec<Issue> = self.rows.issues.values().cloned().collect();
        for issue in homes {
            let rows = self.stored.outbox.of_home(issue.home).expect("it is in memory");
            for row in rows {
                let wrong = match row.state {
                    GithubState::Done => self.wrongly_done(&issue, &row),
                    GithubState::Gone => self.wrongly_gone(&row),
                    GithubState::GivenUp => self.wrongly_given_up(&issue, &row),
                    GithubState::Due
                    | GithubState::Asked
                    | GithubState::Look
                    | GithubState::Held => (!self.is_misplaced(&row)).then(|| "it waits".into()),
                };
                if let Some(wrong) = wrong {
                    let what = format!("{wrong}: {row:?}");
                    self.violate(Some(issue.home), what);
                }
            }
        }
    }

    fn wrongly_done(&self, issue: &Issue, row: &GithubRow) -> Option<String> {
        let number = self.github.issue_of(&issue.facts.issue_id)?;
        // GitHub has nothing of it any more.
        self.github.issue(number).filter(|truth| !truth.deleted)?;
        match &row.effect {
            GithubEffect::React { to: ReactTo::Issue, .. } => {
                let is_there = self.said.reactions.contains(&format!("issue {number}"));
                (!is_there).then(|| "a reaction is done and not there".into())
            }
            GithubEffect::React { to: ReactTo::Comment(_), .. } | GithubEffect::Publish { .. } => {
                None
            }
            GithubEffect::Reply { comment, .. } => {
                let marker = messages::reply_marker(&context(), issue.home, *comment);
                (!self.has_comment(&marker)).then(|| "a reply is done and not there".into())
            }
            GithubEffect::ShowStatus { .. } => self.wrongly_shown(issue, row),
            GithubEffect::SetWorkingLabel => {
                let is_at_work = issue.state.phase().is_some_and(Phase::is_at_work);
                let is_on = self.said.labelled.contains(&number);
                // Of two homes of one issue each knows of its own calls alone.
                let is_sure = !self.is_merged(issue)
                    || self.weather.said.as_ref().is_some_and(|said| said.faults == 0);
                (is_at_work != is_on && issue.merged_into.is_none() && is_sure)
                    .then(|| "the label is wrong".into())
            }
            GithubEffect::SetCommitStatus { sandbox } => {
                let tip = self.stored.checkouts.get(sandbox)?.tip.as_ref()?;
                let record = issue.state.record().filter(|record| record.id == *sandbox);
                let wanted = match issue.state.phase().filter(|_| record.is_some()) {
                    Some(Phase::Failed) => CommitState::Failure,
                    Some(phase) if phase.is_at_work() => CommitState::Pending,
                    Some(_) | None => CommitState::Success,
                };
                let is_right = self.said.statuses.get(tip) == Some(&wanted);
                (!is_right).then(|| "a commit status is wrong".into())
            }
            GithubEffect::ShowPull { sandbox } => {
                let checkout = self.stored.checkouts.get(sandbox)?;
                let asked = std::iter::empty();
                let text = messages::pull_text(&context(), issue, checkout, asked, None);
                let its = |body: &str| messages::has_marker(body, &text.marker);
                let pull = self.said.pulls.iter().find(|pull| its(&pull.body));
                let is_known = pull.is_some_and(|pull| row.shown.comment == Some(pull.number));
                (!is_known).then(|| "a pull request is done and not there".into())
            }
        }
    }

    /// Another home gave way to this one.
    fn is_merged(&self, issue: &Issue) -> bool {
        self.rows.issues.values().any(|other| other.merged_into == Some(issue.home))
    }

    fn has_comment(&self, marker: &str) -> bool {
        let ours = self.said.comments.iter().filter(|comment| comment.author == OWN);
        ours.map(super::said::SimComment::marker).any(|its| its == marker)
            || self.said.deleted.contains(marker)
    }

    fn wrongly_shown(&self, issue: &Issue, row: &GithubRow) -> Option<String> {
        let marker = messages::status_marker(&context(), issue.home);
        let latest = self.stored.latest(issue.home, messages::REASONS_MAX);
        let text = messages::status_text(&context(), issue, &self.work_of(issue), &latest);
        let ours = self.said.comments.iter().filter(|comment| comment.author == OWN);
        match ours.into_iter().find(|comment| comment.marker() == marker) {
            None if self.said.deleted.contains(&marker) || text.is_end => None,
            None => Some("a status is done and not there".into()),
            Some(comment) => {
                if issue.generation == Generation(0) && issue.pending_start.is_none() {
                    // There was never a sandbox: the end of waiting is all that is said of it.
                    let waits = comment.body.contains("**Waiting**");
                    return waits.then(|| "the status is an older one".into());
                }
                let shown = messages::with_part(&comment.body, &text.part);
                if row.shown.comment != Some(comment.id) && !self.weather.transfers {
                    return Some("another comment is known".into());
                }
                (shown.as_ref() != Some(&comment.body)).then(|| {
                    format!(
                        "the status is an older one: not {:?}, but {:?}",
                        text.part, comment.body
                    )
                })
            }
        }
    }

    /// What is known of a home's work, as the status shows it.
    fn work_of(&self, issue: &Issue) -> WorkShown {
        let rows = self.stored.checkouts_of(issue.home);
        let checkout = match issue.state.record() {
            Some(record) => rows.into_iter().find(|row| row.sandbox == record.id),
            None => rows.into_iter().next_back(),
        };
        let Some(checkout) = checkout else { return WorkShown::default() };
        let effects = self.stored.outbox.of_home(issue.home).expect("it is in memory");
        let its = |row: &GithubRow| matches!(&row.effect, GithubEffect::ShowPull { sandbox } if *sandbox == checkout.sandbox);
        let pull = effects.into_iter().find(its);
        let waits = |row: &GithubRow| matches!(row.state, GithubState::Held | GithubState::GivenUp);
        WorkShown {
            pull: pull.as_ref().and_then(|row| row.shown.comment),
            pull_trouble: pull.filter(waits).and_then(|row| row.reason),
            checkout: Some(checkout),
            ..WorkShown::default()
        }
    }

    /// A person deleted it.
    fn wrongly_gone(&self, row: &GithubRow) -> Option<String> {
        match &row.effect {
            GithubEffect::ShowStatus { .. } => {
                let marker = messages::status_marker(&context(), row.home);
                (!self.said.deleted.contains(&marker))
                    .then(|| "no person deleted the comment".into())
            }
            GithubEffect::React { to: ReactTo::Comment(id), .. } => {
                // One of a deleted issue went with it.
                let is_shown = |issue| self.github.issue(issue).is_some_and(|issue| !issue.deleted);
                let is_there = |comment: &SimComment| comment.id == *id && is_shown(comment.issue);
                let is_there = self.said.comments.iter().any(is_there);
                (is_there && !self.weather.transfers).then(|| "the comment is there".into())
            }
            _ => Some("it cannot be gone".into()),
        }
    }

    fn wrongly_given_up(&self, issue: &Issue, row: &GithubRow) -> Option<String> {
        let why = row.reason.as_deref().unwrap_or_default();
        let number = self.github.issue_of(&issue.facts.issue_id);
        let is_deleted =
            number.and_then(|at| self.github.issue(at)).is_some_and(|truth| truth.deleted);
        let is_right = is_deleted
            || self.said.refused && why.contains("not so")
            || why.starts_with("tried for a day")
            || why.starts_with("waited for a week");
        (!is_right).then(|| "it was given up for nothing".into())
    }
}
