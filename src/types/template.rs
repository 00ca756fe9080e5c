//! A named, premade sandbox configuration.

use super::{Mode, Network, ProviderName, TemplateName};

/// What a sandbox is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its name in the configuration.
    pub name: TemplateName,
    /// Which provider makes it.
    pub provider: ProviderName,
    /// How its create is recorded.
    pub mode: Mode,
    /// What it may use.
    pub resources: Resources,
    /// What it can reach.
    pub network: Network,
    /// TCP ports inside that can be reached from outside, through the server.
    pub ports: Vec<u16>,
    /// What happens when it uses that up.
    pub on_limit: OnLimit,
}

/// What happens to a sandbox in which a limit strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// What struck it is killed or refused, and the sandbox goes on.
    #[default]
    Kill,
    /// The sandbox is stopped.
    Stop,
}

/// What a sandbox may use. Whether a provider can enforce each is said by its
/// [`Isolation`](crate::sandbox::Isolation).
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// CPUs.
    pub cpu: f64,
    /// Memory, in MiB.
    pub memory_mb: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Disk, in MiB.
    pub disk_mb: u64,
}
