//! What is configured of the lifecycle, and what a step must know of providers and of GitHub.

use std::collections::HashMap;
use std::time::Duration;

use crate::types::{
    PerRepository, ProviderName, PullRequestMode, Repository, RepositorySettings, Template,
};

/// What is configured of the lifecycle.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Bounds on making.
    pub create: StepRules,
    /// Bounds on bringing up.
    pub start: StepRules,
    /// Bounds on taking down.
    pub stop: StepRules,
    /// Bounds on removing; its tries never run out.
    pub delete: StepRules,
    /// How long a running sandbox may be idle before it is stopped; `None` for ever.
    pub idle_stop: Option<Duration>,
    /// How long after its issue was closed a sandbox is deleted.
    pub delete_after_close: Duration,
    /// How long after it was recorded a sandbox is deleted; `None` never.
    pub ttl: Option<Duration>,
    /// The label that triggers in each repository, for reasons.
    pub trigger_label: PerRepository<String>,
    /// What triggers and callers that name no template get, unless the repository has its own.
    pub default_template: Template,
    /// What sandboxes of repositories have beside what their template says.
    pub repositories: PerRepository<RepositorySettings>,
    /// The providers that are configured.
    pub providers: HashMap<ProviderName, ProviderRules>,
    /// What is said on issues; `None` without credentials for GitHub: nothing.
    pub github: Option<GithubRules>,
}

impl Rules {
    /// What triggers and callers that name no template get for an issue of this repository.
    pub fn template_for(&self, repository: Option<&Repository>) -> Template {
        let settings = self.repositories.of(repository);
        let template = settings.template.as_ref().unwrap_or(&self.default_template);
        settings.laid_over(template.clone())
    }

    /// A template as a sandbox of an issue of this repository is made from it. Once is enough: what
    /// was laid over it before would be there twice.
    pub fn laid_over(&self, template: Template, repository: Option<&Repository>) -> Template {
        self.repositories.of(repository).laid_over(template)
    }
}

/// What is said on issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GithubRules {
    /// Whether comments are written: the status and replies.
    pub comments: bool,
    /// Whether 👀 is put on what triggered.
    pub reactions: bool,
    /// What is opened for a branch that was pushed.
    pub pull_request: PullRequestMode,
    /// Whether the last commit that was pushed gets a commit status.
    pub statuses: bool,
    /// Whether issues have a label while their sandbox is at work.
    pub working_label: bool,
}

/// Bounds on one kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRules {
    /// How often it is tried at most; at least 1.
    pub attempts: u32,
    /// How long one call may take.
    pub timeout: Duration,
}

/// What the lifecycle must know of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderRules {
    /// It refuses a second object of one name, also under concurrent creates.
    pub names_enforced: bool,
    /// How long after a call's deadline its effect may still appear.
    pub late_effect_window: Duration,
    /// Its running objects die with this server's process.
    pub dies_with_server: bool,
}
