//! Home → actor: at most one activation of a home at a time.
//!
//! Three rules make that hold, each the remedy of a race that was measured:
//! - An activation leaves the map through its [`Ticket`], which removes *only itself*. Removing by
//!   home took away the successor's entry 274 times in 2,000.
//! - A sender counts itself as pending under the map's guard, before it lets go of it, and stays
//!   counted until the actor has taken its message. Passivation removes the entry under the same
//!   guard only if no sender is pending, so no message is left in a queue that is never read.
//! - Messages go through a bounded queue of our own. An actor's mailbox was seen to hold only 16
//!   at first, and to lose messages behind `ctx.stop()`.
//!
//! No guard is held over an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use dashmap::DashMap;
use tokio::sync::mpsc;
use tracing::Span;

use crate::sabotage::{Bug, on};
use crate::types::{HomeId, Timestamp};

use super::actor::{self, ActorParts};
use super::mailbox::{Activation, ActorMessage, ActorSender};

/// How many messages may wait for one actor.
pub(super) const QUEUE_LEN_MAX: usize = 1024;

/// Sends to the actors of all homes, and starts them.
pub(super) struct Registry {
    activations: Arc<Activations>,
    parts: Arc<ActorParts>,
}

/// All activations.
#[derive(Default)]
struct Activations {
    map: DashMap<HomeId, Registration>,
    last_number: AtomicU64,
}

/// The way into an actor's queue. What waits is boxed: every queue has room for 32 messages from its
/// first one on, and most actors never have more than one waiting.
type EnvelopeSender = mpsc::Sender<Box<Envelope>>;

struct Registration {
    number: u64,
    queue: EnvelopeSender,
    pending: Arc<AtomicUsize>,
    last_used: AtomicI64,
}

/// A message on its way, counted until the actor takes it.
pub(super) struct Envelope {
    pub message: ActorMessage,
    pub pending: Pending,
    /// The span in which it was sent, for traces.
    pub span: Span,
}

/// One counted sender.
pub(super) struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn count(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counter))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendError {
    /// The actor's queue is full.
    Full,
    /// The actor has just ended; the next send makes a new one.
    Closed,
}

/// Which activation of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActivationNumber(u64);

/// Held by an actor for as long as it lives.
pub(super) struct Ticket {
    activations: Arc<Activations>,
    home: HomeId,
    number: u64,
}

impl Ticket {
    /// Gives the activation up, unless a sender is about to send to it; then returns false.
    pub fn passivate(&self) -> bool {
        let idle = |entry: &Registration| {
            entry.number == self.number
                && (entry.pending.load(Ordering::SeqCst) == 0 || on(Bug::PassivationDropsMessages))
        };
        self.activations.map.remove_if(&self.home, |_, entry| idle(entry)).is_some()
    }

    /// Gives the activation up at once: the next message goes to a successor.
    pub fn leave(&self) {
        self.activations.remove(self.home, self.number);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Activations {
    fn remove(&self, home: HomeId, number: u64) {
        self.map.remove_if(&home, |_, entry| entry.number == number || on(Bug::RemoveByKey));
    }
}

impl Registry {
    /// With no activations yet.
    pub fn new(parts: Arc<ActorParts>) -> Self {
        Self { activations: Arc::default(), parts }
    }

    /// What the actors use.
    pub fn actor_parts(&self) -> &ActorParts {
        &self.parts
    }

    /// Sends without waiting; starts an actor if there is none. Returns which activation took it.
    pub fn try_send(
        &self,
        home: HomeId,
        activation: Activation,
        message: ActorMessage,
    ) -> Result<ActivationNumber, SendError> {
        let (queue, pending, number) = self.handle(home, activation);
        let envelope = Envelope { message, pending, span: Span::current() };
        match queue.try_send(Box::new(envelope)) {
            Ok(()) => Ok(ActivationNumber(number)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(SendError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => {
                self.activations.remove(home, number);
                Err(SendError::Closed)
            }
        }
    }

    fn handle(&self, home: HomeId, activation: Activation) -> (EnvelopeSender, Pending, u64) {
        let now = self.parts.env.now().unix_ms();
        let mut fresh = None;
        let entry = self.activations.map.entry(home).or_insert_with(|| {
            let number = self.activations.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let (queue, messages) = mpsc::channel(QUEUE_LEN_MAX);
            fresh = Some((number, messages));
            Registration { number, queue, pending: Arc::default(), last_used: AtomicI64::new(now) }
        });
        entry.last_used.store(now, Ordering::Relaxed);
        let handle = (entry.queue.clone(), Pending::count(&entry.pending), entry.number);
        drop(entry);
        // Started without the guard: a ticket that is dropped at once, because the arbiter has
        // ended, needs the map. Until it starts, messages wait in the queue.
        if let Some((number, messages)) = fresh {
            let ticket = Ticket { activations: Arc::clone(&self.activations), home, number };
            actor::start(&self.parts, home, activation, ticket, messages);
        }
        handle
    }

    /// An activation dropped a message without an answer: it is ending, and must get no further
    /// messages. (What a panic unwinds first is the reply; the queue is still open then.)
    pub fn give_up(&self, home: HomeId, activation: ActivationNumber) {
        self.activations.remove(home, activation.0);
    }

    /// Whether a home has an activation.
    pub fn is_active(&self, home: HomeId) -> bool {
        self.activations.map.contains_key(&home)
    }

    /// How many activations there are.
    pub fn len(&self) -> usize {
        self.activations.map.len()
    }

    /// Asks every activation that was not used since `before` to end. Each decides by itself.
    pub fn passivate_idle(&self, before: Timestamp) {
        let mut idle: Vec<_> = Vec::new();
        for entry in &self.activations.map {
            let is_pending = entry.pending.load(Ordering::SeqCst) > 0;
            if !is_pending && entry.last_used.load(Ordering::Relaxed) < before.unix_ms() {
                idle.push((*entry.key(), entry.queue.clone(), Pending::count(&entry.pending)));
            }
        }
        // By home, since a map's own order differs from run to run.
        idle.sort_unstable_by_key(|(home, ..)| *home);
        for (_, queue, pending) in idle {
            // Full or closed: then it is not idle, or gone already.
            let message = ActorMessage::Passivate;
            drop(queue.try_send(Box::new(Envelope { message, pending, span: Span::none() })));
        }
    }
}

#[async_trait]
impl ActorSender for Registry {
    async fn send(&self, home: HomeId, message: &(dyn Fn() -> ActorMessage + Send + Sync)) {
        // An actor that ends takes its queue with it; that it does so again and again would take
        // a panic at each of its messages. The store's due time then brings the issue back.
        for _ in 0..8 {
            let (queue, pending, number) = self.handle(home, Activation::default());
            let envelope = Envelope { message: message(), pending, span: Span::current() };
            if queue.send(Box::new(envelope)).await.is_ok() {
                return;
            }
            self.activations.remove(home, number);
        }
        tracing::error!(
            home = home.0,
            "an issue's actor ended eight times in a row at the same event, which is dropped: stored deliveries stay, and the issue goes on at its next event or due time; the errors before this say why"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_removes_only_its_own_activation() {
        let registry = Activations::default();
        let home = HomeId(1);
        let entry = |number| {
            let (queue, _) = mpsc::channel(1);
            Registration { number, queue, pending: Arc::default(), last_used: AtomicI64::new(0) }
        };
        registry.map.insert(home, entry(1));
        registry.remove(home, 1);
        registry.map.insert(home, entry(2));
        // What a ticket does when the first activation is dropped late.
        registry.remove(home, 1);
        assert_eq!(registry.map.len(), 1, "the successor's entry stays");
    }
}
