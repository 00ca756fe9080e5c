//! What an object may use, and how that holds.

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
