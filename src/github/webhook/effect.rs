//! The table of effects: what each event and action may do to an issue's sandbox.
//!
//! Facts (closed, deleted, edited, the label is gone) apply whoever made them. Triggers and
//! activity need a sender with the right. All else is acknowledged with a reason.

use crate::github::comment::{self, Said};
use crate::github::policy::TriggerPolicy;
use crate::issue::event::{Effect, TriggerKind};

use super::payload::{Issue, Label, Payload};
use super::sender::{self, Right};

/// The acts that can have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Opened,
    Labeled,
    Unlabeled,
    Assigned,
    Unassigned,
    Reopened,
    Closed,
    Deleted,
    Edited,
    Commented,
}

/// What a delivery may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Apply(Effect),
    Ignore(String),
}

impl Act {
    /// The act of an event and its action.
    ///
    /// # Errors
    /// Why it has no effect, in words.
    pub fn of(event: &str, action: &str) -> Result<Self, String> {
        match (event, action) {
            ("issues", "opened") => Ok(Self::Opened),
            ("issues", "labeled") => Ok(Self::Labeled),
            ("issues", "unlabeled") => Ok(Self::Unlabeled),
            ("issues", "assigned") => Ok(Self::Assigned),
            ("issues", "unassigned") => Ok(Self::Unassigned),
            ("issues", "reopened") => Ok(Self::Reopened),
            ("issues", "closed") => Ok(Self::Closed),
            ("issues", "deleted") => Ok(Self::Deleted),
            ("issues", "edited") => Ok(Self::Edited),
            ("issue_comment", "created") => Ok(Self::Commented),
            ("ping", _) => Err("pong: the webhook reaches us".into()),
            ("issues", "transferred") => Err("transfers are not followed yet".into()),
            ("issue_comment", "edited" | "deleted") => Err("only new comments count".into()),
            ("issues" | "issue_comment", "") => Err(format!("{event} without an action")),
            ("issues" | "issue_comment", _) => {
                Err(format!("{event} {} has no effect", super::shown(action)))
            }
            _ => Err(format!("the event {event} has no effect")),
        }
    }

    /// What the act itself says of whether the issue is open.
    pub const fn says_open(self) -> Option<bool> {
        match self {
            Self::Opened | Self::Reopened => Some(true),
            Self::Closed => Some(false),
            Self::Labeled
            | Self::Unlabeled
            | Self::Assigned
            | Self::Unassigned
            | Self::Deleted
            | Self::Edited
            | Self::Commented => None,
        }
    }
}

/// Whether the issue carries the trigger label, where the delivery says so. What this very event
/// put on or took off counts more than the list beside it.
pub(super) fn labelled(policy: &TriggerPolicy, act: Act, payload: &Payload) -> Option<bool> {
    if policy.label.is_empty() {
        return None;
    }
    match act {
        Act::Labeled if is_trigger(policy, payload.label.as_ref()) => Some(true),
        Act::Unlabeled if is_trigger(policy, payload.label.as_ref()) => Some(false),
        Act::Opened
        | Act::Labeled
        | Act::Unlabeled
        | Act::Assigned
        | Act::Unassigned
        | Act::Reopened
        | Act::Closed
        | Act::Deleted
        | Act::Edited
        | Act::Commented => {
            let labels = payload.issue.as_ref()?.labels.as_ref()?;
            Some(labels.iter().any(|label| is_trigger(policy, label.as_ref())))
        }
    }
}

/// Whether the bot is assigned, where the delivery is about that.
pub(super) fn assigned(policy: &TriggerPolicy, act: Act, payload: &Payload) -> Option<bool> {
    match act {
        Act::Assigned => is_bot(policy, payload).then_some(true),
        Act::Unassigned => is_bot(policy, payload).then_some(false),
        Act::Opened
        | Act::Labeled
        | Act::Unlabeled
        | Act::Reopened
        | Act::Closed
        | Act::Deleted
        | Act::Edited
        | Act::Commented => None,
    }
}

/// Decides what an act may do. The payload has an issue.
pub(super) fn decide(policy: &TriggerPolicy, act: Act, payload: &Payload) -> Decision {
    let Some(issue) = payload.issue.as_ref() else { return ignore("there is no issue") };
    if issue.pull_request.is_some() {
        return ignore("it concerns a pull request");
    }
    match act {
        Act::Opened => opened(policy, payload, issue),
        Act::Labeled if is_trigger(policy, payload.label.as_ref()) => {
            triage(policy, payload, issue, TriggerKind::Label)
        }
        Act::Labeled => ignore("another label than the trigger label was put on"),
        Act::Unlabeled if !is_trigger(policy, payload.label.as_ref()) => {
            ignore("another label than the trigger label was taken off")
        }
        Act::Unlabeled if policy.unlabel_stops => {
            Decision::Apply(Effect::Stop("the trigger label was taken off"))
        }
        Act::Unlabeled => Decision::Apply(Effect::Update),
        Act::Assigned if is_bot(policy, payload) => {
            triage(policy, payload, issue, TriggerKind::Assigned)
        }
        Act::Unassigned if is_bot(policy, payload) => {
            Decision::Apply(Effect::Stop("the bot was unassigned"))
        }
        Act::Assigned | Act::Unassigned => ignore("the assignee is not the configured bot"),
        Act::Reopened => triage(policy, payload, issue, TriggerKind::Reopened),
        Act::Closed => Decision::Apply(Effect::Stop("the issue was closed")),
        Act::Deleted => Decision::Apply(Effect::Delete),
        Act::Edited => Decision::Apply(Effect::Update),
        Act::Commented => commented(policy, payload),
    }
}

fn opened(policy: &TriggerPolicy, payload: &Payload, issue: &Issue) -> Decision {
    if payload.changes.as_ref().is_some_and(|changes| changes.old_issue.is_some()) {
        // The other half of a transfer: starting here would make a second sandbox for the issue.
        return ignore("transfers are not followed yet");
    }
    if !policy.opened {
        // What it says of the issue (its number, title, labels) is worth knowing all the same.
        return Decision::Apply(Effect::Update);
    }
    permitted(policy, payload, Right::of_author(issue), Effect::Trigger(TriggerKind::Opened))
}

fn commented(policy: &TriggerPolicy, payload: &Payload) -> Decision {
    let Some(comment) = payload.comment.as_ref() else { return ignore("there is no comment") };
    let text = comment.body.as_deref().unwrap_or_default();
    let effect = match comment::find(&policy.command, text) {
        Some(Said::Manage(verb)) => {
            return ignore(&format!(
                "the command {} {} is not available yet",
                policy.command,
                verb.as_str()
            ));
        }
        Some(Said::Work) => Effect::Trigger(TriggerKind::Command),
        None => Effect::Activity,
    };
    permitted(policy, payload, Right::of_commenter(comment), effect)
}

fn triage(policy: &TriggerPolicy, payload: &Payload, issue: &Issue, kind: TriggerKind) -> Decision {
    permitted(policy, payload, Right::Triage(issue), Effect::Trigger(kind))
}

fn permitted(
    policy: &TriggerPolicy,
    payload: &Payload,
    right: Right<'_>,
    effect: Effect,
) -> Decision {
    match sender::check(policy, payload.sender.as_ref(), right) {
        Ok(()) => Decision::Apply(effect),
        Err(refusal) => ignore(refusal.reason()),
    }
}

fn is_trigger(policy: &TriggerPolicy, label: Option<&Label>) -> bool {
    label.and_then(|label| label.name.as_deref()).is_some_and(|name| policy.is_trigger_label(name))
}

fn is_bot(policy: &TriggerPolicy, payload: &Payload) -> bool {
    let assignee = payload.assignee.as_ref().and_then(|user| user.id);
    policy.assignee != 0 && assignee == Some(policy.assignee)
}

fn ignore(reason: &str) -> Decision {
    Decision::Ignore(reason.to_owned())
}
