//! The registry of providers: the one place that lists them all. The configuration, the server's
//! start, SIGHUP, `issuebox doctor` and `issuebox demo` find a provider here by its name.
//!
//! To add a provider, write its folder in `src/sandbox/` and add its kind to [`KINDS`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use crate::clock::{Clock, IdSource};
use crate::config::{Config, ConfigError, Loaded, Overrides, ProviderSchema};
use crate::git::LateGateway;
use crate::models::LateModelGateway;
use crate::sandbox::daytona::DaytonaKind;
use crate::sandbox::docker::DockerKind;
use crate::sandbox::local::LocalKind;
use crate::sandbox::simulated::SimulatedKind;
use crate::sandbox::{
    Capability, Descriptor, GivenProgram, OpenContext, OpenedProvider, Provider, ProviderKind,
    ReloadSettings,
};
use crate::types::{Check, NamedSecrets, ProviderName, Template, TemplateName};

/// All kinds of providers. A template without `provider` uses the first; `issuebox demo` tries them
/// in this order.
pub const KINDS: [&dyn ProviderKind; 4] = [&LocalKind, &SimulatedKind, &DockerKind, &DaytonaKind];

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
    (gateway, models): (Option<&LateGateway>, &LateModelGateway),
    programs: &Arc<[GivenProgram]>,
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
            gateway: gateway.cloned(),
            models,
            programs,
            clock: Arc::clone(clock),
            ids: Arc::clone(ids),
        };
        // Its error says what to do; a source of its own is added by the caller's `{:#}`.
        let opened = kind.open(&context).map_err(anyhow::Error::from_boxed)?;
        if let Some(OpenedProvider { provider, reload }) = opened {
            for template in &context.templates {
                check_declared(template, &provider.descriptor)?;
            }
            providers.insert(name.clone(), provider);
            reloads.extend(reload.map(|reload| (name, reload)));
        }
    }
    Ok((providers, reloads))
}

/// Refuses a template whose provider is not open, or does not declare what it wants.
///
/// # Errors
/// Why, and what to do.
pub(super) fn check_template(
    template: &Template,
    declared: &BTreeMap<ProviderName, Arc<Descriptor>>,
) -> anyhow::Result<()> {
    let Template { name, provider, .. } = template;
    let declared = declared.get(provider).with_context(|| {
        format!("templates.{name} needs the provider {provider}, which is opened at the next start")
    })?;
    check_declared(template, declared)
}

/// Refuses a template that wants what its provider does not declare.
fn check_declared(template: &Template, declared: &Descriptor) -> anyhow::Result<()> {
    let Template { name, provider, network, ports, .. } = template;
    let kind = network.kind();
    let offered: Vec<_> =
        declared.networks.iter().map(|kind| format!("{:?}", kind.as_str())).collect();
    anyhow::ensure!(
        declared.networks.contains(&kind),
        "cannot use templates.{name}.network = {:?}: the provider {provider} offers {}; use one of these",
        kind.as_str(),
        offered.join(", "),
    );
    anyhow::ensure!(
        ports.is_empty() || declared.offers(Capability::Ports),
        "cannot use templates.{name}.ports: the provider {provider} does not offer ports; leave them out",
    );
    Ok(())
}

/// One check for each provider that a template names.
pub(super) fn check(config: &Config) -> Vec<Check> {
    let one = |kind: &dyn ProviderKind| {
        let name = ProviderName::trusted(kind.name());
        let templates: Vec<_> = config.templates.values().filter(|t| t.provider == name).collect();
        let settings = config.providers.get(&name).filter(|_| !templates.is_empty())?;
        Some(kind.check(&format!("provider {name}"), settings, &templates, &config.server.data))
    };
    KINDS.into_iter().filter_map(one).collect()
}

/// What each provider that a template names says of its settings on this machine.
pub fn notes(config: &Config) -> Vec<(&'static str, String)> {
    let named = |kind: &&dyn ProviderKind| {
        config.templates.values().any(|template| template.provider.as_str() == kind.name())
    };
    let note = |kind: &dyn ProviderKind| {
        let settings = config.providers.get(&ProviderName::trusted(kind.name()))?;
        Some((kind.name(), kind.note(settings)?))
    };
    KINDS.into_iter().filter(named).filter_map(note).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Mode, Network, NetworkKind, OnLimit, Resources, Workload};

    #[test]
    fn a_template_that_wants_what_its_provider_does_not_declare_is_refused() {
        let plain = Descriptor::plain();
        let whole = Descriptor {
            networks: NetworkKind::ALL.to_vec(),
            capabilities: Capability::ALL.into(),
            ..Descriptor::plain()
        };
        let usual = Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("local"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 1, processes: 1, disk_mb: 1 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: Workload::default().into(),
        };
        let online = Template { network: Network::Host, ..usual.clone() };
        let listening = Template { ports: vec![3000], ..usual.clone() };
        let why = |template| check_declared(template, &plain).map_err(|error| error.to_string());
        assert_eq!(why(&usual), Ok(()));
        insta::assert_snapshot!(
            why(&online).expect_err("refused"),
            @r#"cannot use templates.default.network = "host": the provider local offers "none"; use one of these"#
        );
        insta::assert_snapshot!(
            why(&listening).expect_err("refused"),
            @"cannot use templates.default.ports: the provider local does not offer ports; leave them out"
        );
        for template in [&usual, &online, &listening] {
            assert!(check_declared(template, &whole).is_ok());
        }
    }
}
