//! The registry of providers: the one place that lists them all. The configuration, the server's
//! start, SIGHUP, `issuebox doctor` and `issuebox demo` find a provider here by its name.
//!
//! To add a provider, write its folder in `src/sandbox/` and add its kind to [`KINDS`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use crate::clock::{Clock, IdSource};
use crate::config::{Config, ConfigError, Loaded, Overrides, ProviderSchema};
use crate::sandbox::local::LocalKind;
use crate::sandbox::simulated::SimulatedKind;
use crate::sandbox::{OpenContext, OpenedProvider, Provider, ProviderKind, ReloadSettings};
use crate::types::{Check, NamedSecrets, ProviderName, TemplateName};

/// All kinds of providers. A template without `provider` uses the first; `issuebox demo` tries them
/// in this order.
pub const KINDS: [&dyn ProviderKind; 2] = [&LocalKind, &SimulatedKind];

/// Reads the configuration with the sections of all providers.
///
/// # Errors
/// As for [`Config::load`].
pub fn load_config(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    overrides: Overrides,
) -> Result<Loaded, ConfigError> {
    let schemas = KINDS.map(|kind| kind as &dyn ProviderSchema);
    Config::load(file, env, overrides, &schemas)
}

/// Runs the hidden command that this process was started for, if a provider started it.
pub fn run_hidden_command() -> Option<ExitCode> {
    KINDS.iter().find_map(|kind| kind.hidden_command())
}

/// The open providers by name.
pub(super) type ProviderMap = BTreeMap<ProviderName, Provider>;

/// How open providers take new settings over, by name.
pub(super) type Reloads = BTreeMap<ProviderName, ReloadSettings>;

/// Opens the providers that the templates name, and those that still have sandboxes.
pub(super) fn open(
    config: &Config,
    server: SocketAddr,
    secrets: &NamedSecrets,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn IdSource>,
) -> anyhow::Result<(ProviderMap, Reloads)> {
    let default = TemplateName::trusted("default");
    let (mut providers, mut reloads) = (ProviderMap::new(), Reloads::new());
    for kind in KINDS {
        let name = ProviderName::trusted(kind.name());
        let templates: Vec<_> =
            config.templates.values().filter(|template| template.provider == name).collect();
        let context = OpenContext {
            settings: settings_of(config, &name)?,
            default_template: templates.iter().copied().find(|template| template.name == default),
            templates,
            data: &config.server.data,
            server,
            secrets,
            clock: Arc::clone(clock),
            ids: Arc::clone(ids),
        };
        // Its error says what to do; a source of its own is added by the caller's `{:#}`.
        let opened = kind.open(&context).map_err(anyhow::Error::from_boxed)?;
        if let Some(OpenedProvider { provider, reload }) = opened {
            providers.insert(name.clone(), provider);
            reloads.extend(reload.map(|reload| (name, reload)));
        }
    }
    Ok((providers, reloads))
}

/// One check for each provider that a template names.
pub(super) fn check(config: &Config) -> Vec<Check> {
    let named: BTreeSet<&str> = config.templates.values().map(|t| t.provider.as_str()).collect();
    let one = |kind: &&dyn ProviderKind| {
        let settings = config.providers.get(&ProviderName::trusted(kind.name()))?;
        let what = format!("provider {}", kind.name());
        Some(kind.check(&what, settings, &config.server.data))
    };
    KINDS.iter().filter(|kind| named.contains(kind.name())).filter_map(one).collect()
}

fn settings_of<'a>(
    config: &'a Config,
    name: &ProviderName,
) -> anyhow::Result<&'a crate::config::ProviderSettings> {
    config
        .providers
        .get(name)
        .with_context(|| format!("the configuration was read without the provider {name}"))
}
