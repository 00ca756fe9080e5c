//! GitHub's JSON, as far as it is used. What GitHub may leave out has a default, and unknown fields
//! are ignored.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[cfg(test)]
use crate::sabotage::{Bug, on};
use crate::types::{DeliveryId, IssueNumber, Repository, Timestamp};

use super::super::api::{
    GitHubAccount, GitHubComment, GitHubError, GitHubFile, GitHubHook, GitHubIssue, GitHubPull,
    GitHubRepository, Installation, LoggedDelivery, LoginPermission, PullState, ReviewComment,
    StoredDelivery,
};

/// Reads an answer's body.
///
/// # Errors
/// [`GitHubError::Unknown`] if it has another form: the call may well have been carried out.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, GitHubError> {
    serde_json::from_slice(body)
        .map_err(|error| GitHubError::Unknown(format!("GitHub's answer cannot be read: {error}")))
}

#[derive(Default, Deserialize)]
pub(super) struct WireAccount {
    #[serde(default)]
    id: u64,
    #[serde(default)]
    login: String,
}

impl From<WireAccount> for GitHubAccount {
    fn from(wire: WireAccount) -> Self {
        Self { id: wire.id, login: wire.login }
    }
}

fn account(wire: Option<WireAccount>) -> GitHubAccount {
    wire.unwrap_or_default().into()
}

/// A time of an answer; the beginning of time if there is none.
fn time(text: Option<&str>) -> Timestamp {
    text.and_then(Timestamp::parse).unwrap_or(Timestamp::from_unix_ms(0))
}

#[derive(Deserialize)]
struct WireNamed {
    #[serde(default)]
    name: String,
}

/// A label is an object, or just its name.
#[derive(Deserialize)]
#[serde(untagged)]
enum WireLabel {
    Named(WireNamed),
    Name(String),
}

#[derive(Deserialize)]
pub(super) struct WireIssue {
    id: u64,
    number: u64,
    #[serde(default)]
    title: String,
    state: String,
    #[serde(default)]
    locked: bool,
    pull_request: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    labels: Vec<WireLabel>,
    assignees: Option<Vec<WireAccount>>,
    user: Option<WireAccount>,
    updated_at: Option<String>,
    repository_url: Option<String>,
}

impl From<WireIssue> for GitHubIssue {
    fn from(wire: WireIssue) -> Self {
        let label = |label: WireLabel| match label {
            WireLabel::Named(WireNamed { name }) | WireLabel::Name(name) => name,
        };
        let repository = wire.repository_url.as_deref().and_then(|url| {
            let (_, name) = url.rsplit_once("/repos/")?;
            Repository::parse(name).ok()
        });
        Self {
            id: wire.id,
            number: IssueNumber(wire.number),
            title: wire.title,
            is_open: wire.state == "open",
            is_locked: wire.locked,
            is_pull: wire.pull_request.is_some(),
            labels: wire.labels.into_iter().map(label).collect(),
            assignees: wire.assignees.into_iter().flatten().map(|user| user.id).collect(),
            author: account(wire.user),
            updated_at: time(wire.updated_at.as_deref()),
            repository,
        }
    }
}

#[derive(Deserialize)]
struct WireId {
    id: u64,
}

#[derive(Deserialize)]
pub(super) struct WireComment {
    id: u64,
    user: Option<WireAccount>,
    performed_via_github_app: Option<WireId>,
    body: Option<String>,
    created_at: Option<String>,
    updated_at: Option<String>,
    #[serde(default)]
    html_url: String,
}

impl From<WireComment> for GitHubComment {
    fn from(wire: WireComment) -> Self {
        Self {
            id: wire.id,
            author: account(wire.user),
            via_app: wire.performed_via_github_app.map(|app| app.id),
            body: wire.body.unwrap_or_default(),
            created_at: time(wire.created_at.as_deref()),
            updated_at: time(wire.updated_at.as_deref()),
            html_url: wire.html_url,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct WireReviewComment {
    path: String,
    #[serde(default)]
    diff_hunk: String,
    body: Option<String>,
    line: Option<u64>,
    original_line: Option<u64>,
    side: Option<String>,
    /// `file` for a remark on a whole file.
    subject_type: Option<String>,
}

impl From<WireReviewComment> for ReviewComment {
    fn from(wire: WireReviewComment) -> Self {
        // GitHub leaves the line out in some of its answers. The hunk ends with it.
        let is_old_side = wire.side.as_deref() == Some("LEFT");
        let by_hunk = || last_line(&wire.diff_hunk, is_old_side);
        let line = match wire.subject_type.as_deref() {
            Some("file") => None,
            _ => wire.line.or(wire.original_line).or_else(by_hunk),
        };
        Self { path: wire.path, line, hunk: wire.diff_hunk, body: wire.body.unwrap_or_default() }
    }
}

/// The number that the last line of a hunk has, in the old or the new file.
fn last_line(hunk: &str, in_old: bool) -> Option<u64> {
    let (head, lines) = hunk.split_once('\n')?;
    let mark = if in_old { '-' } else { '+' };
    // "@@ -1,5 +2,7 @@ …"
    let range = head.split_whitespace().skip(1).find(|part| part.starts_with(mark))?;
    let first: u64 = range[1..].split(',').next()?.parse().ok()?;
    let other = if in_old { '+' } else { '-' };
    let count = lines.lines().filter(|line| !line.starts_with([other, '\\'])).count();
    first.checked_add(u64::try_from(count).ok()?)?.checked_sub(1)
}

#[derive(Default, Deserialize)]
struct WireBranch {
    #[serde(rename = "ref", default)]
    name: String,
    #[serde(default)]
    sha: String,
}

#[derive(Deserialize)]
pub(super) struct WirePull {
    number: u64,
    state: String,
    merged_at: Option<String>,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    title: String,
    body: Option<String>,
    #[serde(default)]
    head: WireBranch,
    #[serde(default)]
    base: WireBranch,
    user: Option<WireAccount>,
    #[serde(default)]
    html_url: String,
}

impl From<WirePull> for GitHubPull {
    fn from(wire: WirePull) -> Self {
        let state = match (wire.state.as_str(), &wire.merged_at) {
            (_, Some(_)) => PullState::Merged,
            ("open", None) => PullState::Open,
            (_, None) => PullState::Closed,
        };
        Self {
            number: IssueNumber(wire.number),
            state,
            is_draft: wire.draft,
            title: wire.title,
            body: wire.body.unwrap_or_default(),
            head_commit: wire.head.sha,
            base: wire.base.name,
            author: account(wire.user),
            html_url: wire.html_url,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct WirePermission {
    #[serde(default)]
    permission: String,
    #[serde(default)]
    role_name: String,
    user: Option<WireAccount>,
}

impl From<WirePermission> for LoginPermission {
    fn from(wire: WirePermission) -> Self {
        let user_id = account(wire.user).id;
        Self { user_id, permission: wire.permission, role: wire.role_name }
    }
}

#[derive(Deserialize)]
pub(super) struct WireRepository {
    id: u64,
    full_name: String,
    #[serde(default)]
    default_branch: String,
    #[serde(default)]
    private: bool,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    size: u64,
}

impl WireRepository {
    /// # Errors
    /// [`GitHubError::Unknown`] if its name is none.
    pub fn read(self) -> Result<GitHubRepository, GitHubError> {
        let name = Repository::parse(&self.full_name)
            .map_err(|error| GitHubError::Unknown(error.to_string()))?;
        Ok(GitHubRepository {
            id: self.id,
            name,
            default_branch: self.default_branch,
            is_private: self.private,
            is_archived: self.archived,
            size_kib: self.size,
        })
    }
}

#[derive(Deserialize)]
pub(super) struct WireRepositories {
    pub repositories: Vec<WireRepository>,
}

#[derive(Deserialize)]
pub(super) struct WireInstallation {
    id: u64,
    account: Option<WireAccount>,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    events: Vec<String>,
    suspended_at: Option<String>,
    #[serde(default)]
    html_url: String,
}

impl From<WireInstallation> for Installation {
    fn from(wire: WireInstallation) -> Self {
        Self {
            id: wire.id,
            account: account(wire.account),
            permissions: wire.permissions,
            events: wire.events,
            is_suspended: wire.suspended_at.is_some(),
            html_url: wire.html_url,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct WireToken {
    pub token: String,
    pub expires_at: String,
}

#[derive(Deserialize)]
pub(super) struct WireApp {
    pub id: u64,
    pub slug: String,
}

#[derive(Deserialize)]
pub(super) struct WireUser {
    pub id: u64,
    pub login: String,
}

#[derive(Deserialize)]
struct WireObject {
    sha: String,
}

/// What is at a path and is no directory.
#[derive(Deserialize)]
struct WireFile {
    #[serde(rename = "type")]
    kind: String,
    size: u64,
    #[serde(default)]
    encoding: String,
    #[serde(default)]
    content: String,
}

/// What is at a path.
///
/// # Errors
/// As for [`read`].
pub(super) fn file(body: &[u8]) -> Result<GitHubFile, GitHubError> {
    let value: Value = read(body)?;
    // A directory is a list.
    if value.is_array() {
        return Ok(GitHubFile::Other);
    }
    let WireFile { kind, size, encoding, mut content } = read(body)?;
    if kind != "file" {
        return Ok(GitHubFile::Other);
    }
    // Of a file above 1 MiB GitHub gives the size alone.
    if encoding != "base64" {
        return Ok(GitHubFile::TooLarge(size));
    }
    content.retain(|c| !c.is_ascii_whitespace());
    BASE64_STANDARD
        .decode(content)
        .map(GitHubFile::Content)
        .map_err(|error| GitHubError::Unknown(format!("GitHub's answer cannot be read: {error}")))
}

#[derive(Deserialize)]
pub(super) struct WireRef {
    object: WireObject,
}

impl WireRef {
    pub fn commit(self) -> String {
        self.object.sha
    }
}

#[derive(Default, Deserialize)]
struct WireHookConfig {
    #[serde(default)]
    url: String,
}

#[derive(Deserialize)]
pub(super) struct WireHook {
    id: u64,
    #[serde(default)]
    config: WireHookConfig,
}

impl From<WireHook> for GitHubHook {
    fn from(wire: WireHook) -> Self {
        Self { id: wire.id, url: wire.config.url }
    }
}

#[derive(Deserialize)]
pub(super) struct WireDelivery {
    id: u64,
    guid: String,
    delivered_at: Option<String>,
    #[serde(default)]
    event: String,
    action: Option<String>,
    repository_id: Option<u64>,
    /// What became of it, as GitHub believes: read by a deliberate bug alone.
    #[cfg(test)]
    #[serde(default)]
    status_code: u16,
    request: Option<WireDelivered>,
}

#[derive(Deserialize)]
struct WireDelivered {
    payload: Option<Value>,
}

impl WireDelivery {
    /// As the log shows it; `None` if its GUID is none.
    pub fn logged(self) -> Option<LoggedDelivery> {
        #[cfg(test)]
        if on(Bug::LogStatusBelieved) && (200..300).contains(&self.status_code) {
            return None;
        }
        Some(LoggedDelivery {
            id: self.id,
            guid: DeliveryId::parse(&self.guid).ok()?,
            delivered_at: time(self.delivered_at.as_deref()),
            event: self.event,
            action: self.action,
            repository_id: self.repository_id,
        })
    }

    /// With what was sent.
    ///
    /// # Errors
    /// [`GitHubError::Unknown`] if its GUID is none.
    pub fn stored(self) -> Result<StoredDelivery, GitHubError> {
        let guid = DeliveryId::parse(&self.guid)
            .map_err(|error| GitHubError::Unknown(error.to_string()))?;
        let payload = self.request.and_then(|request| request.payload);
        Ok(StoredDelivery {
            guid,
            event: self.event,
            delivered_at: time(self.delivered_at.as_deref()),
            payload: payload.map(|payload| payload.to_string()),
        })
    }
}
