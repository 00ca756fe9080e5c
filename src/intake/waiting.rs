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

use super::on_pull::review_of;
use super::permission::{PermissionVerdict, SenderPermissions};
use super::{DeliverySourceKind, Intake, ReadDelivery, ReadHead, ReceivedDelivery};
use crate::clock::Clock;
use crate::engine::{Delivered, DeliveredStatus, EngineError};
use crate::github::api::{GitHubApi, GitHubError};
use crate::github::permissions::RepositoryPermissions;
use crate::github::webhook::{ConditionalDelivery, Interpreted};
use crate::issue::IssueDelivery;
use crate::store::pulls::WorkOwners;
use crate::store::waiting::{WaitingDeliveries, WaitingDelivery};
use crate::store::{CommitError, Store};
use crate::types::{IssueId, Timestamp};

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
    /// Whose pull requests and commits are.
    pub owners: Arc<dyn WorkOwners>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Asks GitHub what senders may do, and keeps deliveries until it has answered.
pub(super) struct PermissionStage {
    permissions: SenderPermissions,
    waiting: Arc<dyn WaitingDeliveries>,
    pub(super) store: Arc<dyn Store>,
    pub(super) owners: Arc<dyn WorkOwners>,
    pub(super) api: Arc<dyn GitHubApi>,
    clock: Arc<dyn Clock>,
    wake: Notify,
}

impl PermissionStage {
    pub fn new(parts: PermissionParts) -> Self {
        let PermissionParts { permissions, waiting, store, owners, clock } = parts;
        let api = Arc::clone(permissions.api());
        let permissions = SenderPermissions::new(permissions);
        Self { permissions, waiting, store, owners, api, clock, wake: Notify::new() }
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
        let has_review = review_of(&delivery.permitted).is_some();
        if !has_review
            && let Some(verdict) = self.permissions.remembered(delivery)
            && !self.waiting.is_waiting(&head.id).await?
        {
            return Ok(Ok(verdict));
        }
        let reason = format!("the permission of {} is being asked", delivery.asker.login);
        let issue_id = delivery.permitted.news.issue_id.clone();
        Ok(Err(self.keep(head, body, issue_id, reason).await?))
    }

    /// Keeps a delivery until GitHub was asked, and says what is to be answered.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn keep(
        &self,
        head: &ReadHead,
        body: Vec<u8>,
        issue_id: IssueId,
        reason: String,
    ) -> Result<Delivered, EngineError> {
        let issue_id = Some(issue_id);
        let duplicate = |reason: String| {
            let (status, issue_id) = (DeliveredStatus::Duplicate, issue_id.clone());
            Ok(Delivered { status, issue_id, reason })
        };
        if self.waiting.is_waiting(&head.id).await? {
            return duplicate(format!("this delivery was received before: {reason}"));
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
        Ok(Delivered { status: DeliveredStatus::Accepted, issue_id, reason })
    }

    /// GitHub did not answer. Gives the reason if the delivery has waited for too long.
    async fn delay(
        &self,
        row: &WaitingDelivery,
        what: &str,
        error: &GitHubError,
    ) -> Result<Option<String>, CommitError> {
        let now = self.clock.now();
        if now.since(row.received_at) > WAITING_MAX {
            let days = WAITING_MAX.as_secs() / (24 * 3600);
            return Ok(Some(format!("GitHub did not say for {days} days {what}: {error}")));
        }
        let pause = Duration::from_secs(1 << row.tries.saturating_add(1).min(16)).min(PAUSE_MAX);
        let due_at = match error {
            GitHubError::Limited { until } => (*until).max(now),
            _ => now.after(pause),
        };
        if row.tries == 0 {
            tracing::warn!(delivery = %row.id, what, %error,
                "cannot ask GitHub about a delivery; asking again");
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
        match self.read(received) {
            // It was readable when it was received, by this or an older server.
            Err(malformed) => {
                tracing::error!(delivery = %row.id, %malformed, "a waiting delivery is given up");
            }
            Ok(ReadDelivery { head, meaning, body }) => {
                let delivery = match self.on_issue(meaning).await? {
                    Interpreted::IfPermitted(delivery) => *delivery,
                    // Whose remarks are to be read, and who needs no permission.
                    Interpreted::Issue(delivery) if review_of(&delivery).is_some() => {
                        return self.take_review(stage, &row, head, *delivery, None).await;
                    }
                    // The configuration has changed since.
                    meaning => {
                        self.apply(ReadDelivery { head, meaning, body }).await?;
                        return Ok(stage.waiting.finish_waiting(&row.id).await?);
                    }
                };
                let verdict = match stage.permissions.ask(&delivery).await {
                    Ok(verdict) => verdict,
                    Err(error) => {
                        let what = format!("what {} may do", delivery.asker.login);
                        match stage.delay(&row, &what, &error).await? {
                            Some(reason) => PermissionVerdict::Refused(reason),
                            None => return Ok(()),
                        }
                    }
                };
                if review_of(&delivery.permitted).is_some() {
                    let permitted = delivery.permitted;
                    return self.take_review(stage, &row, head, permitted, Some(verdict)).await;
                }
                self.apply_verdict(head, delivery, verdict).await?;
            }
        }
        Ok(stage.waiting.finish_waiting(&row.id).await?)
    }

    /// Takes a review in, with its remarks. Without a verdict its author needs no permission.
    async fn take_review(
        &self,
        stage: &PermissionStage,
        row: &WaitingDelivery,
        head: ReadHead,
        mut delivery: IssueDelivery,
        verdict: Option<PermissionVerdict>,
    ) -> Result<(), EngineError> {
        let refused = match verdict {
            Some(PermissionVerdict::Refused(reason)) => Some(reason),
            Some(PermissionVerdict::Allowed) | None => match stage.read_review(&mut delivery).await
            {
                Ok(has_words) => (!has_words).then(|| "the review says nothing".to_owned()),
                Err(error) => match stage.delay(row, "what the review says", &error).await? {
                    Some(reason) => Some(reason),
                    None => return Ok(()),
                },
            },
        };
        match refused {
            Some(reason) => drop(self.ignore(head, delivery.action, reason).await?),
            None => drop(self.deliver(&head.account, delivery).await?),
        }
        Ok(stage.waiting.finish_waiting(&row.id).await?)
    }
}
