//! What a person asked for in words, as the API shows it: whole with its delivery, its beginning with
//! the timeline and the stream of events.

use serde::Serialize;
use utoipa::ToSchema;

use crate::issue::instruction::InstructionSource;
use crate::issue::{Instruction, InstructionExcerpt};

/// What a person asked for in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Instruction)]
pub struct InstructionBody {
    /// Where the text was written.
    pub source: InstructionSourceBody,
    /// The comment's id; null for an issue.
    pub comment_id: Option<u64>,
    /// The login of the text's author; null when GitHub named none.
    pub author: Option<String>,
    /// The login of the person who caused the trigger; null when GitHub named none.
    pub sender: Option<String>,
    /// When the comment or issue was last updated.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The issue's title; null for a comment.
    pub title: Option<String>,
    /// The text, at most 128 KiB with a delivery; a longer one is cut and says so at its end. With a
    /// timeline at most its first 500 characters.
    pub text: String,
    /// Whether `text` is only the beginning: the delivery has the whole.
    pub is_excerpt: bool,
}

/// `issue`: the issue's title and body. `comment`: what follows the command in a comment, or a comment
/// without one. `review`: a review of the pull request. `check`: the output of a check that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = InstructionSource)]
pub enum InstructionSourceBody {
    /// The issue's title and body.
    Issue,
    /// What follows the command in a comment, or a comment without one.
    Comment,
    /// A review of the pull request, with its remarks.
    Review,
    /// The output of a check that failed.
    Check,
}

impl From<Instruction> for InstructionBody {
    fn from(instruction: Instruction) -> Self {
        let Instruction { source, author, sender, as_of, title, text } = instruction;
        let (source, comment_id) = match source {
            InstructionSource::Issue => (InstructionSourceBody::Issue, None),
            InstructionSource::Comment(id) | InstructionSource::PlainComment(id) => {
                (InstructionSourceBody::Comment, Some(id))
            }
            InstructionSource::Review { .. } => (InstructionSourceBody::Review, None),
            InstructionSource::Check(_) => (InstructionSourceBody::Check, None),
        };
        Self {
            source,
            comment_id,
            author: author.map(|user| user.login),
            sender: sender.map(|user| user.login),
            as_of: as_of.to_string(),
            title,
            text,
            is_excerpt: false,
        }
    }
}

impl From<InstructionExcerpt> for InstructionBody {
    fn from(excerpt: InstructionExcerpt) -> Self {
        let InstructionExcerpt { instruction, is_cut } = excerpt;
        Self { is_excerpt: is_cut, ..Self::from(instruction) }
    }
}
