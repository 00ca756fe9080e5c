//! Builds a server out of its parts, and shuts it down.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};

use actix::Arbiter;
use anyhow::Context;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{Clock, IdSource, SystemClock, SystemIds};
use crate::config::{Config, Local, Secrets, Server, StepBounds};
use crate::engine::{Engine, EngineParts, Quotas, Retention, Threads};
use crate::github::policy::TriggerPolicy;
use crate::http::{Edge, Feed, Limits, LiveToken, LoginLinks, TokenHash};
use crate::issue::event::ProviderRules;
use crate::issue::{Rules, StepRules};
use crate::logs::{LogBounds, Logs};
use crate::sandbox::local::{LocalConfig, LocalProvider};
use crate::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use crate::sandbox::{Capability, Descriptor, Provider, Uniqueness};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::types::{LiveSecrets, ProviderName, Template, TemplateName};

use super::notices;
use super::reload::Reload;
use super::{CALLS_TIME_MAX, REQUESTS_TIME_MAX};

/// The inputs of a server.
pub(super) struct Parts {
    pub config: Config,
    pub secrets: Secrets,
    pub listener: TcpListener,
    pub ended: watch::Receiver<bool>,
    pub reloads: mpsc::Receiver<Config>,
    pub login_links: Arc<LoginLinks>,
}

type Providers = BTreeMap<ProviderName, Provider>;

/// Serves until it is stopped. The returned channel disconnects once the last thread has dropped the
/// store and it is closed.
pub(super) async fn serve(
    parts: Parts,
    io: tokio::runtime::Handle,
    calls: tokio::runtime::Handle,
    ready: mpsc::SyncSender<()>,
) -> anyhow::Result<Option<mpsc::Receiver<()>>> {
    let Parts { config, secrets, listener, mut ended, reloads, login_links } = parts;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids: Arc<dyn IdSource> = Arc::new(SystemIds);
    let sqlite = SqliteStore::open(&config.server.data)?;
    let closed = sqlite.closed();
    let sqlite = Arc::new(sqlite);
    let store: Arc<dyn Store> = Arc::clone(&sqlite) as _;
    let Opened { providers, simulated } =
        open_providers(&config, listener.local_addr()?, &clock, &ids, &io)?;
    let webhook_secrets = LiveSecrets::new(secrets.webhook_secrets.clone());
    let admin_token = LiveToken::new(TokenHash::of(&secrets.admin_token));
    let mut reload = Reload {
        config: config.clone(),
        secrets,
        webhook_secrets: webhook_secrets.clone(),
        admin_token: admin_token.clone(),
        login_links: Arc::clone(&login_links),
        simulated,
    };
    // The thread ends with the sender, that is with the server.
    std::thread::spawn(move || {
        while let Ok(config) = reloads.recv() {
            reload.apply_and_log(config);
        }
    });
    let feed = Arc::new(Feed::new(&format!("{}-{}", store.instance(), store.epoch())));
    let arbiter = Arbiter::new();
    let engine = Engine::start(EngineParts {
        retention: Retention {
            deliveries: config.retention.deliveries,
            timeline: config.retention.timeline,
        },
        store: Arc::clone(&store),
        clock: Arc::clone(&clock),
        ids: Arc::clone(&ids),
        rules: rules(&config, &providers)?,
        templates: config.templates.clone().into_iter().collect(),
        providers: (providers.iter())
            .map(|(name, provider)| (name.clone(), Arc::clone(&provider.lifecycle)))
            .collect(),
        creates_in_flight: config.quota.creates_in_flight,
        quotas: Quotas {
            account: config.quota.live,
            repository: config.quota.live_per_repository,
            server: config.quota.live_server,
        },
        publisher: Arc::clone(&feed) as _,
        spawner: Arc::new(Threads { arbiter: arbiter.handle(), io: io.clone(), calls }),
        reconcile: Some(config.lifecycle.reconcile),
    })
    .await
    .context("failed to resume unfinished work")?;
    let bounds = LogBounds {
        sandbox_len_max: config.logs.sandbox_len_max,
        total_len_max: config.logs.total_len_max,
        age_max: config.logs.age_max,
    };
    let logs = Logs::open(&config.server.data.join("logs"), bounds, Arc::clone(&clock))
        .context("cannot use the directory of sandboxes' logs")?;
    notices::record(providers.values(), &logs, &io);
    let address = listener.local_addr()?;
    let server = crate::http::build(
        Edge {
            engine: engine.clone(),
            providers,
            store: Arc::clone(&store),
            sessions: Arc::clone(&sqlite) as _,
            reports: sqlite,
            login_links,
            feed,
            logs: logs.clone(),
            started_at: clock.now(),
            clock,
            ids,
            webhook_secrets,
            triggers: TriggerPolicy::new(&config.triggers, &config.github),
            admin_token,
            public_url: config.server.public_url.clone(),
            trusted_proxies: config.server.trusted_proxies.clone(),
            limits: Limits { drain_time_max: REQUESTS_TIME_MAX, ..Limits::default() },
            closing: ended.clone(),
        },
        listener,
    )?;
    let handle = server.handle();
    let serving = actix::spawn(server);
    let address_file = config.server.data.join(Server::ADDRESS_FILE);
    std::fs::write(&address_file, format!("{address}\n")).context("the data directory is full")?;
    ready.send(()).context("the server was given up while it started")?;
    // An error means that the owner is gone, so the server stops too.
    drop(ended.wait_for(|ended| *ended).await);
    // The HTTP server bounds this itself; a second, forced stop would be ignored.
    let began = Instant::now();
    handle.stop(true).await;
    if began.elapsed() >= REQUESTS_TIME_MAX {
        tracing::warn!("aborted requests that were still in flight");
    }
    drop(serving.await);
    if let Err(error) = std::fs::remove_file(&address_file) {
        tracing::debug!(%error, "the address file was already gone");
    }
    let left = engine.stop(CALLS_TIME_MAX).await;
    if left > 0 {
        tracing::warn!(
            left,
            "provider calls are still in flight; the next start checks their outcome"
        );
    }
    drop(engine);
    logs.close();
    arbiter.stop();
    // The arbiter's thread holds the actors, and they hold the store. Their writes finish before the
    // store closes.
    if arbiter.join().is_err() {
        tracing::error!("the engine's thread panicked");
    }
    drop(store);
    Ok(closed)
}

/// The providers in use.
struct Opened {
    providers: Providers,
    simulated: Option<Arc<SimulatedProvider>>,
}

fn open_providers(
    config: &Config,
    address: SocketAddr,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn IdSource>,
    io: &tokio::runtime::Handle,
) -> anyhow::Result<Opened> {
    let _on_io = io.enter();
    let needed = |name: &str| config.templates.values().any(|t| t.provider.as_str() == name);
    let mut providers = Providers::new();
    let mut opened_simulated = None;
    if needed("simulated") {
        let settings = &config.providers.simulated;
        let kept =
            SimulatedConfig { dir: settings.dir.clone(), unique_names: settings.unique_names };
        let provider =
            SimulatedProvider::open(kept, faults(config), Arc::clone(clock), Arc::clone(ids))?;
        let provider = Arc::new(provider);
        opened_simulated = Some(Arc::clone(&provider));
        providers.insert(ProviderName::trusted("simulated"), provider.into());
    }
    // Sandboxes of an earlier configuration stay reachable.
    let dir = config.server.data.join("local");
    if needed("local") || dir.exists() {
        let Local { require_limits, disk_reserve, warm_pool } = config.providers.local;
        let server = Some(address);
        let usual = LocalConfig::new(dir);
        let local = LocalConfig { require_limits, disk_reserve, warm_pool, server, ..usual };
        let provider = LocalProvider::open(local, Arc::clone(clock), Arc::clone(ids))?;
        // The warm pool uses the default template, because most sandboxes do.
        let default = config.templates.get(&TemplateName::trusted("default"));
        if let Some(template) = default.filter(|t| t.provider.as_str() == "local") {
            provider.keep_warm(template);
        }
        providers.insert(ProviderName::trusted("local"), Arc::new(provider).into());
    }
    for template in config.templates.values() {
        let provider = providers.get(&template.provider).with_context(|| {
            format!(
                "templates.{}.provider = {:?} is not available; use \"local\" or \"simulated\"",
                template.name,
                template.provider.as_str(),
            )
        })?;
        check_declared(template, &provider.descriptor)?;
    }
    Ok(Opened { providers, simulated: opened_simulated })
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

pub(super) fn faults(config: &Config) -> SimulatedFaults {
    let settings = &config.providers.simulated;
    let ms = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    SimulatedFaults {
        create_delay_ms: ms(settings.create_delay),
        stop_delay_ms: ms(settings.stop_delay),
        delete_delay_ms: ms(settings.delete_delay),
        fail_create: settings.fail_create,
        lose_response: settings.lose_response,
        unavailable: settings.unavailable,
        fail_first_n: settings.fail_first_n,
    }
}

fn rules(config: &Config, providers: &Providers) -> anyhow::Result<Rules> {
    let bounds =
        |step: StepBounds| StepRules { attempts: step.attempts.max(1), timeout: step.timeout };
    let lifecycle = &config.lifecycle;
    let default = TemplateName::trusted("default");
    let default_template =
        config.templates.get(&default).context("there is no default template")?;
    let of_provider = |provider: &Provider| {
        let declared = &provider.descriptor;
        ProviderRules {
            names_enforced: declared.uniqueness == Uniqueness::EnforcedNames,
            late_effect_window: declared.late_effect_window,
            dies_with_server: declared.dies_with_server,
        }
    };
    Ok(Rules {
        create: bounds(lifecycle.create),
        start: bounds(lifecycle.start),
        stop: bounds(lifecycle.stop),
        delete: bounds(lifecycle.delete),
        idle_stop: lifecycle.idle_stop,
        delete_after_close: lifecycle.delete_after_close,
        ttl: lifecycle.ttl,
        default_template: default_template.clone(),
        providers: providers.iter().map(|(name, p)| (name.clone(), of_provider(p))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Mode, Network, NetworkKind, OnLimit, Resources};

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
