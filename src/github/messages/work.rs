//! What is said of the branch that a sandbox works on, and of its pull request.

use std::fmt::Write as _;

use super::{sentence, shortened};
use crate::github::text::plain;
use crate::issue::Facts;
use crate::store::checkout::CheckoutRow;
use crate::types::{CheckoutState, PushPermission, RunId};

/// What is known of a sandbox's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkShown {
    /// Its checkout, if it has one.
    pub checkout: Option<CheckoutRow>,
    /// The number of its pull request.
    pub pull: Option<u64>,
    /// Why its pull request is not opened or edited now.
    pub pull_trouble: Option<String>,
    /// What its agent does or said, as [`AgentShown::paragraphs`](super::AgentShown::paragraphs) has it.
    pub agent: String,
    /// The last run with words of the agent: another one's are shown at once.
    pub answered: Option<RunId>,
    /// The question that its agent waits with: another one is shown at once.
    pub asks: Option<String>,
}

impl WorkShown {
    /// What belongs to the phase of the status: a change of it is shown at once. Empty without a
    /// branch.
    pub(super) fn phase(&self) -> String {
        let mut answered = self.answered.map(|run| format!(" answered {run}")).unwrap_or_default();
        if let Some(question) = &self.asks {
            // Writing to a text never fails.
            let _ = write!(answered, " asks {question}");
        }
        let Some(row) = &self.checkout else { return answered };
        let mut phase = answered;
        if let Some(branch) = &row.branch {
            // Writing to a text never fails.
            let _ = write!(phase, " {branch}");
        }
        if let Some(pull) = self.pull {
            let _ = write!(phase, " #{pull}");
        }
        if row.state == CheckoutState::Failed {
            phase.push_str(" checkout failed");
        }
        if row.pushes == PushPermission::Waits && row.published_by.is_none() {
            phase.push_str(" pushes wait");
        }
        if self.pull_trouble.is_some() {
            phase.push_str(" pull request waits");
        }
        phase
    }

    /// Sentences about it; empty if there is nothing to say.
    pub(super) fn sentences(&self, command: &str, issue: &Facts) -> String {
        let Some(row) = &self.checkout else { return String::new() };
        let mut said = Vec::new();
        if let Some(branch) = &row.branch {
            let (branch, remote) = (name(branch), row.remote.as_str());
            // Where an issue was before it was transferred.
            let (there, at) = match row.is_beside(issue) {
                true => (String::new(), ""),
                false => (format!(" in {remote}"), remote),
            };
            said.push(match (self.pull, &row.tip) {
                (Some(pull), _) => format!("Branch {branch}{there}, pull request {at}#{pull}."),
                (None, Some(_)) => format!("Branch {branch}{there}."),
                (None, None) => format!("Branch {branch}{there}; nothing is pushed yet."),
            });
        }
        said.extend(pushes(row, command));
        let reason = &row.reason;
        match row.state {
            CheckoutState::Failed => {
                said.push(format!("**The checkout failed**: {}", sentence(reason)));
            }
            CheckoutState::Fetching | CheckoutState::Ready if !reason.is_empty() => {
                said.push(format!("Checkout: {}", sentence(reason)));
            }
            CheckoutState::Fetching | CheckoutState::Ready => {}
        }
        if let Some(why) = &self.pull_trouble {
            said.push(format!("No pull request: {}.", shortened(&plain(why))));
        }
        said.join(" ")
    }
}

/// What becomes of pushes, if there is something to say.
fn pushes(row: &CheckoutRow, command: &str) -> Option<String> {
    row.branch.as_ref()?;
    let why = shortened(&plain(&row.pushes_why));
    Some(match (row.pushes, &row.published_by) {
        (PushPermission::Free, _) => return None,
        (PushPermission::Trusted, _) => format!("Pushes are published at once: {why}."),
        (PushPermission::Waits, Some(by)) => format!("Published by {}.", shortened(&plain(by))),
        (PushPermission::Waits, None) => {
            let how = match command {
                "" => "run `issuebox publish`".to_owned(),
                command => format!("comment `{command} publish`"),
            };
            format!("**Pushes wait** for a person, because {why}; to publish the work, {how}.")
        }
        (PushPermission::Off, _) => "Pushes are turned off here.".to_owned(),
    })
}

/// A branch's name as code.
fn name(branch: &str) -> String {
    if branch.contains('`') { plain(branch) } else { format!("`{branch}`") }
}
