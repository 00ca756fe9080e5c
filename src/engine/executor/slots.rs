//! One slot for each home: at most one call of it is under way.
//!
//! A newer call waits behind the one that is under way, and replaces one that waits already: the
//! lifecycle has given up what it asked before. The lifecycle asks again while a call is held only
//! when a person forced a delete. The clean-up of orphans and a sweep's look lease the slot without
//! the lifecycle's knowing.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::Notify;
use tracing::Span;

use crate::engine::fast_create::record::PendingRecord;
use crate::issue::ProviderCall;
use crate::types::{Attempt, HomeId, SandboxId};

/// Which call. Attempts are counted within a sandbox, so that a number alone does not name one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct CallId {
    pub sandbox: SandboxId,
    pub attempt: Attempt,
}

impl CallId {
    pub fn of(call: &ProviderCall) -> Self {
        Self { sandbox: call.record.id.clone(), attempt: call.attempt }
    }
}

/// The slots of all homes. A home without one has nothing under way.
#[derive(Default)]
pub(super) struct Slots {
    map: DashMap<HomeId, Slot>,
}

struct Slot {
    held: SlotState,
    /// Ends what is held if it waits for its turn at the provider.
    withdrawn: Arc<Notify>,
    /// Made once what is held has ended; `None` while an answer is on its way.
    next: Option<Box<QueuedCall>>,
}

/// A call that was handed in.
pub(super) struct QueuedCall {
    pub call: ProviderCall,
    /// In fast mode: its record, which is still being written.
    pub record: Option<PendingRecord>,
    /// The event that asked, for traces.
    pub span: Span,
    /// Ends it while it waits for its turn at the provider.
    pub withdrawn: Arc<Notify>,
}

impl QueuedCall {
    /// One that the current event asks for.
    pub fn new(call: ProviderCall, record: Option<PendingRecord>) -> Self {
        Self { call, record, span: Span::current(), withdrawn: Arc::default() }
    }
}

/// Keeps a home's slot until its answer was taken: an actor that the answer builds sees that it
/// is on its way. Dropped with the queue of an actor that ends, it frees the slot as well.
pub(in crate::engine) struct HeldAnswer {
    slots: Arc<Slots>,
    home: HomeId,
    id: CallId,
}

impl HeldAnswer {
    /// Of the call that has just ended.
    pub(super) fn new(slots: Arc<Slots>, home: HomeId, id: CallId) -> Self {
        Self { slots, home, id }
    }
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        self.slots.answered(self.home, &self.id);
    }
}

/// What holds a slot.
#[derive(Debug, PartialEq, Eq)]
enum SlotState {
    /// A call of the lifecycle is under way.
    Calling(CallId),
    /// Leased beside the lifecycle: an orphan is cleaned up, or a sweep looks.
    Lease,
    /// A call has ended and its answer is on its way; a next call may take the slot over.
    Answering(CallId),
}

impl Slots {
    /// The call that has the slot now and may leave; `None` if it waits behind another.
    pub fn enter(&self, home: HomeId, asked: QueuedCall) -> Option<QueuedCall> {
        let held = SlotState::Calling(CallId::of(&asked.call));
        let withdrawn = Arc::clone(&asked.withdrawn);
        match self.map.entry(home) {
            Entry::Vacant(slot) => {
                slot.insert(Slot { held, withdrawn, next: None });
                Some(asked)
            }
            Entry::Occupied(mut slot) => match slot.get().held {
                SlotState::Answering(_) => {
                    let slot = slot.get_mut();
                    (slot.held, slot.withdrawn) = (held, withdrawn);
                    Some(asked)
                }
                SlotState::Calling(_) | SlotState::Lease => {
                    slot.get_mut().next = Some(Box::new(asked));
                    None
                }
            },
        }
    }

    /// Takes the slot for something beside the lifecycle; false if it is taken.
    pub fn lease(&self, home: HomeId) -> bool {
        match self.map.entry(home) {
            Entry::Vacant(slot) => {
                let (held, withdrawn) = (SlotState::Lease, Arc::default());
                slot.insert(Slot { held, withdrawn, next: None });
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Ends a call that waits for its turn at the provider, once it does or will.
    pub fn withdraw(&self, home: HomeId, id: &CallId) {
        let Some(slot) = self.map.get(&home) else { return };
        if slot.held == SlotState::Calling(id.clone()) {
            slot.withdrawn.notify_one();
        } else if let Some(asked) = slot.next.as_deref().filter(|it| CallId::of(&it.call) == *id) {
            asked.withdrawn.notify_one();
        }
    }

    /// The latest attempt of a sandbox that is under way, waits to be, or whose answer is on its
    /// way.
    pub fn in_flight(&self, home: HomeId, sandbox: &SandboxId) -> Option<Attempt> {
        let slot = self.map.get(&home)?;
        let waits = slot.next.as_deref().map(|asked| CallId::of(&asked.call));
        let held = match &slot.held {
            SlotState::Calling(id) | SlotState::Answering(id) => Some(id.clone()),
            SlotState::Lease => None,
        };
        let id = waits.or(held).filter(|id| id.sandbox == *sandbox)?;
        Some(id.attempt)
    }

    /// What was under way has really ended. The call that waited has the slot now and may leave. If
    /// none did, the slot is kept for the answer that is on its way, or free if there is none.
    pub fn ended(&self, home: HomeId, answering: Option<CallId>) -> Option<QueuedCall> {
        let Entry::Occupied(mut slot) = self.map.entry(home) else { return None };
        if let Some(asked) = slot.get_mut().next.take() {
            slot.get_mut().held = SlotState::Calling(CallId::of(&asked.call));
            slot.get_mut().withdrawn = Arc::clone(&asked.withdrawn);
            return Some(*asked);
        }
        match answering {
            Some(id) => slot.get_mut().held = SlotState::Answering(id),
            None => {
                slot.remove();
            }
        }
        None
    }

    /// Frees a slot, whatever holds it: a bug that tests switch on.
    #[cfg(test)]
    pub fn free(&self, home: HomeId) {
        self.map.remove(&home);
    }

    /// The answer was taken, or dropped with the actor's queue.
    pub fn answered(&self, home: HomeId, id: &CallId) {
        self.map.remove_if(&home, |_, slot| match &slot.held {
            SlotState::Answering(answering) => answering == id,
            SlotState::Calling(_) | SlotState::Lease => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::executor::call;

    const HOME: HomeId = HomeId(1);

    fn id(sandbox: &str, attempt: u32) -> CallId {
        CallId::of(&call(sandbox, attempt))
    }

    fn in_flight(slots: &Slots, sandbox: &str) -> Option<u32> {
        slots.in_flight(HOME, &SandboxId::trusted(sandbox)).map(|attempt| attempt.0)
    }

    fn asked(sandbox: &str, attempt: u32) -> QueuedCall {
        QueuedCall::new(call(sandbox, attempt), None)
    }

    fn left(asked: Option<QueuedCall>) -> Option<u32> {
        asked.map(|asked| asked.call.attempt.0)
    }

    #[test]
    fn a_newer_call_waits_replaces_an_older_one_and_leaves_at_the_end() {
        let slots = Slots::default();
        assert_eq!(left(slots.enter(HOME, asked("a", 1))), Some(1));
        assert_eq!(left(slots.enter(HOME, asked("a", 2))), None, "it waits");
        assert_eq!(left(slots.enter(HOME, asked("b", 1))), None, "the newest takes its place");
        assert_eq!(in_flight(&slots, "b"), Some(1), "what waits is on its way");
        assert_eq!(in_flight(&slots, "a"), None, "another sandbox's attempt 1 is not this one's");
        assert_eq!(left(slots.ended(HOME, Some(id("a", 1)))), Some(1));
        assert_eq!(in_flight(&slots, "b"), Some(1));
        slots.answered(HOME, &id("a", 1));
        assert_eq!(in_flight(&slots, "b"), Some(1), "an older answer does not free the slot");
        assert_eq!(left(slots.ended(HOME, Some(id("b", 1)))), None);
        assert_eq!(in_flight(&slots, "b"), Some(1), "its answer is on its way");
        slots.answered(HOME, &id("b", 1));
        assert!(slots.map.is_empty());
    }

    #[test]
    fn a_next_call_takes_over_from_an_answer_on_its_way() {
        let slots = Slots::default();
        slots.enter(HOME, asked("a", 1));
        assert_eq!(left(slots.ended(HOME, Some(id("a", 1)))), None);
        assert_eq!(left(slots.enter(HOME, asked("a", 2))), Some(2));
        slots.answered(HOME, &id("a", 1));
        assert_eq!(in_flight(&slots, "a"), Some(2));
    }

    #[test]
    fn cleaning_is_never_beside_a_call_and_a_call_waits_for_it() {
        let slots = Slots::default();
        assert!(slots.lease(HOME));
        assert!(!slots.lease(HOME));
        assert_eq!(in_flight(&slots, "a"), None);
        assert_eq!(left(slots.enter(HOME, asked("a", 1))), None, "it waits");
        assert_eq!(in_flight(&slots, "a"), Some(1));
        assert_eq!(left(slots.ended(HOME, None)), Some(1));
        assert!(!slots.lease(HOME), "a call is under way");
        assert_eq!(left(slots.ended(HOME, Some(id("a", 1)))), None);
        assert!(!slots.lease(HOME), "its answer is on its way");
        slots.answered(HOME, &id("a", 1));
        assert!(slots.lease(HOME));
        assert_eq!(left(slots.ended(HOME, None)), None);
        assert!(slots.map.is_empty());
    }
}
