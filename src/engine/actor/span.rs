//! What an actor's work is called in the log and in traces: one span for each event that it takes.

use tracing::Span;
use tracing::field::Empty;

use crate::issue::IssueEvent;
use crate::types::{DeliveryId, HomeId};

/// What is said in the log while an event is taken says within which.
pub(super) fn span_of(home: HomeId, event: &IssueEvent) -> Span {
    let span = tracing::info_span!("event", home = home.0, kind = kind(event), delivery = Empty);
    if let Some(delivery) = delivery(event) {
        span.record("delivery", delivery.as_str());
    }
    span
}

/// What kind of event it is, in one word for logs and traces.
const fn kind(event: &IssueEvent) -> &'static str {
    match event {
        IssueEvent::Ensure(_) => "ensure",
        IssueEvent::Command(_) => "command",
        IssueEvent::Delivery { .. } => "delivery",
        IssueEvent::ScopeEvent { .. } => "around",
        IssueEvent::Learned { .. } => "learned",
        IssueEvent::Merged { .. } => "merged",
        IssueEvent::Worked { .. } => "worked",
        IssueEvent::LimitStruck { .. } => "limit_struck",
        IssueEvent::Answered(_) => "answered",
        IssueEvent::Due { .. } => "due",
        IssueEvent::Observed(_) => "observed",
        IssueEvent::Adopt(_) => "adopt",
        IssueEvent::Discard { .. } => "discard",
        IssueEvent::Granted => "granted",
        IssueEvent::Activated { .. } => "activated",
    }
}

/// The delivery that told it, where one did.
const fn delivery(event: &IssueEvent) -> Option<&DeliveryId> {
    match event {
        IssueEvent::Delivery { issue_delivery, .. } => Some(&issue_delivery.delivery),
        IssueEvent::ScopeEvent { delivery, .. } => Some(delivery),
        IssueEvent::Ensure(_)
        | IssueEvent::Command(_)
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
    }
}
