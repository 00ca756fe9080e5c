//! Provider calls: one slot for a home, held until the call really ended.
//!
//! The slot outlives the actor that asked. An actor that ended is built again by the answer, and sees
//! by [`Executor::in_flight`] that a call still holds the slot, so that it waits instead of asking
//! twice. Each call has a deadline. At the deadline the provider's future is dropped, which by the
//! provider's contract gives up, and the answer says that the outcome is unknown. A provider that
//! panics has answered nothing, so the lifecycle looks.
//!
//! A newer call of a home waits until the current one has ended (`slots`). The clean-up of orphans
//! and the looks of sweeps take the same slot by [`Executor::lease`].

mod ask;
pub(super) mod calls;
mod clean_up;
mod cleanup_counts;
mod hooked;
pub(super) mod slots;

use std::sync::{Arc, Weak};

use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use crate::issue::event::CallAnswer;
use crate::issue::{IssueEvent, ProviderCall, Verb};
use crate::types::{Attempt, HomeId, SandboxId};

use super::directory::Directory;
use super::fast_create::call::fast_create;
use super::fast_create::record::PendingRecord;
use super::mailbox::{ActorMessage, ActorSender};

use calls::ProviderCalls;
pub use cleanup_counts::CleanupCounts;
use cleanup_counts::Cleanups;
use slots::{CallId, HeldAnswer, QueuedCall, Slots};

/// Makes the provider calls.
pub(super) struct Executor {
    pub calls: ProviderCalls,
    directory: Arc<Directory>,
    /// Takes the answers.
    actors: Weak<dyn ActorSender>,
    slots: Arc<Slots>,
    cleanups: Cleanups,
    pub tasks: TaskTracker,
}

/// The lease of a home's slot beside the lifecycle. A call of the lifecycle waits meanwhile, and is
/// made when this is dropped.
pub(super) struct Lease {
    executor: Arc<Executor>,
    home: HomeId,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (executor, home) = (&self.executor, self.home);
        if let Some(asked) = executor.slots.ended(home, None) {
            executor.spawn(Arc::clone(executor).make_calls(home, asked));
        }
    }
}

impl Executor {
    /// Sends the answers by way of `actors`.
    pub fn new(
        calls: ProviderCalls,
        directory: Arc<Directory>,
        actors: Weak<dyn ActorSender>,
    ) -> Self {
        Self {
            calls,
            directory,
            actors,
            slots: Arc::default(),
            cleanups: Cleanups::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The latest attempt for a home's sandbox whose call is held, waits behind another, or whose
    /// answer is on its way.
    pub fn in_flight(&self, home: HomeId, sandbox: &SandboxId) -> Option<Attempt> {
        self.slots.in_flight(home, sandbox)
    }

    /// Frees a home's slot, whatever holds it: a bug that tests switch on.
    #[cfg(test)]
    pub fn free(&self, home: HomeId) {
        self.slots.free(home);
    }

    /// Makes a call, as soon as the home's slot is free. Its answer comes to the home's actor as
    /// an event.
    pub fn submit(self: &Arc<Self>, home: HomeId, call: ProviderCall) {
        self.hand_in(home, QueuedCall::new(call, None));
    }

    /// The same for a create whose record is still being written: see [`fast_create`].
    pub fn submit_fast_create(
        self: &Arc<Self>,
        home: HomeId,
        call: ProviderCall,
        record: PendingRecord,
    ) {
        self.hand_in(home, QueuedCall::new(call, Some(record)));
    }

    /// A home has no use any more for a call: if that waits for its turn, it gives the turn up and
    /// answers that nothing was asked. One that is under way goes on.
    pub fn withdraw(&self, home: HomeId, id: &CallId) {
        self.slots.withdraw(home, id);
    }

    fn hand_in(self: &Arc<Self>, home: HomeId, asked: QueuedCall) {
        if self.calls.env.is_stopping() {
            // It is recorded as asked: after the next start the home looks.
            return;
        }
        if let Some(asked) = self.slots.enter(home, asked) {
            self.spawn(Arc::clone(self).make_calls(home, asked));
        }
    }

    /// Runs a task that makes provider calls.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.calls.env.spawner.call(Box::pin(self.tasks.track_future(task)));
    }

    /// Takes a home's slot for a look that the lifecycle did not ask for; `None` if a call is under
    /// way, whose answer is newer.
    pub fn lease(self: &Arc<Self>, home: HomeId) -> Option<Lease> {
        let is_free = !self.calls.env.is_stopping() && self.slots.lease(home);
        is_free.then(|| Lease { executor: Arc::clone(self), home })
    }

    /// Makes a call, answers, and goes on with the one that waited behind it, until none does.
    async fn make_calls(self: Arc<Self>, home: HomeId, first: QueuedCall) {
        let mut next = Some(first);
        while let Some(QueuedCall { call, record, span, withdrawn }) = next.take() {
            if self.calls.env.is_stopping() {
                // Recorded as asked, like one that is handed in while the server is shutting down.
                return;
            }
            let id = CallId::of(&call);
            let is_cold_start = matches!(call.verb, Verb::ColdStart { .. });
            let span = span_of(&span, home, &call);
            let work = async {
                if is_cold_start {
                    return self.calls.cold_start(home, &call, &withdrawn).await;
                }
                match record {
                    None => Some(self.calls.perform(home, call, None, &withdrawn).await),
                    Some(record) => {
                        let calls = &self.calls;
                        fast_create(calls, &self.directory, home, call, record, &withdrawn).await
                    }
                }
            };
            let result = work.instrument(span.clone()).await;
            if is_cold_start && result.is_none() {
                // The server ends. It is recorded as asked.
                return;
            }
            next = self.slots.ended(home, result.is_some().then(|| id.clone()));
            let Some(result) = result else { continue };
            let answer = CallAnswer { sandbox: id.sandbox.clone(), attempt: id.attempt, result };
            let held = Arc::new(HeldAnswer::new(Arc::clone(&self.slots), home, id));
            let message = || ActorMessage::Event {
                event: Box::new(IssueEvent::Answered(answer.clone())),
                reply: None,
                held: Some(Arc::clone(&held)),
            };
            // Without the engine there is no actor that could take the answer.
            let Some(actors) = self.actors.upgrade() else { return };
            actors.send(home, &message).instrument(span).await;
        }
    }
}

/// A call in traces: below the event that asked for it, and above the event that its answer is.
fn span_of(asked: &Span, home: HomeId, call: &ProviderCall) -> Span {
    tracing::debug_span!(
        parent: asked,
        "call",
        otel.kind = "client",
        home = home.0,
        provider = %call.provider,
        step = %call.verb.step(),
        attempt = call.attempt.0,
    )
}
