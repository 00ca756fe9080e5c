//! What is allowed to a sandbox and how that holds, for the API and the page.

use super::shared::Shared;
use crate::sandbox::{Isolation, Target};
use crate::types::{Resources, Sandbox};

/// What is allowed to one sandbox.
pub struct SandboxLimits {
    /// How its provider keeps it apart; `None` where that is not configured any more.
    pub isolation: Option<Isolation>,
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

impl SandboxLimits {
    /// What is allowed to this sandbox. A provider that does not know it, or not yet, is taken at
    /// its word for all of its sandboxes.
    pub async fn of(shared: &Shared, sandbox: &Sandbox) -> Self {
        let health = shared.provider_health().await;
        let isolation = health.iter().find(|(name, _)| *name == sandbox.provider);
        let mut isolation = isolation.map(|(_, health)| health.isolation.clone());
        let engine = &shared.edge.engine;
        let provider = engine.providers().into_iter().find(|(name, _)| *name == sandbox.provider);
        if let (Some((_, provider)), Some(id)) = (provider, &sandbox.external_id) {
            let target = Target { external_id: id.clone(), expected: sandbox.id.clone() };
            if let Some(in_force) = provider.limits(target).await {
                if let Some(isolation) = &mut isolation {
                    isolation.limits = in_force.holds;
                }
                return Self { isolation, resources: Some(in_force.resources) };
            }
        }
        let templates = engine.templates();
        let template = templates.into_iter().find(|template| template.name == sandbox.template);
        Self { isolation, resources: template.map(|template| template.resources) }
    }

    /// Each limit, what it allows where that is a number, and how it holds.
    pub fn each(&self) -> Vec<(&'static str, Option<Allowed>, &'static str)> {
        let limits = self.isolation.iter().flat_map(|isolation| &isolation.limits);
        limits.map(|(limit, holds)| (*limit, self.allowed(limit), *holds)).collect()
    }

    fn allowed(&self, limit: &str) -> Option<Allowed> {
        let Resources { cpu, memory_mb, processes, disk_mb } = self.resources.as_ref()?;
        let whole = |number: &u64| u32::try_from(*number).map_or(f64::INFINITY, f64::from);
        let (value, unit) = match limit {
            "cpu" => (*cpu, "CPU"),
            "memory" => (whole(memory_mb), "MiB"),
            "processes" => (f64::from(*processes), ""),
            "disk" => (whole(disk_mb), "MiB"),
            _ => return None,
        };
        Some(Allowed { value, unit })
    }
}
