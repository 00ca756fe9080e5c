//! The words that a trigger brings for the agent, taken out of its payload.
//!
//! A comment with a command brings what follows the command. Every other trigger, and a command
//! without words, brings the issue's title and body.

use crate::github::comment;
use crate::github::policy::TriggerPolicy;
use crate::issue::event::DeliveryEffect;
use crate::issue::instruction::{GithubUser, Instruction, InstructionSource, bounded};
use crate::types::Timestamp;

use super::payload::{Comment, IssuePart, Payload, User};

/// Longest login that is kept, in characters; GitHub's own limit is 39.
const LOGIN_LEN_MAX: usize = 100;

/// The instruction of a delivery with this effect; `None` when it is no trigger.
pub(super) fn instruction(
    policy: &TriggerPolicy,
    effect: &DeliveryEffect,
    payload: &Payload,
    received_at: Timestamp,
) -> Option<Instruction> {
    match effect {
        DeliveryEffect::Trigger(_) => {}
        DeliveryEffect::FollowUp { .. } => return plain_comment(payload, received_at),
        DeliveryEffect::Stop(_)
        | DeliveryEffect::Delete
        | DeliveryEffect::Update
        | DeliveryEffect::Activity
        | DeliveryEffect::Command(_)
        | DeliveryEffect::Status
        | DeliveryEffect::Publish { .. }
        | DeliveryEffect::Note(_) => return None,
    }
    let comment = payload.comment.as_ref().and_then(|comment| Words::of_comment(policy, comment));
    let words = comment.or_else(|| payload.issue.as_ref().map(Words::of_issue))?;
    Some(Instruction {
        source: words.source,
        author: words.author.and_then(user),
        sender: payload.sender.as_ref().and_then(user),
        as_of: super::time_of(words.updated_at, received_at),
        title: words.title,
        text: bounded(words.text),
    })
}

/// A comment that has no command, as a whole.
fn plain_comment(payload: &Payload, received_at: Timestamp) -> Option<Instruction> {
    let comment = payload.comment.as_ref()?;
    let updated_at = comment.updated_at.as_deref().or(comment.created_at.as_deref());
    Some(Instruction {
        source: InstructionSource::PlainComment(comment.id?),
        author: comment.user.as_ref().and_then(user),
        sender: payload.sender.as_ref().and_then(user),
        as_of: super::time_of(updated_at, received_at),
        title: None,
        text: bounded(comment.body.as_deref().unwrap_or_default()),
    })
}

/// What follows the command in a comment on a pull request; `None` if no words do.
pub(super) fn on_pull(
    policy: &TriggerPolicy,
    effect: &DeliveryEffect,
    payload: &Payload,
    received_at: Timestamp,
) -> Option<Instruction> {
    let brought = instruction(policy, effect, payload, received_at)?;
    // The text of the pull request itself is ours.
    (brought.source != InstructionSource::Issue).then_some(brought)
}

/// A text of a payload, and what the payload says about it.
struct Words<'a> {
    source: InstructionSource,
    author: Option<&'a User>,
    updated_at: Option<&'a str>,
    title: Option<String>,
    text: &'a str,
}

impl<'a> Words<'a> {
    /// What follows the command in a comment; `None` when no words do.
    fn of_comment(policy: &TriggerPolicy, comment: &'a Comment) -> Option<Self> {
        Some(Self {
            source: InstructionSource::Comment(comment.id?),
            author: comment.user.as_ref(),
            updated_at: comment.updated_at.as_deref().or(comment.created_at.as_deref()),
            title: None,
            text: comment::text_behind(&policy.command, comment.body.as_deref()?)?,
        })
    }

    /// The issue's title and body.
    fn of_issue(issue: &'a IssuePart) -> Self {
        Self {
            source: InstructionSource::Issue,
            author: issue.user.as_ref(),
            updated_at: issue.updated_at.as_deref(),
            title: Some(super::title_of(issue)),
            text: issue.body.as_deref().unwrap_or_default(),
        }
    }
}

/// An account as it is kept; `None` without an id.
pub(super) fn user(user: &User) -> Option<GithubUser> {
    let login = user.login.as_deref().unwrap_or_default();
    let login = login.chars().filter(|c| !c.is_control()).take(LOGIN_LEN_MAX).collect();
    Some(GithubUser { id: user.id?, login })
}
