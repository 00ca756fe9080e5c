//! The limits of a sandbox and how they are enforced, for the API and the dashboard.

use super::shared::Shared;
use crate::sandbox::{Isolation, Target};
use crate::types::{Resources, Sandbox};

/// The limits of one sandbox.
pub struct SandboxLimits {
    /// How its provider isolates it; `None` if the provider is no longer configured.
    pub isolation: Option<Isolation>,
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

    /// Each limit with its value, if it has one, and how it is enforced.
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
