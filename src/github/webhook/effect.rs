//! The table of effects: what each event and action may do to an issue's sandbox.
//!
//! Facts (closed, deleted, edited, transferred, the label is gone) apply whatever the sender.
//! Triggers, commands and activity need a sender with the right. All else is acknowledged with a
//! reason. With credentials the right of triggers and commands is left open: GitHub is asked. Activity
//! only keeps a sandbox from being idle, so the payload decides about it.

use crate::github::comment::{self, Management, Said};
use crate::github::policy::TriggerPolicy;
use crate::issue::Command;
use crate::issue::event::{DeliveryEffect, TriggerKind};
use crate::issue::instruction::GithubUser;
use crate::types::{FollowUpMode, PermissionLevel};

use super::payload::{IssuePart, Label, Payload};
use super::sender::{self, Right, SenderRight};

/// Why what happens to a pull request that is not ours has no effect.
const ON_A_PULL: &str = "it concerns a pull request";

/// The acts that can have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IssueAction {
    Opened,
    Labeled,
    Unlabeled,
    Assigned,
    Unassigned,
    Reopened,
    Closed,
    Deleted,
    Edited,
    Transferred,
    Unlocked,
    Commented,
    CommentEdited,
}

/// What a delivery may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Apply {
        effect: DeliveryEffect,
        /// The comment whose command led to it.
        comment: Option<u64>,
        /// What must be asked first.
        condition: Option<PermissionCondition>,
    },
    Ignore(String),
}

/// The effect is allowed if this account has this permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PermissionCondition {
    pub asker: GithubUser,
    pub level: PermissionLevel,
    /// The effect if it has not; `None` for nothing.
    pub otherwise: Option<DeliveryEffect>,
}

impl IssueAction {
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
            ("issues", "transferred") => Ok(Self::Transferred),
            ("issues", "unlocked") => Ok(Self::Unlocked),
            ("issue_comment", "created") => Ok(Self::Commented),
            ("issue_comment", "edited") => Ok(Self::CommentEdited),
            ("ping", _) => Err("pong: the webhook reaches us".into()),
            ("pull_request_review_comment", "created") => {
                Err("the review that it belongs to brings it".into())
            }
            ("issue_comment", "deleted") => Err("deleting a comment undoes nothing".into()),
            (
                "issues"
                | "issue_comment"
                | "pull_request_review"
                | "check_run"
                | "repository"
                | "label"
                | "installation"
                | "installation_repositories",
                _,
            ) => Err(super::no_effect(event, action)),
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
            | Self::Transferred
            | Self::Unlocked
            | Self::Commented
            | Self::CommentEdited => None,
        }
    }

    /// Whether this is a side of a transfer, and which.
    pub fn moved(self, payload: &Payload) -> Moved {
        match self {
            Self::Transferred => Moved::Away,
            Self::Opened if payload.before().is_there() => Moved::Here,
            Self::Opened
            | Self::Labeled
            | Self::Unlabeled
            | Self::Assigned
            | Self::Unassigned
            | Self::Reopened
            | Self::Closed
            | Self::Deleted
            | Self::Edited
            | Self::Unlocked
            | Self::Commented
            | Self::CommentEdited => Moved::Not,
        }
    }

    /// The issue that the news are about: after a transfer, as it is there.
    pub fn subject(self, payload: &Payload) -> Option<&IssuePart> {
        match self.moved(payload) {
            Moved::Away => payload.after().issue(),
            Moved::Here | Moved::Not => payload.issue.as_ref(),
        }
    }
}

/// What an act says of a transfer. Each of the two repositories sends one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Nothing.
    Not,
    /// The issue went to another repository.
    Away,
    /// The issue came from another repository.
    Here,
}

/// Whether the issue carries the trigger label, if the delivery says so. What this very event
/// put on or took off counts more than the list beside it.
pub(super) fn labelled(
    policy: &TriggerPolicy,
    act: IssueAction,
    payload: &Payload,
) -> Option<bool> {
    if policy.label.is_empty() {
        return None;
    }
    match act {
        IssueAction::Labeled if is_trigger(policy, payload.label.as_ref()) => Some(true),
        IssueAction::Unlabeled if is_trigger(policy, payload.label.as_ref()) => Some(false),
        IssueAction::Opened
        | IssueAction::Labeled
        | IssueAction::Unlabeled
        | IssueAction::Assigned
        | IssueAction::Unassigned
        | IssueAction::Reopened
        | IssueAction::Closed
        | IssueAction::Deleted
        | IssueAction::Edited
        | IssueAction::Transferred
        | IssueAction::Unlocked
        | IssueAction::Commented
        | IssueAction::CommentEdited => {
            let labels = act.subject(payload)?.labels.as_ref()?;
            Some(labels.iter().any(|label| is_trigger(policy, label.as_ref())))
        }
    }
}

/// Whether the bot is assigned, if the delivery is about that.
pub(super) fn assigned(
    policy: &TriggerPolicy,
    act: IssueAction,
    payload: &Payload,
) -> Option<bool> {
    match act {
        IssueAction::Assigned => is_bot(policy, payload).then_some(true),
        IssueAction::Unassigned => is_bot(policy, payload).then_some(false),
        IssueAction::Opened
        | IssueAction::Labeled
        | IssueAction::Unlabeled
        | IssueAction::Reopened
        | IssueAction::Closed
        | IssueAction::Deleted
        | IssueAction::Edited
        | IssueAction::Transferred
        | IssueAction::Unlocked
        | IssueAction::Commented
        | IssueAction::CommentEdited => None,
    }
}

/// Decides what an act may do. The payload has an issue.
pub(super) fn decide(policy: &TriggerPolicy, act: IssueAction, payload: &Payload) -> Decision {
    let Some(issue) = payload.issue.as_ref() else { return ignore("there is no issue") };
    if issue.pull_request.is_some() {
        return ignore(ON_A_PULL);
    }
    match act {
        IssueAction::Opened => opened(policy, payload, issue),
        IssueAction::Labeled if is_trigger(policy, payload.label.as_ref()) => {
            let kind =
                if policy.unlabel_stops { TriggerKind::Label } else { TriggerKind::LabelForGood };
            triage(policy, payload, issue, kind)
        }
        IssueAction::Labeled => ignore("another label than the trigger label was put on"),
        IssueAction::Unlabeled if !is_trigger(policy, payload.label.as_ref()) => {
            ignore("another label than the trigger label was taken off")
        }
        IssueAction::Unlabeled if policy.unlabel_stops => {
            apply(DeliveryEffect::Stop("the trigger label was taken off"))
        }
        IssueAction::Unlabeled => apply(DeliveryEffect::Update),
        IssueAction::Assigned if is_bot(policy, payload) => {
            triage(policy, payload, issue, TriggerKind::Assigned)
        }
        IssueAction::Unassigned if is_bot(policy, payload) => {
            apply(DeliveryEffect::Stop("the bot was unassigned"))
        }
        IssueAction::Assigned | IssueAction::Unassigned => {
            ignore("the assignee is not the configured bot")
        }
        IssueAction::Reopened => triage(policy, payload, issue, TriggerKind::Reopened),
        IssueAction::Closed => apply(DeliveryEffect::Stop("the issue was closed")),
        IssueAction::Deleted => apply(DeliveryEffect::Delete),
        IssueAction::Edited => edited(policy, payload, issue),
        IssueAction::Transferred | IssueAction::Unlocked => apply(DeliveryEffect::Update),
        IssueAction::Commented => commented(policy, payload, TriggerKind::Command),
        IssueAction::CommentEdited => comment_edited(policy, payload),
    }
}

fn opened(policy: &TriggerPolicy, payload: &Payload, issue: &IssuePart) -> Decision {
    // The other half of a transfer is no trigger: the issue may have its sandbox already. Where
    // opening does not trigger, what it says (number, title, labels) is worth knowing all the same.
    if IssueAction::Opened.moved(payload) == Moved::Here || !policy.opened {
        return apply(DeliveryEffect::Update);
    }
    permitted(
        policy,
        payload,
        Right::of_author(issue),
        DeliveryEffect::Trigger(TriggerKind::Opened),
    )
}

/// An edit counts as a trigger if the text now asks for work and did not before. The text of an
/// issue never commands the sandbox: unlike a comment, it says something for as long as it stands.
fn edited(policy: &TriggerPolicy, payload: &Payload, issue: &IssuePart) -> Decision {
    let asks = |text: Option<&str>| {
        comment::find(&policy.command, text.unwrap_or_default()) == Some(Said::Work)
    };
    let before = payload.changes.as_ref().and_then(|changes| changes.body.as_ref());
    let newly =
        before.is_some_and(|before| asks(issue.body.as_deref()) && !asks(before.from.as_deref()));
    let right = sender::check(policy, payload, Right::Triage(issue));
    let trigger = DeliveryEffect::Trigger(TriggerKind::EditedIssue);
    match right {
        Ok(right) if newly => apply_by(trigger, right, Some(DeliveryEffect::Update)),
        Ok(_) | Err(_) => apply(DeliveryEffect::Update),
    }
}

/// What a comment on a pull request may do. As of a comment on the issue, but it is no activity.
pub(super) fn decide_on_pull(
    policy: &TriggerPolicy,
    act: IssueAction,
    payload: &Payload,
) -> Decision {
    let text = payload.comment.as_ref().and_then(|comment| comment.body.as_deref());
    let is_plain = comment::find(&policy.command, text.unwrap_or_default()).is_none();
    if is_plain && policy.follow_up == FollowUpMode::Commands {
        return ignore(ON_A_PULL);
    }
    let decision = match act {
        IssueAction::Commented => commented(policy, payload, TriggerKind::Command),
        IssueAction::CommentEdited => comment_edited(policy, payload),
        IssueAction::Opened
        | IssueAction::Labeled
        | IssueAction::Unlabeled
        | IssueAction::Assigned
        | IssueAction::Unassigned
        | IssueAction::Reopened
        | IssueAction::Closed
        | IssueAction::Deleted
        | IssueAction::Edited
        | IssueAction::Transferred
        | IssueAction::Unlocked => return ignore(ON_A_PULL),
    };
    match decision {
        Decision::Apply { effect: DeliveryEffect::Activity, .. } => ignore(ON_A_PULL),
        Decision::Apply { effect, comment, condition } => {
            // Without the permission it does nothing.
            let alone = |condition| PermissionCondition { otherwise: None, ..condition };
            Decision::Apply { effect, comment, condition: condition.map(alone) }
        }
        Decision::Ignore(reason) => Decision::Ignore(reason),
    }
}

fn commented(policy: &TriggerPolicy, payload: &Payload, kind: TriggerKind) -> Decision {
    let Some(comment) = payload.comment.as_ref() else { return ignore("there is no comment") };
    let text = comment.body.as_deref().unwrap_or_default();
    let (effect, counted) = match comment::find(&policy.command, text) {
        Some(said) => (effect_of(said, kind, payload), comment.id),
        None => (DeliveryEffect::Activity, None),
    };
    let right = Right::of_commenter(comment);
    if effect == DeliveryEffect::Activity && policy.follow_up == FollowUpMode::All {
        return followed_up(policy, payload, right);
    }
    if effect == DeliveryEffect::Activity {
        return match sender::check_by_payload(policy, payload, right) {
            Ok(()) => apply(effect),
            Err(refusal) => ignore(refusal.reason()),
        };
    }
    match permitted(policy, payload, right, effect) {
        Decision::Apply { effect, condition, .. } => {
            Decision::Apply { effect, comment: counted, condition }
        }
        Decision::Ignore(reason) => Decision::Ignore(reason),
    }
}

/// An edit that brings a command into a comment without one counts as writing it. Any other edit
/// says nothing new: what the comment said first has counted.
fn comment_edited(policy: &TriggerPolicy, payload: &Payload) -> Decision {
    let says =
        |text: Option<&str>| comment::find(&policy.command, text.unwrap_or_default()).is_some();
    let before = payload.changes.as_ref().and_then(|changes| changes.body.as_ref());
    let now = payload.comment.as_ref().and_then(|comment| comment.body.as_deref());
    if before.is_some_and(|before| says(now) && !says(before.from.as_deref())) {
        commented(policy, payload, TriggerKind::EditedComment)
    } else {
        ignore("the edit adds no command to the comment")
    }
}

/// A comment without a command that is a message to the agent. By a person who may not trigger it is
/// activity, as far as the payload lets it.
fn followed_up(policy: &TriggerPolicy, payload: &Payload, right: Right<'_>) -> Decision {
    let otherwise = sender::check_by_payload(policy, payload, right);
    let otherwise = otherwise.ok().map(|()| DeliveryEffect::Activity);
    let said = DeliveryEffect::FollowUp { failed_commit: None };
    match (sender::check(policy, payload, right), otherwise) {
        (Ok(right), otherwise) => apply_by(said, right, otherwise),
        (Err(_), Some(activity)) => apply(activity),
        (Err(refusal), None) => ignore(refusal.reason()),
    }
}

fn effect_of(said: Said, kind: TriggerKind, payload: &Payload) -> DeliveryEffect {
    match said {
        Said::Work => DeliveryEffect::Trigger(kind),
        Said::Manage(Management::Stop) => DeliveryEffect::Command(Command::Stop),
        Said::Manage(Management::Start) => DeliveryEffect::Command(Command::Start),
        Said::Manage(Management::Retry) => DeliveryEffect::Command(Command::Retry),
        Said::Manage(Management::Delete) => DeliveryEffect::Command(Command::Delete),
        Said::Manage(Management::Status) => DeliveryEffect::Status,
        Said::Manage(Management::Publish) => {
            let login = payload.sender.as_ref().and_then(|sender| sender.login.as_deref());
            DeliveryEffect::Publish { by: login.unwrap_or("a comment").to_owned() }
        }
    }
}

fn triage(
    policy: &TriggerPolicy,
    payload: &Payload,
    issue: &IssuePart,
    kind: TriggerKind,
) -> Decision {
    permitted(policy, payload, Right::Triage(issue), DeliveryEffect::Trigger(kind))
}

fn permitted(
    policy: &TriggerPolicy,
    payload: &Payload,
    right: Right<'_>,
    effect: DeliveryEffect,
) -> Decision {
    match sender::check(policy, payload, right) {
        Ok(right) => apply_by(effect, right, None),
        Err(refusal) => ignore(refusal.reason()),
    }
}

fn apply_by(
    effect: DeliveryEffect,
    right: SenderRight,
    otherwise: Option<DeliveryEffect>,
) -> Decision {
    let condition = match right {
        SenderRight::Granted => None,
        SenderRight::Asked(asker, level) => Some(PermissionCondition { asker, level, otherwise }),
    };
    Decision::Apply { effect, comment: None, condition }
}

fn is_trigger(policy: &TriggerPolicy, label: Option<&Label>) -> bool {
    label.and_then(|label| label.name.as_deref()).is_some_and(|name| policy.is_trigger_label(name))
}

fn is_bot(policy: &TriggerPolicy, payload: &Payload) -> bool {
    let assignee = payload.assignee.as_ref().and_then(|user| user.id);
    policy.assignee != 0 && assignee == Some(policy.assignee)
}

const fn apply(effect: DeliveryEffect) -> Decision {
    Decision::Apply { effect, comment: None, condition: None }
}

fn ignore(reason: &str) -> Decision {
    Decision::Ignore(reason.to_owned())
}
