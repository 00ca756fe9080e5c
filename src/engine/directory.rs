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
//! # Names are not identities
//! A repository can be made again under the name of one that is gone. So a repository and number
//! come with GitHub's numeric id of the repository, where it is known: another id means another
//! issue, whatever it is called. Where an id and a number of one issue lead to two homes, this
//! only says so; `merge` makes one of them.
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

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::sabotage::{Bug, on};
use crate::store::{DeliveryRow, Look, LookAsk};
use crate::types::{AccountName, Alias, DeliveryId, HomeId, IssueNumber, Repository, Timestamp};

use super::api::{EngineError, IssueKey};
use super::environment::Environment;
use super::mailbox::Activation;

/// Aliases that are not durable yet. Its size is bounded by what is in flight.
pub(super) struct Directory {
    env: Arc<Environment>,
    fresh: DashMap<(AccountName, Alias), FreshAlias>,
    /// How many names were taken out so far; counted before each is.
    confirmed: AtomicU64,
    /// Until when a name that was taken out may still be claimed by somebody, in milliseconds
    /// since 1970.
    unsure_until_ms: AtomicI64,
}

/// A name on its way to being durable.
#[derive(Clone, Copy)]
struct FreshAlias {
    home: HomeId,
    /// Of a repository and number: GitHub's numeric id of the repository, where known.
    repository_id: Option<u64>,
    /// A create in fast mode is under way for it: it stays, whatever becomes of other claims.
    held: bool,
}

impl FreshAlias {
    const fn new(home: HomeId, repository_id: Option<u64>) -> Self {
        Self { home, repository_id, held: false }
    }
}

/// How long after a claim came to nothing new homes are not [certain](Activation::certain):
/// somebody who was told of the name's home before may only now speak to its actor. That is a
/// matter of moments; a write that was handed in is decided within it too.
const UNSURE: Duration = Duration::from_secs(60);

/// Where an event belongs.
pub(super) struct Route {
    pub home: HomeId,
    pub activation: Activation,
    /// Aliases that are not known to be durable: the event's commit makes them so, or is refused.
    pub claims: Vec<Alias>,
    /// Whose the repository and number are.
    pub number: Number,
}

/// Whose a repository and number are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// This home's, or nobody's before, or none was given.
    Own,
    /// Another home's: the same issue, known by another id.
    Elsewhere,
    /// Another home's, whose issue was in another repository of the same name.
    Foreign(HomeId),
}

/// Where an alias stands.
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

/// Where the names of an issue stand.
pub(super) struct Names {
    by_id: AliasState,
    by_number: AliasState,
    /// The numeric id of the repository that `by_number` was found for, where known.
    repository_id: Option<u64>,
    /// The repository and number as an alias, which the store and this compare by.
    numbered: Option<Alias>,
    /// How many names had been taken out when this look began.
    seen: u64,
}

impl Directory {
    /// With no names on their way.
    pub fn new(env: Arc<Environment>) -> Self {
        Self {
            env,
            fresh: DashMap::new(),
            confirmed: AtomicU64::new(0),
            unsure_until_ms: AtomicI64::new(0),
        }
    }

    /// Looks where the names of an issue stand and, in the same read, whether a delivery was
    /// processed before. A name that is not durable yet is found here, and the store is not asked
    /// for it.
    pub async fn look(
        &self,
        account: &AccountName,
        key: &IssueKey,
        delivery: Option<&DeliveryId>,
    ) -> Result<(Names, Option<DeliveryRow>), EngineError> {
        let seen = self.confirmed.load(Ordering::SeqCst);
        let numbered =
            key.numbered.as_ref().map(|(repository, number)| numbered(repository, *number));
        let by_id = key.id.as_ref().map(|id| self.fresh(account, Alias::Issue(id.clone())));
        let fresh = numbered.as_ref().map(|alias| self.fresh_entry(account, alias.clone()));
        let by_number =
            fresh.map(|fresh| fresh.map_or(AliasState::No, |it| AliasState::Fresh(it.home)));
        // Here before there: what is durable meanwhile is found there.
        let unknown = |fresh: Option<AliasState>| fresh == Some(AliasState::No);
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
            self.env.store.look(account, ask).await?
        };
        let known = |fresh: Option<AliasState>, durable: Option<HomeId>| match durable {
            Some(home) => AliasState::Durable(home),
            None => fresh.unwrap_or(AliasState::No),
        };
        let names = Names {
            by_id: known(by_id, found.by_issue),
            by_number: known(by_number, found.by_number.map(|found| found.home)),
            repository_id: match found.by_number {
                Some(durable) => durable.repository_id,
                None => fresh.flatten().and_then(|fresh| fresh.repository_id),
            },
            numbered,
            seen,
        };
        Ok((names, found.delivery))
    }

    /// Finds the home of an issue whose names stand like this, or gives it one. `repository_id` is
    /// GitHub's numeric id of the repository, where it is known.
    pub fn place(
        &self,
        account: &AccountName,
        key: &IssueKey,
        repository_id: Option<u64>,
        names: Names,
    ) -> Result<Route, EngineError> {
        let foreign = names.foreign(repository_id);
        let Names { by_id, by_number, repository_id: known_id, numbered, seen } = names;
        // What is found by the name of a foreign repository is another issue.
        let (by_number, mut number) = match (foreign, by_number.home()) {
            (true, Some(other)) => (None, Number::Foreign(other)),
            (true | false, _) => (Some(by_number), Number::Own),
        };
        let known = by_id.home().or(by_number.and_then(AliasState::home));
        let own = |fresh: &FreshAlias| !differ(fresh.repository_id, repository_id);
        let (mut brand_new, mut identity_known) = (false, true);
        let (home, seed) = match (known, &key.id, &key.numbered) {
            (Some(home), ..) => (home, None),
            (None, Some(id), _) => {
                // Somebody may have named the issue since its names were looked for.
                let mut first = |alias: Alias, home: Option<HomeId>| {
                    *self.fresh.entry((account.clone(), alias)).or_insert_with(|| {
                        brand_new |= home.is_none();
                        identity_known &= self.is_as_seen(seen, self.env.now());
                        let home = home.unwrap_or_else(|| self.env.store.next_home());
                        FreshAlias::new(home, repository_id)
                    })
                };
                // The place first: two who know the issue by different ids meet there.
                let at_place = numbered.clone().filter(|_| by_number.is_some());
                let by_place = at_place.clone().map(|alias| first(alias, None)).filter(own);
                let by_place = by_place.map(|fresh| fresh.home);
                let home = first(Alias::Issue(id.clone()), by_place).home;
                if let Some(alias) = at_place
                    && brand_new
                    && by_place.is_some_and(|place| place != home)
                {
                    // The number that was given for the place is nobody's.
                    self.fresh
                        .insert((account.clone(), alias), FreshAlias::new(home, repository_id));
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
        let claims_all = !on(Bug::NamesClaimedByFirst);
        if let (Some(id), AliasState::No | AliasState::Fresh(_)) = (&key.id, by_id)
            && (by_id == AliasState::No || claims_all)
        {
            claims.push(Alias::Issue(id.clone()));
        }
        if let (Some(alias), Some(by_number)) = (numbered, by_number) {
            let owner = match by_number {
                AliasState::Durable(home) | AliasState::Fresh(home) => {
                    FreshAlias::new(home, known_id)
                }
                AliasState::No => *(self.fresh)
                    .entry((account.clone(), alias.clone()))
                    .or_insert(FreshAlias::new(home, repository_id)),
            };
            // A durable name is claimed again where that tells which repository it is of.
            let tells = known_id.is_none() && repository_id.is_some();
            number = match owner {
                owner if owner.home == home => {
                    let claims_it = claims_all || by_number == AliasState::No;
                    if claims_it && (tells || !matches!(by_number, AliasState::Durable(_))) {
                        claims.push(alias);
                    }
                    Number::Own
                }
                owner if own(&owner) => Number::Elsewhere,
                owner => Number::Foreign(owner.home),
            };
        }
        // A home that is only known here has nothing in the store: its actor begins from the id.
        let seed = seed.or_else(|| match (by_id, by_number, &key.id) {
            (AliasState::Fresh(_), _, Some(id))
            | (AliasState::No, Some(AliasState::Fresh(_)), Some(id)) => {
                Some((account.clone(), id.clone()))
            }
            (AliasState::Fresh(_) | AliasState::Durable(_) | AliasState::No, _, _) => None,
        });
        let activation =
            Activation { seed, brand_new, identity_known: brand_new && identity_known };
        Ok(Route { home, activation, claims, number })
    }

    /// Claims names that stand like this for a home which they do not contradict. Returns what is
    /// to be made durable, and whose the number is; `None` where one of them has just become
    /// another home's.
    pub fn claim(
        &self,
        account: &AccountName,
        key: &IssueKey,
        repository_id: Option<u64>,
        names: Names,
        home: HomeId,
    ) -> Option<(Vec<Alias>, Number)> {
        let foreign = names.foreign(repository_id);
        let number = match names.by_number.home() {
            Some(other) if foreign => Number::Foreign(other),
            Some(_) | None => Number::Own,
        };
        let tells = names.repository_id.is_none() && repository_id.is_some();
        let of_id = key.id.clone().map(|id| (Alias::Issue(id), names.by_id, false));
        let of_number = names.numbered.filter(|_| !foreign);
        let of_number = of_number.map(|alias| (alias, names.by_number, tells));
        let mut claims = Vec::new();
        for (alias, known, again) in of_id.into_iter().chain(of_number) {
            let owner = match known {
                AliasState::Durable(owner) | AliasState::Fresh(owner) => owner,
                AliasState::No => {
                    let fresh = self.fresh.entry((account.clone(), alias.clone()));
                    fresh.or_insert(FreshAlias::new(home, repository_id)).home
                }
            };
            if owner != home {
                return None;
            }
            if again || !matches!(known, AliasState::Durable(_)) {
                claims.push(alias);
            }
        }
        Some((claims, number))
    }

    /// The home of an alias, durable or not; `None` where it has none.
    pub async fn find(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, EngineError> {
        if let Some(home) = self.fresh(account, as_kept(alias)).home() {
            return Ok(Some(home));
        }
        Ok(self.env.store.resolve(account, alias).await?)
    }

    /// Whether no name was taken out since a look began, and none a moment ago that somebody may
    /// still claim.
    fn is_as_seen(&self, seen: u64, now: Timestamp) -> bool {
        let is_sure = self.confirmed.load(Ordering::SeqCst) == seen
            && self.unsure_until_ms.load(Ordering::SeqCst) <= now.unix_ms();
        is_sure || on(Bug::FastOnUncertainHome)
    }

    /// A create in fast mode is about to be asked for under these names: until
    /// [`Self::let_go`] they stay, unless they become durable. Also where a later claim of the same
    /// home comes to nothing, by an actor that knows nothing of the create.
    pub fn hold(&self, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        for alias in aliases {
            let entry = self.fresh.entry((account.clone(), as_kept(alias)));
            entry.or_insert(FreshAlias::new(home, None)).held = true;
        }
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

    /// These aliases were claimed for this home, and that came to nothing. Those that are held for
    /// it stay.
    pub fn abandon(&self, now: Timestamp, account: &AccountName, home: HomeId, aliases: &[Alias]) {
        if !aliases.is_empty() {
            self.unsure_until_ms.fetch_max(now.after(UNSURE).unix_ms(), Ordering::SeqCst);
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
            self.confirmed.fetch_add(1, Ordering::SeqCst);
            let key = (account.clone(), as_kept(alias));
            self.fresh.remove_if(&key, |_, claimed| claimed.home == home && may_leave(claimed));
        }
    }

    fn fresh(&self, account: &AccountName, alias: Alias) -> AliasState {
        let fresh = self.fresh_entry(account, alias);
        fresh.map_or(AliasState::No, |fresh| AliasState::Fresh(fresh.home))
    }

    fn fresh_entry(&self, account: &AccountName, alias: Alias) -> Option<FreshAlias> {
        self.fresh.get(&(account.clone(), alias)).map(|fresh| *fresh)
    }
}

impl Names {
    /// Whether the repository and number were found for another repository of the same name.
    fn foreign(&self, repository_id: Option<u64>) -> bool {
        self.by_number.home().is_some() && differ(self.repository_id, repository_id)
    }

    /// The homes that these names lead to. A number of another repository leads nowhere.
    pub fn homes(&self, repository_id: Option<u64>) -> impl Iterator<Item = HomeId> {
        let by_number = self.by_number.home().filter(|_| !self.foreign(repository_id));
        self.by_id.home().into_iter().chain(by_number)
    }

    /// The home that the issue id leads to.
    pub const fn by_id(&self) -> Option<HomeId> {
        self.by_id.home()
    }

    /// Whether one of these names is durable; that of another repository does not count.
    pub fn any_durable(&self, repository_id: Option<u64>) -> bool {
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
