//! What is held, and by which hold: the part of admission that people decide.
//!
//! A hold is found by what it names. Names change: an issue may turn out to have the id that is held, and
//! a repository that is held may be renamed. The brake must not come off by that, so ids are followed to
//! their homes, and a repository's hold to its new name.

use std::collections::HashMap;

use crate::issue::Issue;
use crate::issue::event::EventMeta;
use crate::types::{AccountName, Alias, Hold, HoldScope, HomeId, IssueId, Repository};

/// Every hold in force.
#[derive(Default)]
pub(super) struct HoldIndex {
    holds: HashMap<HoldScope, Hold>,
    /// The homes of issues that are held, and the holds on ids that they are held by.
    homes: HashMap<HomeId, Vec<HoldScope>>,
}

impl HoldIndex {
    /// Every hold, the widest first, then by what is held.
    pub fn all(&self) -> Vec<Hold> {
        let mut all: Vec<Hold> = self.holds.values().cloned().collect();
        let width = |scope: &HoldScope| match scope {
            HoldScope::Server => 0,
            HoldScope::Account(_) => 1,
            HoldScope::Repository(_) => 2,
            HoldScope::Issue(..) => 3,
        };
        all.sort_by_cached_key(|hold| (width(&hold.scope), hold.scope.folded()));
        all
    }

    /// A hold comes into force; of an issue that is known, its home.
    pub fn put(&mut self, hold: Hold, home: Option<HomeId>) {
        if let (HoldScope::Issue(..), Some(home)) = (&hold.scope, home) {
            self.holds_home(home, hold.scope.clone());
        }
        self.holds.insert(hold.scope.clone(), hold);
    }

    fn holds_home(&mut self, home: HomeId, scope: HoldScope) {
        let scopes = self.homes.entry(home).or_default();
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }

    /// A hold is in force no more.
    pub fn release(&mut self, scope: &HoldScope) {
        self.holds.remove(scope);
        if let HoldScope::Issue(..) = scope {
            self.homes.retain(|_, scopes| {
                scopes.retain(|held| held != scope);
                !scopes.is_empty()
            });
        }
    }

    /// A home of this account has these ids now. If it was merged into another one, that one has all its ids.
    pub fn named(
        &mut self,
        account: &AccountName,
        home: HomeId,
        ids: &[IssueId],
        goes_to: Option<HomeId>,
    ) {
        // Whatever is held by an id has its hold here.
        if self.holds.is_empty() {
            return;
        }
        for id in ids {
            let scope = HoldScope::Issue(account.clone(), id.clone());
            if self.holds.contains_key(&scope) {
                self.holds_home(home, scope);
            }
        }
        if let Some(other) = goes_to {
            for scope in self.homes.get(&home).cloned().unwrap_or_default() {
                self.holds_home(other, scope);
            }
        }
    }

    /// Whether a hold is in force, just so.
    pub fn has(&self, hold: &Hold) -> bool {
        self.holds.get(&hold.scope) == Some(hold)
    }

    /// A repository has another name: what is to be put on so that a hold on it holds it under that
    /// as well. That is the hold under the new name, and the one that it follows from, which says
    /// from now on that it was followed; nothing if it is not held, or was followed before.
    ///
    /// The old name stays held too: it may be given to another repository, and only a person says
    /// that one may run. Issues learn the new name one by one, and some much later: a hold that was
    /// released under the new name meanwhile must not come back by that.
    pub fn followed(&self, from: &Repository, to: &Repository) -> Vec<Hold> {
        let on = |name: &Repository| self.holds.get(&HoldScope::Repository(name.clone()));
        let Some(mut hold) = on(from) else { return Vec::new() };
        // From the name to which it was followed last. Names can go round in a circle.
        for _ in 0..self.holds.len() {
            match &hold.followed_to {
                None => break,
                Some(next) if next.folded() == to.folded() => return Vec::new(),
                Some(next) => match on(next) {
                    Some(next) => hold = next,
                    None => return Vec::new(),
                },
            }
        }
        let mut put = Vec::new();
        if hold.followed_to.is_none() {
            put.push(Hold { followed_to: Some(to.clone()), ..hold.clone() });
        }
        if on(to).is_none() {
            let was = format!("it was {from}");
            let reason = match hold.reason.as_str() {
                "" => was,
                reason => format!("{reason} ({was})"),
            };
            let scope = HoldScope::Repository(to.clone());
            put.push(Hold { scope, reason, followed_to: None, ..hold.clone() });
        }
        put
    }

    /// The hold on an issue in a repository, of which an event may be the first to say another id.
    pub fn on(
        &self,
        issue: &Issue,
        event: &EventMeta<'_>,
        repository: Option<&Repository>,
    ) -> Option<&Hold> {
        if self.holds.is_empty() {
            return None;
        }
        let known = |scope: HoldScope| self.holds.get(&scope);
        let by_id = |id: &IssueId| known(HoldScope::Issue(issue.account.clone(), id.clone()));
        let of_home =
            |home: HomeId| self.homes.get(&home)?.iter().find_map(|scope| self.holds.get(scope));
        let named = event.claims.iter().filter_map(|alias| match alias {
            Alias::Issue(id) => Some(id),
            Alias::Numbered(..) => None,
        });
        known(HoldScope::Server)
            .or_else(|| known(HoldScope::Account(issue.account.clone())))
            .or_else(|| known(HoldScope::Repository(repository?.clone())))
            .or_else(|| by_id(&issue.facts.issue_id))
            .or_else(|| of_home(issue.home))
            .or_else(|| event.other_home.and_then(of_home))
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
