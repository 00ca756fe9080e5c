//! The parts of a server, put together and taken down again.

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
use crate::sandbox::{Provider, Uniqueness};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::types::{LiveSecrets, ProviderName, TemplateName};

use super::notices;
use super::reload::Reload;
use super::{CALLS_TIME_MAX, REQUESTS_TIME_MAX};

/// What a server is built from.
pub(super) struct Parts {
    pub config: Config,
    pub secrets: Secrets,
    pub listener: TcpListener,
    pub ended: watch::Receiver<bool>,
    pub reloads: mpsc::Receiver<Config>,
    pub login_links: Arc<LoginLinks>,
}

type Providers = BTreeMap<ProviderName, Provider>;

/// Serves until it is told to end. Returns what is disconnected once the store is closed, which
/// the last of the threads that still hold it does.
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
    // Ends with the sender, that is with the server.
    std::thread::spawn(move || {
        while let Ok(config) = reloads.recv() {
            reload.take_over_and_tell(config);
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
    .context("what is unfinished could not be taken up")?;
    let bounds = LogBounds {
        sandbox_len_max: config.logs.sandbox_len_max,
        total_len_max: config.logs.total_len_max,
        age_max: config.logs.age_max,
    };
    let logs = Logs::open(&config.server.data.join("logs"), bounds, Arc::clone(&clock))
        .context("the directory of sandboxes' logs cannot be used")?;
    notices::write_down(providers.values(), &logs, &io);
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
    // An error means that the owner is gone: end as well.
    drop(ended.wait_for(|ended| *ended).await);
    // Bounded by the edge itself: a second stop, without grace, would not be heard any more.
    let began = Instant::now();
    handle.stop(true).await;
    if began.elapsed() >= REQUESTS_TIME_MAX {
        tracing::warn!("some requests were still in flight and were cut off");
    }
    drop(serving.await);
    if let Err(error) = std::fs::remove_file(&address_file) {
        tracing::debug!(%error, "the address file was gone already");
    }
    let left = engine.stop(CALLS_TIME_MAX).await;
    if left > 0 {
        tracing::warn!(
            left,
            "provider calls were still in flight; they are looked for at the next start"
        );
    }
    drop(engine);
    logs.close();
    arbiter.stop();
    // The arbiter's thread holds the actors, and they the store: what they handed in is written
    // before the store closes.
    if arbiter.join().is_err() {
        tracing::error!("the engine's thread had panicked");
    }
    drop(store);
    Ok(closed)
}

/// The providers that the templates need.
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
    // What an earlier configuration made stays reachable.
    let dir = config.server.data.join("local");
    if needed("local") || dir.exists() {
        let Local { require_limits, disk_reserve, warm_pool } = config.providers.local;
        let server = Some(address);
        let usual = LocalConfig::new(dir);
        let local = LocalConfig { require_limits, disk_reserve, warm_pool, server, ..usual };
        let provider = LocalProvider::open(local, Arc::clone(clock), Arc::clone(ids))?;
        // Most sandboxes are made from it, the first of them too.
        let default = config.templates.get(&TemplateName::trusted("default"));
        if let Some(template) = default.filter(|t| t.provider.as_str() == "local") {
            provider.keep_warm(template);
        }
        providers.insert(ProviderName::trusted("local"), Arc::new(provider).into());
    }
    for template in config.templates.values() {
        anyhow::ensure!(
            providers.contains_key(&template.provider),
            "templates.{}.provider = {:?} is not available; use \"local\" or \"simulated\"",
            template.name,
            template.provider.as_str(),
        );
    }
    Ok(Opened { providers, simulated: opened_simulated })
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
