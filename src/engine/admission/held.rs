//! What is held, and by which hold: the part of admission that people decide.
//!
//! A hold is found by what it names. Names change: an issue may turn out to have the id that is
//! held, and a repository that is held may be renamed. The brake must not come off by that, so that
//! ids are followed to their homes, and a repository's hold to its new name.

use std::collections::HashMap;

use crate::issue::{Issue, IssueEvent};
use crate::types::{AccountName, Alias, Hold, HoldScope, HomeId, IssueId, Repository};

/// Every hold in force.
#[derive(Default)]
pub(super) struct Held {
    holds: HashMap<HoldScope, Hold>,
    /// The homes of issues that are held, and the ids that they are held by.
    homes: HashMap<HomeId, Vec<IssueId>>,
}

impl Held {
    /// Every hold, the widest first, then by what is held.
    pub fn all(&self) -> Vec<Hold> {
        let mut all: Vec<Hold> = self.holds.values().cloned().collect();
        let width = |scope: &HoldScope| match scope {
            HoldScope::Server => 0,
            HoldScope::Account(_) => 1,
            HoldScope::Repository(_) => 2,
            HoldScope::Issue(_) => 3,
        };
        all.sort_by_cached_key(|hold| (width(&hold.scope), hold.scope.folded()));
        all
    }

    /// A hold comes into force; of an issue that is known, its home.
    pub fn put(&mut self, hold: Hold, home: Option<HomeId>) {
        if let (HoldScope::Issue(id), Some(home)) = (&hold.scope, home) {
            self.holds_home(home, id.clone());
        }
        self.holds.insert(hold.scope.clone(), hold);
    }

    fn holds_home(&mut self, home: HomeId, id: IssueId) {
        let ids = self.homes.entry(home).or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    /// A hold is in force no more.
    pub fn release(&mut self, scope: &HoldScope) {
        self.holds.remove(scope);
        if let HoldScope::Issue(id) = scope {
            self.homes.retain(|_, ids| {
                ids.retain(|held| held != id);
                !ids.is_empty()
            });
        }
    }

    /// A home has these ids now; and where it turned out to be the same issue as another one, that
    /// one has all that it had.
    pub fn named(&mut self, home: HomeId, ids: &[IssueId], goes_to: Option<HomeId>) {
        // Whatever is held by an id has its hold here.
        if self.holds.is_empty() {
            return;
        }
        for id in ids {
            if self.holds.contains_key(&HoldScope::Issue(id.clone())) {
                self.holds_home(home, id.clone());
            }
        }
        if let Some(other) = goes_to {
            for id in self.homes.get(&home).cloned().unwrap_or_default() {
                self.holds_home(other, id);
            }
        }
    }

    /// A repository has another name: a hold on it holds it under that as well. Returns the hold
    /// that came into force; `None` where it was not held, or is held under that name already.
    ///
    /// The old name stays held too: it may be given to another repository, and only a person says
    /// that one may run.
    pub fn renamed(&mut self, from: &Repository, to: &Repository) -> Option<Hold> {
        let hold = self.holds.get(&HoldScope::Repository(from.clone()))?;
        let scope = HoldScope::Repository(to.clone());
        if self.holds.contains_key(&scope) {
            return None;
        }
        let was = format!("it was {from}");
        let reason = match hold.reason.as_str() {
            "" => was,
            reason => format!("{reason} ({was})"),
        };
        let hold = Hold { scope: scope.clone(), reason, ..hold.clone() };
        self.holds.insert(scope, hold.clone());
        Some(hold)
    }

    /// The hold on an issue in a repository, of which an event may be the first to say another id.
    pub fn on(
        &self,
        issue: &Issue,
        event: &IssueEvent,
        repository: Option<&Repository>,
    ) -> Option<&Hold> {
        if self.holds.is_empty() {
            return None;
        }
        let known = |scope: HoldScope| self.holds.get(&scope);
        let by_id = |id: &IssueId| known(HoldScope::Issue(id.clone()));
        let named = event.claims().iter().filter_map(|alias| match alias {
            Alias::Issue(id) => Some(id),
            Alias::Numbered(..) => None,
        });
        known(HoldScope::Server)
            .or_else(|| known(HoldScope::Account(issue.account.clone())))
            .or_else(|| known(HoldScope::Repository(repository?.clone())))
            .or_else(|| by_id(&issue.facts.issue_id))
            .or_else(|| self.homes.get(&issue.home)?.iter().find_map(by_id))
            .or_else(|| named.into_iter().find_map(by_id))
    }

    /// The same for a row of the store; a hold on the issue by its first id is seen by its step.
    pub fn covers(&self, home: HomeId, account: &AccountName, repository: Option<&str>) -> bool {
        let known = |scope: HoldScope| self.holds.contains_key(&scope);
        !self.holds.is_empty()
            && (known(HoldScope::Server)
                || known(HoldScope::Account(account.clone()))
                || repository.is_some_and(|r| known(HoldScope::Repository(Repository::trusted(r))))
                || self.homes.contains_key(&home))
    }
}
