//! The drift that the last sweep of each provider found.
//!
//! Kept in memory only, since the next sweep finds it again. At most [`ITEMS_MAX`] items of a provider
//! are shown, and all are counted. An item vanishes when a sweep no longer finds it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::{HomeId, ProviderName, SandboxId, Timestamp};

use super::compare::{Ours, TooMuch};
use super::view::{DriftItem, DriftKind, DriftView, ProviderSweeps};

/// How many items of a provider are kept. More than a person reads; what is beyond is counted.
pub const ITEMS_MAX: usize = 1_000;

/// What a remedy of an item works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Subject {
    /// A record.
    Record(HomeId, SandboxId),
    /// The record of a failed sandbox.
    Failed(HomeId, SandboxId),
    /// An object.
    Object(Ours),
    /// The provider's identity, as it says it is.
    Identity(String),
    /// What the last sweep found too much of.
    Mass(TooMuch),
    /// Nothing can be done here.
    Nothing,
}

/// An item and what its remedies work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Drifted {
    pub item: DriftItem,
    pub subject: Subject,
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum SweepResult {
    /// It looked at everything.
    Done,
    /// It found too much to act on anything.
    HeldBack,
    /// It could not look.
    NotMade,
}

/// The result of a sweep.
pub(in crate::engine) struct Swept {
    pub result: SweepResult,
    pub at: Timestamp,
    /// Records and objects that were compared; `None` if it could not look.
    pub compared: Option<(usize, usize)>,
    /// What it found. If it could not look, why: what was found before about objects stays.
    pub found: Vec<Drifted>,
}

impl OfProvider {
    fn sweeps(&self, provider: &ProviderName) -> ProviderSweeps {
        ProviderSweeps {
            provider: provider.clone(),
            last_at: self.last.map(|(at, ..)| at),
            records: self.last.map_or(0, |(_, records, _)| records),
            objects: self.last.map_or(0, |(.., objects)| objects),
            done: self.done,
            held_back: self.held_back,
            not_made: self.not_made,
            counts: self.counts.clone(),
        }
    }
}

/// The drift of all providers.
#[derive(Default)]
pub(in crate::engine) struct Drift {
    of: Mutex<BTreeMap<ProviderName, OfProvider>>,
}

#[derive(Default)]
struct OfProvider {
    found: Vec<Drifted>,
    counts: BTreeMap<DriftKind, usize>,
    last: Option<(Timestamp, usize, usize)>,
    done: u64,
    held_back: u64,
    not_made: u64,
    /// A person said that the next sweep is to be believed about this.
    believed: Vec<TooMuch>,
}

impl Drift {
    /// Takes in the result of a sweep. Returns what is new, for the log.
    pub fn take(&self, provider: &ProviderName, swept: Swept) -> Vec<DriftItem> {
        let Swept { result, at, compared, mut found } = swept;
        let mut all = self.locked();
        let of = all.entry(provider.clone()).or_default();
        match result {
            SweepResult::Done => of.done += 1,
            SweepResult::HeldBack => of.held_back += 1,
            SweepResult::NotMade => of.not_made += 1,
        }
        match compared {
            Some((records, objects)) => of.last = Some((at, records, objects)),
            None => {
                let about_objects = of.found.iter().filter(|d| !d.item.kind.is_of_provider());
                found.extend(about_objects.cloned());
            }
        }
        let before: HashMap<(&str, DriftKind), Timestamp> = (of.found.iter())
            .map(|drifted| ((drifted.item.id.as_str(), drifted.item.kind), drifted.item.since))
            .collect();
        let mut new = Vec::new();
        for Drifted { item, .. } in &mut found {
            match before.get(&(item.id.as_str(), item.kind)) {
                Some(since) => item.since = item.since.min(*since),
                None => new.push(item.clone()),
            }
        }
        of.counts = BTreeMap::new();
        for drifted in &found {
            *of.counts.entry(drifted.item.kind).or_default() += 1;
        }
        // What concerns all of the provider first: it is what must not be cut off.
        found.sort_by_key(|drifted| !drifted.item.kind.is_of_provider());
        found.truncate(ITEMS_MAX);
        of.found = found;
        new
    }

    /// The item of this id.
    pub fn find(&self, id: &str) -> Option<Drifted> {
        let all = self.locked();
        all.values().flat_map(|of| &of.found).find(|drifted| drifted.item.id == id).cloned()
    }

    /// A remedy was carried out: the item is over.
    pub fn resolve(&self, id: &str) {
        for of in self.locked().values_mut() {
            let Some(at) = of.found.iter().position(|drifted| drifted.item.id == id) else {
                continue;
            };
            let kind = of.found.remove(at).item.kind;
            if let Some(count) = of.counts.get_mut(&kind) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// The next sweep is to be believed, however much of this it finds.
    pub fn believe(&self, provider: &ProviderName, what: TooMuch) {
        let mut all = self.locked();
        let believed = &mut all.entry(provider.clone()).or_default().believed;
        if !believed.contains(&what) {
            believed.push(what);
        }
    }

    /// What is too much although a person may have said that this sweep is to be believed, which
    /// counts once.
    pub fn doubted(&self, provider: &ProviderName, too_much: Vec<TooMuch>) -> Vec<TooMuch> {
        let mut all = self.locked();
        let Some(of) = all.get_mut(provider) else { return too_much };
        let believed = std::mem::take(&mut of.believed);
        too_much.into_iter().filter(|what| !believed.contains(what)).collect()
    }

    /// All of it.
    pub fn view(&self) -> DriftView {
        let all = self.locked();
        let mut view = DriftView::default();
        for (provider, of) in all.iter() {
            view.items.extend(of.found.iter().map(|drifted| drifted.item.clone()));
            view.total += of.counts.values().sum::<usize>();
            view.sweeps.push(of.sweeps(provider));
        }
        view
    }

    /// The alarms among it.
    pub fn alarms(&self) -> Vec<DriftItem> {
        let all = self.locked();
        let alarms = all.values().flat_map(|of| &of.found).filter(|d| d.item.kind.is_alarm());
        alarms.map(|drifted| drifted.item.clone()).collect()
    }

    /// The sweeps of each provider.
    pub fn sweeps(&self) -> Vec<ProviderSweeps> {
        self.locked().iter().map(|(provider, of)| of.sweeps(provider)).collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<ProviderName, OfProvider>> {
        // Whole between statements, also if a thread panicked while it held the lock.
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> ProviderName {
        ProviderName::trusted("p")
    }

    fn item(id: &str, kind: DriftKind, since_ms: i64) -> Drifted {
        let item = DriftItem {
            id: id.to_owned(),
            provider: provider(),
            kind,
            account: None,
            issue: None,
            record: None,
            object: None,
            reason: "it is so".to_owned(),
            since: Timestamp::from_unix_ms(since_ms),
            next: String::new(),
            next_at: None,
            remedies: Vec::new(),
        };
        Drifted { item, subject: Subject::Nothing }
    }

    fn swept(at_ms: i64, found: Vec<Drifted>) -> Swept {
        let at = Timestamp::from_unix_ms(at_ms);
        Swept { result: SweepResult::Done, at, compared: Some((1, 2)), found }
    }

    fn ids(drift: &Drift) -> Vec<String> {
        drift.view().items.into_iter().map(|item| item.id).collect()
    }

    #[test]
    fn an_item_keeps_its_beginning_and_vanishes_when_it_is_not_found_any_more() {
        let drift = Drift::default();
        let new = drift.take(&provider(), swept(1, vec![item("a", DriftKind::Duplicate, 1)]));
        assert_eq!(new.len(), 1);
        let found = vec![item("a", DriftKind::Duplicate, 2), item("b", DriftKind::Orphan, 2)];
        let new = drift.take(&provider(), swept(2, found));
        assert_eq!(new.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), ["b"]);
        let since = drift.find("a").expect("it is there").item.since;
        assert_eq!(since, Timestamp::from_unix_ms(1));
        assert_eq!(drift.alarms().into_iter().map(|item| item.id).collect::<Vec<_>>(), ["a"]);
        drift.take(&provider(), swept(3, Vec::new()));
        assert_eq!(ids(&drift), Vec::<String>::new());
        assert_eq!(drift.view().sweeps[0].done, 3);
    }

    #[test]
    fn a_sweep_that_could_not_look_leaves_what_is_known_of_objects() {
        let drift = Drift::default();
        let unreachable = item("u", DriftKind::ProviderUnreachable, 1);
        let found = vec![item("a", DriftKind::Duplicate, 1), item("m", DriftKind::MassLoss, 1)];
        drift.take(&provider(), swept(1, found));
        let not_made =
            Swept { result: SweepResult::NotMade, compared: None, ..swept(2, vec![unreachable]) };
        drift.take(&provider(), not_made);
        assert_eq!(ids(&drift), ["u", "a"]);
        let sweeps = &drift.view().sweeps[0];
        assert_eq!((sweeps.done, sweeps.not_made), (1, 1));
        assert_eq!(sweeps.last_at, Some(Timestamp::from_unix_ms(1)), "the last that looked");
    }

    #[test]
    fn more_than_is_kept_is_counted_and_the_provider_s_own_is_never_cut_off() {
        let drift = Drift::default();
        let orphans = (0..=ITEMS_MAX).map(|n| item(&n.to_string(), DriftKind::Quarantined, 1));
        let found = orphans.chain([item("m", DriftKind::MassRemoval, 1)]).collect();
        drift.take(&provider(), swept(1, found));
        let view = drift.view();
        assert_eq!((view.items.len(), view.total), (ITEMS_MAX, ITEMS_MAX + 2));
        assert_eq!(view.items[0].id, "m");
        drift.resolve("m");
        assert_eq!(drift.view().total, ITEMS_MAX + 1);
    }

    #[test]
    fn a_person_s_word_counts_for_one_sweep_and_one_thing() {
        let drift = Drift::default();
        let both = || vec![TooMuch::Lost, TooMuch::Removals];
        assert_eq!(drift.doubted(&provider(), both()), both());
        drift.believe(&provider(), TooMuch::Lost);
        assert_eq!(drift.doubted(&provider(), both()), [TooMuch::Removals]);
        assert_eq!(drift.doubted(&provider(), both()), both());
    }
}
