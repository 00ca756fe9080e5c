//! What a provider's folder offers to the rest of the program: how it is configured, opened and
//! checked. `app/providers.rs` lists all kinds; nothing else names one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::{GivenProgram, Provider};
use crate::clock::{Clock, IdSource};
use crate::config::{ProviderSchema, ProviderSettings};
use crate::git::LateGateway;
use crate::models::LateModelGateway;
use crate::types::{Check, NamedSecrets, Template};

/// One kind of provider, before any is open.
pub trait ProviderKind: ProviderSchema {
    /// Opens the provider. `None`: no template names it and nothing of it is left to look after.
    /// Called within a tokio runtime.
    ///
    /// # Errors
    /// Why it cannot be opened, and what to do.
    fn open(&self, context: &OpenContext<'_>) -> Result<Option<OpenedProvider>, OpenFailure>;

    /// Checks without a server whether the sandboxes of these templates would work, and leaves nothing
    /// behind. Called outside of a tokio runtime.
    fn check(
        &self,
        what: &str,
        settings: &ProviderSettings,
        templates: &[&Template],
        data: &Path,
    ) -> Check;

    /// What decides on this machine how its settings take effect, for the person who checks the
    /// configuration; `None` if nothing does.
    fn note(&self, _settings: &ProviderSettings) -> Option<String> {
        None
    }

    /// Whether it runs the programs that it is asked to run.
    fn runs_programs(&self) -> bool;

    /// Keys of its section, with values, that keep everything it stores below this directory. Empty
    /// if it stores nothing outside of the data directory anyway.
    fn settings_within(&self, _dir: &Path) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Runs the command that this process was started for, if it was started by this provider.
    fn hidden_command(&self) -> Option<ExitCode> {
        None
    }
}

/// Why a provider could not be opened.
pub type OpenFailure = Box<dyn std::error::Error + Send + Sync>;

/// What a provider is opened with.
pub struct OpenContext<'a> {
    /// What it read of its section.
    pub settings: &'a ProviderSettings,
    /// The templates that name it.
    pub templates: Vec<&'a Template>,
    /// The template that a create without a template uses, if it names this provider.
    pub default_template: Option<&'a Template>,
    /// The secrets that templates name.
    pub secrets: &'a NamedSecrets,
    /// Answers git's requests; `None` without credentials for GitHub.
    pub gateway: Option<LateGateway>,
    /// Answers what agents ask models.
    pub models: &'a LateModelGateway,
    /// The programs that every sandbox gets.
    pub programs: &'a Arc<[GivenProgram]>,
    /// The server's data directory.
    pub data: &'a Path,
    /// Where the server listens.
    pub server: SocketAddr,
    /// The server's clock.
    pub clock: Arc<dyn Clock>,
    /// The server's source of ids.
    pub ids: Arc<dyn IdSource>,
}

/// An open provider.
pub struct OpenedProvider {
    /// The provider.
    pub provider: Provider,
    /// How it takes new settings over while it is open, if it can.
    pub reload: Option<ReloadSettings>,
}

/// Takes new settings over while the provider is open.
pub type ReloadSettings = Box<dyn Fn(&ProviderSettings) -> ReloadedSettings + Send>;

/// The result of taking new settings over.
pub struct ReloadedSettings {
    /// The settings that are in force now. Those that differ from the given ones need a restart.
    pub in_force: ProviderSettings,
    /// What changed, in words for the log.
    pub changed: Option<&'static str>,
}
