//! Where acts on GitHub and of callers take their place, and how the sandbox follows what they come
//! to. [`acts`](crate::issue::acts) decides that.

use std::time::Duration;

use crate::issue::acts::{ActKind, Verdict};
use crate::issue::state::{Goal, IssueState, StoppedBy};
use crate::sabotage::{Bug, on};
use crate::types::{Timestamp, Wanted};

use super::transition::Transition;

/// An *ensure* that finds the sandbox as it asks for takes its place this often, so that callers who
/// look after a sandbox do not write each time.
const ENSURE_RESOLUTION: Duration = Duration::from_secs(30);

impl Transition<'_> {
    /// What the issue comes to by all that is known of it.
    pub fn verdict(&self) -> Verdict {
        let facts = &self.issue.facts;
        if facts.deleted { Verdict::NONE } else { facts.acts.verdict() }
    }

    /// Takes in an act on GitHub; whether it is the latest act that is known.
    pub fn acted_on_github(&mut self, kind: ActKind, as_of: Timestamp) -> bool {
        let as_of = if on(Bug::OrderOfArrival) { self.now() } else { as_of };
        let acts = &mut self.issue.facts.acts;
        let place = acts.on_github(kind, as_of);
        acts.latest() == Some(place)
    }

    /// Takes in what a caller does now, which is later than everything that is known.
    pub fn acted_here(&mut self, kind: ActKind) {
        let now = self.now();
        let facts = &mut self.issue.facts;
        facts.not_beyond(now);
        let known = facts.latest_news();
        facts.acts.by_caller(kind, now, known);
    }

    /// Takes in an *ensure*.
    pub fn ensured_here(&mut self) {
        let last = self.issue.facts.acts.last_started();
        let is_recent = last.is_some_and(|at| self.now().since(at) < ENSURE_RESOLUTION);
        let is_so = self.issue.is_asked_for() && self.verdict().wanted == Wanted::Running;
        if !(is_recent && is_so) {
            self.acted_here(ActKind::Asked);
        }
    }

    /// An act found its place, or a fact became known: what changes by that in what all acts come to
    /// changes the sandbox. What they came to before may have been overtaken by its life: it was idle, or
    /// its provider stopped it. That stays.
    pub fn follow(&mut self, before: Verdict, why: &str) {
        let after = self.verdict();
        if after != before {
            match after.wanted {
                Wanted::Running if self.issue.is_asked_for() => {}
                Wanted::Running => drop(self.grant_or_wait(why)),
                Wanted::Stopped => self.stop_as(after.by, why),
                Wanted::Deleted => self.delete(why),
            }
        }
        self.follow_open();
    }

    /// Stops the sandbox, as stopped by exactly this one.
    pub fn stop_as(&mut self, by: StoppedBy, why: &str) {
        self.want_stopped(by, why);
        match &mut self.issue.state {
            IssueState::Stopped { by: stopped_by, .. } => *stopped_by = by,
            IssueState::Creating { goal: goal @ Goal::Stopped(_), .. }
            | IssueState::Starting { goal: goal @ Goal::Stopped(_), .. }
            | IssueState::Stopping { goal: goal @ Goal::Stopped(_), .. }
            | IssueState::Failed { goal: goal @ Goal::Stopped(_), .. } => {
                *goal = Goal::Stopped(by);
            }
            IssueState::Absent
            | IssueState::Running { .. }
            | IssueState::Creating { .. }
            | IssueState::Starting { .. }
            | IssueState::Stopping { .. }
            | IssueState::Failed { .. }
            | IssueState::Deleting { .. } => {}
        }
    }

    /// The sandbox of a closed issue is deleted some time later, unless someone asked for it since.
    pub fn follow_open(&mut self) {
        let facts = &self.issue.facts;
        match facts.open.as_ref().map(|known| known.value) {
            Some(true) => self.issue.delete_due = None,
            Some(false) if facts.acts.last_closed().is_none() => {}
            Some(false) if facts.acts.started_after_close() => self.issue.delete_due = None,
            Some(false) if self.issue.delete_due.is_none() => self.delete_after_close(),
            Some(false) | None => {}
        }
    }
}
