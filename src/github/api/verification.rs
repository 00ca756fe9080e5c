//! Verification: how GitHub says that an issue is, before work on it begins.

use crate::types::{IssueNumber, Timestamp};

use super::GitHubAccount;

/// The GraphQL query of a verification; its variables are `owner`, `name`, `number`, `base`
/// (a qualified name such as `refs/heads/main`) and `hasBase`. About one point.
pub const VERIFICATION_QUERY: &str = "\
query($owner: String!, $name: String!, $number: Int!, $base: String!, $hasBase: Boolean!) {
  repository(owner: $owner, name: $name) {
    databaseId
    nameWithOwner
    defaultBranchRef { name target { oid } }
    ref(qualifiedName: $base) @include(if: $hasBase) { name target { oid } }
    issue(number: $number) {
      fullDatabaseId number title body state locked createdAt lastEditedAt
      author { __typename login ... on User { databaseId } ... on Bot { databaseId } ... on Mannequin { databaseId } ... on Organization { databaseId } }
      editor { __typename login ... on User { databaseId } ... on Bot { databaseId } ... on Mannequin { databaseId } ... on Organization { databaseId } }
      labels(first: 100) { nodes { name } }
      assignees(first: 20) { nodes { databaseId login } }
      timelineItems(last: 50, itemTypes: [LABELED_EVENT, UNLABELED_EVENT, ASSIGNED_EVENT, UNASSIGNED_EVENT, CLOSED_EVENT, REOPENED_EVENT]) {
        nodes {
          __typename
          ... on LabeledEvent { createdAt label { name } actor { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
          ... on UnlabeledEvent { createdAt label { name } actor { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
          ... on AssignedEvent { createdAt assignee { __typename ... on User { databaseId } ... on Bot { databaseId } } actor { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
          ... on UnassignedEvent { createdAt assignee { __typename ... on User { databaseId } ... on Bot { databaseId } } actor { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
          ... on ClosedEvent { createdAt actor { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
          ... on ReopenedEvent { createdAt actor { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
        }
      }
      comments(last: 50) {
        totalCount
        nodes {
          fullDatabaseId body createdAt lastEditedAt isMinimized
          author { __typename login ... on User { databaseId } ... on Bot { databaseId } ... on Mannequin { databaseId } ... on Organization { databaseId } }
          editor { __typename login ... on User { databaseId } ... on Bot { databaseId } ... on Mannequin { databaseId } ... on Organization { databaseId } }
        }
      }
    }
  }
}";

/// How an issue is at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedIssue {
    /// GitHub's clock when it answered.
    pub at: Timestamp,
    /// The repository's id.
    pub repository_id: u64,
    /// The issue's global id.
    pub id: u64,
    /// Its number.
    pub number: IssueNumber,
    /// Whether it is open.
    pub is_open: bool,
    /// Whether its conversation is locked.
    pub is_locked: bool,
    /// The title.
    pub title: String,
    /// The text.
    pub body: String,
    /// Who opened it.
    pub author: GitHubAccount,
    /// When title or text were last edited.
    pub edited_at: Option<Timestamp>,
    /// Who edited it last.
    pub editor: Option<GitHubAccount>,
    /// The names of its labels, at most 100.
    pub labels: Vec<String>,
    /// The ids of its assignees, at most 20.
    pub assignees: Vec<u64>,
    /// The last 50 changes of labels, assignees and state, oldest first.
    pub acts: Vec<VerifiedAct>,
    /// The last 50 comments, oldest first.
    pub comments: Vec<VerifiedComment>,
    /// How many comments there are in all.
    pub comments_total: u64,
    /// The name of the default branch.
    pub default_branch: String,
    /// The commit at the tip of the base; `None` if there is no such branch.
    pub base_commit: Option<String>,
}

/// A change of labels, assignees or state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAct {
    /// `labeled`, `unlabeled`, `assigned`, `unassigned`, `closed` or `reopened`.
    pub action: &'static str,
    /// The label's name.
    pub label: Option<String>,
    /// The assignee's id.
    pub assignee: Option<u64>,
    /// The id of who did it; 0 if GitHub does not say.
    pub actor_id: u64,
    /// The login of who did it.
    pub actor: String,
    /// When.
    pub at: Timestamp,
}

/// A comment as verification sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedComment {
    /// Its id.
    pub id: u64,
    /// The text.
    pub body: String,
    /// Who wrote it.
    pub author: GitHubAccount,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was last edited.
    pub edited_at: Option<Timestamp>,
    /// Who edited it last.
    pub editor: Option<GitHubAccount>,
    /// Whether it is hidden.
    pub is_minimized: bool,
}
