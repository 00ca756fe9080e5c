//! What a test makes and what people do, through the handle. Repositories are named `owner/name` as
//! they are called now, accounts by login; an account that is not there is made. An unknown repository,
//! issue or comment is a mistake of the test, and a panic.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::GithubModel;
use super::auth::{ModelCaller, ModelToken, new_token_value};
use super::git::PushRecord;
use super::hooks::{self, HookDoor, HookRecord};
use super::state::{
    ALL_PERMISSIONS, InstallationRecord, ModelState, PermissionLevels, RepositoryRecord,
};

/// A repository's full name and the number of an issue in it.
pub type IssueAt<'a> = (&'a str, u64);

fn levels(permissions: &[(&str, &str)]) -> PermissionLevels {
    permissions.iter().map(|(name, level)| ((*name).to_owned(), (*level).to_owned())).collect()
}

impl ModelState {
    fn known(&self, repository: &str) -> u64 {
        self.repository_named(repository).unwrap_or_else(|| panic!("no repository {repository}"))
    }

    fn place(&self, (repository, number): IssueAt<'_>) -> (u64, u64) {
        let place = (self.known(repository), number);
        assert!(self.issue(place).is_some(), "no issue {repository}#{number}");
        place
    }

    fn person(&mut self, login: &str) -> u64 {
        self.user_or_new(login, "User")
    }

    /// Makes a token of a user: classic without permissions of its own.
    pub(super) fn new_user_token(
        &mut self,
        user: u64,
        permissions: Option<PermissionLevels>,
    ) -> String {
        let kind = if permissions.is_some() { "github_pat_" } else { "ghp_" };
        let value = format!("{kind}{}", &new_token_value(0)[40..80]);
        let caller = ModelCaller::User(user);
        let token =
            ModelToken { caller, repositories: None, permissions, expires: None, revoked: false };
        self.tokens.insert(value.clone(), token);
        value
    }
}

/// Setting up.
impl GithubModel {
    /// The App's id, its slug and the secret of its webhook.
    #[must_use]
    pub fn app(&self) -> (u64, String, String) {
        let state = self.state();
        (state.app.id, state.app.slug.clone(), state.app.secret.clone())
    }

    /// The account as which the App acts: id and login, `slug[bot]`.
    #[must_use]
    pub fn bot(&self) -> (u64, String) {
        let state = self.state();
        (state.app.bot, state.login(state.app.bot).to_owned())
    }

    /// The App's private key is another one from now on; see [`APP_KEY`](super::APP_KEY).
    pub fn replace_key(&self, pem: &'static str) {
        self.state().app.key = pem;
    }

    /// Takes a manifest as GitHub's page does after its button was pressed; gives the code for its
    /// conversion.
    pub fn approve_manifest(&self, manifest: Value) -> String {
        let mut state = self.state();
        let owner = state.app.owner;
        state.approve(owner, manifest)
    }

    /// The account of a login; gives its id.
    pub fn user(&self, login: &str) -> u64 {
        self.state().person(login)
    }

    /// The membership of an account is private: `author_association` does not show it.
    pub fn hide_membership(&self, login: &str) {
        let mut state = self.state();
        let id = state.person(login);
        if let Some(user) = state.users.get_mut(&id) {
            user.hides_membership = true;
        }
    }

    /// An account has another login from now on.
    pub fn rename_user(&self, login: &str, new: &str) {
        let mut state = self.state();
        let id = state.person(login);
        if let Some(user) = state.users.get_mut(&id) {
            new.clone_into(&mut user.login);
        }
    }

    /// A public repository of an organisation, with one commit on `main`; gives its id.
    pub fn repository(&self, full_name: &str) -> u64 {
        let (owner, name) = full_name.split_once('/').expect("a full name has a slash");
        let mut state = self.state();
        let (owner, id) = (state.user_or_new(owner, "Organization"), state.next_id());
        let record = RepositoryRecord {
            owner,
            name: name.to_owned(),
            private: false,
            archived: false,
            refuses_drafts: false,
            size_kib: 100,
            default_branch: "main".to_owned(),
            roles: BTreeMap::new(),
            issues: BTreeMap::new(),
            last_number: 0,
            label_ids: BTreeMap::new(),
            rules: BTreeMap::new(),
            hooks: BTreeMap::new(),
            statuses: Vec::new(),
            created: state.now(),
        };
        state.repositories.insert(id, record);
        id
    }

    fn change(&self, repository: &str, change: impl FnOnce(&mut RepositoryRecord)) {
        let mut state = self.state();
        let id = state.known(repository);
        change(state.repository_mut(id));
    }

    /// Makes a repository private or public.
    pub fn set_private(&self, repository: &str, private: bool) {
        self.change(repository, |found| found.private = private);
    }

    /// Archives a repository: nothing can be written to it.
    pub fn set_archived(&self, repository: &str, archived: bool) {
        self.change(repository, |found| found.archived = archived);
    }

    /// Refuses drafts, as private repositories of small plans do.
    pub fn refuse_drafts(&self, repository: &str) {
        self.change(repository, |found| found.refuses_drafts = true);
    }

    /// The size that GitHub shows, in KiB.
    pub fn set_size(&self, repository: &str, kib: u64) {
        self.change(repository, |found| found.size_kib = kib);
    }

    /// A rule of a branch, such as `required_signatures`.
    pub fn add_rule(&self, repository: &str, branch: &str, kind: &str) {
        self.change(repository, |found| {
            found.rules.entry(branch.to_owned()).or_default().push(kind.to_owned());
        });
    }

    /// An account's role: `read`, `triage`, `write`, `maintain`, `admin`; `none` takes it away.
    pub fn set_role(&self, repository: &str, login: &str, role: &str) {
        let user = self.user(login);
        self.change(repository, |found| match role {
            "none" => drop(found.roles.remove(&user)),
            _ => drop(found.roles.insert(user, role.to_owned())),
        });
    }

    /// A hook of a repository, for servers without an App; gives its id.
    pub fn add_hook(&self, repository: &str, url: &str, events: &[&str]) -> u64 {
        let mut state = self.state();
        let (repository, id, created) = (state.known(repository), state.next_id(), state.now());
        let events = events.iter().map(|event| (*event).to_owned()).collect();
        let hook = HookRecord { url: url.to_owned(), events, created };
        state.repository_mut(repository).hooks.insert(id, hook);
        id
    }

    /// Installs the App on all repositories of an account, with all permissions; gives the id.
    pub fn install(&self, account: &str) -> u64 {
        self.install_with(account, None, None)
    }

    /// Installs the App on selected repositories (`owner/name`) or with other permissions.
    pub fn install_with(
        &self,
        account: &str,
        repositories: Option<&[&str]>,
        permissions: Option<&[(&str, &str)]>,
    ) -> u64 {
        let mut state = self.state();
        let ids = repositories.map(|names| names.iter().map(|name| state.known(name)).collect());
        let record = InstallationRecord {
            account: state.user_or_new(account, "Organization"),
            repositories: ids,
            permissions: permissions.map_or_else(|| ALL_PERMISSIONS.clone(), levels),
            suspended: None,
            created: state.now(),
        };
        let id = state.next_id();
        state.installations.insert(id, record);
        state.deliver_installation("created", id, json!({}));
        id
    }

    /// The installation has these permissions from now on.
    pub fn set_permissions(&self, installation: u64, permissions: &[(&str, &str)]) {
        if let Some(found) = self.state().installations.get_mut(&installation) {
            found.permissions = levels(permissions);
        }
    }

    /// Suspends an installation or ends its suspension.
    pub fn set_suspended(&self, installation: u64, suspended: bool) {
        let mut state = self.state();
        let now = state.now();
        if let Some(found) = state.installations.get_mut(&installation) {
            found.suspended = suspended.then_some(now);
            let action = if suspended { "suspend" } else { "unsuspend" };
            state.deliver_installation(action, installation, json!({}));
        }
    }

    /// Uninstalls the App. Tokens of the installation end.
    pub fn uninstall(&self, installation: u64) {
        let mut state = self.state();
        if state.installations.contains_key(&installation) {
            state.deliver_installation("deleted", installation, json!({}));
            state.installations.remove(&installation);
        }
    }

    /// A token of a user: classic with `None`, fine-grained with permissions.
    pub fn user_token(&self, login: &str, permissions: Option<&[(&str, &str)]>) -> String {
        let mut state = self.state();
        let user = state.person(login);
        state.new_user_token(user, permissions.map(levels))
    }

    /// Makes an account a member of an organisation, or no longer one.
    pub fn set_member(&self, organization: &str, login: &str, is_member: bool) {
        let mut state = self.state();
        let place = (state.user_or_new(organization, "Organization"), state.person(login));
        match is_member {
            true => drop(state.members.insert(place)),
            false => drop(state.members.remove(&place)),
        }
    }

    /// A token ends.
    pub fn revoke_token(&self, value: &str) {
        if let Some(token) = self.state().tokens.get_mut(value) {
            token.revoked = true;
        }
    }

    /// A token ends at this time; answers to it say so.
    pub fn expire_token(&self, value: &str, at: Timestamp) {
        if let Some(token) = self.state().tokens.get_mut(value) {
            token.expires = Some(at);
        }
    }

    /// All tokens that were ever minted or made, to search for them where they must not be.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        self.state().tokens.keys().cloned().collect()
    }

    /// This GitHub's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state().now()
    }

    /// Moves this GitHub's clock, `Date` included, against the system's.
    pub fn move_clock(&self, by: SignedDuration) {
        self.state().clock_ahead += by;
    }

    /// Calls that an identity may make in an hour; 5,000 at the start.
    pub fn set_hourly_limit(&self, calls: u64) {
        self.state().limits.hourly = calls;
    }

    /// Sets what is left of an identity's hour, such as of `installation 5`.
    pub fn leave_calls(&self, identity: &str, remaining: u64) {
        let mut state = self.state();
        let now = state.now();
        state.limits.leave(identity, remaining, now);
    }

    /// What becomes of deliveries from now on.
    pub fn set_door(&self, door: HookDoor) {
        self.state().door = door;
    }

    /// How many deliveries are not sent yet.
    #[must_use]
    pub fn pending_deliveries(&self) -> usize {
        hooks::pending(&self.state())
    }

    /// The log does not have the deliveries so far any more.
    pub fn forget_deliveries(&self) {
        self.state().deliveries.clear();
    }

    /// The log does not have the payloads of the deliveries so far any more.
    pub fn forget_payloads(&self) {
        let mut state = self.state();
        state.deliveries.iter_mut().for_each(|delivery| delivery.forgotten = true);
    }

    /// The GUIDs of everything that was delivered or failed to be, each once, oldest first.
    #[must_use]
    pub fn delivered_guids(&self) -> Vec<String> {
        hooks::guids(&self.state())
    }
}

/// What people do.
impl GithubModel {
    /// Opens an issue; gives its number.
    pub fn open_issue(&self, repository: &str, login: &str, title: &str, body: &str) -> u64 {
        let mut state = self.state();
        let (repository, author) = (state.known(repository), state.person(login));
        state.open_issue(repository, author, title, body)
    }

    fn act<T>(
        &self,
        at: IssueAt<'_>,
        login: &str,
        act: impl FnOnce(&mut ModelState, (u64, u64), u64) -> T,
    ) -> T {
        let mut state = self.state();
        let (place, actor) = (state.place(at), state.person(login));
        act(&mut state, place, actor)
    }

    /// Puts a label on.
    pub fn label(&self, at: IssueAt<'_>, login: &str, name: &str) {
        self.act(at, login, |state, place, actor| state.set_label(place, actor, name, true));
    }

    /// Takes a label off.
    pub fn unlabel(&self, at: IssueAt<'_>, login: &str, name: &str) {
        self.act(at, login, |state, place, actor| state.set_label(place, actor, name, false));
    }

    /// Assigns an account.
    pub fn assign(&self, at: IssueAt<'_>, login: &str, assignee: &str) {
        let assignee = self.user(assignee);
        self.act(at, login, |state, place, actor| state.set_assigned(place, actor, assignee, true));
    }

    /// Takes an assignment back.
    pub fn unassign(&self, at: IssueAt<'_>, login: &str, assignee: &str) {
        let assignee = self.user(assignee);
        self.act(at, login, |state, place, actor| {
            state.set_assigned(place, actor, assignee, false)
        });
    }

    /// Closes an issue or pull request.
    pub fn close(&self, at: IssueAt<'_>, login: &str) {
        self.act(at, login, |state, place, actor| state.set_closed(place, actor, true));
    }

    /// Reopens an issue or pull request.
    pub fn reopen(&self, at: IssueAt<'_>, login: &str) {
        self.act(at, login, |state, place, actor| state.set_closed(place, actor, false));
    }

    /// Locks or unlocks the conversation.
    pub fn set_locked(&self, at: IssueAt<'_>, login: &str, locked: bool) {
        self.act(at, login, |state, place, actor| state.set_locked(place, actor, locked));
    }

    /// Edits title or body.
    pub fn edit_issue(
        &self,
        at: IssueAt<'_>,
        login: &str,
        title: Option<&str>,
        body: Option<&str>,
    ) {
        self.act(at, login, |state, place, actor| state.edit_text(place, actor, title, body));
    }

    /// Comments; gives the comment's id.
    pub fn comment(&self, at: IssueAt<'_>, login: &str, body: &str) -> u64 {
        self.act(at, login, |state, place, actor| state.add_comment(place, actor, body))
    }

    fn with_comment(
        &self,
        repository: &str,
        id: u64,
        act: impl FnOnce(&mut ModelState, u64, (u64, usize)),
    ) {
        let mut state = self.state();
        let repository = state.known(repository);
        let place = state.find_comment(repository, id).expect("the comment is there");
        act(&mut state, repository, place);
    }

    /// Edits a comment.
    pub fn edit_comment(&self, repository: &str, id: u64, login: &str, body: &str) {
        let actor = self.user(login);
        self.with_comment(repository, id, |state, repository, place| {
            state.change_comment(repository, place, actor, body);
        });
    }

    /// Deletes a comment.
    pub fn delete_comment(&self, repository: &str, id: u64, login: &str) {
        let actor = self.user(login);
        self.with_comment(repository, id, |state, repository, place| {
            state.remove_comment(repository, place, actor);
        });
    }

    /// Minimises a comment.
    pub fn minimize_comment(&self, repository: &str, id: u64) {
        self.with_comment(repository, id, |state, repository, (number, at)| {
            if let Some(issue) = state.issue_mut((repository, number)) {
                issue.comments[at].minimized = true;
            }
        });
    }

    /// Deletes an issue.
    pub fn delete_issue(&self, at: IssueAt<'_>, login: &str) {
        self.act(at, login, |state, place, actor| state.delete_issue(place, actor));
    }

    /// Transfers an issue; gives its number there.
    pub fn transfer_issue(&self, at: IssueAt<'_>, login: &str, to: &str) -> u64 {
        let to = self.state().known(to);
        let moved =
            self.act(at, login, |state, place, actor| state.transfer_issue(place, to, actor));
        moved.expect("the issue was just found")
    }

    /// Renames a repository or transfers it to another account. Its old name leads to it.
    pub fn rename_repository(&self, repository: &str, full_name: &str) {
        let mut state = self.state();
        let id = state.known(repository);
        state.rename_repository(id, full_name);
    }

    /// Merges a pull request as GitHub records it; the base branch moves to the head.
    pub fn merge_pull(&self, at: IssueAt<'_>, login: &str) {
        self.act(at, login, |state, place, actor| {
            let now = state.now();
            let pull = state.issue_mut(place).and_then(|issue| issue.pull.as_mut());
            let pull = pull.expect("it is a pull request");
            pull.merged = Some(now);
            let (head, base) = (pull.head.clone(), pull.base.clone());
            state.merge_branch(place.0, &base, &head);
            state.set_closed(place, actor, true);
        });
    }
}

/// What is there, for assertions and for git.
impl GithubModel {
    /// An issue as REST shows it; null where there is none.
    #[must_use]
    pub fn issue(&self, (repository, number): IssueAt<'_>) -> Value {
        let state = self.state();
        let repository = state.known(repository);
        let issue = state.issue((repository, number));
        issue.map_or(Value::Null, |issue| state.show_issue(repository, issue))
    }

    /// The comments of an issue as REST shows them.
    #[must_use]
    pub fn comments(&self, at: IssueAt<'_>) -> Vec<Value> {
        let state = self.state();
        let place = state.place(at);
        let comments = state.issue(place).into_iter().flat_map(|issue| &issue.comments);
        comments.map(|comment| state.show_comment(place.0, place.1, comment)).collect()
    }

    /// The reactions to an issue, or to a comment on it, as REST shows them.
    #[must_use]
    pub fn reactions(&self, at: IssueAt<'_>, comment: Option<u64>) -> Vec<Value> {
        let state = self.state();
        let issue = state.issue(state.place(at)).expect("the issue was just found");
        let text = match comment {
            None => &issue.text,
            Some(id) => {
                let found = issue.comments.iter().find(|comment| comment.id == id);
                &found.expect("the comment is there").text
            }
        };
        text.reactions.iter().map(|reaction| state.show_reaction(reaction)).collect()
    }

    /// The pull requests of a repository as REST shows them, oldest first.
    #[must_use]
    pub fn pulls(&self, repository: &str) -> Vec<Value> {
        let mut state = self.state();
        let id = state.known(repository);
        let issues = state.repositories[&id].issues.values();
        let numbers: Vec<u64> =
            issues.filter(|issue| issue.pull.is_some()).map(|issue| issue.number).collect();
        numbers.into_iter().map(|number| state.show_pull(id, number, true)).collect()
    }

    /// Commit statuses of a repository as REST shows them, oldest first.
    #[must_use]
    pub fn statuses(&self, repository: &str) -> Vec<Value> {
        let state = self.state();
        let id = state.known(repository);
        let statuses = state.repositories[&id].statuses.iter();
        statuses.map(|status| state.show_status(id, status)).collect()
    }

    /// Commits files (path and text) on a branch; gives the new tip.
    pub fn commit(
        &self,
        repository: &str,
        branch: &str,
        files: &[(&str, &str)],
        message: &str,
    ) -> String {
        let state = self.state();
        state.commit(state.known(repository), branch, files, message)
    }

    /// The tip of a branch.
    #[must_use]
    pub fn tip(&self, repository: &str, branch: &str) -> Option<String> {
        let state = self.state();
        state.ref_tip(state.known(repository), &format!("refs/heads/{branch}"))
    }

    /// Deletes a branch.
    pub fn delete_branch(&self, repository: &str, branch: &str) {
        let state = self.state();
        state.delete_branch(state.known(repository), branch);
    }

    /// Refuses all pushes to a branch from now on.
    pub fn protect_branch(&self, repository: &str, branch: &str) {
        let state = self.state();
        state.protect(state.known(repository), branch);
    }

    /// What was pushed over HTTP, oldest first.
    #[must_use]
    pub fn pushes(&self, repository: &str) -> Vec<PushRecord> {
        let state = self.state();
        state.pushes(state.known(repository))
    }

    /// The LFS objects of a repository: SHA-256 and length in bytes.
    #[must_use]
    pub fn lfs_objects(&self, repository: &str) -> Vec<(String, u64)> {
        let state = self.state();
        state.lfs_objects(state.known(repository))
    }
}
