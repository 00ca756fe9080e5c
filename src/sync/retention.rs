//! How long versions and contents are kept. Pure.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::manifest::ContentChecksum;
use super::storage::ListedContent;
use crate::types::{SyncVersion, Timestamp};

/// How long something stays after no version needs it any more: longer than any push takes. A push
/// relies on the version that was the newest when it began, and on what it wrote itself.
pub const GRACE: Duration = Duration::from_secs(86_400);

/// How many versions of a sandbox are kept, and for how long. The newest whole one is kept always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncRetention {
    /// The most versions; `None` for all.
    pub versions_max: Option<usize>,
    /// The oldest; `None` for any age.
    pub age_max: Option<Duration>,
}

impl SyncRetention {
    /// The versions to remove, of those with these names, newest first. `newest` is the newest whole
    /// one: it stays, and so does what is newer. So does a version that was the newest one less than
    /// a day ago.
    pub fn past(
        self,
        versions: &[SyncVersion],
        newest: SyncVersion,
        now: Timestamp,
    ) -> Vec<SyncVersion> {
        let now = u64::try_from(now.unix_ms() / 1000).unwrap_or(0);
        let age = |version: SyncVersion| now.saturating_sub(version.seconds);
        let kept: Vec<SyncVersion> =
            versions.iter().copied().filter(|version| *version <= newest).collect();
        let pairs = kept.windows(2).enumerate();
        let past = pairs.filter(|(at, pair)| {
            let is_too_many = self.versions_max.is_some_and(|max| at + 1 >= max);
            let is_too_old = self.age_max.is_some_and(|max| age(pair[1]) > max.as_secs());
            (is_too_many || is_too_old) && age(pair[0]) > GRACE.as_secs()
        });
        past.map(|(_, pair)| pair[1]).collect()
    }
}

/// What becomes of the contents of a sandbox.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ContentGarbage {
    /// Those to remove: no version names them, and they were written long ago.
    pub old: Vec<ContentChecksum>,
    /// How many others no version names: a push that is under way may.
    pub young: usize,
}

impl ContentGarbage {
    /// Of the contents that were listed before the versions that name `named` were.
    pub fn of(
        listed: &HashMap<ContentChecksum, ListedContent>,
        named: &HashSet<ContentChecksum>,
        now: Timestamp,
    ) -> Self {
        let mut garbage = Self::default();
        for (checksum, content) in listed {
            if named.contains(checksum) {
                continue;
            }
            if is_old(content.written_at, now) {
                garbage.old.push(*checksum);
            } else {
                garbage.young += 1;
            }
        }
        garbage
    }
}

/// Whether something was written so long ago that no push under way has written it.
pub fn is_old(written_at: Timestamp, now: Timestamp) -> bool {
    written_at < now.before(GRACE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400;

    fn days(days: u64) -> SyncVersion {
        SyncVersion { seconds: days * DAY, number: 1 }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(i64::try_from(seconds * 1000).expect("some days"))
    }

    #[test]
    fn versions_past_retention_go_but_the_newest_whole_one_and_those_just_replaced() {
        let versions: Vec<SyncVersion> = [99, 98, 97, 50, 10].map(days).into();
        let past = |versions_max, age_max: Option<u64>, newest| {
            let age_max = age_max.map(|days| Duration::from_secs(days * DAY));
            let retention = SyncRetention { versions_max, age_max };
            retention.past(&versions, days(newest), at(100 * DAY - 1))
        };
        assert_eq!(past(None, None, 99), []);
        assert_eq!(past(Some(3), None, 99), [days(50), days(10)]);
        assert_eq!(past(None, Some(60), 99), [days(10)]);
        assert_eq!(past(Some(4), Some(20), 99), [days(50), days(10)]);
        assert_eq!(
            past(Some(1), Some(0), 99),
            [days(97), days(50), days(10)],
            "98 was replaced today"
        );
        assert_eq!(past(Some(1), None, 50), [days(10)], "what is newer is no whole version");
        assert_eq!(past(Some(1), Some(0), 10), []);
    }

    proptest! {
        #[test]
        fn the_newest_whole_version_and_all_that_is_within_retention_stay(
            mut versions in prop::collection::hash_set(0..200 * DAY, 1..20),
            newest in 0..20_usize,
            now in 0..250 * DAY,
            versions_max in prop::option::of(1..8_usize),
            age_max in prop::option::of(0..100 * DAY),
        ) {
            let mut versions: Vec<u64> = versions.drain().collect();
            versions.sort_unstable_by(|a, b| b.cmp(a));
            let versions: Vec<SyncVersion> =
                versions.into_iter().map(|seconds| SyncVersion { seconds, number: 1 }).collect();
            let newest = newest % versions.len();
            let age_max = age_max.map(Duration::from_secs);
            let past = SyncRetention { versions_max, age_max }.past(&versions, versions[newest], at(now));
            for (place, version) in versions.iter().enumerate() {
                let is_within = versions_max.is_none_or(|max| place < newest + max)
                    && age_max.is_none_or(|max| now.saturating_sub(version.seconds) <= max.as_secs());
                let was_just_replaced = place > 0 && versions[place - 1].seconds + DAY >= now;
                if past.contains(version) {
                    prop_assert!(place > newest && !is_within && !was_just_replaced);
                } else {
                    prop_assert!(place <= newest || is_within || was_just_replaced);
                }
            }
        }
    }
}
