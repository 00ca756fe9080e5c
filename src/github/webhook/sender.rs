//! Who may trigger.
//!
//! It is the event's sender that counts, not the issue's author. Where the sender is the author,
//! GitHub's `author_association` decides; when another person labelled, assigned or reopened,
//! they needed triage rights to do so. Bots pass by configured id alone, never by how they are
//! called. A missing (ghost) user is a stranger.
//!
//! With credentials neither counts: GitHub is asked for the sender's permission, which is left open
//! here. An account whose name ends in `[bot]` is never asked about.

use crate::github::policy::TriggerPolicy;
use crate::issue::instruction::GithubUser;
use crate::types::PermissionLevel;

use super::payload::{Comment, IssuePart, Payload, User};

/// Why a sender may not trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SenderRefusal {
    /// It is our own account.
    Ourselves,
    /// It is someone without the right.
    Stranger,
}

impl SenderRefusal {
    /// The same in words, for the delivery's record.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ourselves => "our own account's events never trigger",
            Self::Stranger => "the sender may not trigger",
        }
    }
}

/// What is known of a sender's right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SenderRight {
    /// The sender may trigger.
    Granted,
    /// GitHub is to be asked whether this account has this permission in the repository.
    Asked(GithubUser, PermissionLevel),
}

/// What decides besides the sender itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Right<'a> {
    /// Being the author, with this association: opening an issue, writing a comment.
    Author {
        /// Who wrote it.
        user: Option<&'a User>,
        /// What the author is to the repository.
        association: Option<&'a str>,
    },
    /// An act that needs triage rights when another person than the author does it: labelling,
    /// assigning, reopening.
    Triage(&'a IssuePart),
}

impl<'a> Right<'a> {
    /// The right that opening this issue needs.
    pub fn of_author(issue: &'a IssuePart) -> Self {
        Self::Author { user: issue.user.as_ref(), association: issue.author_association.as_deref() }
    }

    /// The right that writing this comment needs.
    pub fn of_commenter(comment: &'a Comment) -> Self {
        Self::Author {
            user: comment.user.as_ref(),
            association: comment.author_association.as_deref(),
        }
    }
}

/// Checks whether the sender may trigger.
///
/// # Errors
/// [`SenderRefusal`] says why not.
pub(super) fn check(
    policy: &TriggerPolicy,
    payload: &Payload,
    right: Right<'_>,
) -> Result<SenderRight, SenderRefusal> {
    let repository_id = payload.repository.as_ref().and_then(|repository| repository.id);
    let Some(level) = policy.asked_permission(repository_id) else {
        return check_by_payload(policy, payload, right).map(|()| SenderRight::Granted);
    };
    let (sender, id) = sender_of(policy, payload)?;
    if policy.bots.contains(&id) {
        return Ok(SenderRight::Granted);
    }
    let is_author = match right {
        Right::Author { user, .. } => is(user, id),
        Right::Triage(_) => true,
    };
    let asker = super::instruction::user(sender).filter(|user| !is_bot(sender, &user.login));
    let asker = asker.filter(|_| is_author).ok_or(SenderRefusal::Stranger)?;
    Ok(SenderRight::Asked(asker, level))
}

/// The same by what the payload says alone.
///
/// # Errors
/// [`SenderRefusal`] says why not.
pub(super) fn check_by_payload(
    policy: &TriggerPolicy,
    payload: &Payload,
    right: Right<'_>,
) -> Result<(), SenderRefusal> {
    let (sender, id) = sender_of(policy, payload)?;
    if policy.bots.contains(&id) {
        return Ok(());
    }
    let kind = sender.kind.as_deref();
    let allowed = match right {
        Right::Author { user, association } => {
            is(user, id) && by_association(policy, kind, association)
        }
        Right::Triage(issue) if is(issue.user.as_ref(), id) => {
            by_association(policy, kind, issue.author_association.as_deref())
        }
        Right::Triage(_) => kind == Some("User"),
    };
    if allowed { Ok(()) } else { Err(SenderRefusal::Stranger) }
}

/// The sender and its id, unless it is us.
fn sender_of<'a>(
    policy: &TriggerPolicy,
    payload: &'a Payload,
) -> Result<(&'a User, u64), SenderRefusal> {
    let sender = payload.sender.as_ref().ok_or(SenderRefusal::Stranger)?;
    let id = sender.id.ok_or(SenderRefusal::Stranger)?;
    if policy.bot_user_id.is(id) { Err(SenderRefusal::Ourselves) } else { Ok((sender, id)) }
}

/// Whether an account is a bot by its kind or its name, or has no name.
fn is_bot(user: &User, login: &str) -> bool {
    user.kind.as_deref() == Some("Bot") || login.ends_with("[bot]") || login.is_empty()
}

fn is(user: Option<&User>, id: u64) -> bool {
    user.is_some_and(|user| user.id == Some(id))
}

fn by_association(policy: &TriggerPolicy, kind: Option<&str>, association: Option<&str>) -> bool {
    kind != Some("Bot")
        && association.is_some_and(|word| policy.associations.iter().any(|known| known == word))
}
