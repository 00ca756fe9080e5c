//! What is due, from the store's index. No actor has a timer.
//!
//! One loop asks the store which homes are due and sends `Due` to their actors, which decide. It sleeps
//! until the earliest due time; a commit with an earlier one wakes it. A second loop asks idle actors to
//! end.

use std::sync::Arc;
use std::time::Duration;

use crate::types::Timestamp;

use super::alarm::Alarm;
use super::environment::Environment;
use super::mailbox::{Activation, ActorMessage};
use super::registry::Registry;

/// How many due homes are nudged in one round; the rest follow in the next.
const ROUND_LEN_MAX: usize = 256;
/// The pause between two rounds: what stays due must not keep a core busy.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// The longest sleep, in case the clock is set forward.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// An actor without a message for this long is asked to end.
const IDLE: Duration = Duration::from_secs(60);
/// With more activations than this, a tenth of [`IDLE`] is enough.
const CROWDED: usize = 10_000;

/// Sends `Due` to every issue whose due time has come, until the server ends.
pub(super) async fn run(env: Arc<Environment>, alarm: Arc<Alarm>, registry: Arc<Registry>) {
    loop {
        let now = env.now();
        // From here on, commits with earlier times than the store shows wake the loop again.
        alarm.clear();
        let next = match env.store.due(now, ROUND_LEN_MAX).await {
            Ok(homes) if homes.is_empty() => env.store.next_due().await,
            Ok(homes) => {
                for home in homes {
                    let sent = registry.try_send(home, Activation::default(), ActorMessage::Due);
                    if let Err(why) = sent {
                        tracing::debug!(home = home.0, ?why, "due again in the next round");
                    }
                }
                Ok(Some(now))
            }
            Err(error) => Err(error),
        };
        let next = next.unwrap_or_else(|error| {
            tracing::error!(%error, "failed to load from the store which issues are due; retrying");
            None
        });
        let latest = env.now().after(SLEEP_MAX);
        let until = next.map_or(latest, |due| due.min(latest));
        alarm.sleeps_until(until);
        tokio::time::sleep(ROUND_PAUSE).await;
        tokio::select! {
            biased;
            () = alarm.rings() => {}
            () = env.clock.sleep_until(until) => {}
        }
    }
}

/// Asks idle actors to end, for ever.
pub(super) async fn passivate(env: Arc<Environment>, registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(IDLE / 10).await;
        let idle = if registry.len() > CROWDED { IDLE / 10 } else { IDLE };
        let now = env.now().unix_ms();
        let idle_ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
        registry.passivate_idle(Timestamp::from_unix_ms(now - idle_ms));
    }
}
