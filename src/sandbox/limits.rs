//! What an object may use, how that holds, and what is told when it strikes.

use super::Labels;
use crate::types::Resources;

/// The limits of one object, which need not be those of its template: that may have changed since,
/// and so may what the machine can enforce.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsInForce {
    /// What it may use.
    pub resources: Resources,
    /// Each limit and how it holds: `enforced`, `per process`, `watched` or `none`.
    pub holds: Vec<(&'static str, &'static str)>,
}

/// A limit struck in a running object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitEvent {
    /// Whose object.
    pub labels: Labels,
    /// Which limit, for people: `memory limit 512 MB reached`.
    pub reason: String,
    /// What came of it.
    pub effect: LimitEffect,
}

/// What comes of a limit that struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitEffect {
    /// The object goes on; its template says whether it may.
    ByTemplate,
    /// The object was ended for it, since it could harm others or could not go on.
    Ended,
}
