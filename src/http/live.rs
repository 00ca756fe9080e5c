//! The live map: the ready-made answer of every issue with a live sandbox.
//!
//! A look-up must not queue behind work, so it uses neither actors nor the store: the engine
//! publishes each durable step, and the first look-up of a state encodes its JSON for all others.
//! (Encoding in advance took a fifth of the engine's thread during intake, mostly for states that
//! no look-up read.) The map holds only live sandboxes; all others are read from the store.
//!
//! # Guarantees
//! - An older step never overwrites a newer one: each carries its home's version.
//! - Memory is bounded by the live sandboxes: a home is removed with its sandbox. No older step can
//!   add it again, because the engine publishes the steps of a home in order, and at startup
//!   publishes live sandboxes before it processes events.
//! - If two issues have the same repository and number (a repository was recreated under its old
//!   name), a look-up finds the later one, whatever the order of publication.
//! - If two homes were merged, the ids of both find the remaining sandbox.
//!
//! # Races that are accepted
//! Between commit and publication a look-up shows the previous state; the caller of the step gets
//! its answer after both. If a repository was recreated and its new issue has no live sandbox, the
//! number finds the old issue's sandbox as long as that is live.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;

use crate::engine::Change;
use crate::types::{
    AccountName, HomeId, IssueId, IssueNumber, Phase, Repository, Sandbox, SandboxId, Timestamp,
};

use super::wire;

/// Ready-made answers for all live sandboxes.
#[derive(Debug, Default)]
pub struct LiveMap {
    homes: DashMap<HomeId, LiveEntry>,
    by_issue: DashMap<(AccountName, IssueId), HomeId>,
    by_number: DashMap<NumberKey, NumberOwner>,
    by_sandbox: DashMap<(AccountName, SandboxId), HomeId>,
    phases: [AtomicI64; Phase::ALL.len()],
}

/// An account, a repository in the form in which its spellings are equal, and a number.
type NumberKey = (AccountName, Box<str>, IssueNumber);

/// The home that owns a repository and number.
#[derive(Clone, Copy, Debug)]
struct NumberOwner {
    home: HomeId,
    /// Since when; `None` is before any time.
    as_of: Option<Timestamp>,
}

#[derive(Debug)]
struct LiveEntry {
    version: u64,
    aliases: Vec<IssueId>,
    placed_as_of: Option<Timestamp>,
    live: Option<Live>,
}

/// The changes of names in a step.
#[derive(Clone, Copy, Debug)]
struct AliasChange {
    /// Whether there are new ids.
    newly: bool,
    /// Whether the repository and number are known since another time.
    placed_newly: bool,
}

#[derive(Debug)]
struct Live {
    sandbox: Arc<Sandbox>,
    phase: Phase,
    answer: OnceLock<Bytes>,
}

/// The answer about a live sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveAnswer {
    /// The answer, without what its agent's run cost.
    pub json: Bytes,
    /// The sandbox.
    pub sandbox: Arc<Sandbox>,
}

/// Whether two states look the same to people: counters and the last activity may differ.
pub fn look_alike(one: &Sandbox, other: &Sandbox) -> bool {
    let seen = |sandbox: &Sandbox| Sandbox {
        attempt: other.attempt,
        last_activity_at: other.last_activity_at,
        phase_since: other.phase_since,
        ..sandbox.clone()
    };
    seen(one) == *other
}

impl LiveMap {
    /// Applies one durable step. Returns the live sandbox from before, or `None` if a newer step
    /// was applied already.
    pub fn apply(&self, change: &Change) -> Option<Arc<Sandbox>> {
        let (before, moved) = self.take_in(change)?;
        // After the first home's guard was released, since it can also lock the other home's shard.
        if let Some(into) = change.names_go_to {
            self.give_names(&change.account, moved, into);
        }
        before
    }

    /// Returns the live sandbox from before and the ids that move to another home, or `None` if a
    /// newer step was applied already.
    fn take_in(&self, change: &Change) -> Option<(Option<Arc<Sandbox>>, Vec<IssueId>)> {
        let mut slot = match self.homes.entry(change.home) {
            MapEntry::Occupied(slot) => {
                if slot.get().version >= change.version {
                    return None;
                }
                slot
            }
            MapEntry::Vacant(slot) => slot.insert_entry(LiveEntry {
                version: change.version,
                aliases: Vec::new(),
                placed_as_of: None,
                live: None,
            }),
        };
        let entry = slot.get_mut();
        entry.version = change.version;
        let names_before = entry.aliases.len();
        for alias in change.aliases.iter().chain(change.sandbox.as_ref().map(|s| &s.issue_id)) {
            if !entry.aliases.contains(alias) {
                // Nearly every home has one: room for more would be left empty.
                entry.aliases.reserve_exact(1);
                entry.aliases.push(alias.clone());
            }
        }
        let moved = if change.names_go_to.is_some() {
            let names = std::mem::take(&mut entry.aliases);
            self.forget_names(change, &names);
            names
        } else {
            Vec::new()
        };
        let named = AliasChange {
            newly: entry.aliases.len() > names_before,
            placed_newly: entry.placed_as_of != change.placed_as_of,
        };
        entry.placed_as_of = change.placed_as_of;
        let before = entry.live.take();
        let now = change.sandbox.as_ref().and_then(Live::new);
        self.index(change, entry, named, before.as_ref(), now.as_ref());
        entry.live = now;
        if entry.live.is_none() {
            slot.remove();
        }
        Some((before.map(|live| live.sandbox), moved))
    }

    /// Removes these ids of a home from the index.
    fn forget_names(&self, change: &Change, names: &[IssueId]) {
        for alias in names {
            let key = (change.account.clone(), alias.clone());
            self.by_issue.remove_if(&key, |_, owner| *owner == change.home);
        }
    }

    /// Adds ids to a home if it is live; otherwise the store resolves them.
    fn give_names(&self, account: &AccountName, names: Vec<IssueId>, into: HomeId) {
        let Some(mut entry) = self.homes.get_mut(&into) else { return };
        for alias in names {
            self.by_issue.insert((account.clone(), alias.clone()), into);
            if !entry.aliases.contains(&alias) {
                entry.aliases.push(alias);
            }
        }
    }

    /// Updates indexes and counts from `before` to `now` under the guard of the home's entry, so
    /// that steps of one home are serial. Look-ups release an index before they read a home.
    fn index(
        &self,
        change: &Change,
        entry: &LiveEntry,
        named: AliasChange,
        before: Option<&Live>,
        now: Option<&Live>,
    ) {
        let (home, account) = (change.home, &change.account);
        if let Some(old) = before {
            self.phases[old.phase as usize].fetch_sub(1, Ordering::Relaxed);
            let id = &old.sandbox.id;
            if now.is_none_or(|live| live.sandbox.id != *id) {
                self.by_sandbox.remove(&(old.sandbox.account.clone(), id.clone()));
            }
            if let Some((repository, number)) = old.numbered()
                && (change.names_go_to.is_some()
                    || now.is_none_or(|live| live.numbered() != old.numbered()))
            {
                // After a transfer another home can own the number: keep that.
                let key = number_key(&old.sandbox.account, repository, number);
                self.by_number.remove_if(&key, |_, placed| placed.home == home);
            }
        }
        match now {
            Some(live) => {
                self.phases[live.phase as usize].fetch_add(1, Ordering::Relaxed);
                let id = &live.sandbox.id;
                if before.is_none_or(|old| old.sandbox.id != *id) {
                    self.by_sandbox.insert((account.clone(), id.clone()), home);
                }
                // A new name, or one that moved from another home.
                if before.is_none() || named.newly {
                    for alias in &entry.aliases {
                        self.by_issue.insert((account.clone(), alias.clone()), home);
                    }
                }
                if let Some((repository, number)) = live.numbered()
                    && change.names_go_to.is_none()
                    && (named.placed_newly
                        || before.is_none_or(|old| old.numbered() != live.numbered()))
                {
                    let placed = NumberOwner { home, as_of: entry.placed_as_of };
                    self.place(number_key(account, repository, number), placed);
                }
            }
            None => self.forget_names(change, &entry.aliases),
        }
    }

    /// Makes a home the owner of a repository and number, unless another one is later.
    fn place(&self, key: NumberKey, placed: NumberOwner) {
        match self.by_number.entry(key) {
            MapEntry::Occupied(mut slot) => {
                if slot.get().home == placed.home || slot.get().as_of <= placed.as_of {
                    slot.insert(placed);
                }
            }
            MapEntry::Vacant(slot) => {
                slot.insert(placed);
            }
        }
    }

    /// The answer for a home, if it is live.
    pub fn home(&self, home: HomeId) -> Option<LiveAnswer> {
        self.homes.get(&home)?.live.as_ref().map(Live::answer)
    }

    /// The answer for an issue by id, if it is live.
    pub fn issue(&self, account: &AccountName, id: &IssueId) -> Option<LiveAnswer> {
        let home = *self.by_issue.get(&(account.clone(), id.clone()))?;
        self.home(home)
    }

    /// The answer for an issue by repository and number, if it is live.
    pub fn numbered(
        &self,
        account: &AccountName,
        repository: &Repository,
        number: IssueNumber,
    ) -> Option<LiveAnswer> {
        let home = self.by_number.get(&number_key(account, repository, number))?.home;
        self.home(home)
    }

    /// The answer for a sandbox by its id, if it is live.
    pub fn sandbox(&self, account: &AccountName, id: &SandboxId) -> Option<LiveAnswer> {
        let home = *self.by_sandbox.get(&(account.clone(), id.clone()))?;
        let entry = self.homes.get(&home)?;
        let live = entry.live.as_ref().filter(|live| live.sandbox.id == *id)?;
        Some(live.answer())
    }

    /// How many live sandboxes are in each phase.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, u64)> {
        Phase::ALL.iter().zip(&self.phases).map(|(phase, count)| {
            (*phase, u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0))
        })
    }

    /// Visits every live sandbox of an account, in no order. Concurrent steps may be missed.
    pub fn each(&self, account: &AccountName, mut see: impl FnMut(&Arc<Sandbox>)) {
        for entry in &self.homes {
            if let Some(live) = entry.live.as_ref().filter(|live| live.sandbox.account == *account)
            {
                see(&live.sandbox);
            }
        }
    }

    /// Visits every live sandbox of all accounts, in no order. Concurrent steps may be missed.
    pub fn each_of_all(&self, mut see: impl FnMut(&Sandbox)) {
        for entry in &self.homes {
            if let Some(live) = &entry.live {
                see(&live.sandbox);
            }
        }
    }

    /// How many sandboxes are live.
    pub fn len(&self) -> usize {
        self.by_sandbox.len()
    }

    /// Whether no sandbox is live.
    pub fn is_empty(&self) -> bool {
        self.by_sandbox.is_empty()
    }
}

impl Live {
    fn new(sandbox: &Arc<Sandbox>) -> Option<Self> {
        let phase = sandbox.phase?;
        Some(Self { sandbox: Arc::clone(sandbox), phase, answer: OnceLock::new() })
    }

    fn numbered(&self) -> Option<(&Repository, IssueNumber)> {
        self.sandbox.repository.as_ref().zip(self.sandbox.issue_number)
    }

    fn answer(&self) -> LiveAnswer {
        let write = || Bytes::from(wire::answer_json(&self.sandbox, None, None));
        let json = self.answer.get_or_init(write).clone();
        LiveAnswer { json, sandbox: Arc::clone(&self.sandbox) }
    }
}

fn number_key(account: &AccountName, repository: &Repository, number: IssueNumber) -> NumberKey {
    (account.clone(), repository.folded().into(), number)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::wire::tests::sample;
    use super::*;

    pub fn change(home: i64, version: u64, sandbox: Option<Sandbox>) -> Change {
        Change { sandbox: sandbox.map(Arc::new), ..Change::bare(HomeId(home), version) }
    }

    fn with_phase(issue: &str, phase: Phase) -> Sandbox {
        Sandbox { phase: Some(phase), ..sample(issue) }
    }

    fn account() -> AccountName {
        AccountName::default_account()
    }

    fn issue(id: &str) -> IssueId {
        IssueId::parse(id).expect("a valid id")
    }

    #[test]
    fn a_live_sandbox_is_found_by_each_of_its_names() {
        let map = LiveMap::default();
        map.apply(&change(1, 1, Some(sample("5"))));
        let repository = Repository::parse("octo/HELLO").expect("a valid repository");
        let answer = map.issue(&account(), &issue("5")).expect("by issue id");
        assert_eq!(map.numbered(&account(), &repository, IssueNumber(7)), Some(answer.clone()));
        assert_eq!(map.sandbox(&account(), &SandboxId::trusted("sb-5")), Some(answer));
        assert_eq!(map.issue(&AccountName::trusted("other"), &issue("5")), None);
    }

    #[test]
    fn an_older_step_never_overwrites_a_newer_one() {
        let map = LiveMap::default();
        map.apply(&change(1, 2, Some(with_phase("5", Phase::Stopped))));
        let before = map.issue(&account(), &issue("5"));
        assert_eq!(map.apply(&change(1, 1, Some(with_phase("5", Phase::Running)))), None);
        assert_eq!(map.issue(&account(), &issue("5")), before);
    }

    #[test]
    fn nothing_is_left_of_an_ended_sandbox() {
        let map = LiveMap::default();
        let with_alias = Change { aliases: vec![issue("6")], ..change(1, 1, Some(sample("5"))) };
        map.apply(&with_alias);
        assert!(map.issue(&account(), &issue("6")).is_some(), "a second alias is found");
        map.apply(&change(1, 2, None));
        assert!(map.homes.is_empty() && map.by_issue.is_empty());
        assert!(map.by_number.is_empty() && map.by_sandbox.is_empty());
        assert!(map.phases().all(|(_, count)| count == 0));
    }

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp::from_unix_ms(seconds * 1000))
    }

    fn id_at(map: &LiveMap, answer: Option<LiveAnswer>) -> Option<String> {
        let known = ["5", "6"].map(|id| (id, map.sandbox(&account(), &sandbox_id(id))));
        let found = answer?;
        known.into_iter().find(|(_, known)| *known == Some(found.clone())).map(|(id, _)| id.into())
    }

    fn sandbox_id(issue: &str) -> SandboxId {
        SandboxId::trusted(format!("sb-{issue}"))
    }

    #[test]
    fn a_number_finds_the_issue_that_was_placed_there_last() {
        let repository = Repository::parse("octo/hello").expect("a valid repository");
        let old = Change { placed_as_of: at(1), ..change(1, 1, Some(sample("5"))) };
        let new = Change { placed_as_of: at(2), ..change(2, 1, Some(sample("6"))) };
        let again = Change { version: 2, sandbox: old.sandbox.clone(), ..old.clone() };
        for order in [[&old, &new], [&new, &old]] {
            let map = LiveMap::default();
            for change in order {
                map.apply(change);
            }
            map.apply(&again);
            let found = map.numbered(&account(), &repository, IssueNumber(7));
            assert_eq!(id_at(&map, found).as_deref(), Some("6"));
            map.apply(&change(2, 2, None));
            let found = map.numbered(&account(), &repository, IssueNumber(7));
            assert_eq!(found, None, "the store knows whose it is");
        }
    }

    #[test]
    fn the_ids_of_an_issue_that_turned_out_to_be_another_find_that_one() {
        let map = LiveMap::default();
        map.apply(&change(1, 1, Some(sample("5"))));
        map.apply(&change(2, 1, Some(sample("6"))));
        let deleting = with_phase("6", Phase::Deleting);
        map.apply(&Change { names_go_to: Some(HomeId(1)), ..change(2, 2, Some(deleting.clone())) });
        assert_eq!(map.issue(&account(), &issue("6")), map.issue(&account(), &issue("5")));
        assert!(map.sandbox(&account(), &sandbox_id("6")).is_some(), "until it is gone");
        let later = Change { names_go_to: Some(HomeId(1)), ..change(2, 3, Some(deleting)) };
        map.apply(&later);
        assert_eq!(map.issue(&account(), &issue("6")), map.issue(&account(), &issue("5")));
        map.apply(&Change { names_go_to: Some(HomeId(1)), ..change(2, 4, None) });
        assert!(map.issue(&account(), &issue("6")).is_some(), "it is the other one's");
        map.apply(&change(1, 2, None));
        assert!(map.homes.is_empty() && map.by_issue.is_empty() && map.by_number.is_empty());
    }

    #[test]
    fn the_ids_of_an_issue_whose_other_one_is_not_live_find_nothing_here() {
        let map = LiveMap::default();
        let deleting = with_phase("6", Phase::Deleting);
        map.apply(&Change { names_go_to: Some(HomeId(1)), ..change(2, 1, Some(deleting)) });
        assert_eq!(map.issue(&account(), &issue("6")), None);
    }

    #[test]
    fn phases_are_counted_and_changes_say_what_was_before() {
        let map = LiveMap::default();
        map.apply(&change(1, 1, Some(with_phase("5", Phase::Creating))));
        map.apply(&change(2, 1, Some(with_phase("6", Phase::Running))));
        let before = map.apply(&change(1, 2, Some(with_phase("5", Phase::Running))));
        let before = before.map(|before| (before.id.clone(), before.phase));
        assert_eq!(before, Some((SandboxId::trusted("sb-5"), Some(Phase::Creating))));
        let running = map.phases().find(|(phase, _)| *phase == Phase::Running);
        assert_eq!(running, Some((Phase::Running, 2)));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn the_next_generation_replaces_the_old_sandbox_id() {
        let map = LiveMap::default();
        map.apply(&change(1, 1, Some(sample("5"))));
        let next = Sandbox {
            id: SandboxId::trusted("sb-5-2"),
            created_at: Timestamp::from_unix_ms(1),
            ..sample("5")
        };
        map.apply(&change(1, 2, Some(next)));
        assert_eq!(map.sandbox(&account(), &SandboxId::trusted("sb-5")), None);
        assert!(map.sandbox(&account(), &SandboxId::trusted("sb-5-2")).is_some());
        assert_eq!(map.len(), 1);
    }
}
