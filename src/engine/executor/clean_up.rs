//! Stops or removes an orphan at its provider, when its home's call slot is free.
//!
//! Repeating it is harmless. The look comes first: if the sandbox has become its home's own by now,
//! because a person adopted it, the orphan is none any more. The provider's call names the object's
//! id and the sandbox that it must carry, so that it never hits another object, and says if the
//! object is gone already.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Executor;
use super::calls::{Bounded, ProviderCalls, guarded_call};
use super::cleanup_counts::{CleanupCounts, Cleanups};
use crate::engine::effect_end::EffectEnd;
use crate::issue::event::NotAsked;
use crate::issue::{Cleanup, CleanupAction, IssueState, Record};
use crate::sandbox::{ProviderError, Target, TargetCall};
use crate::types::HomeId;

impl Executor {
    /// How many orphans were cleaned up so far.
    pub fn cleanup_counts(&self) -> CleanupCounts {
        let Cleanups { stopped, removed, failed } = &self.cleanups;
        CleanupCounts {
            stopped: stopped.load(Ordering::Relaxed),
            removed: removed.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
        }
    }

    /// Tries once to stop or remove an orphan of a home.
    pub async fn clean_up(self: &Arc<Self>, home: HomeId, cleanup: &Cleanup) -> EffectEnd {
        let Some(_slot) = self.lease(home) else { return EffectEnd::SlotTaken };
        let stored = match self.calls.env.store.load(home).await {
            Ok(stored) => stored,
            Err(error) => return EffectEnd::Failed(error.to_string()),
        };
        if stored.is_some_and(|issue| is_own(&issue.state, cleanup)) {
            return EffectEnd::Obsolete("the object is the issue's sandbox now");
        }
        let end = self.calls.clean_up(cleanup).await;
        let (counter, what) = match (&end, cleanup.action) {
            (EffectEnd::Done, CleanupAction::Stop) => (&self.cleanups.stopped, "stopped"),
            (EffectEnd::Done, CleanupAction::Remove) => (&self.cleanups.removed, "removed"),
            (EffectEnd::Failed(_) | EffectEnd::Refused(_), _) => {
                (&self.cleanups.failed, "not cleaned up")
            }
            (EffectEnd::Unreachable(..) | EffectEnd::SlotTaken | EffectEnd::Obsolete(_), _) => {
                return end;
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let (provider, object) = (&cleanup.provider, &cleanup.external_id);
        tracing::warn!(home = home.0, %provider, %object, ?end, "an orphan was {what}");
        end
    }
}

/// Whether the object is the home's own. A second object of the same sandbox is not.
fn is_own(state: &IssueState, cleanup: &Cleanup) -> bool {
    let is_recorded = |record: &Record| record.id == cleanup.expected;
    state.record().is_some_and(is_recorded)
        && state.external_id().is_none_or(|id| *id == cleanup.external_id)
}

impl ProviderCalls {
    /// Calls the provider, within the time of such a step.
    async fn clean_up(&self, cleanup: &Cleanup) -> EffectEnd {
        let Cleanup { provider: name, external_id, expected, action } = cleanup;
        let Some(bounded) = self.bounded(name) else {
            return EffectEnd::Refused(format!("the configuration has no provider {name}"));
        };
        let Bounded { provider, breaker, others, .. } = bounded;
        let not_asked = async || match self.may_ask(name, bounded).await {
            Err(NotAsked::Unreachable { message, next_try }) => {
                Some(EffectEnd::Unreachable(message, self.env.now().after(next_try)))
            }
            Err(NotAsked::NoTurn) | Ok(()) => None,
        };
        if let Some(end) = not_asked().await {
            return end;
        }
        // Never closed.
        let _turn = others.acquire().await;
        // While this waited, the provider may have become unreachable, or another one.
        if let Some(end) = not_asked().await {
            return end;
        }
        let rules = match action {
            CleanupAction::Stop => self.env.rules().stop,
            CleanupAction::Remove => self.env.rules().delete,
        };
        let deadline = self.env.now().after(rules.timeout);
        let target = Target { external_id: external_id.clone(), expected: expected.clone() };
        let call = TargetCall { target, force: false, deadline };
        let work = async {
            match action {
                CleanupAction::Stop => provider.stop(call).await.map(drop),
                CleanupAction::Remove => provider.delete(call).await,
            }
        };
        match guarded_call(&self.env, deadline, work).await {
            // An object that is gone need not be stopped or removed.
            Ok(()) | Err(ProviderError::Absent) => EffectEnd::Done,
            Err(error @ (ProviderError::Present(_) | ProviderError::Refused(_))) => {
                EffectEnd::Refused(error.to_string())
            }
            Err(error @ ProviderError::Unavailable { .. }) => {
                breaker.suspect(&self.env, &self.identities, name, provider);
                EffectEnd::Failed(error.to_string())
            }
            Err(error @ (ProviderError::Broken(_) | ProviderError::Exhausted { .. })) => {
                EffectEnd::Failed(error.to_string())
            }
        }
    }
}
