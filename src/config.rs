//! The configuration: one struct per concern, read from a file, the environment and flags.
//!
//! # Guarantees
//! - Flags win over the environment, the environment over the file, the file over the defaults.
//! - A key that is not known is an error that names it, where it was read, and the nearest known
//!   key; so is a value of the wrong kind. All problems are told at once, not one a start.
//! - What would weaken isolation or mean something else than written, because it is not available
//!   yet, is an error. What is accepted but not in force yet is a warning.
//! - Secrets never appear in an error, a warning or a log.
//!
//! Each key `section.key` is also read from `ISSUEBOX__SECTION__KEY`, lists with commas between.
//! Four have a short name: `ISSUEBOX_LISTEN`, `ISSUEBOX_DATA`, `ISSUEBOX_WEBHOOK_SECRET` and
//! `ISSUEBOX_ADMIN_TOKEN`, which win over the long one. Every other `ISSUEBOX_…` variable belongs
//! to somebody else (the command line, the log) and is left alone.
//!
//! Relative paths, also those in the file, are relative to the working directory.

mod error;
mod network;
mod pattern;
mod provider;
mod reader;
mod secrets;
mod sections;
mod source;

pub use error::{ConfigError, Problem};
pub use pattern::RepositoryPattern;
pub use provider::{ProviderSchema, ProviderSettings, Section};
pub use secrets::{Made, Secrets, SecretsError};
pub use sections::SECONDS_MAX;
pub use source::{Origin, Overrides};

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::types::{ProviderName, Secret, Template, TemplateName};

/// Where the server listens when nothing else is said.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8787";

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it listens and keeps its data.
    pub server: Server,
    /// Who may call the API.
    pub auth: Auth,
    /// What is known of GitHub.
    pub github: GitHub,
    /// What starts a sandbox, and who may.
    pub triggers: Triggers,
    /// Bounds on the steps of a sandbox's life.
    pub lifecycle: Lifecycle,
    /// How many sandboxes there may be.
    pub quota: Quota,
    /// How long things are kept.
    pub retention: Retention,
    /// How much of what commands wrote is kept, and for how long.
    pub logs: SandboxLogs,
    /// What sandboxes are made from; `default` is always there.
    pub templates: BTreeMap<TemplateName, Template>,
    /// What each provider read of its section.
    pub providers: BTreeMap<ProviderName, ProviderSettings>,
}

/// Top-level keys: where the server listens and keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `listen`
    pub listen: SocketAddr,
    /// `data`: the data directory.
    pub data: PathBuf,
    /// `public_url`: how people reach the server.
    pub public_url: Option<String>,
    /// `trusted_proxies`: whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<IpAddr>,
}

impl Server {
    /// The name of the file in the data directory that says where the server listens.
    pub const ADDRESS_FILE: &'static str = "address";

    /// Where the server on this data directory listens, or did when it ended without a word.
    pub fn running_at(&self) -> Option<SocketAddr> {
        let text = std::fs::read_to_string(self.data.join(Self::ADDRESS_FILE)).ok()?;
        text.trim().parse().ok()
    }
}

/// `[auth]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// `admin_token` or the content of `admin_token_file`; `None` where neither is set, see
    /// [`Secrets::ensure`].
    pub admin_token: Option<Secret>,
}

/// `[github]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHub {
    /// `webhook_secrets` or the lines of `webhook_secrets_file`; empty where neither is set, see
    /// [`Secrets::ensure`].
    pub webhook_secrets: Vec<Secret>,
    /// `bot_user_id`: our own account; 0 where there is none.
    pub bot_user_id: u64,
    /// `api_url`
    pub api_url: String,
    /// `repositories`
    pub repositories: Vec<RepositoryPattern>,
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
pub struct Lifecycle {
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
    /// How often it is tried at most.
    pub attempts: u32,
    /// How long one call may take.
    pub timeout: Duration,
}

/// `[quota]`; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `live`: sandboxes of one account.
    pub live: u64,
    /// `live_per_repository`
    pub live_per_repository: u64,
    /// `live_server`
    pub live_server: u64,
    /// `creates_in_flight`: creates under way at once, for each provider.
    pub creates_in_flight: u64,
}

/// `[retention]`; `None` keeps for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// `deliveries_days`: what came from GitHub, and what came of it.
    pub deliveries: Option<Duration>,
    /// `timeline_days`: what happened to issues.
    pub timeline: Option<Duration>,
}

/// `[logs]`: what commands in sandboxes wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxLogs {
    /// `days`: how long it is kept; `None` for ever.
    pub age_max: Option<Duration>,
    /// `sandbox_mb`: how much of one sandbox, in bytes.
    pub sandbox_len_max: u64,
    /// `total_mb`: how much of all, in bytes.
    pub total_len_max: u64,
}

/// A configuration and what is to be said about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What was set but is not in force yet, a sentence each.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the configuration: defaults, then `file`, then the environment, then flags.
    ///
    /// The environment is handed in so that tests own it; a program passes its own. The data
    /// directory defaults to `$XDG_STATE_HOME/issuebox`, else `~/.local/state/issuebox`. Templates
    /// can name the providers whose schemas are given; the first is the default.
    ///
    /// # Errors
    /// [`ConfigError`] names every key that is wrong and where it was read.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: Overrides,
        schemas: &[&dyn ProviderSchema],
    ) -> Result<Loaded, ConfigError> {
        let mut sources = source::Sources::default();
        if let Some(path) = file {
            sources.add_file(path)?;
        }
        sources.add_environment(env);
        sources.add_flags(overrides);
        sections::read(sources, schemas)
    }
}

#[cfg(test)]
mod tests;
