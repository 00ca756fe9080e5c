//! Goes on with what waited for a provider, once the provider can be reached again.
//!
//! Each issue that met the outage waits for a time of its own, up to a minute, and a failed one for up
//! to half an hour. Without this, the last of them would go on long after the provider is back.
//!
//! Accepted race: an issue that begins to wait while this goes through them is not woken; it goes on
//! at its own time.

use std::sync::Arc;

use crate::issue::IssueEvent;
use crate::store::StoreError;
use crate::types::ProviderName;

use super::environment::Environment;
use super::executor::Executor;
use super::mailbox::{ActorMessage, ActorSender};

/// How many issues are read at once.
const PAGE_LEN: usize = 1_000;

/// Wakes what waits for this provider, each time that it has recovered.
pub(super) async fn run(
    env: Arc<Environment>,
    executor: Arc<Executor>,
    actors: Arc<dyn ActorSender>,
    provider: ProviderName,
) {
    while executor.calls.recovered(&provider).await {
        if env.is_stopping() {
            return;
        }
        if let Err(error) = wake(&env, actors.as_ref(), &provider).await {
            tracing::warn!(%provider, %error, "failed to read which issues wait for the provider; each goes on at its own time");
        }
    }
}

async fn wake(
    env: &Environment,
    actors: &dyn ActorSender,
    provider: &ProviderName,
) -> Result<(), StoreError> {
    let mut after = None;
    while !env.is_stopping() {
        let page = env.store.unsettled_at(provider, after, PAGE_LEN).await?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for home in page {
            let message = || ActorMessage::Event {
                event: Box::new(IssueEvent::ProviderBack(provider.clone())),
                reply: None,
                held: None,
            };
            actors.send(home, &message).await;
        }
    }
    Ok(())
}
