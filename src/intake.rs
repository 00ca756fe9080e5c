//! Deliveries on their way in: what each means under the trigger policy, and the engine that makes
//! it durable. The webhook endpoint brings those that arrive; with credentials for GitHub, the
//! [`RecoveryWorker`] brings those that did not.
//!
//! # Guarantees
//! - A delivery is treated the same whichever way it came; its row says which way.
//! - A delivery is durable when [`Intake::take`] returns. A GUID is applied once: the second
//!   time the answer is [`Duplicate`](crate::engine::DeliveredStatus::Duplicate).
//! - Nothing is read without trust: who brings a delivery has verified its signature, or has it from
//!   GitHub's API.

mod delivery_log;
mod issue_check;
mod known;
mod label_check;
mod recovery;
mod signals;
mod sources;
mod synthetic;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::engine::{Delivered, DeliveredStatus, Engine, EngineError};
use crate::github::policy::TriggerPolicy;
use crate::github::webhook::{Interpreted, Malformed, interpret};
use crate::store::{DeliveryRow, DeliveryState};
use crate::types::{AccountName, DeliveryId, Timestamp};

pub use recovery::{RecoveryPace, RecoveryParts, RecoveryWorker};
pub use signals::IntakeFigures;
use signals::IntakeSignals;

/// Takes deliveries in; cheap to clone.
#[derive(Clone)]
pub struct Intake {
    engine: Engine,
    triggers: TriggerPolicy,
    signals: Arc<IntakeSignals>,
}

/// Which way a delivery came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverySourceKind {
    /// GitHub sent it to the webhook endpoint.
    Webhook,
    /// It had not arrived, and the server read it from GitHub.
    Recovered,
}

/// A delivery whose content can be trusted, not yet interpreted.
#[derive(Clone, Debug)]
pub struct ReceivedDelivery<'a> {
    /// Its GUID.
    pub id: DeliveryId,
    /// GitHub's event, such as `issues`.
    pub event: &'a str,
    /// The payload as JSON.
    pub json: &'a [u8],
    /// When it arrived, or when it was read from GitHub.
    pub received_at: Timestamp,
    /// Which way it came.
    pub source: DeliverySourceKind,
}

/// A delivery that was interpreted and is not yet durable. It holds nothing of the payload's memory.
#[derive(Clone, Debug)]
pub struct ReadDelivery {
    id: DeliveryId,
    event: String,
    received_at: Timestamp,
    recovered: bool,
    meaning: Interpreted,
}

/// Why a delivery was not taken in. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// It is not what GitHub sends.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The engine did not take it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Intake {
    /// Takes deliveries in under this policy.
    pub fn new(engine: Engine, triggers: TriggerPolicy) -> Self {
        Self { engine, triggers, signals: Arc::default() }
    }

    /// What may trigger, and who.
    pub const fn triggers(&self) -> &TriggerPolicy {
        &self.triggers
    }

    /// What was recovered since the start.
    pub fn figures(&self) -> IntakeFigures {
        self.signals.figures()
    }

    /// A delivery was turned away although GitHub may have sent it: GitHub's delivery log is read
    /// soon.
    pub fn missed_one(&self) {
        self.signals.missed_one();
    }

    /// Returns when a delivery was turned away, also if that was before. One waits.
    pub async fn missed(&self) {
        self.signals.missed().await;
    }

    /// A repository's webhook sent a delivery that can be trusted.
    pub fn note_hook(&self, repository_id: u64, hook: u64) {
        self.signals.note_hook(repository_id, hook);
    }

    /// Takes a delivery in. Durable when it returns.
    ///
    /// # Errors
    /// [`IntakeError`].
    pub async fn take(
        &self,
        account: &AccountName,
        received: ReceivedDelivery<'_>,
    ) -> Result<Delivered, IntakeError> {
        let read = self.read(received)?;
        Ok(self.apply(account, read).await?)
    }

    /// Interprets a delivery: the first half of [`Self::take`]. The payload can be freed then.
    ///
    /// # Errors
    /// [`Malformed`] if it is not what GitHub sends.
    pub fn read(&self, received: ReceivedDelivery<'_>) -> Result<ReadDelivery, Malformed> {
        let ReceivedDelivery { id, event, json, received_at, source } = received;
        let mut meaning = interpret(&self.triggers, id.clone(), received_at, event, json)?;
        let recovered = source == DeliverySourceKind::Recovered;
        match &mut meaning {
            Interpreted::Issue(issue_delivery) => issue_delivery.recovered = recovered,
            Interpreted::FanOut(fan_out) => fan_out.recovered = recovered,
            Interpreted::Ignored { .. } => {}
        }
        Ok(ReadDelivery { id, event: event.to_owned(), received_at, recovered, meaning })
    }

    /// Makes an interpreted delivery durable, with what it changes: the second half of
    /// [`Self::take`].
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn apply(
        &self,
        account: &AccountName,
        read: ReadDelivery,
    ) -> Result<Delivered, EngineError> {
        let ReadDelivery { id, event, received_at, recovered, meaning } = read;
        let delivered = match meaning {
            Interpreted::Issue(issue_delivery) => {
                self.engine.deliver(account, *issue_delivery).await?
            }
            Interpreted::FanOut(fan_out) => self.engine.deliver_scope_event(*fan_out).await?,
            Interpreted::Ignored { action, reason } => {
                let row = DeliveryRow {
                    id,
                    received_at,
                    recovered,
                    event,
                    action,
                    home: None,
                    applied: false,
                    reason,
                    state: DeliveryState::Done,
                };
                self.engine.record_ignored(row).await?
            }
        };
        if recovered && delivered.status != DeliveredStatus::Duplicate {
            self.signals.recovered_one();
        }
        Ok(delivered)
    }

    /// Records a delivery of GitHub's log that has no effect, without its payload.
    ///
    /// # Errors
    /// [`EngineError`].
    async fn record_unread(
        &self,
        account: &AccountName,
        id: DeliveryId,
        received_at: Timestamp,
        (event, action): (&str, &str),
        reason: String,
    ) -> Result<Delivered, EngineError> {
        let meaning = Interpreted::Ignored { action: action.to_owned(), reason };
        let event = event.to_owned();
        let read = ReadDelivery { id, event, received_at, recovered: true, meaning };
        self.apply(account, read).await
    }
}
