//! The life of a sandbox over time: stopped when idle, deleted some time after its issue was closed
//! or when it is too old. All of it is a time in the state, so it survives restarts.

use crate::issue::event::Rules;
use crate::issue::state::{Goal, Issue, IssueState, StoppedBy};
use crate::types::{OnLimit, Phase, SandboxId, Timestamp};

use super::transition::Transition;

/// When something of an issue's life over time is due, by these rules; `None` if nothing is.
pub fn life_due(issue: &Issue, rules: &Rules) -> Option<Timestamp> {
    let record = issue.state.record()?;
    if issue.state.phase() == Some(Phase::Deleting) {
        return None;
    }
    let too_old = rules.ttl.map(|ttl| record.created_at.after(ttl));
    let idle = match &issue.state {
        IssueState::Running { .. } => {
            rules.idle_stop.map(|idle| record.last_activity_at.after(idle))
        }
        IssueState::Absent
        | IssueState::Creating { .. }
        | IssueState::Stopping { .. }
        | IssueState::Stopped { .. }
        | IssueState::Starting { .. }
        | IssueState::Failed { .. }
        | IssueState::Deleting { .. } => None,
    };
    [too_old, idle, issue.delete_due].into_iter().flatten().min()
}

impl Transition<'_> {
    /// Does what is due of the sandbox's life over time. A sandbox in which a command runs is
    /// active, however silent.
    pub fn live_on(&mut self, busy: bool) {
        let now = self.now();
        let Some(record) = self.issue.state.record() else { return };
        let (created_at, last_activity_at) = (record.created_at, record.last_activity_at);
        let rules = self.context.rules;
        let passed = |due: Option<Timestamp>| due.is_some_and(|due| due <= now);
        if self.issue.state.phase() == Some(Phase::Deleting) {
            return;
        }
        if passed(rules.ttl.map(|ttl| created_at.after(ttl))) {
            self.issue.facts.acts.spend();
            return self.delete("its time to live has expired");
        }
        if passed(self.issue.delete_due) {
            self.issue.facts.acts.spend();
            return self.delete("its issue was closed some time ago");
        }
        let is_running = matches!(self.issue.state, IssueState::Running { .. });
        if is_running && passed(rules.idle_stop.map(|idle| last_activity_at.after(idle))) {
            let has_run = self.issue.conversation.as_ref().is_some_and(|one| one.is_at_work());
            if busy || has_run {
                if let Some(record) = self.issue.state.record_mut() {
                    record.last_activity_at = now;
                }
                return;
            }
            self.want_stopped(StoppedBy::Idle, "idle for too long");
        }
    }

    /// A limit was hit: it is recorded, and the sandbox goes on or is stopped, as its template says,
    /// unless its provider has ended it already. That can happen before the answer that it runs has
    /// come, and be known only when it no longer runs. If it is being stopped for a limit already,
    /// that is recorded.
    pub fn limit_struck(&mut self, sandbox: &SandboxId, reason: &str, ended: bool) {
        let on_limit = match self.issue.state.record() {
            Some(record) if record.id == *sandbox => record.template.on_limit,
            Some(_) | None => return,
        };
        match &self.issue.state {
            IssueState::Running { .. }
            | IssueState::Creating { goal: Goal::Running, .. }
            | IssueState::Starting { goal: Goal::Running, .. } => match on_limit {
                _ if ended => self.want_stopped(StoppedBy::Host, reason),
                OnLimit::Kill => self.record_entry(reason.to_owned()),
                OnLimit::Stop => self.want_stopped(StoppedBy::Limit, reason),
            },
            IssueState::Creating { goal: Goal::Stopped(by), .. }
            | IssueState::Starting { goal: Goal::Stopped(by), .. }
            | IssueState::Stopping { by, .. }
            | IssueState::Stopped { by, .. } => {
                let is_recorded = match by {
                    StoppedBy::Limit => true,
                    StoppedBy::Host => ended,
                    StoppedBy::Person
                    | StoppedBy::Issue
                    | StoppedBy::Restart
                    | StoppedBy::Provider
                    | StoppedBy::Idle => false,
                };
                if !is_recorded {
                    self.record_entry(reason.to_owned());
                }
            }
            IssueState::Failed { .. } | IssueState::Deleting { .. } => {
                self.record_entry(reason.to_owned());
            }
            IssueState::Absent => {}
        }
    }

    /// The issue was closed: its sandbox is deleted after the grace period, unless the issue is
    /// reopened or a caller asks for the sandbox before.
    pub fn delete_after_close(&mut self) {
        if self.issue.state.record().is_some() && self.issue.state.phase() != Some(Phase::Deleting)
        {
            let due = self.now().after(self.context.rules.delete_after_close);
            self.issue.delete_due =
                Some(self.issue.delete_due.map_or(due, |before| before.min(due)));
        }
    }
}
