//! The port to checkouts: which repository and branch a sandbox works on.

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::issue::{Facts, GithubEffect};
use crate::types::{CheckoutState, HomeId, PushPermission, Repository, SandboxId, Timestamp};

/// What is known of one sandbox's checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckoutRow {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Its home.
    pub home: HomeId,
    /// How far the checkout is.
    pub state: CheckoutState,
    /// Why it failed, or what is to be known of it; for people.
    pub reason: String,
    /// When the state last changed.
    pub changed_at: Timestamp,
    /// The repository as it was called when it was checked out.
    pub remote: Repository,
    /// Its id; `None` if that was not known.
    pub remote_id: Option<u64>,
    /// The branch that the work begins at.
    pub base: Option<String>,
    /// The sandbox's own branch.
    pub branch: Option<String>,
    /// The last commit that was pushed from there.
    pub tip: Option<String>,
    /// A commit that is being pushed.
    pub pushing: Option<String>,
    /// A commit of others on the branch that a refusal named.
    pub foreign_tip: Option<String>,
    /// Whether it was fetched since.
    pub foreign_is_fetched: bool,
    /// What becomes of its pushes, unless a person published the work.
    pub pushes: PushPermission,
    /// Why, for people; may be empty.
    pub pushes_why: String,
    /// Who published the work although pushes waited for that, for people.
    pub published_by: Option<String>,
}

impl CheckoutRow {
    /// A checkout that begins.
    pub fn begun(
        sandbox: SandboxId,
        home: HomeId,
        (remote, remote_id): (Repository, Option<u64>),
        now: Timestamp,
    ) -> Self {
        Self {
            sandbox,
            home,
            state: CheckoutState::Fetching,
            reason: String::new(),
            changed_at: now,
            remote,
            remote_id,
            base: None,
            branch: None,
            tip: None,
            pushing: None,
            foreign_tip: None,
            foreign_is_fetched: false,
            pushes: PushPermission::Free,
            pushes_why: String::new(),
            published_by: None,
        }
    }

    /// Whether its repository is the one where the issue is: an issue that is transferred leaves its
    /// sandbox's branch behind.
    pub fn is_beside(&self, issue: &Facts) -> bool {
        match (self.remote_id, issue.repository_id) {
            (Some(own), Some(of_issue)) => own == of_issue,
            _ => issue.repository.as_ref().is_none_or(|of_issue| *of_issue == self.remote),
        }
    }
}

/// The checkouts of sandboxes. Durable as everything else in the store.
#[async_trait]
pub trait CheckoutStore: Send + Sync + 'static {
    /// A sandbox's checkout.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn checkout(&self, sandbox: &SandboxId) -> Result<Option<CheckoutRow>, StoreError>;

    /// The checkouts of a home, newest last: also those of its former sandboxes.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn checkouts_of(&self, home: HomeId) -> Result<Vec<CheckoutRow>, StoreError>;

    /// The checkouts with a push whose outcome is not known.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn unfinished_pushes(&self) -> Result<Vec<CheckoutRow>, StoreError>;

    /// Keeps a checkout, in place of the one of the same sandbox, together with what is to be said
    /// on its issue because of that, from `now` on.
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias.
    async fn put_checkout(
        &self,
        row: CheckoutRow,
        effects: Vec<GithubEffect>,
        now: Timestamp,
    ) -> Result<(), CommitError>;
}
