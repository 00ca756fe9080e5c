//! Builds a server out of its parts, and shuts it down.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};

use actix::Arbiter;
use anyhow::Context;
use tokio::sync::{mpsc as mpsc_async, watch};

use crate::clock::{Clock, IdSource, SystemClock, SystemIds};
use crate::config::{Config, Secrets, Server, StepBounds};
use crate::engine::{Engine, EngineParts, Quotas, Retention, Threads};
use crate::github::policy::TriggerPolicy;
use crate::http::{Edge, Feed, Limits, LiveToken, LoginLinks, TokenHash};
use crate::issue::event::ProviderRules;
use crate::issue::{Rules, StepRules};
use crate::logs::{LogBounds, Logs};
use crate::sandbox::{Provider, Uniqueness};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::types::{LiveSecrets, NamedSecrets, TemplateName};

use super::entry::{self, EntryParts, EntryPublisher};
use super::notices;
use super::providers::{self, ProviderMap};
use super::reload::{self, Reload};
use super::{CALLS_TIME_MAX, REQUESTS_TIME_MAX};

/// The inputs of a server.
pub(super) struct ServerParts {
    pub config: Config,
    pub secrets: Secrets,
    pub listener: TcpListener,
    pub ended: watch::Receiver<bool>,
    pub reloads: mpsc::Receiver<Config>,
    pub login_links: Arc<LoginLinks>,
}

/// Serves until it is stopped. The returned channel disconnects once the last thread has dropped the
/// store and it is closed.
pub(super) async fn serve(
    parts: ServerParts,
    io: tokio::runtime::Handle,
    calls: tokio::runtime::Handle,
    ready: mpsc::SyncSender<()>,
) -> anyhow::Result<Option<mpsc::Receiver<()>>> {
    let ServerParts { config, secrets, listener, ended, reloads, login_links } = parts;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids: Arc<dyn IdSource> = Arc::new(SystemIds);
    let sqlite = SqliteStore::open(&config.server.data)?;
    let closed = sqlite.closed();
    let sqlite = Arc::new(sqlite);
    let store: Arc<dyn Store> = Arc::clone(&sqlite) as _;
    let named_secrets = NamedSecrets::new(config.secrets.clone());
    let (providers, provider_reloads) = {
        let _on_io = io.enter();
        providers::open(&config, listener.local_addr()?, &named_secrets, &clock, &ids)?
    };
    let webhook_secrets = LiveSecrets::new(secrets.webhook_secrets.clone());
    let admin_token = LiveToken::new(TokenHash::of(&secrets.admin_token));
    reload::warn_of_short_token(&admin_token);
    let mut reload = Reload {
        config: config.clone(),
        secrets,
        webhook_secrets: webhook_secrets.clone(),
        admin_token: admin_token.clone(),
        login_links: Arc::clone(&login_links),
        named_secrets,
        providers: provider_reloads,
    };
    // The thread ends with the sender, that is with the server.
    std::thread::spawn(move || {
        while let Ok(config) = reloads.recv() {
            reload.apply_and_log(config);
        }
    });
    let feed = Arc::new(Feed::new(&format!("{}-{}", store.instance(), store.epoch())));
    let (new_entries, entries) = mpsc_async::unbounded_channel();
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
        publisher: Arc::new(EntryPublisher { next: Arc::clone(&feed) as _, entries: new_entries }),
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
    let entry_parts = EntryParts {
        engine: engine.clone(),
        providers: Arc::new(providers.clone()),
        logs: logs.clone(),
    };
    io.spawn(entry::run(entries, entry_parts, ended.clone()));
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
    let mut stopped = ended.clone();
    // An error means that the owner is gone, so the server stops too.
    let stop = async move { drop(stopped.wait_for(|ended| *ended).await) };
    let serving = actix::spawn(server.run(stop));
    let address_file = config.server.data.join(Server::ADDRESS_FILE);
    std::fs::write(&address_file, format!("{address}\n")).context("the data directory is full")?;
    ready.send(()).context("the server was given up while it started")?;
    if !serving.await.context("the HTTP server panicked")?? {
        tracing::warn!("aborted requests that were still in flight");
    }
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

fn rules(config: &Config, providers: &ProviderMap) -> anyhow::Result<Rules> {
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
