//! Which home? Every alias of an issue (its id, or its repository and number) leads to one home.
//!
//! The store knows every alias that is durable. A new issue gets the number of its home here, in
//! memory, and keeps it until the first commit has made its aliases durable; every caller that
//! names the same issue meanwhile finds the same number. This file keeps those aliases; [`route`]
//! decides by them which home an event is for.
//!
//! # The race that is accepted
//! A caller may ask the store just before an alias becomes durable and look here just after it was
//! taken out. That gives the issue a second number, whose first commit the store refuses, since the
//! alias is taken; the caller's one retry then finds the first. For this *every* event claims each
//! alias that it did not find durable, not only the one that brought it here: the one that brought
//! it may be refused for a reason of its own (a repeated delivery), and the one behind it would
//! then be the second number's first commit.
//!
//! # Names are not identities
//! A repository can be made again under the name of one that is gone. So a repository and number
//! come with GitHub's numeric id of the repository, if known: another id means another issue,
//! whatever it is called. If an id and a number of one issue lead to two homes, this only says so;
//! `merge` makes one of them.

pub(super) mod route;

use std::sync::Arc;

use dashmap::DashMap;

use crate::store::{DeliveryRow, Look, LookAsk};
use crate::types::{AccountName, Alias, DeliveryId, HomeId, IssueNumber, Repository, Timestamp};

use super::api::{EngineError, IssueKey};
use super::environment::Environment;
use super::fast_create::certainty::Certainty;

/// Aliases that are not durable yet. Its size is bounded by what is in flight.
pub(super) struct Directory {
    env: Arc<Environment>,
    fresh: DashMap<(AccountName, Alias), FreshAlias>,
    /// Whether a new home is certain to be the only one of its issue.
    certainty: Certainty,
}

/// A name on its way to being durable.
#[derive(Clone, Copy)]
struct FreshAlias {
    home: HomeId,
    /// Of a repository and number: GitHub's numeric id of the repository, if known.
    repository_id: Option<u64>,
    /// A create in fast mode is under way for it: it stays, whatever becomes of other claims.
    held: bool,
}

impl FreshAlias {
    const fn new(home: HomeId, repository_id: Option<u64>) -> Self {
        Self { home, repository_id, held: false }
    }
}

/// To which home an alias leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AliasState {
    Durable(HomeId),
    Fresh(HomeId),
    No,
}

impl AliasState {
    const fn home(self) -> Option<HomeId> {
        match self {
            Self::Durable(home) | Self::Fresh(home) => Some(home),
            Self::No => None,
        }
    }
}

/// To which homes the names of an issue lead.
pub(super) struct Names {
    by_id: AliasState,
    by_number: AliasState,
    /// The numeric id of the repository that `by_number` was found for, if known.
    repository_id: Option<u64>,
    /// The repository and number as an alias, which the store and this compare by.
    numbered: Option<Alias>,
    /// How many names had been taken out when this look began.
    seen: u64,
}

impl Directory {
    /// With no names on their way.
    pub fn new(env: Arc<Environment>) -> Self {
        Self { env, fresh: DashMap::new(), certainty: Certainty::default() }
    }

    /// Looks up the names of an issue and, in the same read, whether a delivery was processed
    /// before. A name that is not durable yet is found here, and the store is not asked
    /// for it, unless a create in fast mode holds it: while that is undone, another commit may have
    /// made the name durable, and a merge may have given it to another home. The store is right then.
    pub async fn look(
        &self,
        account: &AccountName,
        key: &IssueKey,
        delivery: Option<&DeliveryId>,
    ) -> Result<(Names, Option<DeliveryRow>), EngineError> {
        let seen = self.certainty.names_left();
        let numbered =
            key.numbered.as_ref().map(|(repository, number)| numbered(repository, *number));
        let by_id = key.id.as_ref().and_then(|id| self.fresh(account, Alias::Issue(id.clone())));
        let by_number = numbered.as_ref().and_then(|alias| self.fresh(account, alias.clone()));
        // Here before there: what is durable meanwhile is found there.
        let may_be_durable = |fresh: Option<FreshAlias>| fresh.is_none_or(|fresh| fresh.held);
        let ask = LookAsk {
            delivery,
            issue: key.id.as_ref().filter(|_| may_be_durable(by_id)),
            numbered: (key.numbered.as_ref())
                .filter(|_| may_be_durable(by_number))
                .map(|(repository, number)| (repository, *number)),
        };
        let found = if ask == LookAsk::default() {
            Look::default()
        } else {
            self.env.store.look(account, ask).await?
        };
        let known = |fresh: Option<FreshAlias>, durable: Option<HomeId>| match durable {
            Some(home) => AliasState::Durable(home),
            None => fresh.map_or(AliasState::No, |fresh| AliasState::Fresh(fresh.home)),
        };
        let names = Names {
            by_id: known(by_id, found.by_issue),
            by_number: known(by_number, found.by_number.map(|found| found.home)),
            repository_id: match found.by_number {
                Some(durable) => durable.repository_id,
                None => by_number.and_then(|fresh| fresh.repository_id),
            },
            numbered,
            seen,
        };
        Ok((names, found.delivery))
    }

    /// The home of an alias, durable or not; `None` if it has none. Of an alias that a create in fast
    /// mode holds, the durable one if there is one.
    pub async fn find(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, EngineError> {
        let fresh = self.fresh(account, as_kept(alias));
        if let Some(fresh) = fresh.filter(|fresh| !fresh.held) {
            return Ok(Some(fresh.home));
        }
        let durable = self.env.store.resolve(account, alias).await?;
        Ok(durable.or(fresh.map(|fresh| fresh.home)))
    }

    /// A create in fast mode is about to be asked for under these names: until
    /// [`Self::let_go`] they stay, unless they become durable. Also if a later claim of the same
    /// home is abandoned, by an actor that knows nothing of the create. False, and nothing is held, if
    /// another home claims one of them by now.
    pub fn hold(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) -> bool {
        for (at, alias) in aliases.iter().enumerate() {
            let entry = self.fresh.entry((account.clone(), as_kept(alias)));
            let mut claimed = entry.or_insert(FreshAlias::new(home, None));
            if claimed.home != home {
                drop(claimed);
                self.let_go(account, home, &aliases[..at]);
                return false;
            }
            claimed.held = true;
        }
        true
    }

    /// Whether a create in fast mode of another home holds one of these names.
    pub fn is_held_elsewhere(
        &self,
        account: &AccountName,
        home: HomeId,
        aliases: &[Alias],
    ) -> bool {
        aliases.iter().any(|alias| {
            let claimed = self.fresh(account, as_kept(alias));
            claimed.is_some_and(|claimed| claimed.held && claimed.home != home)
        })
    }

    /// The object of that create is recorded or destroyed.
    pub fn let_go(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        for alias in aliases {
            if let Some(mut claimed) = self.fresh.get_mut(&(account.clone(), as_kept(alias)))
                && claimed.home == home
            {
                claimed.held = false;
            }
        }
    }

    /// Whether a create in fast mode of this home holds one of these names.
    pub fn is_held(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) -> bool {
        aliases.iter().any(|alias| {
            let claimed = self.fresh(account, as_kept(alias));
            claimed.is_some_and(|claimed| claimed.held && claimed.home == home)
        })
    }

    /// A home gave way to another one durably: it has no names any more, not even those of a create that
    /// is being undone. It asks for no other create.
    pub fn gave_way(&self, now: Timestamp, account: &AccountName, home: HomeId) {
        self.certainty.claim_abandoned(now);
        self.fresh.retain(|(of, _), claimed| {
            let stays = claimed.home != home || of != account;
            if !stays {
                self.certainty.name_leaves();
            }
            stays
        });
    }

    /// The claims of these aliases for this home are abandoned. Those that are held for it stay.
    pub fn abandon(&self, now: Timestamp, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        if !aliases.is_empty() {
            self.certainty.claim_abandoned(now);
            self.take_out(account, home, aliases, |claimed| !claimed.held);
        }
    }

    /// These aliases are durable: the store answers for them from now on. What another home claims
    /// meanwhile stays.
    pub fn confirm(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        self.take_out(account, home, aliases, |_| true);
    }

    fn take_out(
        &self,
        account: &AccountName,
        home: HomeId,
        aliases: &[Alias],
        may_leave: impl Fn(&FreshAlias) -> bool,
    ) {
        for alias in aliases {
            self.certainty.name_leaves();
            let key = (account.clone(), as_kept(alias));
            self.fresh.remove_if(&key, |_, claimed| claimed.home == home && may_leave(claimed));
        }
    }

    fn fresh(&self, account: &AccountName, alias: Alias) -> Option<FreshAlias> {
        self.fresh.get(&(account.clone(), alias)).map(|fresh| *fresh)
    }
}

impl Names {
    /// Whether the repository and number were found for another repository of the same name.
    fn foreign(&self, repository_id: Option<u64>) -> bool {
        self.by_number.home().is_some() && differ(self.repository_id, repository_id)
    }

    /// The homes that these names lead to. A number of another repository leads nowhere.
    fn homes(&self, repository_id: Option<u64>) -> impl Iterator<Item = HomeId> {
        let by_number = self.by_number.home().filter(|_| !self.foreign(repository_id));
        self.by_id.home().into_iter().chain(by_number)
    }

    /// Whether one of these names is durable; that of another repository does not count.
    fn any_durable(&self, repository_id: Option<u64>) -> bool {
        let is_own = !self.foreign(repository_id);
        matches!(self.by_id, AliasState::Durable(_))
            || (is_own && matches!(self.by_number, AliasState::Durable(_)))
    }
}

/// Whether two numeric ids are known, and are those of two repositories.
fn differ(one: Option<u64>, other: Option<u64>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// An alias as it is kept here.
fn as_kept(alias: &Alias) -> Alias {
    match alias {
        Alias::Issue(_) => alias.clone(),
        Alias::Numbered(repository, number) => numbered(repository, *number),
    }
}

/// Repositories are compared without regard to case.
fn numbered(repository: &Repository, number: IssueNumber) -> Alias {
    Alias::Numbered(Repository::trusted(repository.folded()), number)
}
