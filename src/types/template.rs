//! Templates of sandboxes.

use std::sync::Arc;

use super::{Mode, Network, ProviderName, TemplateName, Workload};

/// A configuration from which sandboxes are created.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its name in the configuration.
    pub name: TemplateName,
    /// Its provider.
    pub provider: ProviderName,
    /// How its create is recorded.
    pub mode: Mode,
    /// Its resource limits.
    pub resources: Resources,
    /// Its network access.
    pub network: Network,
    /// TCP ports that are reachable through the server.
    pub ports: Vec<u16>,
    /// What happens when it reaches a limit.
    pub on_limit: OnLimit,
    /// What it is made from and what runs in it; shared, since every record has a copy.
    pub workload: Arc<Workload>,
}

/// What happens when a sandbox reaches a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The process is killed or the request refused, and the sandbox goes on.
    #[default]
    Kill,
    /// The sandbox is stopped.
    Stop,
}

/// Resource limits. A provider's [`Isolation`](crate::sandbox::Isolation) says which of them it enforces.
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
