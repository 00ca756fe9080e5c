//! The records that one sweep compares, packed: all of them are held while the provider's list is
//! read, and all but a few turn out to agree with it.

use std::vec::IntoIter;

use super::compare::{KnownHome, Recorded};
use crate::types::{
    AccountName, Attempt, ExternalId, Generation, HomeId, IssueId, ObjectName, Phase, ProviderName,
    SandboxId, Timestamp,
};

/// The homes with a live sandbox at one provider, in their order.
pub(super) struct Records {
    provider: ProviderName,
    rows: Vec<PackedHome>,
}

/// A [`KnownHome`] whose texts are in one allocation. Accounts are few, and one row after the other
/// is of the same.
struct PackedHome {
    home: HomeId,
    account: AccountName,
    generation: Generation,
    phase: Phase,
    attempt: Attempt,
    since: Timestamp,
    stop_may_land: bool,
    has_external_id: bool,
    /// Issue, sandbox, name and external id.
    texts: Box<str>,
    /// The ends of the first three in `texts`.
    ends: [u32; 3],
}

impl Records {
    pub fn new(provider: ProviderName) -> Self {
        Self { provider, rows: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds a home, if its live sandbox is at this provider.
    pub fn add(&mut self, known: &KnownHome) {
        let Some(recorded) = known.at(&self.provider) else { return };
        let last = self.rows.last().map(|row| &row.account);
        let account = last.filter(|last| **last == known.account).unwrap_or(&known.account).clone();
        let mut texts = String::new();
        let ends =
            [known.issue.as_str(), recorded.id.as_str(), recorded.name.as_str()].map(|text| {
                texts.push_str(text);
                // An id or name of 4 GiB is not taken in anywhere.
                u32::try_from(texts.len()).unwrap_or(u32::MAX)
            });
        texts.push_str(recorded.external_id.as_ref().map_or("", ExternalId::as_str));
        self.rows.push(PackedHome {
            home: known.home,
            account,
            generation: known.generation,
            phase: recorded.phase,
            attempt: recorded.attempt,
            since: recorded.since,
            stop_may_land: recorded.stop_may_land,
            has_external_id: recorded.external_id.is_some(),
            texts: texts.into(),
            ends,
        });
    }
}

impl IntoIterator for Records {
    type Item = KnownHome;
    type IntoIter = Unpacked;

    fn into_iter(self) -> Unpacked {
        Unpacked { provider: self.provider, rows: self.rows.into_iter() }
    }
}

/// Gives the homes of [`Records`] back, one by one.
pub(super) struct Unpacked {
    provider: ProviderName,
    rows: IntoIter<PackedHome>,
}

impl Iterator for Unpacked {
    type Item = KnownHome;

    fn next(&mut self) -> Option<KnownHome> {
        let row = self.rows.next()?;
        let [issue, sandbox, name] = row.ends.map(|end| end as usize);
        let text = |from, to| row.texts.get(from..to).unwrap_or_default();
        let external_id = || ExternalId::trusted(text(name, row.texts.len()));
        Some(KnownHome {
            home: row.home,
            account: row.account.clone(),
            issue: IssueId::trusted(text(0, issue)),
            generation: row.generation,
            sandbox: Some(Recorded {
                id: SandboxId::trusted(text(issue, sandbox)),
                provider: self.provider.clone(),
                name: ObjectName::trusted(text(sandbox, name)),
                external_id: row.has_external_id.then(external_id),
                phase: row.phase,
                attempt: row.attempt,
                since: row.since,
                stop_may_land: row.stop_may_land,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_record_comes_back_as_it_was_and_others_are_left_out() {
        let home = |n: i64, provider: &str, external_id: Option<&str>| KnownHome {
            home: HomeId(n),
            account: AccountName::trusted("öcto"),
            issue: IssueId::trusted(format!("10{n}")),
            generation: Generation(3),
            sandbox: Some(Recorded {
                id: SandboxId::trusted(format!("sandbox-{n}")),
                provider: ProviderName::trusted(provider),
                name: ObjectName::trusted("a-Näme"),
                external_id: external_id.map(ExternalId::trusted),
                phase: Phase::Stopped,
                attempt: Attempt(2),
                since: Timestamp::from_unix_ms(n),
                stop_may_land: n == 1,
            }),
        };
        let known = [home(1, "a", Some("über")), home(2, "a", None), home(3, "a", Some(""))];
        let mut records = Records::new(ProviderName::trusted("a"));
        known.iter().for_each(|known| records.add(known));
        records.add(&home(4, "b", None));
        records.add(&KnownHome { sandbox: None, ..home(5, "a", None) });
        assert_eq!(records.len(), 3);
        assert_eq!(records.into_iter().collect::<Vec<_>>(), known);
    }
}
