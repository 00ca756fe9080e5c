//! Provider calls: one slot for a home, held until the call really ended.
//!
//! The slot outlives the actor that asked. An actor that ended is built again by the answer, and
//! sees by [`Executor::in_flight`] that a call is still held, so that it waits instead of asking
//! twice. Each call has a deadline; at it the provider's future is dropped, which by the provider's
//! contract gives up, and the answer says that the outcome is unknown. A provider that panics has
//! answered nothing, and is looked at.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::issue::event::{Answer, Done, NotAsked, Owner, Seen, Trouble};
use crate::issue::{IssueEvent, ProviderCall, Record, Verb};
use crate::sandbox::{
    CreateSpec, Labels, Object, ObjectKey, ProviderError, SandboxProvider, Target, TargetCall,
};
use crate::types::{AccountName, Attempt, ExternalId, HomeId, InstanceId, IssueId, ProviderName};

use super::actor::Message;
use super::core::Core;

/// Creates under way at once for one provider. More wait for their turn, at most half of the time
/// that they have; then they queue up again, and no try is spent.
const CREATES_MAX: usize = 64;
/// The same for all other calls, so that a slow create never holds up a look, a stop or a delete.
const OTHERS_MAX: usize = 64;

/// Makes the provider calls.
pub(super) struct Executor {
    providers: HashMap<ProviderName, Bounded>,
    instance: InstanceId,
    slots: DashMap<HomeId, Slot>,
    pub tasks: TaskTracker,
}

struct Bounded {
    provider: Arc<dyn SandboxProvider>,
    creates: Semaphore,
    others: Semaphore,
}

/// A home's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// The call is under way.
    Held(Attempt),
    /// It has ended and its answer is on its way; a next call may take the slot over.
    Answering(Attempt),
}

/// Keeps a home's slot until its answer was taken: an actor that the answer builds sees that it
/// is on its way. Dropped with the queue of an actor that ends, it frees the slot as well.
pub(super) struct HeldAnswer {
    core: Arc<Core>,
    home: HomeId,
    attempt: Attempt,
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        let answering = Slot::Answering(self.attempt);
        self.core.executor.slots.remove_if(&self.home, |_, slot| *slot == answering);
    }
}

impl Executor {
    pub fn new(
        providers: HashMap<ProviderName, Arc<dyn SandboxProvider>>,
        instance: InstanceId,
    ) -> Self {
        let bounded = |provider| Bounded {
            provider,
            creates: Semaphore::new(CREATES_MAX),
            others: Semaphore::new(OTHERS_MAX),
        };
        Self {
            providers: providers.into_iter().map(|(name, p)| (name, bounded(p))).collect(),
            instance,
            slots: DashMap::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// The provider of that name.
    pub fn provider(&self, name: &ProviderName) -> Option<Arc<dyn SandboxProvider>> {
        self.providers.get(name).map(|bounded| Arc::clone(&bounded.provider))
    }

    /// All providers, by name.
    pub fn providers(&self) -> Vec<(ProviderName, Arc<dyn SandboxProvider>)> {
        let mut all: Vec<_> =
            self.providers.iter().map(|(n, b)| (n.clone(), Arc::clone(&b.provider))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The attempt whose call is held for a home, or whose answer is on its way.
    pub fn in_flight(&self, home: HomeId) -> Option<Attempt> {
        self.slots.get(&home).map(|slot| match *slot {
            Slot::Held(attempt) | Slot::Answering(attempt) => attempt,
        })
    }

    /// Makes a call. Its answer comes to the home's actor as an event.
    pub fn submit(&self, core: &Arc<Core>, home: HomeId, call: ProviderCall) {
        if core.is_stopping() {
            // It is recorded as asked: the next start looks.
            return;
        }
        let attempt = call.attempt;
        match self.slots.entry(home) {
            Entry::Occupied(mut slot) => {
                if let Slot::Held(held) = *slot.get() {
                    // The lifecycle never asks while a call is in flight, so this is a fault of
                    // ours. The due time brings the issue back once the held call has ended.
                    tracing::error!(
                        home = home.0,
                        held = held.0,
                        attempt = attempt.0,
                        "a second provider call was refused while one is held"
                    );
                    return;
                }
                slot.insert(Slot::Held(attempt));
            }
            Entry::Vacant(slot) => {
                slot.insert(Slot::Held(attempt));
            }
        }
        let core = Arc::clone(core);
        let spawner = Arc::clone(&core.spawner);
        let task = async move {
            let result = core.executor.perform(&core, home, call).await;
            core.executor.slots.insert(home, Slot::Answering(attempt));
            let held = Arc::new(HeldAnswer { core: Arc::clone(&core), home, attempt });
            let answer = Answer { attempt, result };
            core.registry
                .send(&core, home, || Message::Event {
                    event: Box::new(IssueEvent::Answered(answer.clone())),
                    reply: None,
                    held: Some(Arc::clone(&held)),
                })
                .await;
        };
        spawner.call(Box::pin(self.tasks.track_future(task)));
    }

    async fn perform(
        &self,
        core: &Core,
        home: HomeId,
        call: ProviderCall,
    ) -> Result<Done, Trouble> {
        let name = call.provider.clone();
        let Some(Bounded { provider, creates, others }) = self.providers.get(&name) else {
            return Err(Trouble::Unknown(name));
        };
        let deadline = call.deadline;
        // Half of the time may go by waiting for a turn; the other half is the provider's.
        let left = deadline.since(core.now());
        let turns = if call.verb == Verb::Create { creates } else { others };
        let Ok(_turn) = tokio::time::timeout(left / 2, turns.acquire()).await else {
            return Err(Trouble::NotAsked(NotAsked::NoTurn));
        };
        // Boxed, so that the many that may wait for their turn are small.
        let work = Box::pin(ask(provider.as_ref(), &self.instance, home, call));
        let guarded = AssertUnwindSafe(work).catch_unwind();
        tokio::select! {
            biased;
            result = guarded => result.unwrap_or_else(|_| {
                tracing::error!(home = home.0, provider = %name, "a provider call panicked");
                // It may have got as far as asking: what came of it is unknown.
                Err(Trouble::Unavailable {
                    message: "the call to it ended in a panic; see the log".into(),
                    retry_after: None,
                })
            }),
            () = core.clock.sleep_until(deadline) => Err(Trouble::Unavailable {
                message: "no answer in time".into(),
                retry_after: None,
            }),
        }
    }
}

/// Speaks one call to the provider, and translates its answer.
async fn ask(
    provider: &dyn SandboxProvider,
    instance: &InstanceId,
    home: HomeId,
    call: ProviderCall,
) -> Result<Done, Trouble> {
    let ProviderCall { verb, record, external_id, force, deadline, account, issue, .. } = call;
    let see = |object: Object| seen(instance, home, object);
    let ours = |external_id: Option<ExternalId>| {
        let external_id = external_id.expect("start and stop are asked of a known object");
        let target = Target { external_id, expected: record.id.clone() };
        TargetCall { target, force, deadline }
    };
    let result = match verb {
        Verb::Look => {
            let name = record.object_name.clone();
            let key = ObjectKey { name, instance: instance.clone(), home };
            provider.find(key).await.map(|found| Done::Seen(found.into_iter().map(see).collect()))
        }
        Verb::Create => {
            let spec = CreateSpec {
                name: record.object_name.clone(),
                labels: labels(instance, home, &record, account, issue),
                template: record.template.clone(),
                deadline,
            };
            provider.create(spec).await.map(|object| Done::Up(see(object)))
        }
        Verb::Start => provider.start(ours(external_id)).await.map(|object| Done::Up(see(object))),
        Verb::Stop => provider.stop(ours(external_id)).await.map(|_| Done::Down),
        Verb::Delete { external_id, expected } => {
            let target = Target { external_id, expected };
            provider.delete(TargetCall { target, force, deadline }).await.map(|()| Done::Removing)
        }
    };
    result.map_err(|error| match error {
        ProviderError::Absent => Trouble::Absent,
        ProviderError::Present(object) => Trouble::Present(seen(instance, home, *object)),
        ProviderError::Refused(message) => Trouble::Refused(message),
        ProviderError::Unavailable { message, retry_after } => {
            Trouble::Unavailable { message, retry_after }
        }
        ProviderError::Broken(message) => Trouble::Broken(message),
    })
}

fn labels(
    instance: &InstanceId,
    home: HomeId,
    record: &Record,
    account: AccountName,
    issue: IssueId,
) -> Labels {
    Labels {
        instance: instance.clone(),
        account,
        home,
        issue,
        sandbox: record.id.clone(),
        generation: record.generation,
        mode: record.mode,
    }
}

/// The lifecycle's view of an object: whose it is, as far as this home is concerned.
fn seen(instance: &InstanceId, home: HomeId, object: Object) -> Seen {
    let owner = object
        .labels
        .filter(|labels| labels.instance == *instance && labels.home == home)
        .map(|labels| Owner {
            sandbox: labels.sandbox,
            generation: labels.generation,
            mode: labels.mode,
        });
    Seen { external_id: object.external_id, owner, state: object.state }
}
