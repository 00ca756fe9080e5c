//! What a person asked for in words, as the body of its row. As in `parts`, the names are what is
//! stored. The text itself is a column of its own.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::issue::Instruction;
use crate::issue::instruction::{GithubUser, InstructionSource};
use crate::types::Timestamp;

#[derive(Serialize, Deserialize)]
struct InstructionPart<'a> {
    /// Missing when the text is not that of a comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<u64>,
    /// Whether the comment has no command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    plain: bool,
    /// The review, and the number of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    review: Option<(u64, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    author: Option<UserPart<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    sender: Option<UserPart<'a>>,
    as_of: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    /// Only in rows of the older layout, which had no column for it.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct UserPart<'a> {
    id: u64,
    #[serde(borrow)]
    login: Cow<'a, str>,
}

impl<'a> From<&'a GithubUser> for UserPart<'a> {
    fn from(user: &'a GithubUser) -> Self {
        Self { id: user.id, login: Cow::Borrowed(&user.login) }
    }
}

impl From<UserPart<'_>> for GithubUser {
    fn from(part: UserPart<'_>) -> Self {
        Self { id: part.id, login: part.login.into_owned() }
    }
}

/// The body of the row of `instruction` that keeps this beside its text.
///
/// # Errors
/// As for [`IssueRow::encode`](super::IssueRow::encode).
pub(in crate::store) fn instruction_body(instruction: &Instruction) -> Result<String, BadRow> {
    let Instruction { source, author, sender, as_of, title, text: _ } = instruction;
    Ok(serde_json::to_string(&InstructionPart {
        comment: match source {
            InstructionSource::Comment(id) | InstructionSource::PlainComment(id) => Some(*id),
            InstructionSource::Issue
            | InstructionSource::Review { .. }
            | InstructionSource::Check(_) => None,
        },
        plain: matches!(source, InstructionSource::PlainComment(_)),
        review: match source {
            InstructionSource::Review { id, pull } => Some((*id, *pull)),
            _ => None,
        },
        check: match source {
            InstructionSource::Check(id) => Some(*id),
            _ => None,
        },
        author: author.as_ref().map(Into::into),
        sender: sender.as_ref().map(Into::into),
        as_of: as_of.unix_ms(),
        title: title.as_deref().map(Cow::Borrowed),
        text: None,
    })?)
}

/// Reads the instruction back, out of a body and the column of its text.
///
/// # Errors
/// [`BadRow::Body`] when it is not such a body, [`BadRow::NoText`] if there is no text.
pub(in crate::store) fn instruction(
    body: &str,
    column: Option<&str>,
) -> Result<Instruction, BadRow> {
    let InstructionPart { comment, plain, review, check, author, sender, as_of, title, text } =
        serde_json::from_str(body)?;
    let source = match (comment, review, check) {
        (Some(id), _, _) if plain => InstructionSource::PlainComment(id),
        (Some(id), _, _) => InstructionSource::Comment(id),
        (None, Some((id, pull)), _) => InstructionSource::Review { id, pull },
        (None, None, Some(id)) => InstructionSource::Check(id),
        (None, None, None) => InstructionSource::Issue,
    };
    let text = column.map(Cow::Borrowed).or(text).ok_or(BadRow::NoText)?;
    Ok(Instruction {
        source,
        author: author.map(Into::into),
        sender: sender.map(Into::into),
        as_of: Timestamp::from_unix_ms(as_of),
        title: title.map(Cow::into_owned),
        text: text.into_owned(),
    })
}
