//! Follows what providers report by themselves: a limit that was hit goes to the sandbox's issue, a
//! changed object has its issue looked at at once.
//!
//! Accepted race: an event that arrives while the server ends, or while the store fails, is lost. It
//! is a hint, not state: a limit that goes on being hit is reported again, and sweeps come anyway.

use std::sync::Arc;

use crate::issue::IssueEvent;
use crate::sandbox::{LimitEffect, LimitEvent, ProviderEvent, ProviderEvents};
use crate::types::ProviderName;

use super::actors::Actors;
use super::environment::Environment;
use super::reconciler::Reconciler;

/// Follows the events of one provider until it is gone.
pub(super) async fn follow(
    env: Arc<Environment>,
    actors: Actors,
    reconciler: Arc<Reconciler>,
    name: ProviderName,
    mut events: ProviderEvents,
) {
    while let Some(event) = events.next().await {
        if env.is_stopping() {
            return;
        }
        match event {
            ProviderEvent::LimitHit(hit) => limit_hit(&env, &actors, hit).await,
            ProviderEvent::ObjectChanged(change) => {
                let ours = env.store.instance();
                match change.labels {
                    Some(labels) if labels.instance == ours => {
                        reconciler.look_soon(&name, labels.home);
                    }
                    Some(_another_s) => {}
                    None => reconciler.sweep_soon(&name),
                }
            }
            ProviderEvent::Lagged(missed) => {
                tracing::warn!(
                    provider = %name, missed,
                    "missed events of a provider: they came faster than they were read; a sweep makes up for them"
                );
                reconciler.sweep_soon(&name);
            }
            ProviderEvent::Interrupted => reconciler.sweep_soon(&name),
            // The application writes these into the sandbox's log.
            ProviderEvent::Notice(_) => {}
        }
    }
}

async fn limit_hit(env: &Environment, actors: &Actors, event: LimitEvent) {
    let LimitEvent { labels, reason, effect } = event;
    if labels.instance != env.store.instance() {
        return;
    }
    let seed = Some((labels.account, labels.issue));
    let sandbox = labels.sandbox;
    let ended = match effect {
        LimitEffect::ByTemplate => false,
        LimitEffect::Ended => true,
    };
    let event =
        || IssueEvent::LimitStruck { sandbox: sandbox.clone(), reason: reason.clone(), ended };
    if let Err(error) = actors.apply(labels.home, seed, event).await {
        tracing::warn!(
            sandbox.id = %sandbox, %reason, %error,
            "a sandbox hit a limit, and its issue could not be informed"
        );
    }
}
