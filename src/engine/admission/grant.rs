//! Grants pending starts as quota comes free and holds are released.

use std::sync::Arc;
use std::time::Duration;

use super::Admission;
use crate::engine::environment::Environment;
use crate::engine::mailbox::{ActorMessage, ActorSender};
use crate::issue::IssueEvent;

/// How many pending starts are looked at in one round.
const ROUND_LEN_MAX: usize = 1_000;
/// Pending starts are looked at this often even if nothing is known to have changed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Grants pending starts as quota comes free and holds are released, for ever.
pub(in crate::engine) async fn run(
    env: Arc<Environment>,
    admission: Arc<Admission>,
    actors: Arc<dyn ActorSender>,
) {
    loop {
        match env.store.pending_starts(ROUND_LEN_MAX).await {
            Ok(pending_starts) if pending_starts.is_empty() => {}
            Ok(pending_starts) => {
                for home in admission.grantable(pending_starts) {
                    let message = || ActorMessage::Event {
                        event: Box::new(IssueEvent::Granted),
                        reply: None,
                        held: None,
                    };
                    actors.send(home, &message).await;
                }
            }
            Err(error) => {
                tracing::error!(%error, "failed to load start requests that wait for admission; retrying")
            }
        }
        let again = env.now().after(LOOK_AGAIN);
        tokio::select! {
            biased;
            () = admission.woken() => {}
            () = env.clock.sleep_until(again) => {}
        }
    }
}
