//! Syncs of a workspace with the object storage: versions, directions and what was moved.

use std::fmt;

/// One stored state of a workspace, as `v{unix-seconds}-{n}`. Later versions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncVersion {
    /// When it was made, in seconds since 1970.
    pub seconds: u64,
    /// Counts the versions of one second: 1, 2, …
    pub number: u32,
}

impl SyncVersion {
    /// Reads a version's name; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (seconds, number) = text.strip_prefix('v')?.split_once('-')?;
        let version = Self { seconds: seconds.parse().ok()?, number: number.parse().ok()? };
        // Each version has one name: no signs, no zeros in front.
        (version.to_string() == text).then_some(version)
    }

    /// The version that is made at this second after the last one, also if the clock was set back.
    pub const fn next(last: Option<Self>, seconds: u64) -> Self {
        match last {
            Some(last) if last.seconds >= seconds => {
                Self { seconds: last.seconds, number: last.number.saturating_add(1) }
            }
            Some(_) | None => Self { seconds, number: 1 },
        }
    }
}

impl fmt::Display for SyncVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}-{}", self.seconds, self.number)
    }
}

/// Which way a sync goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncDirection {
    /// From the workspace to the object storage.
    #[default]
    Push,
    /// From the object storage to the workspace.
    Pull,
}

impl SyncDirection {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Push, Self::Pull];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }

    /// Reads the word; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|direction| direction.as_str() == text)
    }
}

/// What a sync did. Files are regular files and links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncStats {
    /// The files of the version.
    pub files_processed: u64,
    /// Those of which something was stored.
    pub files_uploaded: u64,
    /// Those that were written into the workspace.
    pub files_downloaded: u64,
    /// Files that are gone: since the last version, or out of the workspace.
    pub files_deleted: u64,
    /// Files that were there already.
    pub files_skipped: u64,
    /// Contents that were moved, in bytes.
    pub bytes_transferred: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_one_name_and_later_ones_are_greater() {
        let version = |text| SyncVersion::parse(text);
        assert_eq!(version("v12-3"), Some(SyncVersion { seconds: 12, number: 3 }));
        for odd in ["v12", "12-3", "v012-3", "v+12-3", "v12-03", "v12-3 ", "v-1-3", "v12-3/.."] {
            assert_eq!(version(odd), None, "{odd}");
        }
        assert!(version("v9-10") < version("v10-1") && version("v9-2") < version("v9-10"));
        let first = SyncVersion::next(None, 7);
        assert_eq!(first.to_string(), "v7-1");
        assert_eq!(SyncVersion::next(Some(first), 7).to_string(), "v7-2");
        assert_eq!(SyncVersion::next(Some(first), 5).to_string(), "v7-2", "the clock was set back");
        assert_eq!(SyncVersion::next(Some(first), 8).to_string(), "v8-1");
    }
}
