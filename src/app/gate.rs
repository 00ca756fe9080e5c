//! What runs of agents wait for: a budget, the issue's verification and the repository's checkout.

use std::sync::{Arc, Weak};

use async_trait::async_trait;

use super::verified::Verifications;
use crate::checkout::CheckoutWorker;
use crate::conversation::{RunOrder, RunWait};
use crate::github::task::Task;
use crate::hooks::HookGate;
use crate::models::budget::BudgetUsedUp;
use crate::models::gateway::HttpModelGateway;
use crate::runs::{AgentWorkplace, RunGate};
use crate::store::Store;
use crate::types::{HomeId, SandboxId, Timestamp};

/// Says when a run may begin.
pub(super) struct WorkGate {
    pub store: Arc<dyn Store>,
    pub verifications: Verifications,
    /// Makes checkouts, if there are credentials for GitHub.
    pub checkouts: Option<CheckoutWorker>,
    /// Knows what is left of the budgets.
    pub models: Weak<HttpModelGateway>,
}

#[async_trait]
impl HookGate for Verifications {
    async fn may_begin(&self, home: HomeId, sandbox: &SandboxId, since: Timestamp) -> bool {
        Self::may_begin(self, home, sandbox, since, &|_| {}).await
    }
}

/// Why no run begins although its sandbox is up.
const NOT_VERIFIED: &str =
    "GitHub's word on the issue speaks against it; the sandbox's log says why";

#[async_trait]
impl RunGate for WorkGate {
    async fn ready(
        &self,
        home: HomeId,
        order: &RunOrder,
        waits: &(dyn Fn(RunWait, String) + Send + Sync),
    ) -> Result<AgentWorkplace, String> {
        self.budget(home, order, waits).await?;
        let sandbox = &order.sandbox;
        let note = |text| waits(RunWait::Verification, text);
        if !self.verifications.may_begin(home, sandbox, order.said_at, &note).await {
            return Err(NOT_VERIFIED.to_owned());
        }
        let issue = self.store.load(home).await.map_err(|error| error.to_string())?;
        let record = issue.as_ref().and_then(|issue| issue.state.record());
        let git = record.and_then(|record| record.template.workload.git.as_ref());
        let (Some(checkouts), Some(git)) = (&self.checkouts, git) else {
            return Ok(AgentWorkplace::default());
        };
        let is_placed = issue.as_ref().is_some_and(|issue| issue.facts.repository.is_some());
        if !is_placed {
            return Ok(AgentWorkplace::default());
        }
        let waits = |reason| waits(RunWait::Checkout, reason);
        let row = checkouts.ready(home, sandbox, git, &waits).await;
        let row = row.map_err(|error| error.to_string())?;
        Ok(AgentWorkplace { branch: row.branch, base: row.base })
    }

    async fn task(&self, home: HomeId) -> Result<Option<Task>, String> {
        self.verifications.task(home).await
    }
}

impl WorkGate {
    /// Waits until something is left of each budget that the run is paid from.
    async fn budget(
        &self,
        home: HomeId,
        order: &RunOrder,
        waits: &(dyn Fn(RunWait, String) + Send + Sync),
    ) -> Result<(), String> {
        // Without it the server ends.
        let Some(models) = self.models.upgrade() else { return Ok(()) };
        let issue = self.store.load(home).await.map_err(|error| error.to_string())?;
        let Some(issue) = issue else { return Ok(()) };
        let waits = |used_up: BudgetUsedUp| waits(RunWait::Budget, used_up.to_string());
        let payer = (&issue.account, issue.facts.repository.as_ref());
        let left = models.budget_left(order.run, home, payer, &waits).await;
        left.map_err(|error| error.to_string())
    }
}
