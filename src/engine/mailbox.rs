//! What can be sent to an issue's actor, and what it answers: plain data.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::issue::{IssueEvent, Reply};
use crate::types::{AccountName, HomeId, IssueId, Sandbox};

use super::executor::slots::HeldAnswer;

/// How an actor begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Activation {
    /// For a home that may not be durable yet: the account and the id it was first seen by.
    pub seed: Option<(AccountName, IssueId)>,
    /// Whether its number has only just been given, so that there is nothing to load.
    pub brand_new: bool,
    /// Whether no other home can have been given to the issue: see
    /// [`directory`](super::directory).
    pub identity_known: bool,
}

/// Carries an actor's answer back to the caller.
pub(super) type ReplySender = oneshot::Sender<Result<Answered, Unanswered>>;

/// A message to an actor.
pub(super) enum ActorMessage {
    /// Something happened to the issue.
    Event {
        /// What.
        event: Box<IssueEvent>,
        /// Takes the answer, if a caller waits for it.
        reply: Option<ReplySender>,
        /// For a provider's answer: what keeps the home's slot until it is taken.
        held: Option<Arc<HeldAnswer>>,
    },
    /// The state's due time may have come.
    Due,
    /// Load the state and look whether something is unfinished.
    Wake,
    /// Answer once everything before this is durable.
    Flush(ReplySender),
    /// Stop if idle.
    Passivate,
}

/// What an event led to; durable.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub reply: Reply,
    /// The delivery was processed before.
    pub duplicate: bool,
    /// Nothing was done: the issue's names belong to another home now, which must be asked instead.
    pub moved: bool,
    /// The issue's live sandbox after the event.
    pub sandbox: Option<Arc<Sandbox>>,
}

/// Why an event was not applied. Nothing of it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The actor had to end; a new one may do better.
    Again,
    /// A queue is full.
    Overloaded,
    /// The store failed.
    Failed(String),
    /// The record of a create in fast mode took too long, and its object was destroyed.
    RecordTooSlow,
}

/// Sends to actors, for the parts of the engine that actors themselves use. The registry
/// implements it.
#[async_trait]
pub(super) trait ActorSender: Send + Sync {
    /// Sends what must not be lost: waits for room in the queue, and for a new actor if one has
    /// just ended.
    async fn send(&self, home: HomeId, message: &(dyn Fn() -> ActorMessage + Send + Sync));
}
