//! Holds: the brake that people put on the server, an account, a repository or an issue. Durable
//! first, then in force; released first for good, then for the wishes that waited.
//!
//! A repository that is held stays held under a new name: durable and in force before GitHub's word of
//! it is acknowledged. Where that was missed, and another delivery tells the new name, the
//! hold follows as well, and becomes durable behind it.
//!
//! One at a time, since what is stored and what is in force are two: a hold that follows a new name
//! must not become durable behind a release that found it in force.

use std::sync::Arc;

use crate::sabotage::{Bug, on};
use crate::store::CommitError;
use crate::types::{AccountName, Alias, Hold, HoldScope, HomeId, Repository};

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
        let hold = Hold { scope, reason, since: self.core.now(), by, followed_to: None };
        let _one_at_a_time = self.core.holding.lock().await;
        // Looked for first: where that fails, nothing was put on.
        let home = self.held_home(account, &hold).await?;
        self.core.store.put_holds(vec![hold.clone()]).await.map_err(not_stored)?;
        self.put_in_force(hold.clone(), home);
        // An issue that got the id meanwhile did not see the hold.
        match self.held_home(account, &hold).await {
            Ok(now) if now == home => {}
            Ok(now) => self.put_in_force(hold.clone(), now),
            Err(error) => {
                let scope = &hold.scope;
                tracing::error!(%scope, %error, "whether a held id has just become an issue's");
            }
        }
        Ok(hold)
    }

    /// Releases a hold; whether there was one. PendingStarts that it kept waiting are granted.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn release(&self, scope: &HoldScope) -> Result<bool, EngineError> {
        if self.core.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let _one_at_a_time = self.core.holding.lock().await;
        let was_there = self.core.store.remove_hold(scope).await.map_err(not_stored)?;
        self.core.admission.release(scope);
        Ok(was_there)
    }

    /// A hold that is durable comes into force again after a restart.
    pub(super) async fn hold_again(&self, hold: Hold) -> Result<(), EngineError> {
        let home = self.held_home(&AccountName::default_account(), &hold).await?;
        self.put_in_force(hold, home);
        Ok(())
    }

    /// The home of an issue that is held, where it is known: a transferred issue is held by each of
    /// its ids.
    async fn held_home(
        &self,
        account: &AccountName,
        hold: &Hold,
    ) -> Result<Option<HomeId>, EngineError> {
        match &hold.scope {
            HoldScope::Issue(id) => {
                let alias = Alias::Issue(id.clone());
                self.core.directory.find(&self.core, account, &alias).await
            }
            HoldScope::Server | HoldScope::Account(_) | HoldScope::Repository(_) => Ok(None),
        }
    }

    fn put_in_force(&self, hold: Hold, home: Option<HomeId>) {
        if !on(Bug::HoldNotInForce) {
            self.core.admission.put(hold, home);
        }
    }
}

impl Core {
    /// A repository was renamed, as GitHub says: a hold on it goes on under its new name. Durable
    /// and in force when it returns.
    pub async fn keep_held(&self, from: &Repository, to: &Repository) -> Result<(), CommitError> {
        let _one_at_a_time = self.holding.lock().await;
        let holds = self.admission.followed(from, to);
        if !holds.is_empty() {
            self.store.put_holds(holds.clone()).await?;
        }
        holds.into_iter().for_each(|hold| self.admission.put(hold, None));
        Ok(())
    }

    /// The same as an issue learned it: in force when it returns.
    pub fn keep_held_behind(self: &Arc<Self>, from: &Repository, to: &Repository) {
        let holds = self.admission.followed(from, to);
        if holds.is_empty() {
            return;
        }
        holds.iter().for_each(|hold| self.admission.put(hold.clone(), None));
        let core = Arc::clone(self);
        self.spawner.io(Box::pin(async move {
            let _one_at_a_time = core.holding.lock().await;
            // Somebody may have released one, or held it for another reason.
            let holds = core.admission.in_force(holds);
            if let Err(error) = core.store.put_holds(holds).await {
                tracing::error!(%error, "a hold under a new name is in force until the next start");
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
