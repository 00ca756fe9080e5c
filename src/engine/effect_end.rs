//! How a try to carry out an effect ended: what the parts that do it return to the worker.

use crate::types::Timestamp;

/// How one try to carry out an effect ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EffectEnd {
    /// It was carried out, now or by an earlier try.
    Done,
    /// It must not be carried out any more, for this reason.
    Obsolete(&'static str),
    /// The home's call slot is taken: a try later counts for nothing.
    SlotTaken,
    /// The provider cannot be reached until then: no try is spent.
    Unreachable(String, Timestamp),
    /// It failed, and trying again may help.
    Failed(String),
    /// It failed for good.
    Refused(String),
}
