//! Takes in GitHub's deliveries about one issue, and records those without an effect.

use super::super::actors::unfitting;
use super::super::api::{Delivered, DeliveredStatus, EngineError, IssueKey};
use super::super::directory::route::Number;
use super::Engine;
use crate::issue::{IssueDelivery, IssueEvent, Reply};
use crate::sabotage::{Bug, on};
use crate::store::{CommitError, DeliveryRow, Write};
use crate::types::{AccountName, Alias, IssueId};

impl Engine {
    /// Takes in a delivery about an issue. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn deliver(
        &self,
        account: &AccountName,
        issue_delivery: IssueDelivery,
    ) -> Result<Delivered, EngineError> {
        let key = IssueKey {
            id: Some(issue_delivery.news.issue_id.clone()),
            numbered: Some((issue_delivery.news.repository.clone(), issue_delivery.news.number)),
        };
        let directory = &self.parts.directory;
        let (names, known) = directory.look(account, &key, Some(&issue_delivery.delivery)).await?;
        if let Some(row) = known {
            return Ok(Delivered::duplicate(Some(issue_delivery.news.issue_id), &row));
        }
        let repository_id = Some(issue_delivery.news.repository_id);
        let mut looked = Some(names);
        let mut attempts = self.parts.actors.retry_limit()?;
        let answered = loop {
            if issue_delivery.formerly.is_some() && !on(Bug::TransferRekeys) {
                break self.parts.merger.merge(account, &issue_delivery).await?;
            }
            let names = match looked.take() {
                Some(names) => names,
                None => directory.look(account, &key, None).await?.0,
            };
            let route = directory.place(account, &key, repository_id, names)?;
            if route.number == Number::Elsewhere {
                break self.parts.merger.merge(account, &issue_delivery).await?;
            }
            let (takes, place_elsewhere) =
                directory.takes(&issue_delivery.news, route.number).await?;
            let event = IssueEvent::Delivery {
                issue_delivery: issue_delivery.clone(),
                claims: route.claims,
                takes,
                place_elsewhere,
            };
            let attempt = self.parts.actors.ask(route.home, route.activation, event).await;
            if let Some(answered) = attempts.judge(attempt)? {
                break answered;
            }
        };
        match answered.reply {
            Reply::Delivered(result) => {
                let status = match (answered.duplicate, result.applied) {
                    (true, _) => DeliveredStatus::Duplicate,
                    (false, true) => DeliveredStatus::Accepted,
                    (false, false) => DeliveredStatus::Ignored,
                };
                let issue_id = Some(issue_delivery.news.issue_id);
                Ok(Delivered { status, issue_id, reason: result.reason })
            }
            reply => Err(unfitting(&reply)),
        }
    }

    /// Whether an account has an issue that a delivery of GitHub's was about. One that callers alone
    /// named does not count: its id is their word.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn has_delivered_issue(
        &self,
        account: &AccountName,
        id: &IssueId,
    ) -> Result<bool, EngineError> {
        let store = &self.parts.env.store;
        let alias = Alias::Issue(id.clone());
        let Some(home) = store.resolve(account, &alias).await? else { return Ok(false) };
        let issue = store.load(home).await?;
        Ok(issue.is_some_and(|issue| issue.facts.repository_id.is_some()))
    }

    /// Records a delivery that has no effect, with its reason. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn record_ignored(&self, row: DeliveryRow) -> Result<Delivered, EngineError> {
        if self.parts.env.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let reason = row.reason.clone();
        let write = Write { delivery: Some(row.clone()), ..Write::default() };
        match self.parts.env.store.commit(write).await {
            Ok(()) => Ok(Delivered { status: DeliveredStatus::Ignored, issue_id: None, reason }),
            Err(CommitError::DuplicateDelivery) => Ok(Delivered::duplicate(None, &row)),
            Err(error) => Err(error.into()),
        }
    }
}
