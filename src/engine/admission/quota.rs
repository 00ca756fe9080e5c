//! Quotas of live sandboxes, and the slots that homes have under them.

use std::collections::HashMap;

use crate::sabotage::{Bug, on};
use crate::types::{AccountName, HomeId};

/// How many live sandboxes there may be; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of one account.
    pub account: u64,
    /// Of one repository.
    pub repository: u64,
    /// On this server.
    pub server: u64,
}

impl Quotas {
    /// Whether no quota is set.
    pub(super) const fn is_unlimited(self) -> bool {
        self.account == 0 && self.repository == 0 && self.server == 0
    }
}

/// The homes that have a slot, and how many slots of each kind are taken.
#[derive(Clone, Default)]
pub(super) struct QuotaSlots {
    of_home: HashMap<HomeId, QuotaSlot>,
    by_account: HashMap<AccountName, u64>,
    by_repository: HashMap<String, u64>,
}

/// A home's slot: the account, and the repositories in which it counts. It counts in two while it is
/// not durable that its issue has moved.
#[derive(Clone)]
struct QuotaSlot {
    account: AccountName,
    repositories: Vec<String>,
}

impl QuotaSlots {
    /// Whether a home has a slot.
    pub fn has(&self, home: HomeId) -> bool {
        self.of_home.contains_key(&home)
    }

    /// Counts a home's live sandbox in the repository where its issue durably is, and in no other.
    /// Returns whether that freed a slot of another one.
    pub fn count(
        &mut self,
        home: HomeId,
        account: &AccountName,
        repository: Option<String>,
    ) -> bool {
        let counted = self.of_home.get(&home).map(|slot| slot.repositories.as_slice());
        let has_changed = counted != Some(repository.as_slice());
        let frees = counted.is_some() && has_changed;
        if has_changed {
            self.leave(home);
            self.take(home, account, repository);
        }
        frees
    }

    /// Counts it also in a repository where its issue is once a step is durable.
    pub fn count_also(&mut self, home: HomeId, account: &AccountName, repository: Option<String>) {
        let Some(slot) = self.of_home.get_mut(&home) else {
            return self.take(home, account, repository);
        };
        if let Some(repository) = repository
            && !slot.repositories.contains(&repository)
        {
            *self.by_repository.entry(repository.clone()).or_default() += 1;
            slot.repositories.push(repository);
        }
    }

    /// Which quota allows no more of this kind; `None` if there is a free slot.
    pub fn full(
        &self,
        quotas: Quotas,
        account: &AccountName,
        repository: Option<&str>,
    ) -> Option<String> {
        let is_full = |taken: u64, allowed: u64| {
            let given = taken.saturating_sub(u64::from(on(Bug::LastPlaceTwice)));
            allowed > 0 && given >= allowed
        };
        let of_account = self.by_account.get(account).copied().unwrap_or(0);
        let of_repository =
            repository.and_then(|name| self.by_repository.get(name)).copied().unwrap_or(0);
        let of_server = u64::try_from(self.of_home.len()).unwrap_or(u64::MAX);
        if is_full(of_server, quotas.server) {
            let allowed = quotas.server;
            Some(format!(
                "{of_server} of {allowed} sandboxes of this server are live; raise quota.live_server \
                 in issuebox.toml, or delete one"
            ))
        } else if is_full(of_account, quotas.account) {
            let allowed = quotas.account;
            Some(format!(
                "{of_account} of {allowed} sandboxes of the account {account} are live; raise \
                 quota.live in issuebox.toml, or delete one"
            ))
        } else if is_full(of_repository, quotas.repository) {
            let allowed = quotas.repository;
            Some(format!(
                "{of_repository} of {allowed} sandboxes of {} are live; raise \
                 quota.live_per_repository in issuebox.toml, or delete one",
                repository.unwrap_or_default()
            ))
        } else {
            None
        }
    }

    /// Gives a home a slot.
    pub fn take(&mut self, home: HomeId, account: &AccountName, repository: Option<String>) {
        *self.by_account.entry(account.clone()).or_default() += 1;
        if let Some(repository) = &repository {
            *self.by_repository.entry(repository.clone()).or_default() += 1;
        }
        let repositories = repository.into_iter().collect();
        self.of_home.insert(home, QuotaSlot { account: account.clone(), repositories });
    }

    /// Gives a home's slot back; whether it had one.
    pub fn leave(&mut self, home: HomeId) -> bool {
        let Some(QuotaSlot { account, repositories }) = self.of_home.remove(&home) else {
            return false;
        };
        count_down(&mut self.by_account, &account);
        for repository in repositories {
            count_down(&mut self.by_repository, &repository);
        }
        true
    }
}

fn count_down<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
