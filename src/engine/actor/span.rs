//! The tracing span of each event that an actor handles.

use tracing::Span;
use tracing::field::Empty;

use crate::issue::event::EventMeta;
use crate::types::HomeId;

/// The span within which an event is handled and logged.
pub(super) fn span_of(home: HomeId, meta: &EventMeta<'_>) -> Span {
    let span = tracing::info_span!("event", home = home.0, kind = meta.name, delivery = Empty);
    if let Some(delivery) = meta.delivery {
        span.record("delivery", delivery.as_str());
    }
    span
}
