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
//!
//! # Why a create in fast mode is safe from it
//! In fast mode a provider is asked before the commit could be refused, so that there a second
//! number would mean a second call for one issue. A new home is therefore *certain* only where that
//! race was not possible. A name leaves this place after it became durable, or after its claim came
//! to nothing. Names that left are counted, before each leaves; a look reads the count when it
//! begins, and [`Directory::place`] compares it where the new home's entry is made, under that
//! entry's guard. Unchanged, the name was here or nowhere all the time: had it been durable when
//! the look began, the store would have said so; had another home had it here, it still would.
//! Where a claim came to nothing, whoever learned the name's home before may still make it durable,
//! so that for a while no new home is certain; and the names of a fast create stay here until its
//! object is destroyed. From then on everybody finds this home for the name, so only its actor asks,
//! and the executor's slot makes it one call at a time. What is not certain is made in strong mode.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::store::{DeliveryRow, Look, LookAsk, StoreError};
use crate::types::{AccountName, Alias, DeliveryId, HomeId, IssueNumber, Repository, Timestamp};

use super::actor::Activation;
use super::api::{EngineError, IssueKey};
use super::core::Core;

/// Aliases that are not durable yet. Its size is bounded by what is in flight.
#[derive(Default)]
pub(super) struct Directory {
    fresh: DashMap<(AccountName, Alias), HomeId>,
    /// How many names were taken out so far; counted before each is.
    settled: AtomicU64,
    /// Until when a name that was taken out may still be claimed by somebody, in milliseconds
    /// since 1970.
    unsure_until_ms: AtomicI64,
}

/// How long after a claim came to nothing new homes are not [certain](Activation::certain):
/// somebody who was told of the name's home before may only now speak to its actor. That is a
/// matter of moments; a write that was handed in is decided within it too.
const UNSURE: Duration = Duration::from_secs(60);

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

/// Where the names of an issue stand.
pub(super) struct Names {
    by_id: Known,
    by_number: Known,
    /// The repository and number as an alias, which the store and this compare by.
    numbered: Option<Alias>,
    /// How many names had been taken out when this look began.
    seen: u64,
}

impl Directory {
    /// Looks where the names of an issue stand and, in the same read, whether a delivery was
    /// processed before. A name that is not durable yet is found here, and the store is not asked
    /// for it.
    pub async fn look(
        &self,
        core: &Core,
        account: &AccountName,
        key: &IssueKey,
        delivery: Option<&DeliveryId>,
    ) -> Result<(Names, Option<DeliveryRow>), EngineError> {
        let seen = self.settled.load(Ordering::SeqCst);
        let numbered =
            key.numbered.as_ref().map(|(repository, number)| numbered(repository, *number));
        let by_id = key.id.as_ref().map(|id| self.fresh(account, Alias::Issue(id.clone())));
        let by_number = numbered.as_ref().map(|alias| self.fresh(account, alias.clone()));
        // Here before there: what is durable meanwhile is found there.
        let unknown = |fresh: Option<Known>| fresh == Some(Known::No);
        let ask = LookAsk {
            delivery,
            issue: key.id.as_ref().filter(|_| unknown(by_id)),
            numbered: (key.numbered.as_ref())
                .filter(|_| unknown(by_number))
                .map(|(repository, number)| (repository, *number)),
        };
        let found = if ask == LookAsk::default() {
            Look::default()
        } else {
            core.store.look(account, ask).await.map_err(store_failed)?
        };
        let known = |fresh: Option<Known>, durable: Option<HomeId>| match durable {
            Some(home) => Known::Durable(home),
            None => fresh.unwrap_or(Known::No),
        };
        let names = Names {
            by_id: known(by_id, found.by_issue),
            by_number: known(by_number, found.by_number.map(|found| found.home)),
            numbered,
            seen,
        };
        Ok((names, found.delivery))
    }

    /// Finds the home of an issue whose names stand like this, or gives it one.
    pub fn place(
        &self,
        core: &Core,
        account: &AccountName,
        key: &IssueKey,
        names: Names,
    ) -> Result<Place, EngineError> {
        let Names { by_id, by_number, numbered, seen } = names;
        let known = by_id.home().or(by_number.home());
        let (mut brand_new, mut certain) = (false, true);
        let (home, seed) = match (known, &key.id, &key.numbered) {
            (Some(home), ..) => (home, None),
            (None, Some(id), _) => {
                // Somebody may have named the issue since its names were looked for.
                let mut first = |alias: Alias, home: Option<HomeId>| {
                    *self.fresh.entry((account.clone(), alias)).or_insert_with(|| {
                        brand_new |= home.is_none();
                        certain &= self.is_as_seen(seen, core.now());
                        home.unwrap_or_else(|| core.store.next_home())
                    })
                };
                // The place first: two who know the issue by different ids meet there.
                let by_place = numbered.clone().map(|alias| first(alias, None));
                let home = first(Alias::Issue(id.clone()), by_place);
                if let Some(alias) = &numbered
                    && brand_new
                    && by_place != Some(home)
                {
                    // The number that was given for the place is nobody's.
                    self.fresh.insert((account.clone(), alias.clone()), home);
                    brand_new = false;
                }
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
        let activation = Activation { seed, brand_new, certain: brand_new && certain };
        Ok(Place { home, activation, claims, place_elsewhere })
    }

    /// The home of an alias, durable or not; `None` where it has none.
    pub async fn find(
        &self,
        core: &Core,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, EngineError> {
        if let Some(home) = self.fresh(account, alias.clone()).home() {
            return Ok(Some(home));
        }
        core.store.resolve(account, alias).await.map_err(store_failed)
    }

    /// Whether no name was taken out since a look began, and none a moment ago that somebody may
    /// still claim.
    fn is_as_seen(&self, seen: u64, now: Timestamp) -> bool {
        self.settled.load(Ordering::SeqCst) == seen
            && self.unsure_until_ms.load(Ordering::SeqCst) <= now.unix_ms()
    }

    /// These aliases were claimed for this home, and that came to nothing.
    pub fn came_to_nothing(
        &self,
        now: Timestamp,
        account: &AccountName,
        home: HomeId,
        aliases: &[Alias],
    ) {
        if !aliases.is_empty() {
            self.unsure_until_ms.fetch_max(now.after(UNSURE).unix_ms(), Ordering::SeqCst);
            self.settled(account, home, aliases);
        }
    }

    /// These aliases are durable, or were refused to this home: the store answers for them from
    /// now on. What another home claims meanwhile stays.
    pub fn settled(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        for alias in aliases {
            let alias = match alias {
                Alias::Issue(_) => alias.clone(),
                Alias::Numbered(repository, number) => numbered(repository, *number),
            };
            self.settled.fetch_add(1, Ordering::SeqCst);
            self.fresh.remove_if(&(account.clone(), alias), |_, claimed| *claimed == home);
        }
    }

    fn fresh(&self, account: &AccountName, alias: Alias) -> Known {
        let home = self.fresh.get(&(account.clone(), alias));
        home.map_or(Known::No, |home| Known::Fresh(*home))
    }
}

/// Repositories are compared without regard to case.
fn numbered(repository: &Repository, number: IssueNumber) -> Alias {
    Alias::Numbered(Repository::trusted(repository.folded()), number)
}

pub(super) fn store_failed(error: StoreError) -> EngineError {
    EngineError::StoreFailed(error.to_string())
}
