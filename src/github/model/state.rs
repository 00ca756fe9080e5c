//! What the in-memory GitHub knows: accounts, repositories, issues, and what happened to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::Notify;

use super::ModelCall;
use super::auth::ModelToken;
use super::faults::ModelFault;
use super::hooks::{DeliveryRecord, HookDoor, HookRecord};
use super::limits::ModelLimits;
use super::oauth::OauthCode;

/// What tokens may do: a permission and its level, `read` or `write`.
pub(super) type PermissionLevels = BTreeMap<String, String>;

/// A user, organisation or bot.
#[derive(Clone, Debug)]
pub(super) struct UserRecord {
    pub login: String,
    /// `User`, `Organization` or `Bot`.
    pub kind: &'static str,
    /// Whether the membership is private, so that `author_association` does not show it.
    pub hides_membership: bool,
}

/// The App.
#[derive(Debug)]
pub(super) struct AppRecord {
    pub id: u64,
    pub slug: String,
    pub owner: u64,
    pub bot: u64,
    pub key: &'static str,
    pub permissions: PermissionLevels,
    pub events: Vec<String>,
    pub secret: String,
    pub created: Timestamp,
}

/// An installation of the App.
#[derive(Debug)]
pub(super) struct InstallationRecord {
    pub account: u64,
    /// The selected repositories; `None` for all of the account.
    pub repositories: Option<BTreeSet<u64>>,
    pub permissions: PermissionLevels,
    pub suspended: Option<Timestamp>,
    pub created: Timestamp,
}

/// A label of an issue. Its case is kept and does not matter.
#[derive(Clone, Debug)]
pub(super) struct LabelRecord {
    pub id: u64,
    pub name: String,
}

/// A reaction to an issue or a comment.
#[derive(Clone, Debug)]
pub(super) struct ReactionRecord {
    pub id: u64,
    pub user: u64,
    pub content: String,
    pub at: Timestamp,
}

/// Text that people write and edit.
#[derive(Clone, Debug)]
pub(super) struct TextRecord {
    pub body: String,
    pub author: u64,
    pub via_app: bool,
    pub created: Timestamp,
    pub updated: Timestamp,
    pub edited: Option<(Timestamp, u64)>,
    pub reactions: Vec<ReactionRecord>,
}

/// A comment on an issue.
#[derive(Clone, Debug)]
pub(super) struct CommentRecord {
    pub id: u64,
    pub text: TextRecord,
    pub minimized: bool,
}

/// An entry of an issue's timeline.
#[derive(Clone, Debug)]
pub(super) struct EventRecord {
    pub id: u64,
    /// As REST names it: `labeled`, `assigned`, `closed`, ….
    pub kind: &'static str,
    pub actor: u64,
    pub at: Timestamp,
    /// The label's name, or the account that was assigned.
    pub label: Option<LabelRecord>,
    pub assignee: Option<u64>,
}

/// A review of a pull request.
#[derive(Clone, Debug)]
pub(super) struct ReviewRecord {
    pub id: u64,
    pub author: u64,
    pub state: String,
    pub body: String,
    pub commit: String,
    pub at: Timestamp,
    pub remarks: Vec<RemarkRecord>,
}

/// A remark of a review on a line of a file.
#[derive(Clone, Debug)]
pub(super) struct RemarkRecord {
    pub id: u64,
    pub path: String,
    pub hunk: String,
    pub body: String,
}

/// What a pull request has beside its issue.
#[derive(Clone, Debug)]
pub(super) struct PullRecord {
    pub head: String,
    /// The tip of the head when it was last seen.
    pub head_sha: String,
    pub base: String,
    pub draft: bool,
    pub merged: Option<Timestamp>,
    pub reviews: Vec<ReviewRecord>,
}

/// An issue or a pull request.
#[derive(Clone, Debug)]
pub(super) struct IssueRecord {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub text: TextRecord,
    pub closed: Option<(Timestamp, u64)>,
    pub reason: Option<&'static str>,
    pub locked: bool,
    pub labels: Vec<LabelRecord>,
    pub assignees: Vec<u64>,
    pub comments: Vec<CommentRecord>,
    pub events: Vec<EventRecord>,
    pub pull: Option<PullRecord>,
}

/// A commit status.
#[derive(Clone, Debug)]
pub(super) struct StatusRecord {
    pub id: u64,
    pub sha: String,
    pub creator: u64,
    pub state: String,
    pub context: String,
    pub description: Option<String>,
    pub target_url: Option<String>,
    pub at: Timestamp,
}

/// A repository.
#[derive(Debug)]
pub(super) struct RepositoryRecord {
    pub owner: u64,
    pub name: String,
    pub private: bool,
    pub archived: bool,
    pub refuses_drafts: bool,
    pub size_kib: u64,
    pub default_branch: String,
    /// Roles by account: `read`, `triage`, `write`, `maintain`, `admin`.
    pub roles: BTreeMap<u64, String>,
    pub issues: BTreeMap<u64, IssueRecord>,
    pub last_number: u64,
    pub label_ids: BTreeMap<String, u64>,
    /// Types of rules by branch, such as `required_signatures`.
    pub rules: BTreeMap<String, Vec<String>>,
    pub hooks: BTreeMap<u64, HookRecord>,
    pub statuses: Vec<StatusRecord>,
    pub created: Timestamp,
}

/// Everything, behind one lock.
pub(super) struct ModelState {
    /// `http://127.0.0.1:PORT`.
    pub base: String,
    pub git_root: PathBuf,
    /// How far this GitHub's clock is ahead of the system's.
    pub clock_ahead: SignedDuration,
    last_id: u64,
    pub app: AppRecord,
    pub users: BTreeMap<u64, UserRecord>,
    pub installations: BTreeMap<u64, InstallationRecord>,
    pub tokens: BTreeMap<String, ModelToken>,
    pub repositories: BTreeMap<u64, RepositoryRecord>,
    /// Names before renames and transfers, in lower case.
    pub former_names: BTreeMap<String, u64>,
    pub moved_issues: BTreeMap<(u64, u64), (u64, u64)>,
    pub deleted_issues: BTreeSet<(u64, u64)>,
    /// Manifests whose page is shown: who would own the App, the manifest, and the state.
    pub drafts: BTreeMap<u64, (u64, Value, String)>,
    /// Apps that were made of manifests, by the code for their conversion: the owner, the manifest.
    pub manifests: BTreeMap<String, (u64, Value)>,
    /// The App's client id and client secret.
    pub client: (String, String),
    /// Where the App's log-ins lead back to.
    pub callback: String,
    /// Who is at the browser.
    pub browsing: Option<u64>,
    /// The codes of log-ins that were not exchanged.
    pub login_codes: BTreeMap<String, OauthCode>,
    /// The members of organisations.
    pub members: BTreeSet<(u64, u64)>,
    pub door: HookDoor,
    pub deliveries: Vec<DeliveryRecord>,
    /// Wakes what sends deliveries.
    pub wake: Arc<Notify>,
    /// What signed addresses of LFS objects allow: a repository, and whether to upload.
    pub lfs_tickets: BTreeMap<String, (u64, bool)>,
    pub limits: ModelLimits,
    pub faults: Vec<ModelFault>,
    pub calls: Vec<ModelCall>,
    pub violations: Vec<String>,
}

/// The permissions of the App, and of an installation that accepted them all.
pub(super) static ALL_PERMISSIONS: LazyLock<PermissionLevels> = LazyLock::new(|| {
    let write = ["contents", "issues", "pull_requests", "statuses", "workflows"];
    let write = write.map(|name| (name.to_owned(), "write".to_owned()));
    write.into_iter().chain([("metadata".to_owned(), "read".to_owned())]).collect()
});

/// The App's client id.
const CLIENT_ID: &str = "Iv1.0123456789abcdef";
/// The App's client secret.
const CLIENT_SECRET: &str = "model-client-secret";

/// The events to which the App subscribes. Those of installations come without asking.
const APP_EVENTS: [&str; 6] =
    ["issues", "issue_comment", "label", "repository", "pull_request_review", "check_run"];

impl ModelState {
    pub fn new(base: String, git_root: PathBuf) -> Self {
        let app = AppRecord {
            id: 424_242,
            slug: "issuebox-model".to_owned(),
            owner: 71_000_001,
            bot: 71_000_150,
            key: super::APP_KEY,
            permissions: ALL_PERMISSIONS.clone(),
            events: APP_EVENTS.map(str::to_owned).to_vec(),
            secret: "model-webhook-secret".to_owned(),
            created: second(Timestamp::now()),
        };
        let mut state = Self {
            base,
            git_root,
            clock_ahead: SignedDuration::ZERO,
            last_id: 5_000_000_000,
            users: BTreeMap::new(),
            installations: BTreeMap::new(),
            tokens: BTreeMap::new(),
            repositories: BTreeMap::new(),
            former_names: BTreeMap::new(),
            moved_issues: BTreeMap::new(),
            deleted_issues: BTreeSet::new(),
            drafts: BTreeMap::new(),
            manifests: BTreeMap::new(),
            client: (CLIENT_ID.to_owned(), CLIENT_SECRET.to_owned()),
            callback: "http://127.0.0.1".to_owned(),
            browsing: None,
            login_codes: BTreeMap::new(),
            members: BTreeSet::new(),
            door: HookDoor::Closed,
            deliveries: Vec::new(),
            wake: Arc::default(),
            lfs_tickets: BTreeMap::new(),
            limits: ModelLimits::default(),
            faults: Vec::new(),
            calls: Vec::new(),
            violations: Vec::new(),
            app,
        };
        let (owner, bot) = (state.app.owner, state.app.bot);
        state.insert_user(owner, "model-owner", "Organization");
        let login = format!("{}[bot]", state.app.slug);
        state.insert_user(bot, &login, "Bot");
        state
    }

    /// This GitHub's time, in whole seconds as its API shows it.
    pub fn now(&self) -> Timestamp {
        second(Timestamp::now() + self.clock_ahead)
    }

    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub fn insert_user(&mut self, id: u64, login: &str, kind: &'static str) {
        self.users
            .insert(id, UserRecord { login: login.to_owned(), kind, hides_membership: false });
    }

    /// The id of a login, in any case.
    pub fn user_id(&self, login: &str) -> Option<u64> {
        let mut users = self.users.iter();
        users.find(|(_, user)| user.login.eq_ignore_ascii_case(login)).map(|(id, _)| *id)
    }

    /// The id of a login; the account is created where there is none.
    pub fn user_or_new(&mut self, login: &str, kind: &'static str) -> u64 {
        self.user_id(login).unwrap_or_else(|| {
            let id = self.next_id();
            self.insert_user(id, login, kind);
            id
        })
    }

    /// The login of an account.
    pub fn login(&self, id: u64) -> &str {
        self.users.get(&id).map_or("ghost", |user| &user.login)
    }

    /// `owner/name` of a repository.
    pub fn full_name(&self, repository: u64) -> String {
        let found = &self.repositories[&repository];
        format!("{}/{}", self.login(found.owner), found.name)
    }

    /// The repository that has this full name now.
    pub fn repository_named(&self, full_name: &str) -> Option<u64> {
        let mut ids = self.repositories.keys();
        ids.find(|id| self.full_name(**id).eq_ignore_ascii_case(full_name)).copied()
    }

    /// The installation that covers a repository.
    pub fn installation_of(&self, repository: u64) -> Option<u64> {
        let owner = self.repositories.get(&repository)?.owner;
        let mut installations = self.installations.iter();
        let covers = |found: &InstallationRecord| {
            let selected = found.repositories.as_ref();
            found.account == owner && selected.is_none_or(|ids| ids.contains(&repository))
        };
        installations.find(|(_, found)| covers(found)).map(|(id, _)| *id)
    }

    /// An account's role in a repository: the one it was given, or `admin` of its owner.
    pub fn role(&self, repository: u64, user: u64) -> Option<&str> {
        let found = self.repositories.get(&repository)?;
        let given = found.roles.get(&user).map(String::as_str);
        given.or_else(|| (found.owner == user).then_some("admin"))
    }

    /// A text written now.
    pub fn new_text(&self, author: u64, body: &str, via_app: bool) -> TextRecord {
        let now = self.now();
        TextRecord {
            body: body.to_owned(),
            author,
            via_app,
            created: now,
            updated: now,
            edited: None,
            reactions: Vec::new(),
        }
    }

    /// Opens an issue, or the issue of a pull request.
    pub fn new_issue(
        &mut self,
        repository: u64,
        author: u64,
        title: &str,
        body: &str,
        pull: Option<PullRecord>,
    ) -> u64 {
        let via_app = author == self.app.bot;
        let (id, text) = (self.next_id(), self.new_text(author, body, via_app));
        let found = self.repository_mut(repository);
        found.last_number += 1;
        let number = found.last_number;
        let issue = IssueRecord {
            id,
            number,
            title: title.to_owned(),
            text,
            closed: None,
            reason: None,
            locked: false,
            labels: Vec::new(),
            assignees: Vec::new(),
            comments: Vec::new(),
            events: Vec::new(),
            pull,
        };
        found.issues.insert(number, issue);
        number
    }

    pub fn repository_mut(&mut self, id: u64) -> &mut RepositoryRecord {
        self.repositories.get_mut(&id).expect("a repository is never removed")
    }

    pub fn issue(&self, (repository, number): (u64, u64)) -> Option<&IssueRecord> {
        self.repositories.get(&repository)?.issues.get(&number)
    }

    pub fn issue_mut(&mut self, (repository, number): (u64, u64)) -> Option<&mut IssueRecord> {
        self.repositories.get_mut(&repository)?.issues.get_mut(&number)
    }

    /// The issue and place of a comment.
    pub fn find_comment(&self, repository: u64, id: u64) -> Option<(u64, usize)> {
        self.repositories.get(&repository)?.issues.iter().find_map(|(number, issue)| {
            let at = issue.comments.iter().position(|comment| comment.id == id)?;
            Some((*number, at))
        })
    }

    /// The label of that name in a repository; created where there is none.
    pub fn label(&mut self, repository: u64, name: &str) -> LabelRecord {
        let fresh = self.next_id();
        let labels = &mut self.repository_mut(repository).label_ids;
        let known = labels.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        match known {
            Some((name, id)) => LabelRecord { id: *id, name: name.clone() },
            None => {
                labels.insert(name.to_owned(), fresh);
                LabelRecord { id: fresh, name: name.to_owned() }
            }
        }
    }
}

/// Without the part below a second.
pub(super) fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
