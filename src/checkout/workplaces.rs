//! What a sandbox works on, for the git gateway: out of its issue's state and its checkout.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::CheckoutParts;
use super::worker::target_of;
use crate::git::{ForeignTip, PushEnd, WorkBranch, Workplace, Workplaces};
use crate::store::checkout::CheckoutRow;
use crate::types::SandboxId;

/// How long a commit's name is where people read it, in characters.
const SHORT_OID: usize = 10;

/// What sandboxes work on.
pub struct SandboxWorkplaces {
    parts: Arc<CheckoutParts>,
    /// Held while a checkout's row is read and written again.
    writing: Mutex<()>,
}

impl SandboxWorkplaces {
    /// Of these checkouts.
    pub fn new(parts: Arc<CheckoutParts>) -> Self {
        Self { parts, writing: Mutex::default() }
    }

    /// Changes a sandbox's checkout.
    async fn change(
        &self,
        sandbox: &SandboxId,
        change: impl FnOnce(&mut CheckoutRow) + Send,
    ) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        let row = self.parts.rows.checkout(sandbox).await.map_err(|error| error.to_string())?;
        let mut row = row.ok_or("the sandbox has no checkout")?;
        change(&mut row);
        self.parts.rows.put_checkout(row).await.map_err(|error| error.to_string())
    }

    /// The same where the caller cannot be helped: git goes on, and asks for what is missing.
    async fn change_or_log(
        &self,
        sandbox: &SandboxId,
        change: impl FnOnce(&mut CheckoutRow) + Send,
    ) {
        if let Err(error) = self.change(sandbox, change).await {
            tracing::warn!(sandbox.id = %sandbox, error, "cannot record the state of a checkout");
        }
    }

    /// Finds out what became of a push that had no answer.
    async fn resolve(&self, sandbox: &SandboxId, row: CheckoutRow) -> CheckoutRow {
        let (Some(pushing), Some(branch)) = (row.pushing.clone(), row.branch.clone()) else {
            return row;
        };
        let Some(work) = self.target(&row).await else { return row };
        // If GitHub cannot be asked now, it is at the next push.
        let Ok(tip) = self.parts.api.branch_tip(&work, &branch).await else { return row };
        let mut resolved = row;
        resolved.pushing = None;
        if tip.as_deref() == Some(pushing.as_str()) {
            resolved.tip = tip;
        }
        let (tip, now) = (resolved.tip.clone(), resolved.pushing.clone());
        self.change_or_log(sandbox, |row| {
            // Another push may have begun meanwhile.
            if row.pushing.as_ref() == Some(&pushing) {
                (row.tip, row.pushing) = (tip, now);
            }
        })
        .await;
        resolved
    }

    async fn target(&self, row: &CheckoutRow) -> Option<crate::github::api::RepositoryTarget> {
        let issue = self.parts.store.load(row.home).await.ok().flatten()?;
        target_of(&issue)
    }
}

#[async_trait]
impl Workplaces for SandboxWorkplaces {
    async fn workplace(&self, sandbox: &SandboxId) -> Option<Workplace> {
        let row = self.parts.rows.checkout(sandbox).await.ok().flatten()?;
        let issue = self.parts.store.load(row.home).await.ok().flatten()?;
        let record = issue.state.record().filter(|record| record.id == *sandbox)?;
        let git = record.template.workload.git.clone()?;
        let repository = target_of(&issue)?;
        let row = self.resolve(sandbox, row).await;
        let is_closed = issue.facts.open.as_ref().is_some_and(|open| !open.value);
        let closed = "the issue is closed; your work is kept in the sandbox until it is deleted";
        Some(Workplace {
            names: vec![repository.name.clone(), row.remote],
            repository,
            branch: row.branch.map(|name| WorkBranch {
                name,
                tip: row.tip,
                foreign: row.foreign_tip.map(|oid| {
                    let is_fetched = row.foreign_is_fetched;
                    ForeignTip { oid, is_fetched }
                }),
            }),
            read: git.read,
            push_max_mb: git.push_max_mb,
            workflows: git.workflows,
            push_refusal: is_closed.then(|| closed.to_owned()),
        })
    }

    async fn fetched(&self, sandbox: &SandboxId) {
        self.change_or_log(sandbox, |row| row.foreign_is_fetched = row.foreign_tip.is_some()).await;
    }

    async fn foreign_tip(&self, sandbox: &SandboxId, oid: &str) {
        self.change_or_log(sandbox, |row| {
            if row.foreign_tip.as_deref() != Some(oid) {
                (row.foreign_tip, row.foreign_is_fetched) = (Some(oid.to_owned()), false);
            }
        })
        .await;
    }

    async fn begin_push(&self, sandbox: &SandboxId, old: &str, new: &str) -> Result<(), String> {
        self.change(sandbox, |row| row.pushing = Some(new.to_owned())).await.map_err(|error| {
            tracing::warn!(sandbox.id = %sandbox, error, "cannot record a push before it is sent");
            "the push cannot be recorded now, so it was not sent; try again in a moment".to_owned()
        })?;
        let short = |oid: &str| oid.chars().take(SHORT_OID).collect::<String>();
        self.parts.logs.note(sandbox, format!("pushing {}→{}", short(old), short(new)));
        Ok(())
    }

    async fn end_push(&self, sandbox: &SandboxId, end: PushEnd) {
        match end {
            PushEnd::Pushed { tip } => {
                let short: String = tip.chars().take(SHORT_OID).collect();
                self.parts.logs.note(sandbox, format!("pushed {short}"));
                self.change_or_log(sandbox, |row| {
                    (row.tip, row.pushing) = (Some(tip), None);
                    (row.foreign_tip, row.foreign_is_fetched) = (None, false);
                })
                .await;
            }
            PushEnd::Refused { reason } => {
                self.parts.logs.note(sandbox, format!("the push was refused: {reason}"));
                self.change_or_log(sandbox, |row| row.pushing = None).await;
            }
            PushEnd::Unknown => {
                let row = self.parts.rows.checkout(sandbox).await.ok().flatten();
                if let Some(row) = row {
                    self.resolve(sandbox, row).await;
                }
            }
        }
    }
}
