//! The typed methods that callers use. They find the home and ask its actor, and once more its
//! successor if the actor had to end just then.

mod command;
mod converse;
mod deliver;
mod ensure;
mod github;
mod hooks;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::issue::commit::CommandRefusal;
use crate::issue::step::cold_start_time_max;
use crate::issue::{FanOut, Issue};
use crate::sandbox::{Egress, Lifecycle};
use crate::types::{
    AccountName, Alias, Cause, Hold, HoldScope, IssueId, PerRepository, ProviderName, Repository,
    RepositorySettings, Sandbox, SandboxId, Template, TemplateName, TemplateVersion,
};

use super::actors::Actors;
use super::admission::{HoldsWatch, Quotas};
use super::api::{Delivered, EngineError, SandboxRef, WaitFor, Waited};
use super::directory::Directory;
use super::effects::EffectWorker;
use super::environment::Environment;
use super::executor::Executor;
use super::fanout::FanOuts;
use super::figures::Figures;
use super::github_effects::GithubParts;
use super::merge::Merger;
use super::providers::Providers;
use super::reconciler::Reconciler;
use super::reconciler::view::{DriftItem, DriftView, Remedy};
use super::registry::Registry;
use super::wait::Waits;

/// The engine, cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(super) parts: Arc<Parts>,
}

/// The engine, without keeping it.
#[derive(Clone, Default)]
pub struct WeakEngine(Weak<Parts>);

impl WeakEngine {
    /// The engine, while something else keeps it.
    pub fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(|parts| Engine { parts })
    }
}

/// The engine's parts: one of each for the whole server. No part knows all of them.
pub(super) struct Parts {
    pub env: Arc<Environment>,
    pub providers: Providers,
    pub registry: Arc<Registry>,
    pub actors: Actors,
    pub directory: Arc<Directory>,
    pub executor: Arc<Executor>,
    pub reconciler: Arc<Reconciler>,
    pub merger: Merger,
    pub fan_outs: Arc<FanOuts>,
    pub waits: Waits,
    pub effects: Arc<EffectWorker>,
    pub github: Option<GithubParts>,
}

impl Engine {
    /// The same without keeping it.
    pub fn downgrade(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.parts))
    }

    /// Takes in a delivery that concerns many issues. Durable when it returns; applied after that.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn deliver_scope_event(&self, fan_out: FanOut) -> Result<Delivered, EngineError> {
        self.parts.fan_outs.deliver(fan_out).await
    }

    /// Follows an issue until something holds or the time is up.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn wait(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
        until: WaitFor,
        at_most: Duration,
    ) -> Result<Waited, EngineError> {
        let meant = self.find(account, sandbox).await?;
        self.parts.waits.follow(meant.home, Some(&meant.id), until, at_most).await
    }

    /// Every hold, the widest first.
    pub fn holds(&self) -> Vec<Hold> {
        self.parts.registry.actor_parts().admission.holds()
    }

    /// How many live sandboxes there may be.
    pub fn quotas(&self) -> Quotas {
        self.parts.registry.actor_parts().admission.quotas()
    }

    /// Changes with every hold that is put on or released.
    pub fn holds_changed(&self) -> HoldsWatch {
        self.parts.registry.actor_parts().admission.holds_changed()
    }

    /// Why an issue is held now; `None` if it is not.
    pub fn hold_on(&self, issue: &Issue) -> Option<String> {
        self.parts.registry.actor_parts().admission.hold_on(issue)
    }

    /// Puts a hold on. From now on nothing that it covers is created, started or resumed; what is
    /// under way goes on. Holding again replaces the reason. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn hold(
        &self,
        scope: HoldScope,
        reason: String,
        by: String,
    ) -> Result<Hold, EngineError> {
        self.parts.registry.actor_parts().holds.hold(scope, reason, by).await
    }

    /// Releases a hold; whether there was one. Pending starts that it kept waiting are granted.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn release(&self, scope: &HoldScope) -> Result<bool, EngineError> {
        self.parts.registry.actor_parts().holds.release(scope).await
    }

    /// What our records and the providers disagree on, as of the last sweeps.
    pub fn drift(&self) -> DriftView {
        self.parts.reconciler.drift.view()
    }

    /// The drift that a person should look at soon.
    pub fn drift_alarms(&self) -> Vec<DriftItem> {
        self.parts.reconciler.drift.alarms()
    }

    /// Carries out a remedy of the drift item with this id, and returns the item. Durable when it
    /// returns; the removal of an object goes on after that.
    ///
    /// # Errors
    /// [`EngineError`]; refused with
    /// [`ObservationOutdated`](crate::issue::commit::CommandRefusal::ObservationOutdated) if there
    /// is no such item, it does not have this remedy, or it has changed since it was listed.
    pub async fn remedy(
        &self,
        id: &str,
        remedy: Remedy,
        cause: Cause,
    ) -> Result<DriftItem, EngineError> {
        self.parts.reconciler.remedy(id, remedy, cause).await
    }

    /// Sweeps every provider now; returns once that is done.
    pub async fn sweep_now(&self) {
        self.parts.reconciler.sweep_now().await;
    }

    /// Has a provider swept soon, if it is swept at all.
    pub fn sweep_soon(&self, provider: &ProviderName) {
        self.parts.reconciler.sweep_soon(provider);
    }

    /// Has what was recorded to be said on issues carried out soon.
    pub fn say_recorded(&self) {
        self.parts.registry.actor_parts().github_recorded.notify_one();
    }

    /// The configured providers, by name.
    pub fn providers(&self) -> Vec<(ProviderName, Arc<dyn Lifecycle>)> {
        let all = self.parts.providers.all();
        all.map(|(name, provider)| (name.clone(), Arc::clone(provider))).collect()
    }

    /// The templates of the configuration, by name.
    pub fn templates(&self) -> Vec<Template> {
        let mut all: Vec<_> = self.parts.env.templates().values().cloned().collect();
        all.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        all
    }

    /// How long the longest cold start of the templates may take; zero if none has one.
    pub fn cold_start_time_max(&self) -> Duration {
        let templates = self.parts.env.templates();
        templates.values().map(cold_start_time_max).max().unwrap_or_default()
    }

    /// The version of a template as it is configured now for sandboxes of this repository; `None` if it
    /// is not.
    pub fn version_today(
        &self,
        name: &TemplateName,
        repository: Option<&Repository>,
    ) -> Option<TemplateVersion> {
        let template = self.parts.env.templates().get(name)?.clone();
        Some(self.parts.env.rules().laid_over(template, repository).version())
    }

    /// The template of triggers, and of callers that name none, unless the repository has its own.
    pub fn default_template(&self) -> Template {
        self.parts.env.rules().default_template.clone()
    }

    /// From now on these templates and settings of repositories are the configured ones. Sandboxes keep
    /// what they were made from.
    pub fn replace_templates(
        &self,
        default_template: Template,
        templates: HashMap<TemplateName, Template>,
        repositories: PerRepository<RepositorySettings>,
    ) {
        self.parts.env.replace_templates(default_template, templates, repositories);
    }

    /// What can be measured of it as it is now.
    pub fn figures(&self) -> Figures {
        let executor = &self.parts.executor;
        let mut egress = Egress::default();
        let of_each = self.parts.providers.all().filter_map(|(_, one)| one.egress());
        of_each.for_each(|one| egress += one);
        Figures {
            egress,
            cleanups: executor.cleanup_counts(),
            effects: self.parts.effects.counts(),
            breakers: executor.calls.breakers(),
            sweeps: self.parts.reconciler.drift.sweeps(),
        }
    }

    /// A sandbox by its id or name, also a deleted one.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn sandbox(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
    ) -> Result<Sandbox, EngineError> {
        self.find(account, sandbox).await
    }

    /// A live sandbox, and what it was made from: the template as its record has it.
    ///
    /// # Errors
    /// [`EngineError`]; refused with [`CommandRefusal::SandboxDeleted`] if it is deleted.
    pub async fn made_from(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
    ) -> Result<(Sandbox, Template), EngineError> {
        let sandbox = self.find(account, sandbox).await?;
        let issue = self.parts.env.store.load(sandbox.home).await?;
        let record = issue.as_ref().and_then(|issue| issue.state.record());
        match record.filter(|record| record.id == sandbox.id) {
            Some(record) => Ok((sandbox, record.template.clone())),
            None => Err(EngineError::Refused(CommandRefusal::SandboxDeleted)),
        }
    }

    async fn find(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
    ) -> Result<Sandbox, EngineError> {
        match sandbox {
            SandboxRef::Id(id) => self.by_id(account, id).await,
            SandboxRef::Name(name) => {
                let id = IssueId::from_sandbox_name(name).ok_or(EngineError::SandboxNotFound)?;
                let home = self.parts.directory.find(account, &Alias::Issue(id)).await?;
                let home = home.ok_or(EngineError::SandboxNotFound)?;
                let newest = self.parts.env.store.newest_sandbox(home).await?;
                newest.ok_or(EngineError::SandboxNotFound)
            }
        }
    }

    async fn by_id(&self, account: &AccountName, id: &SandboxId) -> Result<Sandbox, EngineError> {
        let found = self.parts.env.store.sandbox(account, id).await?;
        found.ok_or(EngineError::SandboxNotFound)
    }
}
