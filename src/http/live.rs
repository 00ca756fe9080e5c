//! The live map: what every issue with a live sandbox is answered, written out in advance.
//!
//! A look-up must not queue behind work, so it touches neither actors nor the store where the
//! answer is known: the engine publishes each durable step, and the JSON is written here once for
//! all who ask. Only live sandboxes are kept; what is not found here is read from the store.
//!
//! # Guarantees
//! - An older step never overwrites a newer one: each carries its home's version.
//! - Memory is bounded by the live sandboxes: a home leaves with its sandbox. After that nothing
//!   older can bring it back, since the engine publishes the steps of a home in their order; at
//!   the start it publishes what is live before it lets anything happen to it.
//!
//! # Races that are accepted
//! Between the durable commit and the publication a look-up shows the state before; the caller
//! who made the step gets its answer only after both.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;

use crate::engine::Change;
use crate::types::{
    AccountName, HomeId, IssueId, IssueNumber, Phase, Repository, Sandbox, SandboxId,
};

use super::wire;

/// Ready-made answers for everything live.
#[derive(Debug, Default)]
pub struct LiveMap {
    homes: DashMap<HomeId, Entry>,
    by_issue: DashMap<String, HomeId>,
    by_number: DashMap<String, HomeId>,
    by_sandbox: DashMap<String, HomeId>,
    phases: [AtomicI64; Phase::ALL.len()],
}

#[derive(Debug)]
struct Entry {
    version: u64,
    aliases: Vec<IssueId>,
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    account: AccountName,
    id: SandboxId,
    phase: Phase,
    look: u64,
    numbered: Option<(Repository, IssueNumber)>,
    answer: Bytes,
}

/// The phase of a sandbox before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Which sandbox.
    pub id: SandboxId,
    /// Its phase.
    pub phase: Phase,
    /// Its [`look`].
    pub look: u64,
}

/// A digest of what people see of a sandbox: all but its counters and its last activity, which
/// change without anything having happened to it.
pub fn look(sandbox: &Sandbox) -> u64 {
    let mut hasher = DefaultHasher::new();
    sandbox.phase.hash(&mut hasher);
    sandbox.wanted.hash(&mut hasher);
    sandbox.repository.hash(&mut hasher);
    sandbox.issue_number.hash(&mut hasher);
    sandbox.issue_title.hash(&mut hasher);
    sandbox.issue_url.hash(&mut hasher);
    sandbox.external_id.hash(&mut hasher);
    sandbox.template.hash(&mut hasher);
    sandbox.reason.hash(&mut hasher);
    let failure = sandbox.failure.as_ref();
    failure.map(|failure| (failure.code, &failure.message)).hash(&mut hasher);
    hasher.finish()
}

impl LiveMap {
    /// Takes one durable step in; `json` is its live sandbox as JSON. Returns what was there
    /// before, or nothing where a newer step was taken in already.
    pub fn apply(&self, change: &Change, json: Option<&str>) -> Option<Before> {
        let mut slot = match self.homes.entry(change.home) {
            MapEntry::Occupied(slot) => {
                if slot.get().version >= change.version {
                    return None;
                }
                slot
            }
            MapEntry::Vacant(slot) => slot.insert_entry(Entry {
                version: change.version,
                aliases: Vec::new(),
                live: None,
            }),
        };
        let entry = slot.get_mut();
        entry.version = change.version;
        for alias in change.aliases.iter().chain(change.sandbox.as_ref().map(|s| &s.issue_id)) {
            if !entry.aliases.contains(alias) {
                entry.aliases.push(alias.clone());
            }
        }
        let before = entry.live.take();
        let now = change.sandbox.as_ref().zip(json).and_then(|(s, json)| Live::new(s, json));
        self.index(change.home, &change.account, entry, before.as_ref(), now.as_ref());
        entry.live = now;
        if entry.live.is_none() {
            slot.remove();
        }
        before.map(|live| Before { id: live.id, phase: live.phase, look: live.look })
    }

    /// Brings the indexes and counts from `before` to `now`, under the guard of the home's entry,
    /// so that two steps of one home never mix. Look-ups hold no index while they read a home.
    fn index(
        &self,
        home: HomeId,
        account: &AccountName,
        entry: &Entry,
        before: Option<&Live>,
        now: Option<&Live>,
    ) {
        if let Some(old) = before {
            self.phases[old.phase as usize].fetch_sub(1, Ordering::Relaxed);
            if now.is_none_or(|live| live.id != old.id) {
                self.by_sandbox.remove(&key(&old.account, old.id.as_str()));
            }
            if let Some((repository, number)) = &old.numbered
                && now.is_none_or(|live| live.numbered != old.numbered)
            {
                // Another home may have got the number meanwhile (a transfer): leave it alone.
                let key = number_key(&old.account, repository, *number);
                self.by_number.remove_if(&key, |_, owner| *owner == home);
            }
        }
        match now {
            Some(live) => {
                self.phases[live.phase as usize].fetch_add(1, Ordering::Relaxed);
                self.by_sandbox.insert(key(account, live.id.as_str()), home);
                for alias in &entry.aliases {
                    self.by_issue.insert(key(account, alias.as_str()), home);
                }
                if let Some((repository, number)) = &live.numbered {
                    self.by_number.insert(number_key(account, repository, *number), home);
                }
            }
            None => {
                for alias in &entry.aliases {
                    let key = key(account, alias.as_str());
                    self.by_issue.remove_if(&key, |_, owner| *owner == home);
                }
            }
        }
    }

    /// The answer for a home, if it is live.
    pub fn home(&self, home: HomeId) -> Option<Bytes> {
        self.homes.get(&home)?.live.as_ref().map(|live| live.answer.clone())
    }

    /// The answer for an issue by id, if it is live.
    pub fn issue(&self, account: &AccountName, id: &IssueId) -> Option<Bytes> {
        let home = *self.by_issue.get(&key(account, id.as_str()))?;
        self.home(home)
    }

    /// The answer for an issue by repository and number, if it is live.
    pub fn numbered(
        &self,
        account: &AccountName,
        repository: &Repository,
        number: IssueNumber,
    ) -> Option<Bytes> {
        let home = *self.by_number.get(&number_key(account, repository, number))?;
        self.home(home)
    }

    /// The answer for a sandbox by its id, if it is live.
    pub fn sandbox(&self, account: &AccountName, id: &SandboxId) -> Option<Bytes> {
        let home = *self.by_sandbox.get(&key(account, id.as_str()))?;
        let entry = self.homes.get(&home)?;
        let live = entry.live.as_ref().filter(|live| live.id == *id)?;
        Some(live.answer.clone())
    }

    /// How many live sandboxes are in each phase.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, u64)> {
        Phase::ALL.iter().zip(&self.phases).map(|(phase, count)| {
            (*phase, u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0))
        })
    }

    /// How many sandboxes are live.
    pub fn len(&self) -> usize {
        self.by_sandbox.len()
    }

    /// Whether nothing is live.
    pub fn is_empty(&self) -> bool {
        self.by_sandbox.is_empty()
    }
}

impl Live {
    fn new(sandbox: &Sandbox, json: &str) -> Option<Self> {
        Some(Self {
            account: sandbox.account.clone(),
            id: sandbox.id.clone(),
            phase: sandbox.phase?,
            look: look(sandbox),
            numbered: sandbox.repository.clone().zip(sandbox.issue_number),
            answer: Bytes::from(wire::answer_json(sandbox, json)),
        })
    }
}

/// Account names never hold a line feed, so no two pairs share a key.
fn key(account: &AccountName, id: &str) -> String {
    let mut key = String::with_capacity(account.as_str().len() + 1 + id.len());
    key.push_str(account.as_str());
    key.push('\n');
    key.push_str(id);
    key
}

fn number_key(account: &AccountName, repository: &Repository, number: IssueNumber) -> String {
    format!("{account}\n{}\n{number}", repository.folded())
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::sample;
    use super::*;
    use crate::types::Timestamp;

    fn change(home: i64, version: u64, sandbox: Option<Sandbox>) -> Change {
        Change {
            home: HomeId(home),
            account: AccountName::default_account(),
            version,
            aliases: Vec::new(),
            sandbox,
            ended: None,
            timeline: Vec::new(),
        }
    }

    fn apply(map: &LiveMap, change: &Change) -> Option<Before> {
        let json = change.sandbox.as_ref().map(wire::sandbox_json);
        map.apply(change, json.as_deref())
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
        apply(&map, &change(1, 1, Some(sample("5"))));
        let repository = Repository::parse("octo/HELLO").expect("a valid repository");
        let answer = map.issue(&account(), &issue("5")).expect("by issue id");
        assert_eq!(map.numbered(&account(), &repository, IssueNumber(7)), Some(answer.clone()));
        assert_eq!(map.sandbox(&account(), &SandboxId::trusted("sb-5")), Some(answer));
        assert_eq!(map.issue(&AccountName::trusted("other"), &issue("5")), None);
    }

    #[test]
    fn an_older_step_never_overwrites_a_newer_one() {
        let map = LiveMap::default();
        apply(&map, &change(1, 2, Some(with_phase("5", Phase::Stopped))));
        let before = map.issue(&account(), &issue("5"));
        assert_eq!(apply(&map, &change(1, 1, Some(with_phase("5", Phase::Running)))), None);
        assert_eq!(map.issue(&account(), &issue("5")), before);
    }

    #[test]
    fn nothing_is_left_of_an_ended_sandbox() {
        let map = LiveMap::default();
        let with_alias = Change { aliases: vec![issue("6")], ..change(1, 1, Some(sample("5"))) };
        apply(&map, &with_alias);
        assert!(map.issue(&account(), &issue("6")).is_some(), "a second alias is found");
        apply(&map, &change(1, 2, None));
        assert!(map.homes.is_empty() && map.by_issue.is_empty());
        assert!(map.by_number.is_empty() && map.by_sandbox.is_empty());
        assert!(map.phases().all(|(_, count)| count == 0));
    }

    #[test]
    fn phases_are_counted_and_changes_say_what_was_before() {
        let map = LiveMap::default();
        apply(&map, &change(1, 1, Some(with_phase("5", Phase::Creating))));
        apply(&map, &change(2, 1, Some(with_phase("6", Phase::Running))));
        let before = apply(&map, &change(1, 2, Some(with_phase("5", Phase::Running))));
        let before = before.map(|before| (before.id, before.phase));
        assert_eq!(before, Some((SandboxId::trusted("sb-5"), Phase::Creating)));
        let running = map.phases().find(|(phase, _)| *phase == Phase::Running);
        assert_eq!(running, Some((Phase::Running, 2)));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn the_next_generation_replaces_the_old_sandbox_id() {
        let map = LiveMap::default();
        apply(&map, &change(1, 1, Some(sample("5"))));
        let next = Sandbox {
            id: SandboxId::trusted("sb-5-2"),
            created_at: Timestamp::from_unix_ms(1),
            ..sample("5")
        };
        apply(&map, &change(1, 2, Some(next)));
        assert_eq!(map.sandbox(&account(), &SandboxId::trusted("sb-5")), None);
        assert!(map.sandbox(&account(), &SandboxId::trusted("sb-5-2")).is_some());
        assert_eq!(map.len(), 1);
    }
}
