//! News that are not about the issue itself: of its repository, of the App's installation, and
//! that another home turned out to be the same issue.

use crate::issue::acts::ActKind;
use crate::issue::commit::{DeliveryResult, Reply};
use crate::issue::event::ScopeEvent;
use crate::issue::state::{Dated, IssueState, StoppedBy};
use crate::sabotage::{Bug, on};
use crate::types::{Alias, Cause, DeliveryId, HomeId};

use super::transition::Transition;

impl Transition<'_> {
    /// A delivery about the issue's repository or installation.
    pub fn scope_event(&mut self, news: ScopeEvent, delivery: &DeliveryId) {
        self.cause = Cause::Delivery(delivery.clone()).to_string();
        let (applied, reason) = match news {
            ScopeEvent::Renamed { repository, formerly: _, as_of } => {
                let facts = &mut self.issue.facts;
                if facts.named_as_of().is_some_and(|known| known > as_of) {
                    (false, "newer data about its repository is known".to_owned())
                } else {
                    facts.renamed_as_of = Some(as_of);
                    facts.repository = Some(repository.clone());
                    // GitHub says so: no other home keeps the name.
                    if let Some(number) = facts.number {
                        self.taken_over.push(Alias::Numbered(repository.clone(), number));
                    }
                    (true, format!("its repository is now {repository}"))
                }
            }
            ScopeEvent::Stop(why) => {
                let had = self.issue.pending_start.take().is_some();
                if had || self.issue.state.record().is_some() {
                    self.acted_here(ActKind::TakenAway);
                }
                match self.issue.state {
                    IssueState::Absent => (had, format!("{why}; there is no sandbox to stop")),
                    IssueState::Creating { .. }
                    | IssueState::Running { .. }
                    | IssueState::Stopping { .. }
                    | IssueState::Stopped { .. }
                    | IssueState::Starting { .. }
                    | IssueState::Failed { .. }
                    | IssueState::Deleting { .. } => {
                        self.want_stopped(StoppedBy::Issue, &why);
                        (true, format!("{why}; its sandbox is stopped"))
                    }
                }
            }
            ScopeEvent::LabelGone => match &mut self.issue.facts.labelled {
                // As of the same time: whatever GitHub says next of the label is newer.
                Some(Dated { value: value @ true, .. }) => {
                    *value = false;
                    (true, "it no longer carries the trigger label".to_owned())
                }
                Some(_) | None => (false, "it did not carry the trigger label".to_owned()),
            },
            ScopeEvent::Noted(what) => (false, what),
        };
        self.reply = Reply::Delivered(DeliveryResult { applied, reason });
    }

    /// This home is the same issue as another one, which stays: all of its names go there, and
    /// its sandbox, the newer one, is deleted.
    pub fn merged(&mut self, into: HomeId, cause: &Cause) {
        self.cause = cause.to_string();
        let wanted = self.issue.is_asked_for();
        self.issue.merged_into = Some(into);
        self.names_go_to = Some(into);
        self.issue.pending_start = None;
        if !on(Bug::MergeKeepsBoth) {
            self.delete("the issue has an older sandbox, under another name");
        }
        self.reply = Reply::Merged { wanted };
    }
}
