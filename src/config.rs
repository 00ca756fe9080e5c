//! The configuration: one struct per concern, read from a file, the environment and flags.
//!
//! # Guarantees
//! - Flags take precedence over the environment, the environment over the file, the file over the
//!   defaults.
//! - An unknown key is an error that names it, its origin and the nearest known key; so is a value of
//!   the wrong type. All problems are reported at once.
//! - A setting that is not available yet is an error if ignoring it would weaken isolation or change
//!   its meaning; otherwise it is a warning.
//!
//! Each key `section.key` is also read from `ISSUEBOX__SECTION__KEY`, with commas between a list's
//! items. Four keys have a short name, which takes precedence over the long one: `ISSUEBOX_LISTEN`,
//! `ISSUEBOX_DATA`, `ISSUEBOX_WEBHOOK_SECRET` and `ISSUEBOX_ADMIN_TOKEN`. Other `ISSUEBOX_…` variables
//! belong to the command line and the log, and are ignored here.
//!
//! Relative paths are relative to the working directory, also those in the file.

mod accounts;
mod address;
mod agents;
mod error;
mod git;
mod github;
mod hooks;
mod models;
mod network;
mod people;
mod provider;
mod reader;
mod repositories;
mod repository_file;
mod secrets;
mod sections;
mod source;
mod stored_app;
mod sync;
mod workload;

pub use address::{Announced, ServerAddress};
pub use error::{ConfigError, Problem};
pub use github::{GitHubLogin, IntakeMode};
pub use models::{EndpointConfig, ModelsConfig};
pub use people::PeopleLogin;
pub use provider::{ProviderSchema, ProviderSection, ProviderSettings};
pub use repository_file::{REPOSITORY_FILE_LEN_MAX, RepositoryFileText};
pub use secrets::{Made, Secrets, SecretsError};
pub use sections::SECONDS_MAX;
pub use source::{ConfigFile, Overrides, ValueOrigin};
pub use stored_app::{AppFacts, StoredApp, StoredAppError};
pub use sync::{S3Location, StorageKeys, StorageLocation, SyncConfig};

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::types::{
    AccountName, AccountRules, AgentName, BranchPattern, CiFailureMode, FollowUpMode, HiddenMode,
    LoginGrant, PerRepository, PermissionLevel, ProviderName, PublishMode, PullRequestMode,
    RepositoryPattern, RepositorySettings, Secret, SecretName, Template, TemplateName,
};
pub use agents::AgentProgram;

/// The default address to listen on.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8787";

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address and data directory.
    pub server: Server,
    /// API access.
    pub auth: Auth,
    /// `[accounts]`: what belongs to the accounts beside `default`.
    pub accounts: BTreeMap<AccountName, AccountRules>,
    /// GitHub.
    pub github: GitHub,
    /// Triggers of a sandbox in each repository, and who may use them.
    pub triggers: PerRepository<Triggers>,
    /// Bounds on lifecycle steps.
    pub lifecycle: LifecycleConfig,
    /// Limits on the number of sandboxes and runs.
    pub quota: Quota,
    /// The programs of agents, by name.
    pub agents: BTreeMap<AgentName, AgentProgram>,
    /// `metrics.accounts`: the most accounts with series of their own.
    pub accounts_in_metrics_max: usize,
    /// RetentionConfig.
    pub retention: RetentionConfig,
    /// Bounds on the output of commands.
    pub logs: SandboxLogs,
    /// `[secrets]`: values for environment variables of sandboxes.
    pub secrets: BTreeMap<SecretName, Secret>,
    /// The files that secrets were read from.
    pub secret_files: Vec<PathBuf>,
    /// What agents may ask models, and what that may cost.
    pub models: ModelsConfig,
    /// `[sync]`: how workspaces are kept; `None` if they are not synced.
    pub sync: Option<SyncConfig>,
    /// The configured templates; `default` always exists.
    pub templates: BTreeMap<TemplateName, Template>,
    /// `[repositories]`: what sandboxes of repositories have beside what their template says.
    pub repositories: PerRepository<RepositorySettings>,
    /// What each provider read of its section.
    pub providers: BTreeMap<ProviderName, ProviderSettings>,
}

/// Top-level keys: address and data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `listen`
    pub listen: SocketAddr,
    /// `data`: the data directory.
    pub data: PathBuf,
    /// `public_url`: the server's address for people.
    pub public_url: Option<String>,
    /// `trusted_proxies`: proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<IpAddr>,
}

/// `[auth]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// `admin_token` or the content of `admin_token_file`; `None` if neither is set, see
    /// [`Secrets::ensure`].
    pub admin_token: Option<Secret>,
    /// `[auth.github]`: how people log in with GitHub; `None` if they do not.
    pub github: Option<PeopleLogin>,
}

impl Auth {
    /// The rules by which people log in with GitHub.
    pub fn grants(&self) -> Vec<LoginGrant> {
        self.github.as_ref().map(|login| login.grants.clone()).unwrap_or_default()
    }
}

/// `[github]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHub {
    /// `webhook_secrets` or the lines of `webhook_secrets_file`; empty if neither is set, see
    /// [`Secrets::ensure`].
    pub webhook_secrets: Vec<Secret>,
    /// `app_id` with `app_key` or `app_key_file`; or `token` or `token_file`; or neither, then those of
    /// the stored App.
    pub login: Option<GitHubLogin>,
    /// The App that was registered on the page *Connect*, if `login` is its.
    pub stored_app: Option<StoredApp>,
    /// `intake`: how deliveries come in.
    pub intake: IntakeMode,
    /// `bot_user_id`: issuebox's own account; 0 if it is not configured.
    pub bot_user_id: u64,
    /// `api_url`: the base of the REST API.
    pub api_url: String,
    /// `web_url`: the address of the pages and of git.
    pub web_url: String,
    /// `repositories`
    pub repositories: Vec<RepositoryPattern>,
    /// `branch`: how branches of sandboxes are called.
    pub branch: BranchPattern,
    /// `comments`: whether the status and replies are written on issues.
    pub comments: bool,
    /// `reactions`: whether 👀 is put on what triggered.
    pub reactions: bool,
    /// `pull_request`: what is opened for a branch that was pushed.
    pub pull_request: PullRequestMode,
    /// `publish`: whether what a sandbox pushes is published at once.
    pub publish: PublishMode,
    /// `hidden`: what happens when a text has parts that GitHub does not show to people.
    pub hidden: HiddenMode,
    /// `follow_up`: which comments without a command are messages to the agent.
    pub follow_up: FollowUpMode,
    /// `on_ci_failure`: what happens when a check of the newest pushed commit fails.
    pub on_ci_failure: CiFailureMode,
    /// `statuses`: whether the last commit that was pushed gets a commit status.
    pub statuses: bool,
    /// `working_label`: what issues are labelled with while their sandbox is at work; empty for
    /// nothing.
    pub working_label: String,
}

/// `[triggers]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triggers {
    /// `label`; empty turns it off.
    pub label: String,
    /// `command`; empty turns it off.
    pub command: String,
    /// `opened`
    pub opened: bool,
    /// `permission`: with credentials for GitHub, what people must be allowed to trigger.
    pub permission: PermissionLevel,
    /// `associations`, in capitals as GitHub writes them.
    pub associations: Vec<String>,
    /// `bots`: numeric ids.
    pub bots: Vec<u64>,
    /// `assignee`: a numeric id; 0 turns it off.
    pub assignee: u64,
    /// `unlabel_stops`
    pub unlabel_stops: bool,
}

/// `[lifecycle]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifecycleConfig {
    /// `create_attempts`, `create_timeout_seconds`
    pub create: StepBounds,
    /// `start_attempts`, `start_timeout_seconds`
    pub start: StepBounds,
    /// `stop_attempts`, `stop_timeout_seconds`
    pub stop: StepBounds,
    /// `delete_attempts`, `delete_timeout_seconds`
    pub delete: StepBounds,
    /// `idle_stop_seconds`; `None` is off.
    pub idle_stop: Option<Duration>,
    /// `delete_after_close_seconds`
    pub delete_after_close: Duration,
    /// `reconcile_seconds`
    pub reconcile: Duration,
    /// `ttl_seconds`; `None` is off.
    pub ttl: Option<Duration>,
}

/// Bounds on one kind of provider step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBounds {
    /// Most attempts.
    pub attempts: u32,
    /// Time limit of one call.
    pub timeout: Duration,
}

/// `[quota]`; 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `live`: sandboxes of one account.
    pub live: u64,
    /// `live_per_repository`
    pub live_per_repository: u64,
    /// `live_server`
    pub live_server: u64,
    /// `runs`: runs of agents at the same time, of all accounts together.
    pub runs: u64,
    /// `creates_in_flight`: concurrent creates of each provider.
    pub creates_in_flight: u64,
}

/// `[retention]`; `None` keeps for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionConfig {
    /// `deliveries_days`: deliveries from GitHub and their results.
    pub deliveries: Option<Duration>,
    /// `timeline_days`: the history of issues.
    pub timeline: Option<Duration>,
    /// `deleted_days`: the records of deleted sandboxes.
    pub deleted: Option<Duration>,
}

/// `[logs]`: the output of commands in sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxLogs {
    /// `days`: maximum age; `None` means for ever.
    pub age_max: Option<Duration>,
    /// `sandbox_mb`: bytes of one sandbox.
    pub sandbox_len_max: u64,
    /// `total_mb`: bytes of all sandboxes.
    pub total_len_max: u64,
}

/// A configuration and its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// A sentence for each key that has no effect yet.
    pub warnings: Vec<String>,
    /// The file that was read.
    pub file: Option<ConfigFile>,
}

impl Config {
    /// Reads the configuration: defaults, then `file`, then the environment, then flags.
    ///
    /// The environment is a parameter so that tests control it. The data directory defaults to `$XDG_STATE_HOME/issuebox`, else `~/.local/state/issuebox`. Templates
    /// can name the providers whose schemas are given; the first is the default.
    ///
    /// # Errors
    /// [`ConfigError`] names every wrong key and its origin.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: Overrides,
        schemas: &[&dyn ProviderSchema],
    ) -> Result<Loaded, ConfigError> {
        let mut sources = source::Sources::default();
        let file = file.map(|path| sources.add_file(path)).transpose()?;
        sources.add_environment(env);
        sources.add_flags(overrides);
        let (config, warnings) = sections::read(sources, schemas)?;
        Ok(Loaded { config, warnings, file })
    }

    /// Every template that a sandbox can be created from: the configured ones, and the built-in ones that
    /// are not configured.
    pub fn all_templates(&self) -> BTreeMap<TemplateName, Template> {
        let default = self.templates.get(&TemplateName::trusted("default"));
        let built_in = default.into_iter().flat_map(agents::built_in_templates);
        let mut all: BTreeMap<_, _> = built_in.map(|one| (one.name.clone(), one)).collect();
        all.extend(self.templates.clone());
        all
    }

    /// The agents that templates name.
    pub fn agents_of_templates(&self) -> BTreeSet<AgentName> {
        let agents = self.templates.values().filter_map(|one| one.workload.agent.as_ref());
        agents.map(|agent| agent.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
