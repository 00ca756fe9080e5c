//! Limit events of running sandboxes: each provider's stream is read, and each event is sent to the
//! actor of the issue whose sandbox it is.
//!
//! Accepted race: an event that arrives while the server shuts down, or while the store fails, is lost.
//! It is news, not state: a limit that is hit again is reported again.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::issue::IssueEvent;
use crate::sandbox::{LimitEffect, LimitEvent};

use super::actors::Actors;
use super::environment::Environment;

/// Sends on every limit event of one provider, until its stream ends.
pub(super) async fn run(
    env: Arc<Environment>,
    actors: Actors,
    mut limit_events: mpsc::Receiver<LimitEvent>,
) {
    while let Some(LimitEvent { labels, reason, effect }) = limit_events.recv().await {
        if env.is_stopping() {
            return;
        }
        if labels.instance != env.store.instance() {
            continue;
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
            tracing::warn!(sandbox.id = %sandbox, %reason, %error, "failed to record a limit event");
        }
    }
}
