//! What is allowed to a sandbox and how that holds, for the API and the page.

use super::shared::Shared;
use crate::sandbox::{Enforcement, Enforcements, Isolation, LimitKind, Target};
use crate::types::{Resources, Sandbox};

/// What is allowed to one sandbox.
pub struct Limits {
    /// How its provider keeps it apart; `None` if that is not configured any more.
    pub isolation: Option<Isolation>,
    /// Each limit and how it holds; empty if its provider is not configured any more.
    pub holds: Enforcements,
    /// What it may use: what its provider knows of it, else what its template says now; `None`
    /// where that is not configured any more.
    pub resources: Option<Resources>,
}

/// What a limit allows.
pub struct Allowed {
    /// How much.
    pub value: f64,
    /// Of what: `CPU`, `MiB`, or nothing for a number.
    pub unit: &'static str,
}

impl Limits {
    /// What is allowed to this sandbox. A provider that does not know it, or not yet, is taken at
    /// its word for all of its sandboxes.
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

    /// Each limit, what it allows if that is a number, and how it holds.
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
            LimitKind::OpenFiles | LimitKind::FileSize => return None,
        };
        Some(Allowed { value, unit })
    }
}
