//! Asks actors and waits for their answers: the way in for everything above the registry.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::issue::{IssueEvent, Reply};
use crate::types::{AccountName, HomeId, IssueId};

use super::api::EngineError;
use super::environment::Environment;
use super::mailbox::{Activation, ActorMessage, Answered, ReplySender, Unanswered};
use super::registry::{Registry, SendError};

/// How often a call is tried whose actor ends under it.
const TRIES_MAX: u32 = 4;

/// Asks actors, cheap to clone.
#[derive(Clone)]
pub(super) struct Actors {
    env: Arc<Environment>,
    registry: Arc<Registry>,
}

impl Actors {
    /// By way of the registry.
    pub fn new(env: Arc<Environment>, registry: Arc<Registry>) -> Self {
        Self { env, registry }
    }

    /// Sends an event to a home, again if its actor had to end, and waits until what it led to
    /// is durable. `seed` is what the home is built from if the store does not have it.
    pub async fn apply(
        &self,
        home: HomeId,
        seed: Option<(AccountName, IssueId)>,
        event: impl Fn() -> IssueEvent,
    ) -> Result<Answered, EngineError> {
        let mut attempts = self.retry_limit()?;
        loop {
            let activation = Activation { seed: seed.clone(), ..Activation::default() };
            if let Some(answered) = attempts.judge(self.ask(home, activation, event()).await)? {
                return Ok(answered);
            }
        }
    }

    /// Sends an event that is for the home which has the issue's names.
    pub async fn ask(
        &self,
        home: HomeId,
        activation: Activation,
        event: IssueEvent,
    ) -> Result<Answered, EventFailure> {
        let answered = self.ask_home(home, activation, event).await?;
        // Its names belong to another home by now: the next look finds that one.
        if answered.moved { Err(EventFailure::Again) } else { Ok(answered) }
    }

    /// Sends an event to one home for its own sake.
    pub async fn ask_home(
        &self,
        home: HomeId,
        activation: Activation,
        event: IssueEvent,
    ) -> Result<Answered, EventFailure> {
        let event = Box::new(event);
        let message = |reply| ActorMessage::Event { event, reply: Some(reply), held: None };
        self.send(home, activation, message).await
    }

    /// Waits until everything that was sent to a home before is durable, or was refused.
    pub async fn flush(&self, home: HomeId, activation: Activation) -> Result<(), EventFailure> {
        self.send(home, activation, ActorMessage::Flush).await.map(|_answered| ())
    }

    /// Waits until everything is published that was sent to a home before. A home without an actor
    /// has published everything.
    pub async fn published(&self, home: HomeId) {
        if !self.registry.is_active(home) {
            return;
        }
        let (reply, flushed) = oneshot::channel();
        let flush = ActorMessage::Flush(reply);
        if self.registry.try_send(home, Activation::default(), flush).is_ok() {
            // Dropped if the actor ends: its successor publishes what it loads.
            drop(flushed.await);
        }
    }

    /// Some tries, unless the server is shutting down. An actor ends where two homes claim a name of one issue
    /// at the same time, which can be so for each of its names.
    pub fn retry_limit(&self) -> Result<RetryLimit, EngineError> {
        if self.env.is_stopping() {
            Err(EngineError::ShuttingDown)
        } else {
            Ok(RetryLimit(TRIES_MAX))
        }
    }

    async fn send(
        &self,
        home: HomeId,
        activation: Activation,
        message: impl FnOnce(ReplySender) -> ActorMessage,
    ) -> Result<Answered, EventFailure> {
        let (reply, answer) = oneshot::channel();
        let activation = match self.registry.try_send(home, activation, message(reply)) {
            Ok(activation) => activation,
            Err(SendError::Full) => return Err(EngineError::Overloaded.into()),
            Err(SendError::Closed) => return Err(EventFailure::Again),
        };
        match answer.await {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(Unanswered::Overloaded)) => Err(EngineError::Overloaded.into()),
            Ok(Err(Unanswered::Failed(why))) => Err(EngineError::StoreFailed(why).into()),
            Ok(Err(Unanswered::RecordTooSlow)) => Err(EngineError::RecordTooSlow.into()),
            Ok(Err(Unanswered::Again)) => Err(EventFailure::Again),
            // The actor ended without an answer: a new one may do better.
            Err(_) => {
                self.registry.give_up(home, activation);
                Err(EventFailure::Again)
            }
        }
    }
}

/// How many tries are left of a call whose actor may end under it.
pub(super) struct RetryLimit(u32);

impl RetryLimit {
    /// The answer, or `None` if it is to be tried again.
    pub fn judge(
        &mut self,
        attempt: Result<Answered, EventFailure>,
    ) -> Result<Option<Answered>, EngineError> {
        self.0 -= 1;
        match attempt {
            Ok(answered) => Ok(Some(answered)),
            Err(EventFailure::For(error)) => Err(error),
            Err(EventFailure::Again) if self.0 > 0 => Ok(None),
            Err(EventFailure::Again) => Err(EngineError::ActorEnded),
        }
    }
}

/// How one attempt failed.
pub(super) enum EventFailure {
    /// A new actor may do better.
    Again,
    /// For this reason.
    For(EngineError),
}

impl From<EngineError> for EventFailure {
    fn from(error: EngineError) -> Self {
        Self::For(error)
    }
}

/// An answer that does not belong to what was asked: a fault of ours, reported as such.
pub(super) fn unfitting(reply: &Reply) -> EngineError {
    EngineError::StoreFailed(format!("the actor's answer does not fit: {reply:?}"))
}
