//! A survey of all live sandboxes: counts, filters, and sandboxes that need a person. It reads the
//! live map, so it uses neither actors nor the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::types::{AccountName, Phase, ProviderName, Sandbox, Timestamp};

use super::live::LiveMap;

/// After how long a step counts as stuck: longer than the default timeout of a create.
pub const STUCK_AFTER: Duration = Duration::from_secs(180);
/// Sandboxes of a group that are named; the rest is counted.
pub const NAMED_MAX: usize = 5;
/// Repositories in the filter; those with the most sandboxes come first.
const REPOSITORIES_MAX: usize = 100;

/// The live sandboxes of an account at one time.
#[derive(Debug, Default)]
pub struct Survey {
    /// How many there are.
    pub total: u64,
    /// The number in each phase that has some.
    pub phases: Vec<(Phase, u64)>,
    /// The number in each repository, by name.
    pub repositories: Vec<(String, u64)>,
    /// The number at each provider.
    pub providers: HashMap<ProviderName, u64>,
    /// Failed sandboxes, latest first.
    pub failed: SandboxGroup,
    /// Sandboxes in a transitional phase for longer than [`STUCK_AFTER`], or whose delete failed;
    /// longest first.
    pub stuck: SandboxGroup,
}

/// A group of sandboxes: all are counted, some are named.
#[derive(Debug, Default)]
pub struct SandboxGroup {
    /// Their number.
    pub count: u64,
    /// At most [`NAMED_MAX`] of them.
    pub named: Vec<Arc<Sandbox>>,
}

impl SandboxGroup {
    /// Adds one; `before` orders the named ones.
    fn add(&mut self, sandbox: &Arc<Sandbox>, before: fn(&Sandbox, &Sandbox) -> bool) {
        self.count += 1;
        let at = self.named.partition_point(|named| before(named, sandbox));
        if at < NAMED_MAX {
            self.named.insert(at, Arc::clone(sandbox));
            self.named.truncate(NAMED_MAX);
        }
    }
}

impl Survey {
    /// Surveys the live sandboxes of an account.
    pub fn of(live: &LiveMap, account: &AccountName, now: Timestamp) -> Self {
        Self::of_matching(live, account, now, |_| true)
    }

    /// Surveys the live sandboxes of an account that match.
    pub fn of_matching(
        live: &LiveMap,
        account: &AccountName,
        now: Timestamp,
        matches: impl Fn(&Sandbox) -> bool,
    ) -> Self {
        let mut survey = Self::default();
        let mut phases = [0_u64; Phase::ALL.len()];
        let mut repositories: HashMap<String, (u64, String)> = HashMap::new();
        live.each(account, |sandbox| {
            let Some(phase) = sandbox.phase.filter(|_| matches(sandbox)) else { return };
            survey.total += 1;
            phases[phase as usize] += 1;
            match survey.providers.get_mut(&sandbox.provider) {
                Some(count) => *count += 1,
                None => drop(survey.providers.insert(sandbox.provider.clone(), 1)),
            }
            if let Some(repository) = &sandbox.repository {
                let name = || (0, repository.as_str().to_owned());
                repositories.entry(repository.folded()).or_insert_with(name).0 += 1;
            }
            if phase == Phase::Failed {
                survey.failed.add(sandbox, |a, b| later(a.phase_since, a, b.phase_since, b));
            } else if is_stuck(sandbox, phase, now) {
                survey.stuck.add(sandbox, |a, b| later(b.phase_since, b, a.phase_since, a));
            }
        });
        let counts = Phase::ALL.iter().copied().zip(phases);
        survey.phases = counts.filter(|(_, count)| *count > 0).collect();
        let mut repositories: Vec<_> = repositories.into_values().collect();
        repositories.sort_by(|a, b| b.cmp(a));
        repositories.truncate(REPOSITORIES_MAX);
        survey.repositories = repositories.into_iter().map(|(count, name)| (name, count)).collect();
        survey.repositories.sort();
        survey
    }

    /// The number in this phase.
    pub fn in_phase(&self, phase: Phase) -> u64 {
        self.phases.iter().find(|(of, _)| *of == phase).map_or(0, |(_, count)| *count)
    }
}

/// Whether the first is later. Ids break ties, so that the order of the map does not matter.
fn later(at: Timestamp, of: &Sandbox, other_at: Timestamp, other: &Sandbox) -> bool {
    (at, of.id.as_str()) > (other_at, other.id.as_str())
}

fn is_stuck(sandbox: &Sandbox, phase: Phase, now: Timestamp) -> bool {
    phase.is_transitional()
        && (sandbox.failure.is_some() || now.since(sandbox.phase_since) > STUCK_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Change;
    use crate::http::wire::tests::sample;
    use crate::types::{HomeId, SandboxId};

    const NOW: Timestamp = Timestamp::from_unix_ms(1_769_860_800_000);

    fn map(all: &[(&str, Phase, u64)]) -> LiveMap {
        let map = LiveMap::default();
        for (home, (issue, phase, secs)) in (1..).zip(all) {
            let sandbox = Sandbox {
                id: SandboxId::trusted(*issue),
                phase: Some(*phase),
                phase_since: NOW.before(Duration::from_secs(*secs)),
                ..sample(issue)
            };
            map.apply(&Change {
                sandbox: Some(Arc::new(sandbox)),
                ..Change::bare(HomeId(home), 1)
            });
        }
        map
    }

    fn named(group: &SandboxGroup) -> Vec<&str> {
        group.named.iter().map(|sandbox| sandbox.id.as_str()).collect()
    }

    #[test]
    fn what_failed_is_named_latest_first_and_what_is_stuck_longest_first() {
        let map = map(&[
            ("1", Phase::Failed, 30),
            ("2", Phase::Failed, 10),
            ("3", Phase::Creating, 179),
            ("4", Phase::Creating, 200),
            ("5", Phase::Deleting, 300),
            ("6", Phase::Running, 9_999),
        ]);
        let survey = Survey::of(&map, &AccountName::default_account(), NOW);
        assert_eq!((named(&survey.failed), survey.failed.count), (vec!["2", "1"], 2));
        assert_eq!((named(&survey.stuck), survey.stuck.count), (vec!["5", "4"], 2));
        assert_eq!((survey.total, survey.in_phase(Phase::Creating)), (6, 2));
        assert_eq!(survey.repositories, [("Octo/hello".to_owned(), 6)]);
        let other = Survey::of(&map, &AccountName::trusted("other"), NOW);
        assert_eq!((other.total, other.failed.count), (0, 0));
    }

    #[test]
    fn some_are_named_and_all_are_counted() {
        let ids: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let all: Vec<_> = (0..).zip(&ids).map(|(n, id)| (id.as_str(), Phase::Failed, n)).collect();
        let survey = Survey::of(&map(&all), &AccountName::default_account(), NOW);
        assert_eq!(named(&survey.failed), ["0", "1", "2", "3", "4"]);
        assert_eq!(survey.failed.count, 20);
    }
}
