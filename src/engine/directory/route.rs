//! Decides which home an event is for, by the names of its issue.
//!
//! Every place that asks "which home?" asks here or [`Directory::find`]: *ensure*, deliveries,
//! merges, and the adoption of an object.

use std::collections::BTreeSet;

use super::{AliasState, Directory, FreshAlias, Names, differ};
use crate::engine::api::{EngineError, IssueKey};
use crate::engine::mailbox::Activation;
use crate::issue::event::News;
use crate::sabotage::{Bug, on};
use crate::types::{AccountName, Alias, HomeId, IssueId};

/// The home that an event is for.
pub(in crate::engine) struct Route {
    pub home: HomeId,
    pub activation: Activation,
    /// Aliases that are not known to be durable: the event's commit makes them so, or is refused.
    pub claims: Vec<Alias>,
    /// To which home the repository and number lead.
    pub number: Number,
}

/// To which home a repository and number lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Number {
    /// To this one, or to none before, or none was given.
    Own,
    /// To another home: the same issue, known by another id.
    Elsewhere,
    /// To another home, whose issue was in another repository of the same name.
    Foreign(HomeId),
}

/// An issue under the names that it has, or had, in one repository.
pub(in crate::engine) struct NamedPlace {
    pub key: IssueKey,
    pub repository_id: u64,
}

impl NamedPlace {
    /// The names as aliases.
    pub fn aliases(&self) -> impl Iterator<Item = Alias> {
        let id = self.key.id.clone().map(Alias::Issue);
        let numbered = self.key.numbered.clone();
        let numbered = numbered.map(|(repository, number)| Alias::Numbered(repository, number));
        id.into_iter().chain(numbered)
    }
}

/// Where all names of one issue lead.
pub(in crate::engine) enum Homes {
    /// All to one home.
    One(Route),
    /// To several, which are to be merged.
    Several {
        homes: BTreeSet<HomeId>,
        /// The home of the issue's id.
        by_id: Option<HomeId>,
    },
    /// One of the names has just become another home's: look again.
    Changed,
}

/// A new home's number.
struct NewHome {
    home: HomeId,
    /// It was given just now.
    brand_new: bool,
    /// No other home can have been given to the issue.
    is_certain: bool,
}

/// The names of one issue, and where they lead as far as they are its own.
struct Search<'a> {
    directory: &'a Directory,
    account: &'a AccountName,
    repository_id: Option<u64>,
    names: Names,
    /// Where the repository and number lead; `None` if to an issue of another repository.
    by_number: Option<AliasState>,
}

impl Directory {
    /// Finds the home of an issue, or gives it one.
    pub async fn route(&self, account: &AccountName, key: &IssueKey) -> Result<Route, EngineError> {
        let (names, _) = self.look(account, key, None).await?;
        self.place(account, key, None, names)
    }

    /// Finds the home of an issue whose names lead as given, or gives it one. `repository_id` is
    /// GitHub's numeric id of the repository, if known.
    pub fn place(
        &self,
        account: &AccountName,
        key: &IssueKey,
        repository_id: Option<u64>,
        names: Names,
    ) -> Result<Route, EngineError> {
        let search = Search::new(self, account, repository_id, names);
        let new = match (search.known(), &key.id, &key.numbered) {
            (Some(home), ..) => NewHome { home, brand_new: false, is_certain: false },
            (None, Some(id), _) => search.new_home(id),
            (None, None, Some((repository, number))) => {
                return Err(EngineError::IssueUnknown(repository.clone(), *number));
            }
            (None, None, None) => return Err(EngineError::SandboxNotFound),
        };
        let NewHome { home, brand_new, is_certain } = new;
        let mut claims: Vec<Alias> = search.claimed_id(key.id.as_ref()).into_iter().collect();
        let number = search.claim_number(home, &mut claims);
        // A home that is only known here has nothing in the store: its actor begins from the id.
        let seed = key.id.clone().filter(|_| !search.is_stored());
        let activation = Activation {
            seed: seed.map(|id| (account.clone(), id)),
            brand_new,
            identity_known: brand_new && is_certain,
        };
        Ok(Route { home, activation, claims, number })
    }

    /// Finds the home to which all names of an issue lead, or gives it one. `id` is the issue's id
    /// now, under its first names.
    pub async fn route_all(
        &self,
        account: &AccountName,
        id: &IssueId,
        places: &[NamedPlace],
    ) -> Result<Homes, EngineError> {
        let mut names = Vec::with_capacity(places.len());
        for place in places {
            names.push(self.look(account, &place.key, None).await?.0);
        }
        let each = || places.iter().zip(&names);
        let homes: BTreeSet<HomeId> =
            each().flat_map(|(place, names)| names.homes(Some(place.repository_id))).collect();
        if homes.len() > 1 {
            let by_id = names.first().and_then(|names| names.by_id.home());
            return Ok(Homes::Several { homes, by_id });
        }
        let durable = each().any(|(place, names)| names.any_durable(Some(place.repository_id)));
        let seed = Some((account.clone(), id.clone())).filter(|_| !durable);
        let activation = Activation { seed, ..Activation::default() };
        let home = homes.first().copied().unwrap_or_else(|| self.env.store.next_home());
        let (mut claims, mut number) = (Vec::new(), None);
        for (place, names) in places.iter().zip(names) {
            let Some((more, of)) = self.claim(account, place, names, home) else {
                return Ok(Homes::Changed);
            };
            claims.extend(more);
            number = number.or(Some(of));
        }
        Ok(Homes::One(Route { home, activation, claims, number: number.unwrap_or(Number::Own) }))
    }

    /// Claims names that lead as given for a home which they do not contradict. Returns what is to
    /// be made durable, and where the number leads; `None` if one of them has just become another
    /// home's.
    fn claim(
        &self,
        account: &AccountName,
        place: &NamedPlace,
        names: Names,
        home: HomeId,
    ) -> Option<(Vec<Alias>, Number)> {
        let repository_id = Some(place.repository_id);
        let foreign = names.foreign(repository_id);
        let number = match names.by_number.home() {
            Some(other) if foreign => Number::Foreign(other),
            Some(_) | None => Number::Own,
        };
        let adds_repository_id = names.repository_id.is_none()
            && names.numbered.as_ref().is_some_and(|it| self.is_free_for(account, home, it));
        let of_id = place.key.id.clone().map(|id| (Alias::Issue(id), names.by_id, false));
        let of_number = names.numbered.filter(|_| !foreign);
        let of_number = of_number.map(|alias| (alias, names.by_number, adds_repository_id));
        let mut claims = Vec::new();
        for (alias, known, again) in of_id.into_iter().chain(of_number) {
            let owner = match known {
                AliasState::Durable(owner) | AliasState::Fresh(owner) => owner,
                AliasState::No => self.first(account, &alias, home, repository_id).home,
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

    /// Whether a home may claim a durable name of its own again. A create of another home that is being
    /// undone may hold it still: the home's commit would be refused for as long.
    fn is_free_for(&self, account: &AccountName, home: HomeId, alias: &Alias) -> bool {
        !self.is_held_elsewhere(account, home, std::slice::from_ref(alias))
    }

    /// The entry of a name that led nowhere: this home's, unless another was faster.
    fn first(
        &self,
        account: &AccountName,
        alias: &Alias,
        home: HomeId,
        repository_id: Option<u64>,
    ) -> FreshAlias {
        let fresh = self.fresh.entry((account.clone(), alias.clone()));
        *fresh.or_insert(FreshAlias::new(home, repository_id))
    }

    /// What a delivery's issue takes from another home, whose issue was in a repository of the same
    /// name; and whether its own repository and number stay that home's, because the delivery is
    /// older than what that home knows.
    pub async fn takes(
        &self,
        news: &News,
        number: Number,
    ) -> Result<(Vec<Alias>, bool), EngineError> {
        let other = match number {
            Number::Own | Number::Elsewhere => return Ok((Vec::new(), false)),
            Number::Foreign(other) => other,
        };
        let known = self.env.store.load(other).await?;
        let placed = known.and_then(|issue| issue.facts.named_as_of());
        if placed.is_some_and(|placed| placed > news.as_of) {
            return Ok((Vec::new(), true));
        }
        Ok((vec![Alias::Numbered(news.repository.clone(), news.number)], false))
    }

    /// What a home must claim to be the home of an issue. Refused if another home durably is.
    pub async fn claims_for(
        &self,
        account: &AccountName,
        issue: &IssueId,
        home: HomeId,
    ) -> Result<Vec<Alias>, EngineError> {
        let alias = Alias::Issue(issue.clone());
        match self.env.store.resolve(account, &alias).await? {
            None => Ok(vec![alias]),
            Some(owner) if owner == home => Ok(Vec::new()),
            Some(_) => Err(EngineError::IssueElsewhere(issue.clone())),
        }
    }
}

impl<'a> Search<'a> {
    fn new(
        directory: &'a Directory,
        account: &'a AccountName,
        repository_id: Option<u64>,
        names: Names,
    ) -> Self {
        // What is found by the name of a foreign repository is another issue.
        let by_number = Some(names.by_number).filter(|_| !names.foreign(repository_id));
        Self { directory, account, repository_id, names, by_number }
    }

    /// The home to which the names lead already.
    fn known(&self) -> Option<HomeId> {
        self.names.by_id.home().or(self.by_number.and_then(AliasState::home))
    }

    /// Whether the home to which the names lead is in the store.
    fn is_stored(&self) -> bool {
        match (self.names.by_id, self.by_number) {
            (AliasState::Durable(_), _) | (AliasState::No, Some(AliasState::Durable(_))) => true,
            (AliasState::Fresh(_), _)
            | (AliasState::No, None | Some(AliasState::Fresh(_) | AliasState::No)) => false,
        }
    }

    /// Whether the number of an entry is of the same repository.
    fn is_own(&self, fresh: &FreshAlias) -> bool {
        !differ(fresh.repository_id, self.repository_id)
    }

    /// Gives an issue a home.
    fn new_home(&self, id: &IssueId) -> NewHome {
        let Self { directory, account, repository_id, names, .. } = self;
        let (mut brand_new, mut is_certain) = (false, true);
        // Another caller may have named the issue since its names were looked up.
        let mut first = |alias: Alias, home: Option<HomeId>| {
            *directory.fresh.entry(((*account).clone(), alias)).or_insert_with(|| {
                brand_new |= home.is_none();
                let (seen, now) = (names.seen, directory.env.now());
                is_certain &= directory.certainty.is_certain(seen, now);
                let home = home.unwrap_or_else(|| directory.env.store.next_home());
                FreshAlias::new(home, *repository_id)
            })
        };
        // The number first: two callers that know the issue by different ids meet there.
        let numbered = names.numbered.clone().filter(|_| self.by_number.is_some());
        let by_number = numbered.clone().map(|alias| first(alias, None));
        let by_number = by_number.filter(|fresh| self.is_own(fresh)).map(|fresh| fresh.home);
        let home = first(Alias::Issue(id.clone()), by_number).home;
        if let Some(alias) = numbered
            && brand_new
            && by_number.is_some_and(|given| given != home)
        {
            // The home that was given for the number is of no issue.
            let entry = FreshAlias::new(home, *repository_id);
            directory.fresh.insert(((*account).clone(), alias), entry);
            brand_new = false;
        }
        NewHome { home, brand_new, is_certain }
    }

    /// The issue's id, if it is to be claimed.
    fn claimed_id(&self, id: Option<&IssueId>) -> Option<Alias> {
        let claims = match self.names.by_id {
            AliasState::No => true,
            AliasState::Fresh(_) => !on(Bug::NamesClaimedByFirst),
            AliasState::Durable(_) => false,
        };
        id.filter(|_| claims).map(|id| Alias::Issue(id.clone()))
    }

    /// Claims the repository and number for a home if they lead nowhere else. Returns where they
    /// lead.
    fn claim_number(&self, home: HomeId, claims: &mut Vec<Alias>) -> Number {
        let names = &self.names;
        let Some(by_number) = self.by_number else {
            return names.by_number.home().map_or(Number::Own, Number::Foreign);
        };
        let Some(alias) = &names.numbered else { return Number::Own };
        let owner = match by_number {
            AliasState::Durable(home) | AliasState::Fresh(home) => {
                FreshAlias::new(home, names.repository_id)
            }
            AliasState::No => self.directory.first(self.account, alias, home, self.repository_id),
        };
        if owner.home != home {
            let is_own = self.is_own(&owner);
            return if is_own { Number::Elsewhere } else { Number::Foreign(owner.home) };
        }
        let claims_all = !on(Bug::NamesClaimedByFirst);
        let is_durable = matches!(by_number, AliasState::Durable(_));
        // A durable name is claimed again when the event is the first to say its repository's id.
        let adds_repository_id = names.repository_id.is_none()
            && self.repository_id.is_some()
            && self.directory.is_free_for(self.account, home, alias);
        if (claims_all || by_number == AliasState::No) && (adds_repository_id || !is_durable) {
            claims.push(alias.clone());
        }
        Number::Own
    }
}
