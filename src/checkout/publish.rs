//! Publishes the work of a sandbox: it may push from now on, and pushes at once.

use std::time::Duration;

use async_trait::async_trait;

use super::commands::GIT;
use super::run::CHECKOUT;
use super::workplaces::SandboxWorkplaces;
use crate::engine::SandboxRef;
use crate::git::{PublishRefusal, WorkPublisher};
use crate::store::checkout::CheckoutRow;
use crate::types::{AccountName, Cause, CheckoutState, PublishMode, SandboxId};

/// How long is waited for a sandbox to be up.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long the push may take.
const PUSH_WAIT: Duration = Duration::from_secs(600);

#[async_trait]
impl WorkPublisher for SandboxWorkplaces {
    async fn publish(&self, sandbox: &SandboxId, by: &str) -> Result<String, PublishRefusal> {
        let not_recorded = |error: &dyn std::fmt::Display| {
            tracing::error!(sandbox.id = %sandbox, %error, "cannot record that work is published");
            PublishRefusal::NotRecorded(error.to_string())
        };
        let row = self.parts.rows.checkout(sandbox).await.map_err(|error| not_recorded(&error))?;
        let row = row.filter(|row| row.state == CheckoutState::Ready);
        let Some(row @ CheckoutRow { branch: Some(_), .. }) = row else {
            return Err(PublishRefusal::NoCheckout);
        };
        let issue = self.parts.store.load(row.home).await.map_err(|error| not_recorded(&error))?;
        let issue = issue.ok_or(PublishRefusal::NoCheckout)?;
        if issue.facts.open.as_ref().is_some_and(|open| !open.value) {
            return Err(PublishRefusal::Closed);
        }
        if self.parts.publish == PublishMode::Never {
            return Err(PublishRefusal::TurnedOff);
        }
        let recorded =
            self.parts.change(sandbox, |row| row.published_by = Some(by.to_owned())).await;
        recorded.map_err(|error| not_recorded(&error))?;
        self.parts.logs.note(sandbox, format!("published by {by}"));
        let branch = row.branch.unwrap_or_default();
        let pushed = self.push(&issue.account, sandbox, &branch);
        let pushed = tokio::time::timeout(PUSH_WAIT, pushed).await;
        match pushed.unwrap_or_else(|_| Err("it took longer than ten minutes".to_owned())) {
            Ok(()) => Ok(branch),
            Err(words) => Err(PublishRefusal::NotPushed(words)),
        }
    }
}

impl SandboxWorkplaces {
    /// Has the sandbox push its branch, started if it is stopped.
    async fn push(
        &self,
        account: &AccountName,
        sandbox: &SandboxId,
        branch: &str,
    ) -> Result<(), String> {
        let (id, cause) = (SandboxRef::Id(sandbox.clone()), Cause::Service(CHECKOUT));
        let work = self.parts.engine.work(account, &id, true, cause, START_WAIT).await;
        let work = work.map_err(|error| error.to_string())?;
        let reference = format!("refs/heads/{branch}:refs/heads/{branch}");
        let argv = GIT.into_iter().chain(["push", "--quiet", "origin", &reference]);
        self.parts.run(&work.into(), sandbox, argv.map(str::to_owned).collect()).await?
    }
}
