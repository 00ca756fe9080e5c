//! What people and programs see of drift: plain data.

use std::collections::BTreeMap;

use crate::types::{
    AccountName, ExternalId, Generation, IssueId, Mode, ObjectName, ObjectState, Phase,
    ProviderName, SandboxId, Timestamp,
};

use super::compare::{KnownHome, Ours};

/// One thing that our records and a provider disagree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftItem {
    /// Its id, which stays the same from sweep to sweep.
    pub id: String,
    /// Which provider.
    pub provider: ProviderName,
    /// Of which kind it is.
    pub kind: DriftKind,
    /// The account of the issue it concerns, if it concerns one.
    pub account: Option<AccountName>,
    /// The issue it concerns, if it concerns one.
    pub issue: Option<IssueId>,
    /// What the record says, if there is one.
    pub record: Option<RecordSide>,
    /// What the provider says, if it has an object.
    pub object: Option<ObjectSide>,
    /// What disagrees, in words.
    pub reason: String,
    /// When a sweep found it first.
    pub since: Timestamp,
    /// What happens next without a person, in words.
    pub next: String,
    /// When that happens at the earliest, if it has a time.
    pub next_at: Option<Timestamp>,
    /// What a person can do about it.
    pub remedies: Vec<Remedy>,
}

impl DriftItem {
    /// What a person has to do with it.
    pub fn attention(&self) -> DriftAttention {
        match self.kind {
            DriftKind::ProviderUnreachable => DriftAttention::Provider,
            kind if kind.is_alarm() => DriftAttention::Decision,
            _ if self.remedies.is_empty() => DriftAttention::None,
            _ => DriftAttention::Choice,
        }
    }
}

/// What a person has to do with drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftAttention {
    /// Decide soon: what happens otherwise, and when, is written in the item.
    Decision,
    /// Bring the provider back, if it does not come back by itself.
    Provider,
    /// Nothing: what happens next is written in the item. But a person can decide otherwise.
    Choice,
    /// Nothing: it is repaired automatically.
    None,
}

impl DriftAttention {
    /// In words, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Decision => "needs a decision",
            Self::Provider => "the provider is asked again",
            Self::Choice => "you can decide",
            Self::None => "repaired automatically",
        }
    }
}

/// The kinds of drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DriftKind {
    /// The recorded object is not there.
    ObjectLost,
    /// The record says *running* and the object is down.
    KilledOutside,
    /// The record says *stopped* and the object is up.
    StartedOutside,
    /// An object without a record that is removed by itself.
    Orphan,
    /// An object whose sandbox the store has never seen: stopped and kept for a while.
    Quarantined,
    /// A second object for one issue.
    Duplicate,
    /// The provider has another identity.
    IdentityChanged,
    /// So many objects are missing that the list is not trusted.
    MassLoss,
    /// So many objects would be removed that none is.
    MassRemoval,
    /// The provider could not be looked at.
    ProviderUnreachable,
}

impl DriftKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::ObjectLost,
        Self::KilledOutside,
        Self::StartedOutside,
        Self::Orphan,
        Self::Quarantined,
        Self::Duplicate,
        Self::IdentityChanged,
        Self::MassLoss,
        Self::MassRemoval,
        Self::ProviderUnreachable,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ObjectLost => "object_lost",
            Self::KilledOutside => "killed_outside",
            Self::StartedOutside => "started_outside",
            Self::Orphan => "orphan",
            Self::Quarantined => "quarantined",
            Self::Duplicate => "duplicate",
            Self::IdentityChanged => "identity_changed",
            Self::MassLoss => "mass_loss",
            Self::MassRemoval => "mass_removal",
            Self::ProviderUnreachable => "provider_unreachable",
        }
    }

    /// Whether a person should look at it soon.
    pub const fn is_alarm(self) -> bool {
        match self {
            Self::Duplicate
            | Self::IdentityChanged
            | Self::MassLoss
            | Self::MassRemoval
            | Self::ProviderUnreachable => true,
            Self::ObjectLost
            | Self::KilledOutside
            | Self::StartedOutside
            | Self::Orphan
            | Self::Quarantined => false,
        }
    }

    /// Whether it is about the provider as a whole.
    pub(super) const fn is_of_provider(self) -> bool {
        match self {
            Self::IdentityChanged
            | Self::MassLoss
            | Self::MassRemoval
            | Self::ProviderUnreachable => true,
            Self::ObjectLost
            | Self::KilledOutside
            | Self::StartedOutside
            | Self::Orphan
            | Self::Quarantined
            | Self::Duplicate => false,
        }
    }
}

/// What a person can do about drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The provider's state is accepted.
    Adopt,
    /// The object, or the record without an object, is deleted.
    Remove,
}

impl Remedy {
    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adopt => "adopt",
            Self::Remove => "remove",
        }
    }
}

/// What the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSide {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Its generation.
    pub generation: Generation,
    /// Its phase.
    pub phase: Phase,
    /// Its object.
    pub external_id: Option<ExternalId>,
}

/// What the provider says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSide {
    /// The provider's id of the object.
    pub external_id: ExternalId,
    /// Its name.
    pub name: ObjectName,
    /// Its state.
    pub state: ObjectState,
    /// The sandbox it carries.
    pub sandbox: SandboxId,
    /// That sandbox's generation.
    pub generation: Generation,
    /// How that sandbox's create was recorded.
    pub mode: Mode,
}

impl RecordSide {
    pub(super) fn of(known: &KnownHome, provider: &ProviderName) -> Option<Self> {
        let recorded = known.at(provider)?;
        Some(Self {
            sandbox: recorded.id.clone(),
            generation: known.generation,
            phase: recorded.phase,
            external_id: recorded.external_id.clone(),
        })
    }
}

impl ObjectSide {
    pub(super) fn of(object: &Ours) -> Self {
        Self {
            external_id: object.external_id.clone(),
            name: object.name.clone(),
            state: object.state.clone(),
            sandbox: object.labels.sandbox.clone(),
            generation: object.labels.generation,
            mode: object.labels.mode,
        }
    }
}

/// The sweeps of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSweeps {
    /// Which provider.
    pub provider: ProviderName,
    /// When the last one ended that looked at the provider's list; `None` before the first.
    pub last_at: Option<Timestamp>,
    /// Live sandboxes on record then.
    pub records: usize,
    /// Objects of ours in the list then.
    pub objects: usize,
    /// How many sweeps looked at everything, since the server started.
    pub done: u64,
    /// How many found too much at once to act on anything.
    pub held_back: u64,
    /// How many could not look.
    pub not_made: u64,
    /// How many items there are of each kind that has some.
    pub counts: BTreeMap<DriftKind, usize>,
}

/// All drift that the last sweeps found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftView {
    /// The items that are kept, by provider.
    pub items: Vec<DriftItem>,
    /// How many there are, those that are not kept included.
    pub total: usize,
    /// The sweeps, by provider.
    pub sweeps: Vec<ProviderSweeps>,
}
