//! Sandboxes at Daytona, over its API: made, started and stopped there, worked in through the toolbox
//! that runs in each.
//!
//! # Guarantees
//! The contract of [`crate::sandbox`], with enforced names: Daytona refuses a second sandbox of a name.
//! - A call that changes something is sent once. It is sent again only if Daytona answered that it
//!   conflicts with a change under way, or if a look showed that it had no effect.
//! - The API key goes to the configured address and to the toolbox addresses that it names, over TLS;
//!   into no sandbox, log line, error or `Debug` output.
//! - Each call has a deadline, and each answer a largest size.
//!
//! # What it does not do
//! No tunnels, no git or models through the server's gateways (its sandboxes do not reach the server), and
//! no events: sweeps find what changes outside of our calls.

mod api;
mod doctor;
mod failure;
mod files;
mod kind;
mod lifecycle;
mod network;
mod output;
mod pack;
mod processes;
mod settings;
mod shell;
mod state;
mod terminal;
mod toolbox;
mod unpack;
mod walk;
mod wire;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use kind::DaytonaKind;
use reqwest::Url;
pub use settings::DaytonaSettings;

use super::{Target, WorkError};
use crate::clock::{Clock, IdSource};
use crate::types::{NamedSecrets, Secret, Timestamp};
use api::{CALL_WAIT, HttpCaller};
use failure::CallFailure;
use toolbox::Toolbox;
use wire::DaytonaSandbox;

/// How the provider is configured.
#[derive(Clone, Debug)]
pub struct DaytonaConfig {
    /// The address of the API, without a slash at the end.
    pub api_url: String,
    /// The key that goes with every request.
    pub key: Secret,
    /// The region in which sandboxes are made; `None` for the organization's own.
    pub region: Option<String>,
    /// The directory of workspaces in sandboxes. A relative one is below the home.
    pub workspace: String,
    /// After how many minutes a stopped sandbox is archived; `None` for Daytona's own rule.
    pub archive_minutes: Option<u64>,
    /// The secrets that templates name.
    pub secrets: NamedSecrets,
    /// How long after its deadline a call can still have an effect.
    pub late_effect_window: Duration,
    /// The first wait between two looks at a sandbox that changes; later ones are longer.
    pub look_again: Duration,
}

impl DaytonaConfig {
    /// Settings for people, which leave all else to its defaults.
    pub fn with(settings: &DaytonaSettings, key: Secret, secrets: NamedSecrets) -> Self {
        Self {
            api_url: settings.api_url.clone(),
            key,
            region: settings.region.clone(),
            workspace: settings.workspace.clone(),
            archive_minutes: settings.archive_minutes,
            secrets,
            late_effect_window: Duration::from_secs(30),
            look_again: Duration::from_millis(200),
        }
    }
}

/// The provider. A clone is the same one.
#[derive(Clone)]
pub struct DaytonaProvider(Arc<DaytonaParts>);

/// What all clones of a provider share.
#[doc(hidden)]
pub struct DaytonaParts {
    config: DaytonaConfig,
    http: Arc<HttpCaller>,
    workspace: Arc<str>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    /// The organization that the key belongs to, once it is known. A key never changes it.
    organization: OnceLock<String>,
}

impl std::ops::Deref for DaytonaProvider {
    type Target = DaytonaParts;

    fn deref(&self) -> &DaytonaParts {
        &self.0
    }
}

/// Why the provider cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the provider daytona cannot be opened: {0}")]
pub struct DaytonaOpenError(String);

impl DaytonaProvider {
    /// Opens the provider. Nothing is asked of Daytona yet.
    ///
    /// # Errors
    /// [`DaytonaOpenError`] if the key or the system's certificates cannot be used.
    pub fn open(
        config: DaytonaConfig,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, DaytonaOpenError> {
        let http =
            HttpCaller::new(config.key.clone(), &config.api_url).map_err(DaytonaOpenError)?;
        Ok(Self(Arc::new(DaytonaParts {
            workspace: config.workspace.as_str().into(),
            http: Arc::new(http),
            config,
            clock,
            ids,
            organization: OnceLock::new(),
        })))
    }
}

impl DaytonaParts {
    /// The address of a call: path segments below the API's address.
    fn url(&self, segments: &[&str]) -> Result<Url, CallFailure> {
        let wrong = || CallFailure::NoAnswer("providers.daytona.api_url is no address".into());
        let mut url = Url::parse(&self.config.api_url).map_err(|_| wrong())?;
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(segments);
        Ok(url)
    }

    /// How long a call may take that must be over at a deadline; `None` if that has passed.
    fn left_until(&self, deadline: Timestamp) -> Option<Duration> {
        let left = deadline.since(self.clock.now());
        (!left.is_zero()).then_some(left.min(CALL_WAIT))
    }

    /// A sandbox as it is now, by its id or its name; `None` if there is none. Daytona takes either:
    /// the caller checks which it was.
    async fn look(
        &self,
        id_or_name: &str,
        wait: Duration,
    ) -> Result<Option<DaytonaSandbox>, CallFailure> {
        let url = self.url(&["sandbox", id_or_name])?;
        match self.http.json(self.http.request(reqwest::Method::GET, url.as_str()), wait).await {
            Ok(sandbox) => Ok(Some(sandbox)),
            Err(failure) if failure.is_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The toolbox of a target that is up and carries the expected sandbox id.
    async fn toolbox(&self, target: &Target) -> Result<Toolbox, WorkError> {
        let id = target.external_id.as_str();
        let broken = |failure: CallFailure| WorkError::Broken(failure.words());
        let sandbox = self.look(id, CALL_WAIT).await.map_err(broken)?;
        let is_it = |sandbox: &DaytonaSandbox| {
            let labels = sandbox.labels();
            sandbox.id == id
                && sandbox.standing().is_up()
                && labels.is_some_and(|labels| labels.sandbox == target.expected)
        };
        let sandbox = sandbox.filter(is_it).ok_or(WorkError::NotRunning)?;
        self.toolbox_of(&sandbox).map_err(WorkError::Broken)
    }

    /// The toolbox of a sandbox.
    ///
    /// # Errors
    /// Its address would read the key.
    fn toolbox_of(&self, sandbox: &DaytonaSandbox) -> Result<Toolbox, String> {
        let base = sandbox.toolbox_proxy_url.trim_end_matches('/');
        // Only a Daytona on this machine's loopback is spoken to without TLS.
        let is_safe = base.starts_with("https://") || self.config.api_url.starts_with("http://");
        if !is_safe {
            return Err("Daytona named a toolbox address that does not begin with https://".into());
        }
        Ok(Toolbox {
            http: Arc::clone(&self.http),
            url: format!("{base}/{}", sandbox.id),
            workspace: Arc::clone(&self.workspace),
            secrets: sandbox.secret_names(),
            working_dir: sandbox.working_dir(),
        })
    }

    /// What a failed call of a toolbox means: mostly that the sandbox has gone down meanwhile.
    async fn work_error(&self, target: &Target, failure: CallFailure) -> WorkError {
        match self.toolbox(target).await {
            Err(WorkError::NotRunning) => WorkError::NotRunning,
            Ok(_) | Err(_) => WorkError::Broken(failure.words()),
        }
    }
}
