//! Deliveries whose sender's permission is not known yet: durable first, then GitHub is asked.
//!
//! # Guarantees
//! - Such a delivery is durable before it is acknowledged. It is taken in, or recorded as ignored with the
//!   reason, once GitHub has answered, also after a restart.
//! - While GitHub does not answer it is asked again: after 2, 4, … 300 seconds, and when a limit ends.
//!   After [`WAITING_MAX`] the delivery is recorded as ignored.
//! - Until GitHub has answered nothing of the delivery has an effect.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, watch};

use super::permission::{PermissionVerdict, SenderPermissions};
use super::{DeliverySourceKind, Intake, ReadDelivery, ReadHead, ReceivedDelivery};
use crate::clock::Clock;
use crate::engine::{Delivered, DeliveredStatus, EngineError};
use crate::github::api::GitHubError;
use crate::github::permissions::RepositoryPermissions;
use crate::github::webhook::{ConditionalDelivery, Interpreted};
use crate::store::waiting::{WaitingDeliveries, WaitingDelivery};
use crate::store::{CommitError, Store};
use crate::types::{AccountName, PermissionLevel, Timestamp};

/// How many deliveries are looked at together.
const AT_ONCE: usize = 8;
/// The longest pause before GitHub is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The pause after the store or the engine failed.
const FAILED_PAUSE: Duration = Duration::from_secs(5);
/// How long a delivery waits at most.
pub(super) const WAITING_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is needed to ask GitHub what senders may do.
pub struct PermissionParts {
    /// What GitHub says of people.
    pub permissions: Arc<RepositoryPermissions>,
    /// Where deliveries wait.
    pub waiting: Arc<dyn WaitingDeliveries>,
    /// Where deliveries are that were taken in.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Asks GitHub what senders may do, and keeps deliveries until it has answered.
pub(super) struct PermissionStage {
    permissions: SenderPermissions,
    waiting: Arc<dyn WaitingDeliveries>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    wake: Notify,
}

impl PermissionStage {
    pub fn new(parts: PermissionParts, level: PermissionLevel) -> Self {
        let PermissionParts { permissions, waiting, store, clock } = parts;
        let permissions = SenderPermissions::new(permissions, level);
        Self { permissions, waiting, store, clock, wake: Notify::new() }
    }

    /// The verdict about a delivery, if it is remembered; else keeps the delivery, and says what is to be
    /// answered.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn judge_or_keep(
        &self,
        head: &ReadHead,
        body: Vec<u8>,
        delivery: &ConditionalDelivery,
    ) -> Result<Result<PermissionVerdict, Delivered>, EngineError> {
        let issue_id = Some(delivery.permitted.news.issue_id.clone());
        let reason = format!("the permission of {} is being asked", delivery.asker.login);
        let duplicate = |reason: String| {
            let (status, issue_id) = (DeliveredStatus::Duplicate, issue_id.clone());
            Ok(Err(Delivered { status, issue_id, reason }))
        };
        if self.waiting.is_waiting(&head.id).await? {
            return duplicate(format!("this delivery was received before: {reason}"));
        }
        if let Some(verdict) = self.permissions.remembered(delivery) {
            return Ok(Ok(verdict));
        }
        let row = WaitingDelivery {
            id: head.id.clone(),
            event: head.event.clone(),
            body,
            received_at: head.received_at,
            recovered: head.recovered,
            due_at: self.clock.now(),
            tries: 0,
        };
        match self.waiting.put_waiting(row).await {
            Ok(()) => {}
            Err(CommitError::DuplicateDelivery) => {
                let before = self.store.delivery(&head.id).await?.map(|row| row.reason);
                let before = before.unwrap_or(reason);
                return duplicate(format!("this delivery was processed before: {before}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.wake.notify_one();
        Ok(Err(Delivered { status: DeliveredStatus::Accepted, issue_id, reason }))
    }

    /// GitHub did not answer. Gives the reason if the delivery has waited for too long.
    async fn delay(
        &self,
        row: &WaitingDelivery,
        login: &str,
        error: &GitHubError,
    ) -> Result<Option<String>, CommitError> {
        let now = self.clock.now();
        if now.since(row.received_at) > WAITING_MAX {
            let days = WAITING_MAX.as_secs() / (24 * 3600);
            return Ok(Some(format!(
                "GitHub did not say for {days} days what {login} may do: {error}"
            )));
        }
        let pause = Duration::from_secs(1 << row.tries.saturating_add(1).min(16)).min(PAUSE_MAX);
        let due_at = match error {
            GitHubError::Limited { until } => (*until).max(now),
            _ => now.after(pause),
        };
        if row.tries == 0 {
            tracing::warn!(delivery = %row.id, login, %error,
                "cannot ask GitHub what the sender of a delivery may do; asking again");
        }
        self.waiting.delay_waiting(&row.id, due_at, error.to_string()).await?;
        Ok(None)
    }
}

impl Intake {
    /// Takes waiting deliveries in as GitHub answers, until the server ends. Without credentials there are
    /// none.
    pub async fn take_waiting(self, mut ended: watch::Receiver<bool>) {
        let Some(stage) = self.permissions.clone() else { return };
        let work = async {
            loop {
                let next = match self.take_due(&stage).await {
                    Ok(next) => next,
                    Err(error) => {
                        tracing::error!(%error, "cannot take waiting deliveries in; trying again");
                        Some(stage.clock.now().after(FAILED_PAUSE))
                    }
                };
                let due = async {
                    match next {
                        Some(next) => stage.clock.sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = stage.wake.notified() => {}
                    () = due => {}
                }
            }
        };
        tokio::select! {
            () = work => {}
            // An error means that the owner is gone, so the server ends too.
            _ = ended.wait_for(|ended| *ended) => {}
        }
    }

    /// Takes in what is due now, and says when something is due next.
    async fn take_due(&self, stage: &PermissionStage) -> Result<Option<Timestamp>, EngineError> {
        loop {
            let due = stage.waiting.waiting(stage.clock.now(), AT_ONCE).await?;
            if due.is_empty() {
                return Ok(stage.waiting.next_waiting().await?);
            }
            let taken = join_all(due.into_iter().map(|row| self.take_one(stage, row))).await;
            taken.into_iter().collect::<Result<(), EngineError>>()?;
        }
    }

    async fn take_one(
        &self,
        stage: &PermissionStage,
        row: WaitingDelivery,
    ) -> Result<(), EngineError> {
        let received = ReceivedDelivery {
            id: row.id.clone(),
            event: &row.event,
            json: &row.body,
            received_at: row.received_at,
            source: match row.recovered {
                true => DeliverySourceKind::Recovered,
                false => DeliverySourceKind::Webhook,
            },
        };
        let account = AccountName::default_account();
        match self.read(received) {
            // It was readable when it was received, by this or an older server.
            Err(malformed) => {
                tracing::error!(delivery = %row.id, %malformed, "a waiting delivery is given up");
            }
            Ok(ReadDelivery { meaning: Interpreted::IfPermitted(delivery), head, .. }) => {
                let verdict = match stage.permissions.ask(&delivery).await {
                    Ok(verdict) => verdict,
                    Err(error) => match stage.delay(&row, &delivery.asker.login, &error).await? {
                        Some(reason) => PermissionVerdict::Refused(reason),
                        None => return Ok(()),
                    },
                };
                self.apply_verdict(&account, head, *delivery, verdict).await?;
            }
            // The configuration has changed since.
            Ok(read) => drop(self.apply(&account, read).await?),
        }
        Ok(stage.waiting.finish_waiting(&row.id).await?)
    }
}
