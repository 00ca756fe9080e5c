//! What GitHub answers: only what is used, and nothing that GitHub may leave out is needed.

use std::collections::BTreeMap;

use crate::types::{DeliveryId, IssueNumber, Repository, Timestamp};

/// Where a list goes on: [`PageCursor::FIRST`], or what the last page named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageCursor(pub Option<String>);

impl PageCursor {
    /// The beginning of a list.
    pub const FIRST: Self = Self(None);
}

/// How we authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityKind {
    /// As a GitHub App, by its id.
    App(u64),
    /// As the user of a token.
    Token,
}

/// Who we are at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubIdentity {
    /// How we authenticate.
    pub kind: IdentityKind,
    /// The account that our comments have: the App's bot or the token's user.
    pub user_id: u64,
    /// Its login, such as `issuebox[bot]`.
    pub login: String,
    /// The App's short name; for a token its user's login.
    pub slug: String,
    /// When the token expires, if GitHub said so.
    pub token_expires_at: Option<Timestamp>,
}

impl GitHubIdentity {
    /// Whether something was done by us: by our account, or by way of our App.
    pub fn is_ours(&self, user_id: u64, via_app: Option<u64>) -> bool {
        let by_app = matches!(self.kind, IdentityKind::App(id) if via_app == Some(id));
        user_id == self.user_id || by_app
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubAccount {
    /// Its id; 0 for a deleted account.
    pub id: u64,
    /// Its login; empty for a deleted account.
    pub login: String,
}

/// An issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubIssue {
    /// The global id.
    pub id: u64,
    /// The number in its repository.
    pub number: IssueNumber,
    /// The title.
    pub title: String,
    /// Whether it is open.
    pub is_open: bool,
    /// Whether its conversation is locked.
    pub is_locked: bool,
    /// Whether it is a pull request.
    pub is_pull: bool,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// The ids of its assignees.
    pub assignees: Vec<u64>,
    /// Who opened it.
    pub author: GitHubAccount,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The repository, where the answer named it.
    pub repository: Option<Repository>,
}

/// A comment on an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubComment {
    /// Its id.
    pub id: u64,
    /// Who wrote it.
    pub author: GitHubAccount,
    /// The App by way of which it was written.
    pub via_app: Option<u64>,
    /// The text.
    pub body: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was last edited.
    pub updated_at: Timestamp,
    /// Its page.
    pub html_url: String,
}

/// A remark of a review on a file of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewComment {
    /// The file.
    pub path: String,
    /// The line in it; `None` for a remark on the whole file.
    pub line: Option<u64>,
    /// The part of the diff that it is about, which ends at the line.
    pub hunk: String,
    /// The text.
    pub body: String,
}

/// The state of a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// Open.
    Open,
    /// Closed without a merge.
    Closed,
    /// Merged.
    Merged,
}

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubPull {
    /// Its number.
    pub number: IssueNumber,
    /// Its state.
    pub state: PullState,
    /// Whether it is a draft.
    pub is_draft: bool,
    /// The title.
    pub title: String,
    /// The text.
    pub body: String,
    /// The commit at its head.
    pub head_commit: String,
    /// The branch that it is to be merged into.
    pub base: String,
    /// Who opened it.
    pub author: GitHubAccount,
    /// Its page.
    pub html_url: String,
}

/// What a login may do in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPermission {
    /// The account that the login has now.
    pub user_id: u64,
    /// `admin`, `write`, `read` or `none`.
    pub permission: String,
    /// The role's name, such as `triage`, `maintain` or one of the organisation's own.
    pub role: String,
}

/// A repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubRepository {
    /// Its id.
    pub id: u64,
    /// Its name now.
    pub name: Repository,
    /// The default branch.
    pub default_branch: String,
    /// Whether it is private.
    pub is_private: bool,
    /// Whether it is archived.
    pub is_archived: bool,
    /// Its size by GitHub's account, in KiB.
    pub size_kib: u64,
}

/// What a commit has at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitHubFile {
    /// A file of at most 1 MiB.
    Content(Vec<u8>),
    /// A larger file, of so many bytes.
    TooLarge(u64),
    /// No file: a directory, a submodule, or a link to what is no file.
    Other,
}

/// An installation of the App.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Its id.
    pub id: u64,
    /// The account that it is installed on.
    pub account: GitHubAccount,
    /// What it was granted: `issues` → `write`.
    pub permissions: BTreeMap<String, String>,
    /// The events that it sends: `issues`.
    pub events: Vec<String>,
    /// Whether it is suspended.
    pub is_suspended: bool,
    /// Its settings, where permissions are accepted.
    pub html_url: String,
}

/// A repository's webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubHook {
    /// Its id.
    pub id: u64,
    /// Where it sends to.
    pub url: String,
}

/// A delivery in GitHub's delivery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedDelivery {
    /// The id of this attempt, for its body.
    pub id: u64,
    /// The GUID, shared with all attempts.
    pub guid: DeliveryId,
    /// When it was sent.
    pub delivered_at: Timestamp,
    /// The event, such as `issues`.
    pub event: String,
    /// The action, such as `labeled`.
    pub action: Option<String>,
    /// The repository, where it has one.
    pub repository_id: Option<u64>,
}

/// A page of the delivery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryLogPage {
    /// The deliveries, newest first.
    pub deliveries: Vec<LoggedDelivery>,
    /// Where it goes on.
    pub next: Option<PageCursor>,
}

/// A delivery with what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDelivery {
    /// The GUID.
    pub guid: DeliveryId,
    /// The event.
    pub event: String,
    /// When it was sent.
    pub delivered_at: Timestamp,
    /// The payload as JSON; `None` if GitHub does not have it any more.
    pub payload: Option<String>,
}
