//! `[templates.X.local]`: what a template says to this provider alone.

use std::collections::BTreeMap;

use crate::config::ProviderSection;

/// `[templates.X.local]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalOptions {
    /// `scratch_mb`: the most that the sandbox's `/tmp`, home and `/dev/shm` hold together, in MiB.
    /// `None` for the provider's default.
    pub scratch_mb: Option<u32>,
}

/// The smallest and the largest scratch space, in MiB. More than a terabyte of memory is a mistake.
const SCRATCH_MB: std::ops::RangeInclusive<u64> = 1..=1 << 20;

impl LocalOptions {
    /// Reads the table.
    pub(super) fn read(section: &mut ProviderSection<'_>) -> Self {
        let scratch_mb = section.number_if_given("scratch_mb", SCRATCH_MB);
        Self { scratch_mb: scratch_mb.and_then(|mb| mb.try_into().ok()) }
    }

    /// The keys as texts, for a template.
    pub(super) fn to_texts(self) -> BTreeMap<String, String> {
        self.scratch_mb.map(|mb| ("scratch_mb".to_owned(), mb.to_string())).into_iter().collect()
    }

    /// The keys of a template. Those of a later version have no effect.
    pub fn of(texts: &BTreeMap<String, String>) -> Self {
        Self { scratch_mb: texts.get("scratch_mb").and_then(|mb| mb.parse().ok()) }
    }
}
