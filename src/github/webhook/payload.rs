//! The parts of GitHub's payloads that are used, and nothing else.
//!
//! All that GitHub's schema allows to be null or absent is optional here; what identifies an
//! issue is asked for once the delivery is known to have an effect. Payload types stop here: the
//! rest of the crate sees [`News`](crate::issue::event::News).

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::issue::IssueName;
use crate::types::{IssueId, IssueNumber, Repository};

use super::Malformed;

/// What every delivery may have.
#[derive(Debug, Deserialize)]
pub(super) struct PayloadHead {
    #[serde(default)]
    pub action: Option<String>,
}

/// What the deliveries about one issue may have.
#[derive(Debug, Deserialize)]
pub(super) struct Payload {
    pub action: Option<String>,
    pub issue: Option<IssuePart>,
    pub comment: Option<Comment>,
    /// The label that this event put on or took off.
    pub label: Option<Label>,
    /// The user that this event assigned or unassigned.
    pub assignee: Option<User>,
    pub changes: Option<IssueChanges>,
    /// The review that this event submitted.
    pub review: Option<Review>,
    /// The pull request of a review.
    pub pull_request: Option<PullPart>,
    /// The check that this event completed.
    pub check_run: Option<CheckRun>,
    pub repository: Option<RepositoryPart>,
    pub installation: Option<PayloadInstallation>,
    pub sender: Option<User>,
}

/// An issue.
#[derive(Debug, Deserialize)]
pub(super) struct IssuePart {
    pub id: Option<u64>,
    pub number: Option<u64>,
    pub title: Option<String>,
    pub body: Option<String>,
    pub html_url: Option<String>,
    pub state: Option<String>,
    pub updated_at: Option<String>,
    pub author_association: Option<String>,
    pub user: Option<User>,
    pub labels: Option<Vec<Option<Label>>>,
    /// Present if the issue is a pull request.
    pub pull_request: Option<IgnoredAny>,
}

/// A comment on an issue.
#[derive(Debug, Deserialize)]
pub(super) struct Comment {
    pub id: Option<u64>,
    pub body: Option<String>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
    pub author_association: Option<String>,
    pub user: Option<User>,
}

/// A review of a pull request, without its remarks.
#[derive(Debug, Deserialize)]
pub(super) struct Review {
    pub id: Option<u64>,
    pub body: Option<String>,
    /// `commented`, `changes_requested`, `approved`.
    pub state: Option<String>,
    pub submitted_at: Option<String>,
    pub author_association: Option<String>,
    pub user: Option<User>,
}

/// A pull request, as an event about it names it.
#[derive(Debug, Deserialize)]
pub(super) struct PullPart {
    pub number: Option<u64>,
}

/// A check of a commit.
#[derive(Debug, Deserialize)]
pub(super) struct CheckRun {
    pub id: Option<u64>,
    pub name: Option<String>,
    pub head_sha: Option<String>,
    /// `success`, `failure`, `timed_out`, …; null until it has ended.
    pub conclusion: Option<String>,
    pub completed_at: Option<String>,
    pub output: Option<CheckOutput>,
}

/// What a check says of its result, in Markdown.
#[derive(Debug, Deserialize)]
pub(super) struct CheckOutput {
    pub title: Option<String>,
    pub summary: Option<String>,
    pub text: Option<String>,
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
    pub login: Option<String>,
    /// `User`, `Bot`, `Organization`, `Mannequin`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// What an event about an issue or a comment changed.
#[derive(Debug, Deserialize)]
pub(super) struct IssueChanges {
    /// Present if the text was edited.
    pub body: Option<Before>,
    /// Where a transferred issue was before.
    pub old_issue: Option<IssuePart>,
    pub old_repository: Option<RepositoryPart>,
    /// Where a transferred issue is now.
    pub new_issue: Option<IssuePart>,
    pub new_repository: Option<RepositoryPart>,
}

/// What a text was before it was edited; nothing if it was empty.
#[derive(Debug, Deserialize)]
pub(super) struct Before {
    pub from: Option<String>,
}

/// A repository.
#[derive(Debug, Deserialize)]
pub(super) struct RepositoryPart {
    pub id: Option<u64>,
    pub full_name: Option<String>,
    pub updated_at: Option<String>,
}

/// An installation of a GitHub App.
#[derive(Debug, Deserialize)]
pub(super) struct PayloadInstallation {
    pub id: Option<u64>,
}

/// An issue in its repository, as one part of a payload shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferSide<'a> {
    issue: Option<&'a IssuePart>,
    repository: Option<&'a RepositoryPart>,
    /// The fields of the two, for errors.
    fields: (&'static str, &'static str),
}

impl Payload {
    /// Whether its issue is a pull request.
    pub fn is_on_pull(&self) -> bool {
        self.issue.as_ref().is_some_and(|issue| issue.pull_request.is_some())
    }

    /// The issue that the event happened to, where it was before a transfer moved it away.
    pub fn here(&self) -> TransferSide<'_> {
        TransferSide {
            issue: self.issue.as_ref(),
            repository: self.repository.as_ref(),
            fields: ("issue", "repository"),
        }
    }

    /// The issue that was transferred here.
    pub fn before(&self) -> TransferSide<'_> {
        let changes = self.changes.as_ref();
        TransferSide {
            issue: changes.and_then(|changes| changes.old_issue.as_ref()),
            repository: changes.and_then(|changes| changes.old_repository.as_ref()),
            fields: ("changes.old_issue", "changes.old_repository"),
        }
    }

    /// The issue that this one was transferred to.
    pub fn after(&self) -> TransferSide<'_> {
        let changes = self.changes.as_ref();
        TransferSide {
            issue: changes.and_then(|changes| changes.new_issue.as_ref()),
            repository: changes.and_then(|changes| changes.new_repository.as_ref()),
            fields: ("changes.new_issue", "changes.new_repository"),
        }
    }
}

impl<'a> TransferSide<'a> {
    /// The issue, if the payload has it.
    pub const fn issue(self) -> Option<&'a IssuePart> {
        self.issue
    }

    /// Whether the payload has anything of it.
    pub const fn is_there(self) -> bool {
        self.issue.is_some() || self.repository.is_some()
    }

    /// What identifies the issue; all of it must be there.
    ///
    /// # Errors
    /// [`Malformed`] names the first field that is missing or wrong.
    pub fn name(self) -> Result<IssueName, Malformed> {
        let (of_issue, of_repository) = self.fields;
        let issue = self.issue.ok_or_else(|| missing(of_issue))?;
        let repository = self.repository.ok_or_else(|| missing(of_repository))?;
        let id = issue.id.ok_or_else(|| missing(&format!("{of_issue}.id")))?;
        let number = issue.number.ok_or_else(|| missing(&format!("{of_issue}.number")))?;
        let (repository, repository_id) = identified(repository, of_repository)?;
        Ok(IssueName {
            issue_id: IssueId::from_github(id),
            repository,
            repository_id,
            number: IssueNumber(number),
        })
    }
}

/// What identifies a repository; all of it must be there.
///
/// # Errors
/// [`Malformed`] names the first field that is missing or wrong, below `field`.
pub(super) fn identified(
    repository: &RepositoryPart,
    field: &str,
) -> Result<(Repository, u64), Malformed> {
    let full_name =
        repository.full_name.as_deref().ok_or_else(|| missing(&format!("{field}.full_name")))?;
    let name =
        Repository::parse(full_name).map_err(|e| Malformed(format!("{field}.full_name: {e}")))?;
    let id = repository.id.ok_or_else(|| missing(&format!("{field}.id")))?;
    Ok((name, id))
}

/// The error for a field that must be there.
pub(super) fn missing(field: &str) -> Malformed {
    Malformed(format!("{field} is missing"))
}

/// Parses a JSON object.
///
/// # Errors
/// [`Malformed`] says why: it is not JSON, not an object, nested too deeply (more than 128
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
