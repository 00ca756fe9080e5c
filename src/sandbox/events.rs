//! What providers report by themselves: limits that were hit, notices for people, changed objects.

use tokio::sync::broadcast;

use super::{Labels, LimitEvent};
use crate::types::{ExternalId, SandboxId};

/// Events that are kept for a subscriber that has not read them yet.
const EVENTS_KEPT: usize = 1024;

/// One thing that a provider reports. Events are hints: one may be missing or late, so nothing is
/// right only because an event came. Sweeps find what events missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderEvent {
    /// A running object hit a limit. One that goes on hitting it is reported again after a while.
    LimitHit(LimitEvent),
    /// Something for the people of a running object.
    Notice(Notice),
    /// An object changed without a call of ours: it was killed, stopped or removed from outside.
    ObjectChanged(ObjectChange),
    /// The subscriber read too slowly: so many events were dropped before the next one.
    Lagged(u64),
    /// The provider could not be followed for a while, as when it restarts: any event may be missing.
    Interrupted,
}

/// Something to write into a running object's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which sandbox's object.
    pub sandbox: SandboxId,
    /// One line. It is for people alone: it may hold what the sandbox itself must not learn.
    pub text: String,
}

/// An object that changed without a call. What it is now is for `find` to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// Which sandbox it belongs to; `None` if it has no labels of ours.
    pub labels: Option<Labels>,
}

/// The sending half: an adapter keeps one and publishes to every subscriber. Publishing never
/// blocks and never fails; without subscribers the event is dropped.
#[derive(Clone, Debug)]
pub struct EventSender(broadcast::Sender<ProviderEvent>);

impl Default for EventSender {
    fn default() -> Self {
        Self(broadcast::Sender::new(EVENTS_KEPT))
    }
}

impl EventSender {
    /// Reports an event to every subscriber.
    pub fn publish(&self, event: ProviderEvent) {
        // An error only means that there is no subscriber.
        let _ = self.0.send(event);
    }

    /// The events from now on.
    pub fn subscribe(&self) -> ProviderEvents {
        ProviderEvents(self.0.subscribe())
    }
}

/// The receiving half: one subscriber's events, in the order they were published. A subscriber that
/// is 1024 events behind loses the oldest and receives [`ProviderEvent::Lagged`] in their place.
#[derive(Debug)]
pub struct ProviderEvents(broadcast::Receiver<ProviderEvent>);

impl ProviderEvents {
    /// Events of a provider that reports none: ends at once.
    pub fn none() -> Self {
        EventSender::default().subscribe()
    }

    /// The next event; `None` once the provider is gone. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ProviderEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(ProviderEvent::Lagged(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The next event that is there already; `None` if there is none.
    pub fn try_next(&mut self) -> Option<ProviderEvent> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                Some(ProviderEvent::Lagged(missed))
            }
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> ProviderEvent {
        let sandbox = SandboxId::trusted("s");
        ProviderEvent::Notice(Notice { sandbox, text: text.to_owned() })
    }

    #[tokio::test]
    async fn every_subscriber_receives_every_event_from_its_subscription_on() {
        let sender = EventSender::default();
        sender.publish(notice("before"));
        let (mut first, mut second) = (sender.subscribe(), sender.subscribe());
        sender.publish(notice("after"));
        drop(sender);
        for events in [&mut first, &mut second] {
            assert_eq!(events.next().await, Some(notice("after")));
            assert_eq!(events.next().await, None, "the provider is gone");
        }
        assert_eq!(ProviderEvents::none().next().await, None);
    }

    #[tokio::test]
    async fn a_slow_subscriber_learns_how_many_events_it_missed() {
        let sender = EventSender::default();
        let mut events = sender.subscribe();
        let count = EVENTS_KEPT + 3;
        (0..count).for_each(|n| sender.publish(notice(&n.to_string())));
        assert_eq!(events.next().await, Some(ProviderEvent::Lagged(3)));
        assert_eq!(events.try_next(), Some(notice("3")));
        let mut left = 0;
        while events.try_next().is_some() {
            left += 1;
        }
        assert_eq!(left, EVENTS_KEPT - 1);
    }
}
