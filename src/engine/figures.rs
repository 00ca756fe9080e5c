//! What can be measured of the engine: plain data.

use super::breaker::BreakerView;
use super::effects::EffectCounts;
use super::executor::CleanupCounts;
use super::reconciler::view::ProviderSweeps;
use crate::sandbox::Egress;
use crate::types::ProviderName;

/// What can be measured of the engine now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Orphans cleaned up since the start.
    pub cleanups: CleanupCounts,
    /// Effects by kind: how many are in the outbox, and how others ended.
    pub effects: Vec<EffectCounts>,
    /// The state of the providers' circuit breakers, by name.
    pub breakers: Vec<(ProviderName, BreakerView)>,
    /// The sweeps of each provider and what they found.
    pub sweeps: Vec<ProviderSweeps>,
    /// The egress traffic of all providers' sandboxes through the server.
    pub egress: Egress,
}
