//! Whether the provider has free capacity: the part of admission that no person decides.
//!
//! Asked of the provider at which the step would create or start a sandbox. The provider answers
//! from what it knows already. Starts that wait for capacity are retried now and then, like all
//! pending starts.

use std::sync::Arc;

use crate::engine::environment::Environment;
use crate::engine::providers::Providers;
use crate::issue::event::EventMeta;
use crate::issue::{Denial, DenialKind, Issue, IssueState};
use crate::types::{ProviderName, Template};

/// Asks providers for their capacity.
pub(in crate::engine) struct CapacityUse {
    env: Arc<Environment>,
    providers: Providers,
}

impl CapacityUse {
    /// Of these providers.
    pub fn new(env: Arc<Environment>, providers: Providers) -> Self {
        Self { env, providers }
    }

    /// Why the provider could not take one more sandbox for this issue now.
    pub fn denial(&self, issue: &Issue, event: &EventMeta<'_>) -> Option<Denial> {
        let rules = self.env.rules();
        let default = rules.template_for(event.repository.or(issue.facts.repository.as_ref()));
        let name = provider_of(issue, event, &default);
        let shortage = self.providers.get(name)?.capacity().shortage?;
        Some(Denial { kind: DenialKind::NoRoom, reason: format!("{name}: {shortage}") })
    }
}

/// The provider at which a sandbox would be created or started: that of the sandbox that there is, or
/// else of the template that was asked for, now or before.
fn provider_of<'a>(
    issue: &'a Issue,
    event: &EventMeta<'a>,
    default: &'a Template,
) -> &'a ProviderName {
    let there = match &issue.state {
        IssueState::Absent => None,
        IssueState::Deleting { next, .. } => next.as_ref().map(|plan| &plan.template),
        IssueState::Creating { record, .. }
        | IssueState::Running { record, .. }
        | IssueState::Stopping { record, .. }
        | IssueState::Stopped { record, .. }
        | IssueState::Starting { record, .. }
        | IssueState::Failed { record, .. } => Some(&record.template),
    };
    let pending =
        issue.pending_start.as_ref().and_then(|pending_start| pending_start.plan.as_ref());
    let pending = pending.map(|plan| &plan.template);
    &there.or(event.template).or(pending).unwrap_or(default).provider
}
