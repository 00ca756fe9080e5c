//! Hooks: the steps that a template has carried out in its sandboxes at certain moments.
//!
//! # Guarantees
//! - The cold start of a sandbox has succeeded before anything else works in it: the checkout comes
//!   first, then its steps, then the sandbox is *running*. A server that is killed meanwhile runs it
//!   again: each step runs at least once.
//! - Steps of one hook run in order, and at most one hook of a sandbox runs at a time.
//! - No hook but the cold start decides about a sandbox or a run: its failure is logged and shown on the
//!   timeline. A stop and a delete wait for theirs no longer than the grace time.
//! - What a step prints is read in bounded memory, and kept in the sandbox's log.
//!
//! # Accepted
//! If the server ends while a hook of a run runs, that hook is not run again. What comes before a stop or
//! a delete is: it is owed until a call to the provider that began with it was answered.

mod cold_start;
mod repository_file;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::checkout::CheckoutWorker;
use crate::clock::Clock;
use crate::engine::{HookedSandbox, LifecycleHooks, WeakEngine};
use crate::issue::commit::Farewell;
use crate::issue::event::{CallError, ColdStartEnd};
use crate::logs::Logs;
use crate::sandbox::{Provider, Target};
use crate::store::Store;
use crate::sync::{SyncWorker, Turns};
use crate::types::{
    AccountName, Cause, HomeId, HookName, HookStep, MessageId, ProviderName, RunId, SandboxId,
    Timestamp, Workload,
};

use step::{StepFailure, StepList};

/// Says whether work may begin in a sandbox.
#[async_trait]
pub trait HookGate: Send + Sync + 'static {
    /// Waits for GitHub's word on the issue, by a question that was asked at `since` or later.
    async fn may_begin(&self, home: HomeId, sandbox: &SandboxId, since: Timestamp) -> bool;
}

/// What hooks are carried out with.
pub struct HookParts {
    /// Shows them on the timeline; it has them carried out, so they must not keep it.
    pub engine: WeakEngine,
    /// The issues.
    pub store: Arc<dyn Store>,
    /// Run the commands.
    pub providers: BTreeMap<ProviderName, Provider>,
    /// Keep their output.
    pub logs: Logs,
    /// Makes checkouts, if there are credentials for GitHub.
    pub checkouts: Option<CheckoutWorker>,
    /// Pushes and pulls, if an object storage is configured.
    pub sync: Option<SyncWorker>,
    /// Says whether work may begin.
    pub gate: Arc<dyn HookGate>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// Carries hooks out.
pub struct HookRunner {
    parts: HookParts,
    /// One hook of a sandbox runs at a time.
    turns: Turns<SandboxId>,
}

/// Where a hook runs, and for what.
#[derive(Clone, Debug)]
pub struct HookPlace {
    /// The home of the issue.
    pub home: HomeId,
    /// The account.
    pub account: AccountName,
    /// The provider.
    pub provider: ProviderName,
    /// The object; it names the sandbox, too.
    pub target: Target,
    /// The run, if it is for one.
    pub run: Option<RunId>,
    /// The message, if it is for one.
    pub message: Option<MessageId>,
}

impl HookPlace {
    fn of(sandbox: &HookedSandbox) -> Self {
        let HookedSandbox { home, account, record, external_id } = sandbox.clone();
        let target = Target { external_id, expected: record.id };
        let provider = record.template.provider;
        Self { home, account, provider, target, run: None, message: None }
    }

    fn sandbox(&self) -> &SandboxId {
        &self.target.expected
    }
}

/// Whose word on the timeline a hook is.
const CAUSE: Cause = Cause::Service("hook");

impl HookRunner {
    /// A runner of these parts.
    pub fn new(parts: HookParts) -> Self {
        Self { parts, turns: Turns::default() }
    }

    /// Before a run: `on_message`, once for each message. Failures are recorded.
    pub async fn before_run(&self, place: &HookPlace, workload: &Workload, messages: &[MessageId]) {
        let steps = &workload.hooks.on_message;
        if steps.is_empty() {
            return;
        }
        let _turn = self.turns.take(place.sandbox()).await;
        for message in messages {
            let place = HookPlace { message: Some(*message), ..place.clone() };
            // What failed has been recorded.
            if let Err(StepFailure::Gone(_)) = self.steps(&place, HookName::Message, steps).await {
                return;
            }
        }
    }

    /// After a run: `on_stream_finish`. Failures are recorded.
    pub async fn after_run(&self, place: &HookPlace, workload: &Workload) {
        let steps = &workload.hooks.on_stream_finish;
        if steps.is_empty() {
            return;
        }
        let _turn = self.turns.take(place.sandbox()).await;
        drop(self.steps(place, HookName::StreamFinish, steps).await);
    }

    /// Because a caller asks for it: the steps of one hook of the sandbox's template.
    ///
    /// # Errors
    /// The step that did not succeed, and its last lines.
    pub async fn run_asked(&self, place: &HookPlace, name: HookName) -> Result<(), String> {
        let issue = self.parts.store.load(place.home).await.map_err(|error| error.to_string())?;
        let record = issue.as_ref().and_then(|issue| issue.state.record());
        let record = record.filter(|record| record.id == *place.sandbox());
        let steps = record.map(|record| record.template.workload.hooks.of(name).to_vec());
        let steps = steps.ok_or("the sandbox was deleted meanwhile")?;
        let _turn = self.turns.take(place.sandbox()).await;
        self.steps(place, name, &steps).await.map_err(|failure| match failure {
            StepFailure::Failed(message) | StepFailure::Gone(message) => message,
        })
    }

    /// Runs the steps of a hook until one fails.
    async fn steps(
        &self,
        place: &HookPlace,
        name: HookName,
        steps: &[HookStep],
    ) -> Result<(), StepFailure> {
        for (number, step) in (1..).zip(steps) {
            self.step(place, StepList::Hook(name), step, (number, steps.len())).await?;
        }
        Ok(())
    }

    /// Shows something of a hook in the log of the server and on the timeline.
    async fn record(&self, place: &HookPlace, what: &str, is_failure: bool) {
        let (home, sandbox) = (place.home, place.sandbox());
        match is_failure {
            true => tracing::warn!(home = home.0, sandbox.id = %sandbox, what, "a hook failed"),
            false => tracing::info!(home = home.0, sandbox.id = %sandbox, what, "a hook ran"),
        }
        let Some(engine) = self.parts.engine.upgrade() else { return };
        if let Err(error) = engine.note(home, sandbox, what, &CAUSE).await {
            tracing::warn!(home = home.0, sandbox.id = %sandbox, %error,
                "cannot show a hook on the timeline");
        }
    }
}

#[async_trait]
impl LifecycleHooks for HookRunner {
    async fn cold_start(&self, sandbox: HookedSandbox) -> Result<ColdStartEnd, CallError> {
        let _turn = self.turns.take(&sandbox.record.id).await;
        self.run_cold_start(&sandbox).await
    }

    async fn before_end(&self, sandbox: HookedSandbox, what: Farewell) {
        let place = HookPlace::of(&sandbox);
        let workload = &sandbox.record.template.workload;
        if what.has_hook {
            let _turn = self.turns.take(place.sandbox()).await;
            let steps = &workload.hooks.on_terminate;
            // What failed has been recorded, and the workspace is pushed all the same.
            drop(self.steps(&place, HookName::Terminate, steps).await);
        }
        if what.pushes {
            self.push_before_end(&place).await;
        }
    }

    async fn out_of_grace(&self, sandbox: HookedSandbox, what: Farewell) {
        let of = match (what.has_hook, what.pushes) {
            (true, true) => "on_terminate and the push",
            (true, false) => "on_terminate",
            (false, _) => "the push of the workspace",
        };
        let what = format!(
            "{of} had not ended after the grace time of {} s; going on without it",
            what.grace.as_secs()
        );
        self.record(&HookPlace::of(&sandbox), &what, true).await;
    }
}
