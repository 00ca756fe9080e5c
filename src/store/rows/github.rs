//! An effect at GitHub as the body of its row. As in `parts`, the names are what is stored. Its kind is a
//! column.

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::issue::{CommentAnswer, EffectKind, GithubEffect, ReactTo};
use crate::types::{Generation, SandboxId};

#[derive(Serialize, Deserialize)]
struct ReactBody {
    /// The comment; none for the issue.
    comment: Option<u64>,
    generation: u32,
}

#[derive(Serialize, Deserialize)]
struct ReplyBody {
    comment: u64,
    answer: AnswerPart,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerPart {
    Status(String),
    Refused(String),
}

#[derive(Serialize, Deserialize)]
struct PublishBody {
    comment: u64,
    sandbox: String,
    by: String,
}

#[derive(Serialize, Deserialize)]
struct PushedWorkBody {
    sandbox: String,
}

#[derive(Serialize, Deserialize)]
struct StatusBody {
    version: u64,
}

/// The body of the row of `github_effect` that keeps this.
///
/// # Errors
/// As for [`IssueRow::encode`](super::IssueRow::encode).
pub(in crate::store) fn github_body(effect: &GithubEffect) -> Result<String, BadRow> {
    let text = match effect {
        GithubEffect::React { to, generation } => {
            let comment = match to {
                ReactTo::Issue => None,
                ReactTo::Comment(id) => Some(*id),
            };
            serde_json::to_string(&ReactBody { comment, generation: generation.0 })
        }
        GithubEffect::Reply { comment, answer } => {
            let answer = match answer.clone() {
                CommentAnswer::Status(text) => AnswerPart::Status(text),
                CommentAnswer::Refused(text) => AnswerPart::Refused(text),
            };
            serde_json::to_string(&ReplyBody { comment: *comment, answer })
        }
        GithubEffect::Publish { comment, sandbox, by } => serde_json::to_string(&PublishBody {
            comment: *comment,
            sandbox: sandbox.as_str().to_owned(),
            by: by.clone(),
        }),
        GithubEffect::SetWorkingLabel => return Ok("{}".to_owned()),
        GithubEffect::SetCommitStatus { sandbox } | GithubEffect::ShowPull { sandbox } => {
            serde_json::to_string(&PushedWorkBody { sandbox: sandbox.as_str().to_owned() })
        }
        GithubEffect::ShowStatus { version, .. } => {
            serde_json::to_string(&StatusBody { version: *version })
        }
    };
    Ok(text?)
}

/// Reads the effect back.
///
/// # Errors
/// [`BadRow`] when this version cannot have written it.
pub(in crate::store) fn github_effect(kind: &str, body: &str) -> Result<GithubEffect, BadRow> {
    let unknown = || BadRow::UnknownWord(kind.into());
    match EffectKind::parse(kind).ok_or_else(unknown)? {
        EffectKind::CleanUp => Err(unknown()),
        EffectKind::React => {
            let ReactBody { comment, generation } = serde_json::from_str(body)?;
            let to = comment.map_or(ReactTo::Issue, ReactTo::Comment);
            Ok(GithubEffect::React { to, generation: Generation(generation) })
        }
        EffectKind::Reply => {
            let ReplyBody { comment, answer } = serde_json::from_str(body)?;
            let answer = match answer {
                AnswerPart::Status(text) => CommentAnswer::Status(text),
                AnswerPart::Refused(text) => CommentAnswer::Refused(text),
            };
            Ok(GithubEffect::Reply { comment, answer })
        }
        EffectKind::Publish => {
            let PublishBody { comment, sandbox, by } = serde_json::from_str(body)?;
            Ok(GithubEffect::Publish { comment, sandbox: SandboxId::trusted(sandbox), by })
        }
        EffectKind::SetCommitStatus => {
            let PushedWorkBody { sandbox } = serde_json::from_str(body)?;
            Ok(GithubEffect::SetCommitStatus { sandbox: SandboxId::trusted(sandbox) })
        }
        EffectKind::SetWorkingLabel => Ok(GithubEffect::SetWorkingLabel),
        EffectKind::ShowPull => {
            let PushedWorkBody { sandbox } = serde_json::from_str(body)?;
            Ok(GithubEffect::ShowPull { sandbox: SandboxId::trusted(sandbox) })
        }
        EffectKind::ShowStatus => {
            let StatusBody { version } = serde_json::from_str(body)?;
            Ok(GithubEffect::ShowStatus { version, is_asked: false, can_wait: false })
        }
    }
}
