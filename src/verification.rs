//! Verification: GitHub is asked how an issue is before a sandbox of it is made.
//!
//! [`IssueVerifier::before_ensure`] is asked by callers of *ensure*: it learns the issue's id, and refuses
//! an issue that is closed or that GitHub does not know. [`IssueVerifier::before_work`] is asked when a
//! sandbox begins to come up, and answers before its checkout and its command. Both give the engine what is new as if GitHub had
//! delivered it now.
//!
//! # Guarantees
//! - No command of a template begins on an issue that GitHub, asked after the trigger, calls closed or
//!   without the trigger's label or assignee.
//! - No command begins in a sandbox whose trigger's sender may not trigger any more, as far as GitHub says.
//! - No sandbox is made for an issue that GitHub, asked after the call, calls closed, or does not know.
//! - An issue that was transferred is followed to its new place, and stays one issue.
//! - If GitHub does not answer, an issue that is known here is ensured as without credentials. One that
//!   is not known is never called unknown: the caller is to try again.
//! - An issue that GitHub cannot name, because only an id of it is known, is ensured as without
//!   credentials.

mod edits;
mod ensure;
mod error;
mod hidden;
mod lookup;
mod news;
mod task;
mod work;

use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::clock::Clock;
use crate::engine::{Engine, EngineError, IssueKey};
use crate::github::api::{GitHubApi, GitHubError, RepositoryTarget};
use crate::github::permissions::RepositoryPermissions;
use crate::github::policy::{SAMPLE_REPOSITORY_ID, TriggerPolicies};
use crate::issue::{Facts, Issue};
use crate::store::Store;
use crate::types::{AccountName, Alias, IssueId, IssueNumber, IssueOrigin, Repository};

pub use ensure::{CallersEnsure, EnsureError};
pub use error::VerificationError;
use lookup::FoundIssue;

/// How long a caller waits for GitHub's answers.
const ASK_TIME_MAX: Duration = Duration::from_secs(20);

/// Asks GitHub how an issue is before a sandbox of it is made.
pub struct IssueVerifier {
    engine: Engine,
    store: Arc<dyn Store>,
    api: Arc<dyn GitHubApi>,
    permissions: Arc<RepositoryPermissions>,
    clock: Arc<dyn Clock>,
    triggers: TriggerPolicies,
    /// Whose each repository is; `None` if all is of one account.
    access: Option<Arc<Access>>,
}

impl IssueVerifier {
    /// Of this engine and its store. GitHub is the one that is asked for permissions.
    pub fn new(
        engine: Engine,
        store: Arc<dyn Store>,
        permissions: Arc<RepositoryPermissions>,
        clock: Arc<dyn Clock>,
        triggers: impl Into<TriggerPolicies>,
    ) -> Self {
        let triggers = triggers.into();
        let api = Arc::clone(permissions.api());
        Self { engine, store, api, permissions, clock, triggers, access: None }
    }

    /// Shows an account only issues whose repository belongs to it.
    #[must_use]
    pub fn by_account(self, access: Arc<Access>) -> Self {
        Self { access: Some(access), ..self }
    }

    /// Whether what GitHub says of an issue may be shown in an account: its repository belongs to it, or
    /// GitHub's deliveries led the issue there before.
    fn is_of(&self, account: &AccountName, found: &FoundIssue, facts: Option<&Facts>) -> bool {
        let origin = IssueOrigin {
            installation: found.installation,
            repository: Some(found.repository.clone()),
        };
        let is_there = facts.is_some_and(|facts| facts.repository_id.is_some());
        is_there || self.access.as_ref().is_none_or(|access| access.account_of(&origin) == *account)
    }

    /// Asks whether the issue that an *ensure* names exists and is open. Returns its names as GitHub has
    /// them. What is new about it is durable then.
    ///
    /// # Errors
    /// [`VerificationError`]; then no sandbox may be made.
    pub async fn before_ensure(
        &self,
        account: &AccountName,
        key: IssueKey,
    ) -> Result<IssueKey, VerificationError> {
        let known = self.known(account, &key).await?;
        let facts = known.as_ref().map(|issue| &issue.facts);
        if facts.is_some_and(|facts| facts.repository_id == Some(SAMPLE_REPOSITORY_ID)) {
            return Ok(key);
        }
        let Some((repository, number)) = key.numbered.clone().or_else(|| place_of(facts?)) else {
            return Ok(key);
        };
        // The id distinguishes a transfer from a new name of the repository.
        let is_there = |facts: &&Facts| is_at(facts, &repository, number);
        let target = RepositoryTarget {
            name: repository.clone(),
            id: facts.filter(is_there).and_then(|facts| facts.repository_id),
            installation: facts.and_then(|facts| facts.installation_id),
        };
        let asked = tokio::time::timeout(ASK_TIME_MAX, self.find(&target, number, facts)).await;
        let asked = asked.unwrap_or_else(|_| {
            let words = format!("no answer within {} s", ASK_TIME_MAX.as_secs());
            Err(GitHubError::Unreachable(words))
        });
        let found = match asked {
            Ok(found) => found,
            Err(error) if facts.is_some() && is_silent(&error) => {
                tracing::warn!(%repository, issue.number = %number, %error,
                    "cannot ask GitHub how an issue is; it is ensured as it is known here");
                return Ok(key);
            }
            Err(error) => {
                if let (GitHubError::Gone(_), Some(facts)) = (&error, facts) {
                    self.deleted(account, &target, number, facts).await?;
                }
                return Err(self.refusal(repository, number, error));
            }
        };
        self.accept(account, key, known.as_ref(), (repository, number), found).await
    }

    /// The issue that a key names, if it is known here.
    async fn known(
        &self,
        account: &AccountName,
        key: &IssueKey,
    ) -> Result<Option<Issue>, VerificationError> {
        let by_id = key.id.clone().map(Alias::Issue);
        let numbered = key.numbered.clone();
        let by_number = numbered.map(|(repository, number)| Alias::Numbered(repository, number));
        for alias in by_id.into_iter().chain(by_number) {
            if let Some(home) = self.store.resolve(account, &alias).await? {
                return Ok(self.store.load(home).await?);
            }
        }
        Ok(None)
    }

    /// Takes over what GitHub answered.
    async fn accept(
        &self,
        account: &AccountName,
        key: IssueKey,
        known: Option<&Issue>,
        (repository, number): (Repository, IssueNumber),
        found: FoundIssue,
    ) -> Result<IssueKey, VerificationError> {
        if found.issue.is_pull {
            let why = "it is a pull request, not an issue".to_owned();
            return Err(VerificationError::Unknown { repository, number, why });
        }
        let id = IssueId::from_github(found.issue.id);
        let home = self.store.resolve(account, &Alias::Issue(id.clone())).await?;
        // What is known is of use only if it is about this very issue.
        let known = known.filter(|issue| {
            home == Some(issue.home) || (home.is_none() && found.is_the_one_of(&issue.facts))
        });
        if let Some(given) = key.id.filter(|given| *given != id) {
            // Another id of the same issue: it was transferred, or a caller named it first.
            let of_given = self.store.resolve(account, &Alias::Issue(given)).await?;
            if of_given.is_none() || of_given != known.map(|issue| issue.home) {
                return Err(VerificationError::IdConflict);
            }
        }
        let facts = known.map(|issue| &issue.facts);
        if !self.is_of(account, &found, facts) {
            let why = "its repository is of another account, or there is none".to_owned();
            return Err(VerificationError::Unknown { repository, number, why });
        }
        let is_open = found.issue.is_open;
        let place = (found.repository.clone(), found.issue.number);
        let is_known = home.is_some() && facts.is_some_and(|facts| found.is_known_by(facts));
        if !is_known && (is_open || facts.is_some()) {
            let delivery = news::of_found(&found, facts, self.clock.now());
            self.engine.deliver(account, delivery).await?;
        }
        if !is_open {
            return Err(VerificationError::Closed(place.0, place.1));
        }
        Ok(IssueKey { id: Some(id), numbered: Some(place) })
    }

    /// GitHub says that an issue is deleted. The same is true here if it is the one that is known.
    async fn deleted(
        &self,
        account: &AccountName,
        target: &RepositoryTarget,
        number: IssueNumber,
        facts: &Facts,
    ) -> Result<(), EngineError> {
        let is_same = is_at(facts, &target.name, number);
        let Some(repository_id) = facts.repository_id.filter(|_| is_same) else { return Ok(()) };
        // A repository that was made again under the name has other issues.
        let now = self.api.repository(target).await;
        if now.is_ok_and(|repository| repository.id == repository_id)
            && let Some(delivery) = news::deletion(facts, self.clock.now())
        {
            self.engine.deliver(account, delivery).await?;
        }
        Ok(())
    }

    fn refusal(
        &self,
        repository: Repository,
        number: IssueNumber,
        error: GitHubError,
    ) -> VerificationError {
        VerificationError::of_github(repository, number, error, self.clock.now())
    }
}

/// Whether an issue is known to be there.
fn is_at(facts: &Facts, repository: &Repository, number: IssueNumber) -> bool {
    place_of(facts).is_some_and(|(known, known_number)| {
        known.folded() == repository.folded() && known_number == number
    })
}

/// Where an issue is, if that is known.
fn place_of(facts: &Facts) -> Option<(Repository, IssueNumber)> {
    Some((facts.repository.clone()?, facts.number?))
}

/// Whether GitHub said nothing of what it was asked.
const fn is_silent(error: &GitHubError) -> bool {
    match error {
        GitHubError::Limited { .. }
        | GitHubError::Unauthorized(_)
        | GitHubError::Unknown(_)
        | GitHubError::Unreachable(_) => true,
        GitHubError::Gone(_)
        | GitHubError::NotFound(_)
        | GitHubError::Moved { .. }
        | GitHubError::Held { .. }
        | GitHubError::AlreadyExists(_)
        | GitHubError::Refused { .. } => false,
    }
}
