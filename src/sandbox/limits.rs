//! What an object may use, how that holds, and the event when it hits a limit.

use super::{Enforcements, Labels};
use crate::types::Resources;

/// The limits of one object. They can differ from those of its template: that may have changed
/// since, and so may what the machine can enforce.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsInForce {
    /// What it may use.
    pub resources: Resources,
    /// Each limit and how it holds.
    pub holds: Enforcements,
}

/// A running object hit a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitEvent {
    /// Whose object.
    pub labels: Labels,
    /// Which limit, for people: `memory limit 512 MB reached`.
    pub reason: String,
    /// What came of it.
    pub effect: LimitEffect,
}

/// What comes of a limit that was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitEffect {
    /// The object goes on; its template says whether it may.
    ByTemplate,
    /// The provider ended the object, since it could harm others or could not go on.
    Ended,
}
