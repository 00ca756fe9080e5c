//! The room that a provider has for sandboxes, beside what each may use.

/// The room of a provider, as of a moment ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The disk that its objects are on; `None` if the provider does not watch one.
    pub disk: Option<DiskRoom>,
    /// Why nothing is made or started now, and what to do, for people; `None` where there is room.
    pub shortage: Option<String>,
}

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// What is free, less what is on its way to the disk.
    pub free: u64,
    /// With less than this free nothing is made or started.
    pub kept_free: u64,
}

impl DiskRoom {
    /// With less than this free, in bytes, the sandboxes that write are ended.
    pub const fn ended_below(self) -> u64 {
        self.kept_free / 2
    }
}
