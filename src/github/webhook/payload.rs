//! The parts of GitHub's payloads that are used, and nothing else.
//!
//! All that GitHub's schema allows to be null or absent is optional here; what identifies an
//! issue is asked for once the delivery is known to have an effect. Payload types stop here: the
//! rest of the crate sees [`News`](crate::issue::event::News).

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::types::{IssueId, IssueNumber, Repository};

use super::Malformed;

/// What every delivery may have.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub action: Option<String>,
}

/// What the deliveries about one issue may have.
#[derive(Debug, Deserialize)]
pub(super) struct Payload {
    pub action: Option<String>,
    pub issue: Option<Issue>,
    pub comment: Option<Comment>,
    /// The label that this event put on or took off.
    pub label: Option<Label>,
    /// The user that this event assigned or unassigned.
    pub assignee: Option<User>,
    pub changes: Option<Changes>,
    pub repository: Option<RepositoryPart>,
    pub sender: Option<User>,
}

/// An issue.
#[derive(Debug, Deserialize)]
pub(super) struct Issue {
    pub id: Option<u64>,
    pub number: Option<u64>,
    pub title: Option<String>,
    pub html_url: Option<String>,
    pub state: Option<String>,
    pub updated_at: Option<String>,
    pub author_association: Option<String>,
    pub user: Option<User>,
    pub labels: Option<Vec<Option<Label>>>,
    /// There where the issue is a pull request.
    pub pull_request: Option<IgnoredAny>,
}

/// A comment on an issue.
#[derive(Debug, Deserialize)]
pub(super) struct Comment {
    pub body: Option<String>,
    pub author_association: Option<String>,
    pub user: Option<User>,
}

/// A label.
#[derive(Debug, Deserialize)]
pub(super) struct Label {
    pub name: Option<String>,
}

/// An account of GitHub.
#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub id: Option<u64>,
    /// `User`, `Bot`, `Organization`, `Mannequin`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// What an `opened` says of the issue's earlier life.
#[derive(Debug, Deserialize)]
pub(super) struct Changes {
    /// There where the issue was transferred from another repository.
    pub old_issue: Option<IgnoredAny>,
}

/// A repository.
#[derive(Debug, Deserialize)]
pub(super) struct RepositoryPart {
    pub id: Option<u64>,
    pub full_name: Option<String>,
}

/// What identifies an issue; all of it must be there.
#[derive(Debug)]
pub(super) struct IssueFacts {
    pub issue_id: IssueId,
    pub number: IssueNumber,
    pub repository: Repository,
    pub repository_id: u64,
}

impl IssueFacts {
    /// Reads it out of a payload.
    ///
    /// # Errors
    /// [`Malformed`] names the first field that is missing or wrong.
    pub fn of(payload: &Payload) -> Result<Self, Malformed> {
        let issue = payload.issue.as_ref().ok_or_else(|| missing("issue"))?;
        let repository = payload.repository.as_ref().ok_or_else(|| missing("repository"))?;
        let full_name =
            repository.full_name.as_deref().ok_or_else(|| missing("repository.full_name"))?;
        Ok(Self {
            issue_id: IssueId::from_github(issue.id.ok_or_else(|| missing("issue.id"))?),
            number: IssueNumber(issue.number.ok_or_else(|| missing("issue.number"))?),
            repository: Repository::parse(full_name)
                .map_err(|e| Malformed(format!("repository.full_name: {e}")))?,
            repository_id: repository.id.ok_or_else(|| missing("repository.id"))?,
        })
    }
}

fn missing(field: &str) -> Malformed {
    Malformed(format!("{field} is missing"))
}

/// Parses a JSON object.
///
/// # Errors
/// [`Malformed`] says where it is not JSON, not an object, nested too deeply (more than 128
/// levels in a part that is used), or has a field of another kind than GitHub's.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    // A derived struct would read an array as its fields in order.
    match body.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{') => {}
        Some(_) => return Err(Malformed("it is not a JSON object".into())),
        None => return Err(Malformed("it is empty".into())),
    }
    serde_json::from_slice(body).map_err(|e| Malformed(e.to_string()))
}
