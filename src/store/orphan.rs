//! Objects at a provider that carry our labels and have no record.

use crate::types::{
    ExternalId, Generation, HomeId, IssueId, Mode, ObjectName, ProviderName, SandboxId, Timestamp,
};

/// An object that a sweep saw without a record, by what its labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The provider that has it.
    pub provider: ProviderName,
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// Its name there.
    pub object_name: ObjectName,
    /// The sandbox it carries.
    pub sandbox: SandboxId,
    /// The home of that sandbox.
    pub home: HomeId,
    /// The issue's id.
    pub issue: IssueId,
    /// The sandbox's generation.
    pub generation: Generation,
    /// How its create was recorded.
    pub mode: Mode,
    /// When a sweep first saw it without a record.
    pub first_seen_at: Timestamp,
}
