//! Counters of the clean-ups of orphans, by result.

use std::sync::atomic::AtomicU64;

/// How many orphans were cleaned up since the start, by result.
#[derive(Default)]
pub(super) struct Cleanups {
    pub stopped: AtomicU64,
    pub removed: AtomicU64,
    pub failed: AtomicU64,
}

/// How many orphans were cleaned up since the start, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupCounts {
    /// Stopped, until a person decides.
    pub stopped: u64,
    /// Removed, or gone already.
    pub removed: u64,
    /// Tries that failed.
    pub failed: u64,
}
