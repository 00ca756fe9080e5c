//! Holds: the brake that people put on the server, an account, a repository or an issue. Durable
//! first, then in force; released first for good, then for the wishes that waited.
//!
//! A repository that is held stays held under a new name: in force at once, durable before GitHub's
//! word of it is acknowledged. Where that was missed, and another delivery tells the new name, the
//! hold follows as well, and becomes durable behind it.

use std::sync::Arc;

use crate::sabotage::{Bug, on};
use crate::store::CommitError;
use crate::types::{AccountName, Alias, Hold, HoldScope, Repository};

use super::admission::Quotas;
use super::api::EngineError;
use super::core::Core;
use super::handle::Engine;

impl Engine {
    /// Every hold, the widest first.
    pub fn holds(&self) -> Vec<Hold> {
        self.core.admission.holds()
    }

    /// How many live sandboxes there may be.
    pub fn quotas(&self) -> Quotas {
        self.core.admission.quotas()
    }

    /// Puts a hold on. From now on nothing that it covers is made, started or resumed; what is
    /// under way goes on. Holding again replaces the reason. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn hold(
        &self,
        account: &AccountName,
        scope: HoldScope,
        reason: String,
        by: String,
    ) -> Result<Hold, EngineError> {
        if self.core.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let hold = Hold { scope, reason, since: self.core.now(), by };
        self.core.store.put_hold(hold.clone()).await.map_err(not_stored)?;
        self.put_in_force(account, hold.clone()).await?;
        Ok(hold)
    }

    /// Releases a hold; whether there was one. Wishes that it kept waiting are granted.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn release(&self, scope: &HoldScope) -> Result<bool, EngineError> {
        if self.core.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let was_there = self.core.store.remove_hold(scope).await.map_err(not_stored)?;
        self.core.admission.release(scope);
        Ok(was_there)
    }

    /// A hold that is durable comes into force again after a restart.
    pub(super) async fn hold_again(&self, hold: Hold) -> Result<(), EngineError> {
        self.put_in_force(&AccountName::default_account(), hold).await
    }

    async fn put_in_force(&self, account: &AccountName, hold: Hold) -> Result<(), EngineError> {
        // A transferred issue is held by each of its ids.
        let home = match &hold.scope {
            HoldScope::Issue(id) => {
                let alias = Alias::Issue(id.clone());
                self.core.directory.find(&self.core, account, &alias).await?
            }
            HoldScope::Server | HoldScope::Account(_) | HoldScope::Repository(_) => None,
        };
        if !on(Bug::HoldNotInForce) {
            self.core.admission.put(hold, home);
        }
        Ok(())
    }
}

impl Core {
    /// A repository was renamed, as GitHub says: a hold on it goes on under its new name. Durable
    /// when it returns.
    pub async fn keep_held(&self, from: &Repository, to: &Repository) -> Result<(), CommitError> {
        match self.admission.renamed(from, to) {
            Some(hold) => self.store.put_hold(hold).await,
            None => Ok(()),
        }
    }

    /// The same as an issue learned it.
    pub fn keep_held_behind(self: &Arc<Self>, from: &Repository, to: &Repository) {
        let Some(hold) = self.admission.renamed(from, to) else { return };
        let core = Arc::clone(self);
        self.spawner.io(Box::pin(async move {
            let scope = hold.scope.clone();
            if let Err(error) = core.store.put_hold(hold).await {
                tracing::error!(%scope, %error, "a hold is in force only until the next start");
            }
        }));
    }
}

/// Why something that people decide was not stored.
pub(super) fn not_stored(error: CommitError) -> EngineError {
    match error {
        CommitError::Overloaded => EngineError::Overloaded,
        CommitError::DuplicateDelivery
        | CommitError::AliasTaken
        | CommitError::Fenced
        | CommitError::Failed(_) => EngineError::StoreFailed(error.to_string()),
    }
}
