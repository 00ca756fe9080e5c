//! Limits that strike in running sandboxes: each provider is listened to, and each strike is told to
//! the issue whose sandbox it is.
//!
//! Accepted race: a strike that arrives while the server ends, or whose issue can't be told because
//! the store fails, is lost. It is news, not state: a limit that goes on striking is told again.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::issue::IssueEvent;
use crate::sandbox::{LimitEffect, LimitEvent};

use super::actors::Actors;
use super::environment::Environment;

/// Tells of every strike at one provider, for as long as that is there.
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
            tracing::warn!(sandbox.id = %sandbox, %reason, %error, "a limit struck and could not be told");
        }
    }
}
