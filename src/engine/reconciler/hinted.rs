//! A look at one home at once, because its provider hints that an object of it changed.
//!
//! It is the second look of a sweep without the list: the home is read first and looked at after that,
//! so the actor gets what is newer than its state. It sends one thing alone, that the recorded object is
//! there and does not run. Anything else, such as an object that is missing, is left to a sweep, which
//! sees how much else is missing.
//!
//! Accepted race: an object that ends while a call for it is under way, or before its record says
//! *running*, is found by the next sweep of the period only.

use std::sync::Arc;

use super::Reconciler;
use super::compare::{Finding, KnownHome, Ours, compare};
use super::second_look::{LOOK_TIME_MAX, find};
use super::sides::SweepParts;
use crate::issue::IssueEvent;
use crate::issue::event::{ListedObject, Observation};
use crate::types::{HomeId, ProviderName};

/// How many hinted looks may be under way; a hint beyond that asks for a sweep.
pub(super) const LOOKS_MAX: usize = 8;

impl Reconciler {
    /// Looks at a home soon; what the look does not settle, a sweep does.
    pub fn look_soon(self: &Arc<Self>, provider: &ProviderName, home: HomeId) {
        let Ok(permit) = Arc::clone(&self.hinted).try_acquire_owned() else {
            return self.sweep_soon(provider);
        };
        let (reconciler, provider) = (Arc::clone(self), provider.clone());
        self.parts.env.spawner.io(Box::pin(async move {
            let _permit = permit;
            let env = &reconciler.parts.env;
            let late = env.clock.sleep_until(env.now().after(LOOK_TIME_MAX));
            let settled = tokio::select! {
                biased;
                settled = look(&reconciler.parts, &provider, home) => settled,
                () = late => Err("it took too long".to_owned()),
            };
            match settled {
                Ok(true) => {}
                Ok(false) => reconciler.sweep_soon(&provider),
                Err(why) => {
                    tracing::warn!(
                        home = home.0, %provider, %why,
                        "failed to look at an issue whose sandbox changed; a sweep follows"
                    );
                    reconciler.sweep_soon(&provider);
                }
            }
        }));
    }
}

/// Looks at a home and sends its actor what it saw, if that is only that its object does not run.
/// Returns whether nothing is left for a sweep.
async fn look(parts: &SweepParts, name: &ProviderName, home: HomeId) -> Result<bool, String> {
    if parts.env.is_stopping() || parts.restarting.contains(&home) {
        // After a restart its actor looks by itself.
        return Ok(true);
    }
    // A call that is under way answers with what is newer.
    let Some(slot) = parts.executor.lease(home) else { return Ok(false) };
    let provider = parts.providers.get(name).ok_or("it is not configured")?;
    // Read first, then look: what is seen is newer than what is known.
    let stored = parts.env.store.load(home).await.map_err(|error| error.to_string())?;
    let Some(known) = stored.as_ref().map(KnownHome::of) else { return Ok(false) };
    if known.at(name).is_some_and(|recorded| recorded.phase.is_transitional()) {
        return Ok(false);
    }
    let asked_at = parts.env.now();
    let objects = find(parts, provider.as_ref(), name, &known, &[]).await?;
    // What the actor decides may need the slot.
    drop(slot);
    match compare(name, &known, &objects, |_| false).as_slice() {
        [] => Ok(true),
        [Finding::Down(_)] => {
            let first_seen_at = parts.env.now();
            let swept =
                |own: &Ours| ListedObject { seen: own.seen(), known_deleted: false, first_seen_at };
            let objects = objects.iter().map(swept).collect();
            let seen = known.observation(name, asked_at, objects);
            let observation = Observation { by_event: true, ..seen };
            let applied =
                parts.actors.apply(home, None, || IssueEvent::Observed(observation.clone())).await;
            applied.map_err(|error| error.to_string()).map(|_| true)
        }
        _ => Ok(false),
    }
}
