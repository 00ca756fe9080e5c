//! What is durable in the world, and the contract by which a write is applied to it.

use std::collections::BTreeMap;

use crate::issue::Issue;
use crate::store::{CommitError, DeliveryRow, Write};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, HomeId, IssueNumber, Repository, Sandbox, SandboxId,
};

/// The rows of the one store there is.
#[derive(Default)]
pub struct Rows {
    pub epoch: u64,
    pub issues: BTreeMap<HomeId, Issue>,
    pub deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    pub history: Vec<Sandbox>,
    aliases: BTreeMap<(AccountName, String), HomeId>,
}

/// Names are compared without regard to a repository's case.
fn key(alias: &Alias) -> String {
    match alias {
        Alias::Issue(id) => id.to_string(),
        Alias::Numbered(repository, number) => format!("{}#{number}", repository.folded()),
    }
}

impl Rows {
    /// Applies a write whole, or says why not.
    pub fn apply(&mut self, epoch: Epoch, write: &Write) -> Result<(), CommitError> {
        if let Some(delivery) = &write.delivery
            && self.deliveries.contains_key(&delivery.id)
        {
            return Err(CommitError::DuplicateDelivery);
        }
        if let Some(issue) = &write.issue {
            let stored = self.issues.get(&issue.home).map_or(0, |issue| issue.version);
            if issue.version != stored + 1 || epoch.0 != self.epoch {
                return Err(CommitError::Fenced);
            }
            let other = |alias: &Alias| {
                self.resolve(&issue.account, alias).is_some_and(|home| home != issue.home)
            };
            if write.aliases.iter().any(other) {
                return Err(CommitError::AliasTaken);
            }
            for alias in &write.aliases {
                self.aliases.insert((issue.account.clone(), key(alias)), issue.home);
            }
            self.issues.insert(issue.home, issue.clone());
        }
        self.history.extend(write.ended.clone());
        self.deliveries.extend(write.delivery.clone().map(|row| (row.id.clone(), row)));
        Ok(())
    }

    pub fn resolve(&self, account: &AccountName, alias: &Alias) -> Option<HomeId> {
        self.aliases.get(&(account.clone(), key(alias))).copied()
    }

    pub fn numbered(
        &self,
        account: &AccountName,
        (repository, number): (&Repository, IssueNumber),
    ) -> Option<HomeId> {
        self.resolve(account, &Alias::Numbered(repository.clone(), number))
    }

    pub fn sandbox(&self, id: &SandboxId) -> Option<Sandbox> {
        let live = |issue: &&Issue| issue.state.record().is_some_and(|record| record.id == *id);
        let live = self.issues.values().find(live).and_then(Issue::sandbox);
        live.or_else(|| self.history.iter().find(|sandbox| sandbox.id == *id).cloned())
    }

    pub fn newest(&self, home: HomeId) -> Option<Sandbox> {
        let live = self.issues.get(&home).and_then(Issue::sandbox);
        live.or_else(|| self.history.iter().rfind(|sandbox| sandbox.home == home).cloned())
    }
}
