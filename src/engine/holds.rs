//! Holds: the brake that people put on the server, an account, a repository or an issue. A hold is
//! durable first, then in force. A release is durable first, then the starts that waited are granted.
//!
//! A repository that is held stays held under a new name: durable and in force before GitHub's delivery
//! of the rename is acknowledged. If that delivery was missed, and another one carries the new name,
//! the hold follows as well, and becomes durable behind it.
//!
//! One change at a time, since the stored holds and the holds in force are two sets: a hold that follows
//! a new name must not become durable behind a release that found it in force.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::sabotage::{Bug, on};
use crate::store::CommitError;
use crate::types::{Alias, Hold, HoldScope, HomeId, Repository};

use super::admission::Admission;
use super::api::EngineError;
use super::directory::Directory;
use super::environment::Environment;

/// Puts holds on and releases them.
pub(super) struct Holds {
    env: Arc<Environment>,
    admission: Arc<Admission>,
    directory: Arc<Directory>,
    /// Held while a hold is put on or released: what is stored is then what is in force.
    one_at_a_time: Mutex<()>,
}

impl Holds {
    /// With those that admission knows.
    pub fn new(
        env: Arc<Environment>,
        admission: Arc<Admission>,
        directory: Arc<Directory>,
    ) -> Self {
        Self { env, admission, directory, one_at_a_time: Mutex::default() }
    }

    /// Puts a hold on. From now on nothing that it covers is made, started or resumed; what is
    /// under way goes on. Holding again replaces the reason. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn hold(
        &self,
        scope: HoldScope,
        reason: String,
        by: String,
    ) -> Result<Hold, EngineError> {
        if self.env.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let hold = Hold { scope, reason, since: self.env.now(), by, followed_to: None };
        let _one_at_a_time = self.one_at_a_time.lock().await;
        // Looked up first: if that fails, nothing was put on.
        let home = self.held_home(&hold).await?;
        self.env.store.put_holds(vec![hold.clone()]).await?;
        self.put_in_force(hold.clone(), home);
        // An issue that got the id meanwhile did not see the hold.
        match self.held_home(&hold).await {
            Ok(now) if now == home => {}
            Ok(now) => self.put_in_force(hold.clone(), now),
            Err(error) => {
                let scope = &hold.scope;
                tracing::error!(%scope, %error, "a hold was stored, but the store failed when asked for the issue that it names: until it is set again or the server restarts, a sandbox of that issue may still start");
            }
        }
        Ok(hold)
    }

    /// Releases a hold; whether there was one. Pending starts that it kept waiting are granted.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn release(&self, scope: &HoldScope) -> Result<bool, EngineError> {
        if self.env.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let was_there = self.env.store.remove_hold(scope).await?;
        self.admission.release(scope);
        Ok(was_there)
    }

    /// A hold that is durable comes into force again after a restart.
    pub async fn restore(&self, hold: Hold) -> Result<(), EngineError> {
        let home = self.held_home(&hold).await?;
        self.put_in_force(hold, home);
        Ok(())
    }

    /// The home of an issue that is held, if it is known: a transferred issue is held by each of its
    /// ids.
    async fn held_home(&self, hold: &Hold) -> Result<Option<HomeId>, EngineError> {
        match &hold.scope {
            HoldScope::Issue(account, id) => {
                let alias = Alias::Issue(id.clone());
                self.directory.find(account, &alias).await
            }
            HoldScope::Server | HoldScope::Account(_) | HoldScope::Repository(_) => Ok(None),
        }
    }

    fn put_in_force(&self, hold: Hold, home: Option<HomeId>) {
        if !on(Bug::HoldNotInForce) {
            self.admission.put(hold, home);
        }
    }

    /// A repository was renamed, as GitHub says: a hold on it goes on under its new name. Durable
    /// and in force when it returns.
    pub async fn follow(&self, from: &Repository, to: &Repository) -> Result<(), CommitError> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let holds = self.admission.followed(from, to);
        if !holds.is_empty() {
            self.env.store.put_holds(holds.clone()).await?;
        }
        holds.into_iter().for_each(|hold| self.admission.put(hold, None));
        Ok(())
    }

    /// The same as an issue learned it: in force when it returns.
    pub fn follow_behind(self: &Arc<Self>, from: &Repository, to: &Repository) {
        let holds = self.admission.followed(from, to);
        if holds.is_empty() {
            return;
        }
        holds.iter().for_each(|hold| self.admission.put(hold.clone(), None));
        let holds_of = Arc::clone(self);
        self.env.spawner.io(Box::pin(async move {
            let _one_at_a_time = holds_of.one_at_a_time.lock().await;
            // One may have been released, or held for another reason.
            let holds = holds_of.admission.in_force(holds);
            if let Err(error) = holds_of.env.store.put_holds(holds).await {
                tracing::error!(%error, "failed to store a hold under a new name; it is in force until the next start");
            }
        }));
    }
}
