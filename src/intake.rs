//! Deliveries on their way in: what each means under the trigger policy, and the engine that makes
//! it durable. The webhook endpoint brings those that arrive; with credentials for GitHub, the
//! [`RecoveryWorker`] brings those that did not.
//!
//! # Guarantees
//! - A delivery is treated the same whichever way it came; its row says which way.
//! - A delivery is durable when [`Intake::take`] returns. A GUID is applied once: the second
//!   time the answer is [`Duplicate`](crate::engine::DeliveredStatus::Duplicate).
//! - With credentials for GitHub no trigger and no command has an effect before GitHub said what its
//!   sender may do. What is not known yet is durable and waits.
//! - Of two acts within one second GitHub's own answer says which came last, once it was asked.
//! - Nothing is read without trust: who brings a delivery has verified its signature, or has it from
//!   GitHub's API.

mod delivery_log;
mod issue_check;
mod known;
mod label_check;
mod on_pull;
mod permission;
mod recovery;
mod signals;
mod sources;
mod standing;
mod synthetic;
#[cfg(test)]
mod tests;
mod ties;
mod waiting;

use std::sync::Arc;

use crate::access::Access;
use crate::engine::{Delivered, DeliveredStatus, Engine, EngineError};
use crate::github::policy::TriggerPolicies;
use crate::github::webhook::{ConditionalDelivery, Interpreted, Malformed, interpret, origin_of};
use crate::issue::IssueDelivery;
use crate::store::{DeliveryRow, DeliveryState};
use crate::types::{AccountName, DeliveryId, Timestamp};

use permission::PermissionVerdict;
pub use recovery::{RecoveryPace, RecoveryParts, RecoveryWorker};
pub use signals::IntakeFigures;
use signals::IntakeSignals;
use ties::ChangedIssues;
pub use waiting::PermissionParts;
use waiting::PermissionStage;

/// Takes deliveries in; cheap to clone.
#[derive(Clone)]
pub struct Intake {
    engine: Engine,
    triggers: TriggerPolicies,
    signals: Arc<IntakeSignals>,
    /// Which account a delivery belongs to; `None` for `default` always.
    access: Option<Arc<Access>>,
    /// Asks GitHub what senders may do; `None` without credentials.
    permissions: Option<Arc<PermissionStage>>,
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

/// A delivery that was interpreted and is not yet durable. It holds nothing of the payload's memory, but
/// for a copy if GitHub must be asked about the sender.
#[derive(Clone, Debug)]
pub struct ReadDelivery {
    head: ReadHead,
    meaning: Interpreted,
    /// The payload as JSON, if the delivery may have to wait.
    body: Vec<u8>,
}

/// What is known of a delivery besides its meaning.
#[derive(Clone, Debug)]
struct ReadHead {
    id: DeliveryId,
    account: AccountName,
    event: String,
    received_at: Timestamp,
    recovered: bool,
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
    /// Takes deliveries in under these policies.
    pub fn new(engine: Engine, triggers: impl Into<TriggerPolicies>) -> Self {
        let triggers = triggers.into();
        Self { engine, triggers, signals: Arc::default(), access: None, permissions: None }
    }

    /// Asks GitHub what senders may do, if the policies say so. [`Self::take_waiting`] must run then.
    #[must_use]
    pub fn asking(self, parts: PermissionParts) -> Self {
        let asks = self.triggers.usual().permission.is_some();
        let permissions = asks.then(|| Arc::new(PermissionStage::new(parts)));
        Self { permissions, ..self }
    }

    /// Gives each delivery to the account that its origin belongs to.
    #[must_use]
    pub fn by_account(self, access: Arc<Access>) -> Self {
        Self { access: Some(access), ..self }
    }

    /// What may trigger in each repository, and who.
    pub const fn triggers(&self) -> &TriggerPolicies {
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
    pub async fn take(&self, received: ReceivedDelivery<'_>) -> Result<Delivered, IntakeError> {
        let read = self.read(received)?;
        Ok(self.apply(read).await?)
    }

    /// Interprets a delivery: the first half of [`Self::take`]. The payload can be freed then.
    ///
    /// # Errors
    /// [`Malformed`] if it is not what GitHub sends.
    pub fn read(&self, received: ReceivedDelivery<'_>) -> Result<ReadDelivery, Malformed> {
        let ReceivedDelivery { id, event, json, received_at, source } = received;
        let mut meaning = interpret(&self.triggers, id.clone(), received_at, event, json)?;
        let recovered = source == DeliverySourceKind::Recovered;
        let account = self.account_of(json);
        match &mut meaning {
            Interpreted::Issue(issue_delivery) => issue_delivery.recovered = recovered,
            Interpreted::OnPull(delivery) => delivery.recovered = recovered,
            Interpreted::FanOut(fan_out) => {
                fan_out.recovered = recovered;
                fan_out.account = account.clone();
            }
            Interpreted::IfPermitted(delivery) => delivery.permitted.recovered = recovered,
            Interpreted::Ignored { .. } => {}
        }
        let may_wait = matches!(meaning, Interpreted::IfPermitted(_) | Interpreted::OnPull(_));
        let body = if may_wait { json.to_vec() } else { Vec::new() };
        let head = ReadHead { id, account, event: event.to_owned(), received_at, recovered };
        Ok(ReadDelivery { head, meaning, body })
    }

    /// Makes an interpreted delivery durable, with what it changes: the second half of
    /// [`Self::take`].
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn apply(&self, read: ReadDelivery) -> Result<Delivered, EngineError> {
        let ReadDelivery { head, meaning, body } = read;
        let recovered = head.recovered;
        let meaning = self.on_issue(meaning).await?;
        let delivered = match meaning {
            Interpreted::Issue(issue_delivery) => match &self.permissions {
                Some(stage) if on_pull::review_of(&issue_delivery).is_some() => {
                    let issue_id = issue_delivery.news.issue_id.clone();
                    let reason = "the remarks of the review are being read".to_owned();
                    stage.keep(&head, body, issue_id, reason).await?
                }
                Some(_) | None => self.deliver(&head.account, *issue_delivery).await?,
            },
            Interpreted::OnPull(delivery) => {
                let reason = on_pull::NOT_OURS.to_owned();
                self.ignore(head, delivery.action, reason).await?
            }
            Interpreted::FanOut(fan_out) => self.engine.deliver_scope_event(*fan_out).await?,
            Interpreted::IfPermitted(delivery) => {
                let judged = match &self.permissions {
                    Some(stage) => stage.judge_or_keep(&head, body, &delivery).await?,
                    None => {
                        let reason = "GitHub cannot be asked what the sender may do".to_owned();
                        Ok(PermissionVerdict::Refused(reason))
                    }
                };
                match judged {
                    Ok(verdict) => self.apply_verdict(head, *delivery, verdict).await?,
                    Err(delivered) => delivered,
                }
            }
            Interpreted::Ignored { action, reason } => self.ignore(head, action, reason).await?,
        };
        if recovered && delivered.status != DeliveredStatus::Duplicate {
            self.signals.recovered_one();
        }
        Ok(delivered)
    }

    /// Makes a delivery durable whose sender's permission is known.
    async fn apply_verdict(
        &self,
        head: ReadHead,
        delivery: ConditionalDelivery,
        verdict: PermissionVerdict,
    ) -> Result<Delivered, EngineError> {
        let ConditionalDelivery { mut permitted, otherwise, .. } = delivery;
        match (verdict, otherwise) {
            (PermissionVerdict::Allowed, _) => self.deliver(&head.account, permitted).await,
            (PermissionVerdict::Refused(_), Some(effect)) => {
                permitted.effect = effect;
                (permitted.comment, permitted.instruction) = (None, None);
                self.deliver(&head.account, permitted).await
            }
            (PermissionVerdict::Refused(reason), None) => {
                self.ignore(head, permitted.action, reason).await
            }
        }
    }

    /// Has the engine take a delivery in; what happened within one second is settled later.
    async fn deliver(
        &self,
        account: &AccountName,
        delivery: IssueDelivery,
    ) -> Result<Delivered, EngineError> {
        let account = &self.account_that_has(account, &delivery).await?;
        let changed = ChangedIssues::of(&delivery).filter(|_| self.signals.settles_ties());
        let delivered = self.engine.deliver(account, delivery).await?;
        if let Some(changed) = changed {
            self.signals.changed.push(changed);
        }
        Ok(delivered)
    }

    /// Records a delivery of GitHub's log that has no effect, without its payload.
    ///
    /// # Errors
    /// [`EngineError`].
    async fn record_unread(
        &self,
        id: DeliveryId,
        received_at: Timestamp,
        (event, action): (&str, &str),
        reason: String,
    ) -> Result<Delivered, EngineError> {
        let meaning = Interpreted::Ignored { action: action.to_owned(), reason };
        let account = AccountName::default_account();
        let head = ReadHead { id, account, event: event.to_owned(), received_at, recovered: true };
        self.apply(ReadDelivery { head, meaning, body: Vec::new() }).await
    }

    /// The account that a delivery belongs to by its origin.
    fn account_of(&self, json: &[u8]) -> AccountName {
        match &self.access {
            Some(access) if !access.accounts().is_single() => access.account_of(&origin_of(json)),
            Some(_) | None => AccountName::default_account(),
        }
    }

    /// The account of an issue: the one by its origin, unless GitHub's deliveries led it to another
    /// before. So an issue stays in its account when the rules of accounts change.
    async fn account_that_has(
        &self,
        by_origin: &AccountName,
        delivery: &IssueDelivery,
    ) -> Result<AccountName, EngineError> {
        let Some(access) = &self.access else { return Ok(by_origin.clone()) };
        let accounts = access.accounts();
        if !accounts.is_single() {
            let others = accounts.iter().map(|(name, _)| name).filter(|name| *name != by_origin);
            for account in std::iter::once(by_origin).chain(others) {
                if self.engine.has_delivered_issue(account, &delivery.news.issue_id).await? {
                    return Ok(account.clone());
                }
            }
        }
        Ok(by_origin.clone())
    }

    async fn ignore(
        &self,
        head: ReadHead,
        action: String,
        reason: String,
    ) -> Result<Delivered, EngineError> {
        let ReadHead { id, account, event, received_at, recovered } = head;
        let row = DeliveryRow {
            account,
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
        self.engine.record_ignored(row).await
    }
}
