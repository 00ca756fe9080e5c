//! Provider calls: one slot for a home, held until the call really ended.
//!
//! The slot outlives the actor that asked. An actor that ended is built again by the answer, and
//! sees by [`Executor::in_flight`] that a call is still held, so that it waits instead of asking
//! twice. Each call has a deadline; at it the provider's future is dropped, which by the provider's
//! contract gives up, and the answer says that the outcome is unknown. A provider that panics has
//! answered nothing, and is looked at.
//!
//! A newer call of a home waits until the held one has ended (`slots`); what is to be put away
//! without a record ([`Executor::clean`]) and the looks of sweeps ([`Executor::lease`]) go through
//! the same slot.

mod ask;
pub(super) mod fast_create;
mod slots;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use crate::issue::event::{CallAnswer, CallError, Done, NotAsked};
use crate::issue::{Cleanup, CleanupAction, IssueEvent, ProviderCall, Verb};
use crate::sandbox::{Lifecycle, ProviderError, Target, TargetCall};
use crate::types::{Attempt, HomeId, InstanceId, ProviderName, SandboxId, Timestamp};

use super::actor::ActorMessage;
use super::breaker::{Breaker, BreakerView};
use super::core::Core;
use super::identity::NotConfirmed;

use fast_create::{CommitEnd, PendingRecord};
pub(super) use slots::CallId;
use slots::{QueuedCall, Slots};

/// Creates under way at once for one provider, where nothing else is configured. More wait for
/// their turn, at most half of the time that they have; then they queue up again, and no try is
/// spent.
const CREATES_MAX: usize = 64;
/// The same for all other calls, so that a slow create never holds up a look, a stop or a delete.
const OTHERS_MAX: usize = 64;

/// Makes the provider calls.
pub(super) struct Executor {
    providers: HashMap<ProviderName, Bounded>,
    instance: InstanceId,
    slots: Slots,
    cleanups: Cleanups,
    pub tasks: TaskTracker,
}

struct Bounded {
    provider: Arc<dyn Lifecycle>,
    breaker: Arc<Breaker>,
    creates: Semaphore,
    others: Semaphore,
}

#[derive(Default)]
struct Cleanups {
    stopped: AtomicU64,
    removed: AtomicU64,
    failed: AtomicU64,
}

/// How many objects without a record were put away since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupCounts {
    /// Taken down, to be decided about.
    pub stopped: u64,
    /// Removed, or gone already.
    pub removed: u64,
    /// Not done; the next sweep comes again.
    pub failed: u64,
}

/// Keeps a home's slot until its answer was taken: an actor that the answer builds sees that it
/// is on its way. Dropped with the queue of an actor that ends, it frees the slot as well.
pub(super) struct HeldAnswer {
    core: Arc<Core>,
    home: HomeId,
    id: CallId,
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        self.core.executor.slots.answered(self.home, &self.id);
    }
}

/// A home's slot, taken beside the lifecycle. What the lifecycle asks meanwhile waits, and leaves
/// when this is dropped.
pub(super) struct Lease {
    core: Arc<Core>,
    home: HomeId,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (core, home) = (&self.core, self.home);
        if let Some(asked) = core.executor.slots.ended(home, None) {
            let task = make_calls(Arc::clone(core), home, asked);
            core.spawner.call(Box::pin(core.executor.tasks.track_future(task)));
        }
    }
}

impl Executor {
    /// With at most `creates_max` creates under way at once for a provider; 0 takes
    /// [`CREATES_MAX`].
    pub fn new(
        providers: HashMap<ProviderName, Arc<dyn Lifecycle>>,
        instance: InstanceId,
        creates_max: u64,
    ) -> Self {
        let creates_max = match usize::try_from(creates_max) {
            Ok(0) => CREATES_MAX,
            Ok(number) => number.min(Semaphore::MAX_PERMITS),
            Err(_) => Semaphore::MAX_PERMITS,
        };
        let bounded = |provider| Bounded {
            provider,
            breaker: Arc::default(),
            creates: Semaphore::new(creates_max),
            others: Semaphore::new(OTHERS_MAX),
        };
        Self {
            providers: providers.into_iter().map(|(name, p)| (name, bounded(p))).collect(),
            instance,
            slots: Slots::default(),
            cleanups: Cleanups::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The provider of that name.
    pub fn provider(&self, name: &ProviderName) -> Option<Arc<dyn Lifecycle>> {
        self.providers.get(name).map(|bounded| Arc::clone(&bounded.provider))
    }

    /// All providers, by name.
    pub fn providers(&self) -> Vec<(ProviderName, Arc<dyn Lifecycle>)> {
        let mut all: Vec<_> =
            self.providers.iter().map(|(n, b)| (n.clone(), Arc::clone(&b.provider))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The latest attempt for a home's sandbox whose call is held, waits behind another, or whose
    /// answer is on its way.
    pub fn in_flight(&self, home: HomeId, sandbox: &SandboxId) -> Option<Attempt> {
        self.slots.in_flight(home, sandbox)
    }

    /// How the providers' circuit breakers stand, by name.
    pub fn breakers(&self) -> Vec<(ProviderName, BreakerView)> {
        let mut all: Vec<_> =
            self.providers.iter().map(|(n, b)| (n.clone(), b.breaker.view())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Frees a home's slot whatever holds it: a bug that tests switch on.
    #[cfg(test)]
    pub fn free(&self, home: HomeId) {
        self.slots.free(home);
    }

    /// How much was put away so far.
    pub fn cleanup_counts(&self) -> CleanupCounts {
        let Cleanups { stopped, removed, failed } = &self.cleanups;
        CleanupCounts {
            stopped: stopped.load(Ordering::Relaxed),
            removed: removed.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
        }
    }

    /// Makes a call, as soon as the home's slot is free. Its answer comes to the home's actor as
    /// an event.
    pub fn submit(&self, core: &Arc<Core>, home: HomeId, call: ProviderCall) {
        self.hand_in(core, home, QueuedCall { call, record: None, span: Span::current() });
    }

    /// The same for a create whose record is still being written: see [`fast_create`].
    pub fn submit_fast_create(
        &self,
        core: &Arc<Core>,
        home: HomeId,
        call: ProviderCall,
        record: PendingRecord,
    ) {
        self.hand_in(core, home, QueuedCall { call, record: Some(record), span: Span::current() });
    }

    fn hand_in(&self, core: &Arc<Core>, home: HomeId, asked: QueuedCall) {
        if core.is_stopping() {
            // It is recorded as asked: the next start looks.
            return;
        }
        if let Some(asked) = self.slots.enter(home, asked) {
            let task = make_calls(Arc::clone(core), home, asked);
            core.spawner.call(Box::pin(self.tasks.track_future(task)));
        }
    }

    /// Puts away something that no record knows, where the home's slot is free; false where it is
    /// not, and the next sweep asks again. Nobody is answered.
    pub fn clean(&self, core: &Arc<Core>, home: HomeId, cleanup: Cleanup) -> bool {
        if core.is_stopping() || !self.slots.lease(home) {
            return false;
        }
        let core = Arc::clone(core);
        let spawner = Arc::clone(&core.spawner);
        let task = async move {
            core.executor.put_away(&core, home, cleanup).await;
            if let Some(asked) = core.executor.slots.ended(home, None) {
                make_calls(core, home, asked).await;
            }
        };
        spawner.call(Box::pin(self.tasks.track_future(task)));
        true
    }

    /// Takes a home's slot for a look that the lifecycle did not ask for; `None` where a call is
    /// under way, whose answer is nearer to the truth.
    pub fn lease(&self, core: &Arc<Core>, home: HomeId) -> Option<Lease> {
        let is_free = !core.is_stopping() && self.slots.lease(home);
        is_free.then(|| Lease { core: Arc::clone(core), home })
    }

    /// Whether a provider can be reached, and is who it was.
    async fn may_ask(
        &self,
        core: &Arc<Core>,
        name: &ProviderName,
        breaker: &Arc<Breaker>,
    ) -> Result<(), NotAsked> {
        breaker.admit(core.clock.as_ref(), name).await?;
        let Err(why) = core.identities.confirm(core, name).await else { return Ok(()) };
        if let NotConfirmed::Silent(_) = why {
            breaker.suspect(core, name);
        }
        Err(why.not_asked(name))
    }

    /// Asks the provider, when it is this call's turn. Of a create in fast mode, `record` is how its
    /// record ends: where that is refused, it is not asked any more.
    async fn perform(
        &self,
        core: &Arc<Core>,
        home: HomeId,
        call: ProviderCall,
        record: Option<&CommitEnd>,
    ) -> Result<Done, CallError> {
        let is_refused =
            || record.is_some_and(|end| matches!(end.clone().now_or_never(), Some(Err(_))));
        let name = call.provider.clone();
        let Some(Bounded { provider, breaker, creates, others }) = self.providers.get(&name) else {
            return Err(CallError::Unknown(name));
        };
        if is_refused() {
            return Err(CallError::NotAsked(NotAsked::NoTurn));
        }
        self.may_ask(core, &name, breaker).await.map_err(CallError::NotAsked)?;
        let deadline = call.deadline;
        // Half of the time may go by waiting for a turn; the other half is the provider's.
        let left = deadline.since(core.now());
        let turns = if call.verb == Verb::Create { creates } else { others };
        // It may have waited for all of its time behind another call of its home.
        let turn = (!left.is_zero()).then(|| tokio::time::timeout(left / 2, turns.acquire()));
        let Some(Ok(Ok(_turn))) = futures_util::future::OptionFuture::from(turn).await else {
            return Err(CallError::NotAsked(NotAsked::NoTurn));
        };
        // While this waited for its turn it may have become unreachable, or somebody else.
        self.may_ask(core, &name, breaker).await.map_err(CallError::NotAsked)?;
        if is_refused() {
            return Err(CallError::NotAsked(NotAsked::NoTurn));
        }
        // Boxed, so that the many that may wait for their turn are small.
        let work = Box::pin(ask::ask(provider.as_ref(), &self.instance, home, call));
        let guarded = AssertUnwindSafe(work).catch_unwind();
        let result = tokio::select! {
            biased;
            result = guarded => result.unwrap_or_else(|_| {
                tracing::error!(home = home.0, provider = %name, "a provider call panicked");
                // It may have got as far as asking: what came of it is unknown.
                Err(CallError::Unavailable {
                    message: "the call to it ended in a panic; see the log".into(),
                    retry_after: None,
                })
            }),
            () = core.clock.sleep_until(deadline) => Err(CallError::Unavailable {
                message: "no answer in time".into(),
                retry_after: None,
            }),
        };
        if let Err(CallError::Unavailable { .. }) = &result {
            breaker.suspect(core, &name);
        }
        result
    }

    /// Stops or removes an object, within the time of such a step.
    async fn put_away(&self, core: &Core, home: HomeId, cleanup: Cleanup) {
        let Cleanup { provider: name, external_id, expected, action } = cleanup;
        let rules = match action {
            CleanupAction::Stop => core.rules.stop,
            CleanupAction::Remove => core.rules.delete,
        };
        let deadline = core.now().after(rules.timeout);
        let work = async {
            let Some(Bounded { provider, breaker, others, .. }) = self.providers.get(&name) else {
                let why = format!("the configuration has no provider {name}");
                return Err(ProviderError::Refused(why));
            };
            if let Err(NotAsked::Unreachable { message, .. }) =
                breaker.admit(core.clock.as_ref(), &name).await
            {
                return Err(ProviderError::unavailable(message));
            }
            let is_same = core.identities.confirm(core, &name).await;
            is_same.map_err(|why| ProviderError::unavailable(why.describe(&name)))?;
            // Never closed; and without a turn it would only be one call more.
            let _turn = others.acquire().await;
            let target = Target { external_id: external_id.clone(), expected };
            let call = TargetCall { target, force: false, deadline };
            match action {
                CleanupAction::Stop => provider.stop(call).await.map(drop),
                CleanupAction::Remove => match provider.delete(call).await {
                    // What was to be removed is gone.
                    Err(ProviderError::Absent) => Ok(()),
                    other => other,
                },
            }
        };
        let result = guarded(core, deadline, work).await;
        let (counter, what) = match (&result, action) {
            (Ok(()), CleanupAction::Stop) => (&self.cleanups.stopped, "was stopped"),
            (Ok(()), CleanupAction::Remove) => (&self.cleanups.removed, "was removed"),
            (Err(_), _) => (&self.cleanups.failed, "could not be put away"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let why = result.err().unwrap_or_default();
        tracing::warn!(
            home = home.0, provider = %name, object = %external_id, why,
            "an object that no record knows {what}"
        );
    }
}

/// Does work with a provider until the deadline; says what went wrong, a panic included.
async fn guarded<T>(
    core: &Core,
    deadline: Timestamp,
    work: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, String> {
    let work = AssertUnwindSafe(Box::pin(work)).catch_unwind();
    tokio::select! {
        biased;
        result = work => match result {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(_) => Err("the call to it ended in a panic; see the log".into()),
        },
        () = core.clock.sleep_until(deadline) => Err("no answer in time".into()),
    }
}

/// Makes a call, answers, and goes on with the one that waited behind it, until none does.
async fn make_calls(core: Arc<Core>, home: HomeId, first: QueuedCall) {
    let mut next = Some(first);
    while let Some(QueuedCall { call, record, span }) = next.take() {
        if core.is_stopping() {
            // Recorded as asked, like one that is handed in while the server is shutting down.
            return;
        }
        let id = CallId::of(&call);
        let span = span_of(&span, home, &call);
        let work = async {
            match record {
                None => Some(core.executor.perform(&core, home, call, None).await),
                Some(record) => fast_create::fast_create(&core, home, call, record).await,
            }
        };
        let result = work.instrument(span.clone()).await;
        next = core.executor.slots.ended(home, result.is_some().then(|| id.clone()));
        let Some(result) = result else { continue };
        let answer = CallAnswer { sandbox: id.sandbox.clone(), attempt: id.attempt, result };
        let held = Arc::new(HeldAnswer { core: Arc::clone(&core), home, id });
        core.registry
            .send(&core, home, || ActorMessage::Event {
                event: Box::new(IssueEvent::Answered(answer.clone())),
                reply: None,
                held: Some(Arc::clone(&held)),
            })
            .instrument(span)
            .await;
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
