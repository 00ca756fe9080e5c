//! The limits of a sandbox and how they are enforced, for the API and the dashboard.

use super::shared::Shared;
use crate::sandbox::{Enforcement, Enforcements, Isolation, LimitKind, Target};
use crate::types::{Resources, Sandbox};

/// The limits of one sandbox.
pub struct SandboxLimits {
    /// How its provider isolates it; `None` if the provider is no longer configured.
    pub isolation: Option<Isolation>,
    /// Each limit and how it is enforced; empty if its provider is no longer configured.
    pub holds: Enforcements,
    /// Its resources: as in force at its provider, otherwise as its template says now; `None` if
    /// that is no longer configured.
    pub resources: Option<Resources>,
}

/// The value of a limit.
pub struct Allowed {
    /// The number.
    pub value: f64,
    /// `CPU`, `MiB`, or empty for a count.
    pub unit: &'static str,
}

impl SandboxLimits {
    /// Reads the limits of a sandbox. If its provider has none for this sandbox, those that hold
    /// for all of its sandboxes are used.
    pub async fn of(shared: &Shared, sandbox: &Sandbox) -> Self {
        let health = shared.provider_health().await;
        let health = health.iter().find(|(name, _)| *name == sandbox.provider);
        let holds = health.map(|(_, health)| health.limits.clone()).unwrap_or_default();
        let provider = shared.edge.providers.get(&sandbox.provider);
        let isolation = provider.map(|provider| provider.descriptor.isolation.clone());
        if let (Some(provider), Some(id)) = (provider, &sandbox.external_id) {
            let target = Target { external_id: id.clone(), expected: sandbox.id.clone() };
            if let Some(in_force) = provider.lifecycle.limits(target).await {
                let (resources, holds) = (Some(in_force.resources), in_force.holds);
                return Self { isolation, holds, resources };
            }
        }
        let templates = shared.edge.engine.templates();
        let template = templates.into_iter().find(|template| template.name == sandbox.template);
        Self { isolation, holds, resources: template.map(|template| template.resources) }
    }

    /// Each limit with its value, if it has one, and how it is enforced.
    pub fn each(&self) -> Vec<(LimitKind, Option<Allowed>, Enforcement)> {
        self.holds.iter().map(|(limit, how)| (*limit, self.allowed(*limit), *how)).collect()
    }

    fn allowed(&self, limit: LimitKind) -> Option<Allowed> {
        let Resources { cpu, memory_mb, processes, disk_mb } = self.resources.as_ref()?;
        let whole = |number: &u64| u32::try_from(*number).map_or(f64::INFINITY, f64::from);
        let (value, unit) = match limit {
            LimitKind::Cpu => (*cpu, "CPU"),
            LimitKind::Memory => (whole(memory_mb), "MiB"),
            LimitKind::Processes => (f64::from(*processes), ""),
            LimitKind::Disk => (whole(disk_mb), "MiB"),
            LimitKind::OpenFiles | LimitKind::FileSize | LimitKind::UserCounters => return None,
        };
        Some(Allowed { value, unit })
    }
}
