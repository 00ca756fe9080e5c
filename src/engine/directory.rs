//! Alias → home: which actor an issue's event belongs to.
//!
//! The store knows every alias that is durable. A new issue gets its number here, in memory, and
//! keeps it until the first commit has made its aliases durable; everyone who names the same issue
//! meanwhile finds the same number.
//!
//! # The race that is accepted
//! Somebody may ask the store just before an alias becomes durable and look here just after it was
//! taken out. That gives the issue a second number, whose first commit the store refuses, since the
//! alias is taken; the caller's one retry then finds the first. For this *every* event claims each
//! alias that it did not find durable, not only the one that brought it here: the one that brought
//! it may be refused for a reason of its own (a repeated delivery), and whoever came behind it
//! would then be the second number's first commit.

use dashmap::DashMap;

use crate::store::StoreError;
use crate::types::{AccountName, Alias, HomeId, IssueNumber, Repository};

use super::actor::Activation;
use super::api::{EngineError, IssueKey};
use super::core::Core;

/// Aliases that are not durable yet. Its size is bounded by what is in flight.
#[derive(Default)]
pub(super) struct Directory {
    fresh: DashMap<(AccountName, Alias), HomeId>,
}

/// Where an event belongs.
pub(super) struct Place {
    pub home: HomeId,
    pub activation: Activation,
    /// Aliases that are not known to be durable: the event's commit makes them so, or is refused.
    pub claims: Vec<Alias>,
    /// Whether the repository and number belong to another home than the issue id.
    pub place_elsewhere: bool,
}

/// Where an alias stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Durable(HomeId),
    Fresh(HomeId),
    No,
}

impl Known {
    const fn home(self) -> Option<HomeId> {
        match self {
            Self::Durable(home) | Self::Fresh(home) => Some(home),
            Self::No => None,
        }
    }
}

impl Directory {
    /// Finds the home of an issue, or gives it one.
    pub async fn place(
        &self,
        core: &Core,
        account: &AccountName,
        key: &IssueKey,
    ) -> Result<Place, EngineError> {
        let by_id = match &key.id {
            Some(id) => self.lookup(core, account, &Alias::Issue(id.clone())).await?,
            None => Known::No,
        };
        let numbered =
            key.numbered.clone().map(|(repository, number)| numbered(&repository, number));
        let by_number = match &numbered {
            Some(alias) => self.lookup(core, account, alias).await?,
            None => Known::No,
        };
        let known = by_id.home().or(by_number.home());
        let mut brand_new = false;
        let (home, seed) = match (known, &key.id, &key.numbered) {
            (Some(home), ..) => (home, None),
            (None, Some(id), _) => {
                let claim = (account.clone(), Alias::Issue(id.clone()));
                let home = *self.fresh.entry(claim).or_insert_with(|| {
                    brand_new = true;
                    core.store.next_home()
                });
                (home, Some((account.clone(), id.clone())))
            }
            (None, None, Some((repository, number))) => {
                return Err(EngineError::IssueUnknown(repository.clone(), *number));
            }
            (None, None, None) => return Err(EngineError::SandboxNotFound),
        };
        let mut claims = Vec::new();
        if let (Some(id), Known::No | Known::Fresh(_)) = (&key.id, by_id) {
            claims.push(Alias::Issue(id.clone()));
        }
        let mut place_elsewhere = by_number.home().is_some_and(|other| other != home);
        match (numbered, by_number) {
            (Some(alias), Known::No) => {
                let claim = (account.clone(), alias.clone());
                let first = *self.fresh.entry(claim).or_insert(home);
                place_elsewhere = first != home;
                if !place_elsewhere {
                    claims.push(alias);
                }
            }
            (Some(alias), Known::Fresh(first)) if first == home => claims.push(alias),
            (Some(_) | None, Known::No | Known::Fresh(_) | Known::Durable(_)) => {}
        }
        // A home that is only known here has nothing in the store: its actor begins from the id.
        let seed = seed.or_else(|| match (by_id, by_number, &key.id) {
            (Known::Fresh(_), _, Some(id)) | (Known::No, Known::Fresh(_), Some(id)) => {
                Some((account.clone(), id.clone()))
            }
            (Known::Fresh(_) | Known::Durable(_) | Known::No, _, _) => None,
        });
        let activation = Activation { seed, brand_new, after_restart: false };
        Ok(Place { home, activation, claims, place_elsewhere })
    }

    /// The home of an alias, durable or not; `None` where it has none.
    pub async fn find(
        &self,
        core: &Core,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, EngineError> {
        Ok(self.lookup(core, account, alias).await?.home())
    }

    /// These aliases are durable, or were refused to this home: the store answers for them from
    /// now on. What another home claims meanwhile stays.
    pub fn settled(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        for alias in aliases {
            let alias = match alias {
                Alias::Issue(_) => alias.clone(),
                Alias::Numbered(repository, number) => numbered(repository, *number),
            };
            self.fresh.remove_if(&(account.clone(), alias), |_, claimed| *claimed == home);
        }
    }

    async fn lookup(
        &self,
        core: &Core,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Known, EngineError> {
        if let Some(home) = self.fresh.get(&(account.clone(), alias.clone())) {
            return Ok(Known::Fresh(*home));
        }
        match core.store.resolve(account, alias).await {
            Ok(Some(home)) => Ok(Known::Durable(home)),
            Ok(None) => Ok(Known::No),
            Err(error) => Err(store_failed(error)),
        }
    }
}

/// Repositories are compared without regard to case.
fn numbered(repository: &Repository, number: IssueNumber) -> Alias {
    Alias::Numbered(Repository::trusted(repository.folded()), number)
}

pub(super) fn store_failed(error: StoreError) -> EngineError {
    EngineError::StoreFailed(error.to_string())
}
