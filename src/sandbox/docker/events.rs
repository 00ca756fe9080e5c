//! What the engine reports: containers that end, disappear or run out of memory without our doing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptionsBuilder;
use futures_util::StreamExt;

use super::engine::ContainerEngine;
use super::spec::{INSTANCE_LABEL, labels_of};
use crate::sandbox::{EventSender, Labels, LimitEffect, LimitEvent, ObjectChange, ProviderEvent};
use crate::types::{ExternalId, InstanceId};

/// The pauses between tries to follow the engine's events.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What this provider does itself, so that only the rest is news.
#[derive(Clone, Default)]
pub struct OwnCalls(Arc<Mutex<OwnDoings>>);

#[derive(Default)]
struct OwnDoings {
    /// Containers whose end is no news.
    ended: HashSet<String>,
    /// Those of them that a call is ending now.
    ending: HashSet<String>,
    /// The instances that calls were about. An engine may have containers of others.
    instances: HashSet<InstanceId>,
}

/// A call that ends a container.
pub struct EndingCall {
    calls: OwnCalls,
    id: String,
}

impl Drop for EndingCall {
    fn drop(&mut self) {
        self.calls.change(|own| own.ending.remove(&self.id));
    }
}

impl OwnCalls {
    fn change<T>(&self, change: impl FnOnce(&mut OwnDoings) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that this container is being ended, until the result is dropped.
    pub fn ends(&self, id: &str) -> EndingCall {
        self.change(|own| {
            own.ended.insert(id.to_owned());
            own.ending.insert(id.to_owned());
        });
        EndingCall { calls: self.clone(), id: id.to_owned() }
    }

    /// Notes that this container runs, or is being started.
    pub fn runs(&self, id: &str) {
        self.change(|own| own.ended.remove(id));
    }

    /// Notes an instance that a call was about.
    pub fn concern(&self, instance: &InstanceId) {
        self.change(|own| {
            own.instances.contains(instance) || own.instances.insert(instance.clone())
        });
    }

    /// Whether a call is ending this container now.
    pub fn are_ending(&self, id: &str) -> bool {
        self.change(|own| own.ending.contains(id))
    }

    fn have_ended(&self, id: &str) -> bool {
        self.change(|own| own.ended.contains(id))
    }

    fn are_about(&self, labels: &Labels) -> bool {
        self.change(|own| own.instances.contains(&labels.instance))
    }
}

/// Follows the engine's events for as long as the provider is there.
pub async fn follow(engine: Arc<ContainerEngine>, own: OwnCalls, events: EventSender) {
    let (mut pause, mut was_followed) = (PAUSE_FIRST, false);
    loop {
        if let Ok(client) = engine.client().await
            && client.ping().await.is_ok()
        {
            // No event of the meantime comes any more, and an engine that restarted has ended its
            // containers.
            if was_followed {
                events.publish(ProviderEvent::Interrupted);
            }
            was_followed = true;
            let filters = HashMap::from([
                ("type", vec!["container"]),
                ("label", vec![INSTANCE_LABEL]),
                ("event", vec!["die", "oom", "destroy"]),
            ]);
            let options = EventsOptionsBuilder::new().filters(&filters).build();
            let mut messages = std::pin::pin!(client.events(Some(options)));
            while let Some(Ok(message)) = messages.next().await {
                pause = PAUSE_FIRST;
                if let Some(event) = event_of(message, &own) {
                    events.publish(event);
                }
            }
        }
        // The engine is away or restarts.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// What a message of the engine is to the engine's callers; `None` if it is no news.
fn event_of(message: EventMessage, own: &OwnCalls) -> Option<ProviderEvent> {
    let actor = message.actor?;
    let id = actor.id?;
    let labels = labels_of(&actor.attributes.unwrap_or_default());
    let labels = labels.filter(|labels| own.are_about(labels))?;
    match message.action.as_deref()? {
        "oom" => {
            let reason = "memory limit reached".to_owned();
            let effect = LimitEffect::ByTemplate;
            Some(ProviderEvent::LimitHit(LimitEvent { labels, reason, effect }))
        }
        "die" if own.have_ended(&id) => None,
        "destroy" if own.have_ended(&id) => {
            // The last that is heard of it.
            own.runs(&id);
            None
        }
        "die" | "destroy" => {
            let external_id = ExternalId::trusted(id);
            let labels = Some(labels);
            Some(ProviderEvent::ObjectChanged(ObjectChange { external_id, labels }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::EventActor;

    use super::*;

    const LABELS: [(&str, &str); 7] = [
        ("issuebox.instance", "i"),
        ("issuebox.account", "default"),
        ("issuebox.home", "1"),
        ("issuebox.issue", "test-1"),
        ("issuebox.sandbox", "s"),
        ("issuebox.generation", "1"),
        ("issuebox.mode", "strong"),
    ];

    fn message(action: &str) -> EventMessage {
        let pairs = LABELS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let actor = EventActor { id: Some("c1".to_owned()), attributes: Some(pairs.into()) };
        EventMessage {
            action: Some(action.to_owned()),
            actor: Some(actor),
            ..EventMessage::default()
        }
    }

    #[test]
    fn an_end_is_news_unless_a_call_of_ours_caused_it() {
        let own = OwnCalls::default();
        let changed = |action| event_of(message(action), &own).is_some();
        assert!(!changed("die"), "it is another installation's");
        own.concern(&InstanceId::trusted("i"));
        assert!(changed("die") && changed("destroy") && !changed("start"));
        let ending = own.ends("c1");
        assert!(own.are_ending("c1") && !changed("die"));
        drop(ending);
        assert!(!own.are_ending("c1") && !changed("die"));
        own.runs("c1");
        assert!(changed("die"));
        drop(own.ends("c1"));
        assert!(!changed("destroy"));
        assert!(changed("die"), "a container that is gone is not remembered");
    }

    #[test]
    fn running_out_of_memory_is_a_limit_of_the_sandbox() {
        let own = OwnCalls::default();
        own.concern(&InstanceId::trusted("i"));
        let event = event_of(message("oom"), &own);
        assert!(matches!(event, Some(ProviderEvent::LimitHit(_))), "{event:?}");
    }
}
