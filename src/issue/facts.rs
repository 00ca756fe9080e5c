//! What is known of a GitHub issue, each fact as of the delivery that brought it.

use super::acts::Acts;
use crate::types::{IssueId, IssueNumber, Repository, Timestamp};

/// A fact and the `issue.updated_at` of the delivery that brought it: older news is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dated<T> {
    /// What is known.
    pub value: T,
    /// As of when.
    pub as_of: Timestamp,
}

/// What is known of the GitHub issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The id under which it was first seen; the sandbox is named after it.
    pub issue_id: IssueId,
    /// Its repository.
    pub repository: Option<Repository>,
    /// GitHub's numeric id of the repository.
    pub repository_id: Option<u64>,
    /// GitHub's numeric id of the App installation that last sent a delivery about it.
    pub installation_id: Option<u64>,
    /// Its number there.
    pub number: Option<IssueNumber>,
    /// As of when its repository and number are known.
    pub placed_as_of: Option<Timestamp>,
    /// As of when its repository was renamed to this name, if that was after its place was known. A rename
    /// does not say that the issue is still in the repository.
    pub renamed_as_of: Option<Timestamp>,
    /// Its title.
    pub title: Option<Dated<String>>,
    /// Its page.
    pub url: Option<String>,
    /// Whether it is open.
    pub open: Option<Dated<bool>>,
    /// Whether it carries the trigger label.
    pub labelled: Option<Dated<bool>>,
    /// Whether the bot is assigned to it.
    pub assigned: Option<Dated<bool>>,
    /// Whether GitHub said that it is deleted.
    pub deleted: bool,
    /// What was asked of its sandbox, and when.
    pub acts: Acts,
    /// The repositories that it was transferred away from, by GitHub's numeric id: what comes late
    /// from there moves nothing back and deletes nothing.
    pub left_repositories: Vec<u64>,
    /// The comments whose commands were carried out, newest last; at most
    /// [`Facts::COUNTED_COMMENTS_MAX`].
    pub counted_comments: Vec<u64>,
}

impl Facts {
    /// How many commented commands are remembered. The same comment comes again within moments
    /// (several webhooks, redeliveries) or by an edit; 64 others in between are not to be expected.
    pub const COUNTED_COMMENTS_MAX: usize = 64;

    /// Nothing but the id.
    pub fn new(issue_id: IssueId) -> Self {
        Self {
            issue_id,
            repository: None,
            repository_id: None,
            installation_id: None,
            number: None,
            placed_as_of: None,
            renamed_as_of: None,
            title: None,
            url: None,
            open: None,
            labelled: None,
            assigned: None,
            deleted: false,
            acts: Acts::default(),
            left_repositories: Vec::new(),
            counted_comments: Vec::new(),
        }
    }
}
