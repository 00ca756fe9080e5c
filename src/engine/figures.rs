//! What can be measured of the engine: plain data.

use super::breaker::BreakerView;
use super::executor::CleanupCounts;
use super::reconciler::view::ProviderSweeps;
use crate::sandbox::Egress;
use crate::types::ProviderName;

/// What can be measured of the engine as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What was put away without a record since the start.
    pub cleanups: CleanupCounts,
    /// How the providers' circuit breakers stand, by name.
    pub breakers: Vec<(ProviderName, BreakerView)>,
    /// The sweeps of each provider and what they found.
    pub sweeps: Vec<ProviderSweeps>,
    /// What went out of the sandboxes of all providers through the server.
    pub egress: Egress,
}
