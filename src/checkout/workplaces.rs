//! What a sandbox works on, for the git gateway: out of its issue's state and its checkout.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::CheckoutParts;
use crate::git::{ForeignTip, PushEnd, WorkBranch, Workplace, Workplaces};
use crate::github::api::RepositoryTarget;
use crate::issue::Issue;
use crate::store::checkout::CheckoutRow;
use crate::types::{PushPermission, SandboxId};

/// How long a commit's name is where people read it, in characters.
const SHORT_OID: usize = 10;
/// The pause after the first look for a push without an answer; doubled with each further one.
const LOOK_PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest pause between two looks.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(300);
/// How long a push without an answer may still take effect.
const LANDED_AFTER: Duration = Duration::from_secs(60);
/// How long GitHub is asked.
const LOOKED_FOR: Duration = Duration::from_secs(86_400);

/// What sandboxes work on.
pub struct SandboxWorkplaces {
    pub(super) parts: Arc<CheckoutParts>,
}

impl SandboxWorkplaces {
    /// Of these checkouts.
    pub const fn new(parts: Arc<CheckoutParts>) -> Self {
        Self { parts }
    }

    /// Changes a checkout where the caller cannot be helped: git goes on, and asks for what is missing.
    async fn change_or_log(
        &self,
        sandbox: &SandboxId,
        change: impl FnOnce(&mut CheckoutRow) + Send,
    ) {
        if let Err(error) = self.parts.change(sandbox, change).await {
            tracing::warn!(sandbox.id = %sandbox, error, "cannot record the state of a checkout");
        }
    }

    /// Finds out what became of a push that had no answer, before the next one.
    async fn resolve(&self, sandbox: &SandboxId, row: CheckoutRow) -> CheckoutRow {
        if row.pushing.is_none() {
            return row;
        }
        // If GitHub cannot be asked now, it is at the next push.
        let Some(tip) = self.tip_of(&row).await else { return row };
        self.pushed_or_not(sandbox, row, tip).await
    }

    /// A checkout with what becomes of its pushes now: another text may have come.
    async fn with_permission(
        &self,
        issue: &Issue,
        target: &RepositoryTarget,
        row: CheckoutRow,
    ) -> CheckoutRow {
        let (pushes, pushes_why) = match self.parts.pushes(issue, target).await {
            Ok(known) => known,
            // For this request alone.
            Err(pushes_why) => {
                return CheckoutRow { pushes: PushPermission::Waits, pushes_why, ..row };
            }
        };
        if (row.pushes, &row.pushes_why) != (pushes, &pushes_why) {
            self.change_or_log(&row.sandbox, |row| {
                (row.pushes, row.pushes_why) = (pushes, pushes_why.clone());
            })
            .await;
        }
        CheckoutRow { pushes, pushes_why, ..row }
    }

    /// The commit of a checkout's branch at GitHub, if that can be asked.
    async fn tip_of(&self, row: &CheckoutRow) -> Option<Option<String>> {
        let (work, branch) = (self.target(row).await?, row.branch.as_ref()?);
        self.parts.api.branch_tip(&work, branch).await.ok()
    }

    /// Records the outcome of a push, given the branch's tip at GitHub.
    async fn pushed_or_not(
        &self,
        sandbox: &SandboxId,
        row: CheckoutRow,
        tip: Option<String>,
    ) -> CheckoutRow {
        let mut resolved = row;
        let Some(pushing) = resolved.pushing.take() else { return resolved };
        if tip.as_ref() == Some(&pushing) {
            self.parts.logs.note(sandbox, format!("pushed {}, as GitHub says", short(&pushing)));
            resolved.tip = tip;
        }
        let tip = resolved.tip.clone();
        self.change_or_log(sandbox, |row| {
            // Another push may have begun meanwhile.
            if row.pushing.as_ref() == Some(&pushing) {
                (row.tip, row.pushing) = (tip, None);
            }
        })
        .await;
        resolved
    }

    /// Finds out what became of the pushes that a former process left without an answer.
    pub async fn resume(self: Arc<Self>) {
        let rows = loop {
            match self.parts.rows.unfinished_pushes().await {
                Ok(rows) => break rows,
                Err(error) => tracing::error!(%error, "cannot read unfinished pushes; retrying"),
            }
            tokio::time::sleep(LOOK_PAUSE_FIRST).await;
        };
        for row in rows {
            let workplaces = Arc::clone(&self);
            tokio::spawn(async move { workplaces.find_out(&row.sandbox).await });
        }
    }

    /// Asks GitHub where a branch is until the outcome of its push is certain. What is not there yet
    /// may still land for a while.
    async fn find_out(&self, sandbox: &SandboxId) {
        let begun = self.parts.clock.now();
        let mut pause = LOOK_PAUSE_FIRST;
        loop {
            let passed = self.parts.clock.now().since(begun);
            // If the store or GitHub cannot be asked now, it is after the pause.
            if let Ok(row) = self.parts.rows.checkout(sandbox).await {
                let Some(row) = row.filter(|row| row.pushing.is_some()) else { return };
                let tip = self.tip_of(&row).await;
                if let Some(tip) = tip
                    && (tip == row.pushing || passed >= LANDED_AFTER)
                {
                    self.pushed_or_not(sandbox, row, tip).await;
                    return;
                }
            }
            if passed >= LOOKED_FOR {
                // The next push, or the next start, asks again.
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    async fn target(&self, row: &CheckoutRow) -> Option<RepositoryTarget> {
        let issue = self.parts.store.load(row.home).await.ok().flatten()?;
        Some(RepositoryTarget::of_checkout(row, &issue.facts))
    }
}

#[async_trait]
impl Workplaces for SandboxWorkplaces {
    async fn workplace(&self, sandbox: &SandboxId) -> Option<Workplace> {
        let row = self.parts.rows.checkout(sandbox).await.ok().flatten()?;
        let issue = self.parts.store.load(row.home).await.ok().flatten()?;
        let record = issue.state.record().filter(|record| record.id == *sandbox)?;
        let git = record.template.workload.git.clone()?;
        let repository = RepositoryTarget::of_checkout(&row, &issue.facts);
        let row = self.resolve(sandbox, row).await;
        let row = self.with_permission(&issue, &repository, row).await;
        let push_refusal = self.parts.push_refusal(&issue, &row);
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
            push_refusal,
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
        let pushing = self.parts.change(sandbox, |row| row.pushing = Some(new.to_owned())).await;
        pushing.map_err(|error| {
            tracing::warn!(sandbox.id = %sandbox, error, "cannot record a push before it is sent");
            "the push cannot be recorded now, so it was not sent; try again in a moment".to_owned()
        })?;
        self.parts.logs.note(sandbox, format!("pushing {}→{}", short(old), short(new)));
        Ok(())
    }

    async fn end_push(&self, sandbox: &SandboxId, end: PushEnd) {
        match end {
            PushEnd::Pushed { tip } => {
                self.parts.logs.note(sandbox, format!("pushed {}", short(&tip)));
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
            PushEnd::Unknown => self.find_out(sandbox).await,
        }
    }
}

/// The beginning of a commit's name, for people.
fn short(oid: &str) -> String {
    oid.chars().take(SHORT_OID).collect()
}
