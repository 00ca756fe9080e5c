//! What a provider declares about itself at its start: its guarantees, its capabilities, and how it
//! isolates sandboxes. Page, API, command line and configuration check ask this, never a failed call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::WorkError;
use crate::types::{NetworkKind, Template};

/// What never changes about a provider while the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How strongly names are kept apart.
    pub uniqueness: Uniqueness,
    /// How long after a call's deadline its effect may still appear.
    pub late_effect_window: Duration,
    /// Whether running objects die with this server's process (`local`).
    pub dies_with_server: bool,
    /// What it can do beside the calls that every provider answers.
    pub capabilities: BTreeSet<Capability>,
    /// The networks that its sandboxes can have. Never empty.
    pub networks: Vec<NetworkKind>,
    /// How it keeps sandboxes apart from the host.
    pub isolation: Isolation,
    /// Each limit and how it held at the start; [`Health::limits`](super::Health::limits) says how
    /// it holds now.
    pub limits: Enforcements,
}

impl Descriptor {
    /// A provider that enforces names, whose calls have no late effects, and that declares no
    /// capability, network, isolation or limit.
    pub fn plain() -> Self {
        Self {
            uniqueness: Uniqueness::EnforcedNames,
            late_effect_window: Duration::ZERO,
            dies_with_server: false,
            capabilities: BTreeSet::new(),
            networks: vec![NetworkKind::None],
            isolation: Isolation { kind: "none", seccomp: Enforcement::None, memory_counts: None },
            limits: Enforcements::new(),
        }
    }

    /// Whether the provider declares a capability.
    pub fn offers(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Refuses what the provider does not declare.
    ///
    /// # Errors
    /// [`WorkError::Unsupported`].
    pub fn require(&self, capability: Capability) -> Result<(), WorkError> {
        if self.offers(capability) { Ok(()) } else { Err(WorkError::Unsupported(capability)) }
    }

    /// The most that sandboxes made from these templates of the provider reach.
    pub fn network_of<'a>(&self, templates: impl IntoIterator<Item = &'a Template>) -> NetworkKind {
        let kinds = templates.into_iter().map(|template| template.network.kind());
        kinds.filter(|kind| self.networks.contains(kind)).max().unwrap_or_default()
    }
}

/// How strongly a provider keeps two objects of one name apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniqueness {
    /// The provider refuses a second object of the same name, also under concurrent creates.
    EnforcedNames,
    /// It does not: an unanswered create is only looked for, never asked again before it must
    /// have taken effect.
    None,
}

impl Uniqueness {
    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EnforcedNames => "enforced_names",
            Self::None => "none",
        }
    }
}

/// What only some providers can do. A provider answers the calls of a capability it declares; those
/// of any other are refused before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Commands at a terminal: [`Processes::terminal`](super::Processes::terminal).
    Terminal,
    /// Servers in a sandbox are reached: [`Processes::port`](super::Processes::port).
    Ports,
    /// Ports carry any bytes, not only HTTP: `port` answers
    /// [`PortAccess::Stream`](super::PortAccess::Stream).
    Tunnels,
    /// Directories as tar archives: `pack_directory`, `unpack_directory`.
    Archives,
    /// Processes that outlive the connection that started them:
    /// [`Processes::spawn`](super::Processes::spawn) and the calls on its result.
    DetachedProcesses,
    /// Objects are made from a stored state of another one.
    Snapshots,
    /// git in an object reaches the [gateway](crate::git) that the provider was opened with.
    Git,
}

impl Capability {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Terminal,
        Self::Ports,
        Self::Tunnels,
        Self::Archives,
        Self::DetachedProcesses,
        Self::Snapshots,
        Self::Git,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Ports => "ports",
            Self::Tunnels => "tunnels",
            Self::Archives => "archives",
            Self::DetachedProcesses => "detached_processes",
            Self::Snapshots => "snapshots",
            Self::Git => "git",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminal => "terminals",
            Self::Ports => "ports",
            Self::Tunnels => "tunnels to ports",
            Self::Archives => "archives",
            Self::DetachedProcesses => "detached processes",
            Self::Snapshots => "snapshots",
            Self::Git => "git through the gateway",
        })
    }
}

/// How a provider keeps sandboxes apart from the host and from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// `namespaces`, `simulated`, `none`, …
    pub kind: &'static str,
    /// Whether a system-call filter is in force.
    pub seccomp: Enforcement,
    /// What the limit on memory counts, in words; `None` if the provider has no such limit.
    pub memory_counts: Option<&'static str>,
}

/// What a sandbox may use only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// How many processes there are at once.
    Processes,
    /// The workspace's size.
    Disk,
    /// Open files of one process.
    OpenFiles,
    /// The size of one file.
    FileSize,
    /// What the kernel counts for a host user, such as pipes and watches: whether the sandbox has a
    /// user of its own.
    UserCounters,
}

impl LimitKind {
    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::OpenFiles => "openFiles",
            Self::FileSize => "fileSize",
            Self::UserCounters => "userCounters",
        }
    }

    /// Its name, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::OpenFiles => "open files",
            Self::FileSize => "file size",
            Self::UserCounters => "counters by user",
            Self::Memory | Self::Processes | Self::Disk => self.as_str(),
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a limit holds. Later ones hold less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enforcement {
    /// For the sandbox as a whole: nothing in it can exceed the limit.
    Enforced,
    /// For each process on its own; many processes together can exceed it.
    PerProcess,
    /// The provider measures from time to time and ends what exceeds it.
    Watched,
    /// Not at all.
    None,
}

impl Enforcement {
    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::PerProcess => "per process",
            Self::Watched => "watched",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Each limit that a provider knows, and how it holds.
pub type Enforcements = BTreeMap<LimitKind, Enforcement>;
