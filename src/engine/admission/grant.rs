//! Grants pending starts as quota comes free and holds are released.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Admission;
use crate::engine::environment::Environment;
use crate::engine::mailbox::{ActorMessage, ActorSender};
use crate::issue::IssueEvent;
use crate::store::StoreError;
use crate::types::HomeId;

/// How many pending starts are read and granted at once.
const PAGE_LEN: usize = 1_000;
/// Pending starts are looked at this often even if nothing is known to have changed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Grants pending starts as quota comes free and holds are released, for ever.
pub(in crate::engine) async fn run(
    env: Arc<Environment>,
    admission: Arc<Admission>,
    actors: Arc<dyn ActorSender>,
) {
    loop {
        if let Err(error) = round(&env, &admission, actors.as_ref()).await {
            tracing::error!(%error, "failed to load start requests that wait for admission; retrying");
        }
        let again = env.now().after(LOOK_AGAIN);
        tokio::select! {
            biased;
            () = admission.woken() => {}
            () = env.clock.sleep_until(again) => {}
        }
    }
}

/// Goes once through all that wait, page by page. A start that was granted waits no more once that
/// is durable, so the next page begins behind those that still wait.
async fn round(
    env: &Environment,
    admission: &Admission,
    actors: &dyn ActorSender,
) -> Result<(), StoreError> {
    let mut still_waiting = 0;
    while !env.is_stopping() {
        let page = env.store.pending_starts(still_waiting, PAGE_LEN).await?;
        let read = page.len();
        let granted = grant(actors, admission.grantable(page)).await;
        if read < PAGE_LEN {
            break;
        }
        still_waiting += read - granted;
    }
    Ok(())
}

/// Grants the starts of these homes; returns how many began, durably.
async fn grant(actors: &dyn ActorSender, homes: Vec<HomeId>) -> usize {
    let answers = Mutex::new(Vec::with_capacity(homes.len()));
    for home in homes {
        let message = || {
            let (reply, answer) = oneshot::channel();
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
            let event = Box::new(IssueEvent::Granted);
            ActorMessage::Event { event, reply: Some(reply), held: None }
        };
        actors.send(home, &message).await;
    }
    let mut granted = 0;
    for answer in answers.into_inner().unwrap_or_else(PoisonError::into_inner) {
        // An actor that ended has dropped the sender: its issue waits on.
        if matches!(answer.await, Ok(Ok(answered)) if answered.sandbox.is_some()) {
            granted += 1;
        }
    }
    granted
}
