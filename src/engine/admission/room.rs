//! Whether the provider has room: the part of admission that is nobody's decision.
//!
//! Asked of the provider that the step would make or start a sandbox at, which answers by what it
//! knows already. What waits for room is looked at again once in a while, like all that waits.

use crate::engine::core::Core;
use crate::issue::{Denial, DenialKind, Issue, IssueEvent, IssueState};
use crate::types::{ProviderName, Template};

impl Core {
    /// What forbids to make or start a sandbox for this issue: a hold, a quota, or want of room.
    /// [`Admission::settle`](super::Admission::settle) must follow.
    pub fn denial(&self, issue: &Issue, event: &IssueEvent) -> Option<Denial> {
        self.admission.denial(issue, event).or_else(|| self.no_room(issue, event))
    }

    fn no_room(&self, issue: &Issue, event: &IssueEvent) -> Option<Denial> {
        let name = provider_of(issue, event, &self.rules.default_template);
        let shortage = self.executor.provider(name)?.capacity().shortage?;
        Some(Denial { kind: DenialKind::NoRoom, reason: format!("{name}: {shortage}") })
    }
}

/// Where a sandbox would be made or started: where the one is that there is, or else by the template
/// that was asked for, now or before.
fn provider_of<'a>(
    issue: &'a Issue,
    event: &'a IssueEvent,
    default: &'a Template,
) -> &'a ProviderName {
    let asked = match event {
        IssueEvent::Ensure(ask) => ask.template.as_ref(),
        IssueEvent::Command(_)
        | IssueEvent::Delivery { .. }
        | IssueEvent::ScopeEvent { .. }
        | IssueEvent::Learned { .. }
        | IssueEvent::Merged { .. }
        | IssueEvent::Worked { .. }
        | IssueEvent::LimitStruck { .. }
        | IssueEvent::Answered(_)
        | IssueEvent::Due { .. }
        | IssueEvent::Observed(_)
        | IssueEvent::Adopt(_)
        | IssueEvent::Discard { .. }
        | IssueEvent::Granted
        | IssueEvent::Activated { .. } => None,
    };
    let there = match &issue.state {
        IssueState::Absent => None,
        IssueState::Deleting { next, .. } => next.as_ref(),
        IssueState::Creating { record, .. }
        | IssueState::Running { record, .. }
        | IssueState::Stopping { record, .. }
        | IssueState::Stopped { record, .. }
        | IssueState::Starting { record, .. }
        | IssueState::Failed { record, .. } => Some(&record.template),
    };
    let wished =
        issue.pending_start.as_ref().and_then(|pending_start| pending_start.template.as_ref());
    &there.or(asked).or(wished).unwrap_or(default).provider
}
