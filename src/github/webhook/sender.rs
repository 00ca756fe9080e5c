//! Who may trigger.
//!
//! It is the event's sender that counts, not the issue's author. Where the sender is the author,
//! GitHub's `author_association` decides; when another person labelled, assigned or reopened,
//! they needed triage rights to do so. Bots pass by configured id alone, never by how they are
//! called. A missing (ghost) user is a stranger.

use crate::github::policy::TriggerPolicy;

use super::payload::{Comment, IssuePart, User};

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
    sender: Option<&User>,
    right: Right<'_>,
) -> Result<(), SenderRefusal> {
    let Some(sender) = sender else { return Err(SenderRefusal::Stranger) };
    let Some(id) = sender.id else { return Err(SenderRefusal::Stranger) };
    if policy.bot_user_id.is(id) {
        return Err(SenderRefusal::Ourselves);
    }
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

fn is(user: Option<&User>, id: u64) -> bool {
    user.is_some_and(|user| user.id == Some(id))
}

fn by_association(policy: &TriggerPolicy, kind: Option<&str>, association: Option<&str>) -> bool {
    kind != Some("Bot")
        && association.is_some_and(|word| policy.associations.iter().any(|known| known == word))
}
