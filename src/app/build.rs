//! Builds a server out of its parts, and shuts it down.

mod credentials;
mod syncs;

use std::net::TcpListener;
use std::sync::{Arc, Weak, mpsc};

use actix::Arbiter;
use anyhow::Context;
use tokio::sync::{Notify, mpsc as mpsc_async, watch};

use crate::access::Access;
use crate::checkout::CheckoutWorker;
use crate::clock::{Clock, IdSource, SystemClock, SystemIds};
use crate::config::{Config, Secrets, StepBounds};
use crate::engine::{Engine, EngineError, EngineParts, Quotas, Retention, Threads, WeakEngine};
use crate::git::{LateGateway, LatePublisher};
use crate::github::api::GitHubApi;
use crate::github::client::{AppSignIn, GitHubClient};
use crate::github::permissions::RepositoryPermissions;
use crate::hooks::HookRunner;
use crate::http::{AppSetup, Edge, Feed, Limits, LiveToken, LoginLinks, PeopleSetup, TokenHash};
use crate::intake::Intake;
use crate::issue::event::ProviderRules;
use crate::issue::{Rules, StepRules};
use crate::issue_sandbox::SandboxServices;
use crate::logs::{LogBounds, Logs};
use crate::models::LateModelGateway;
use crate::models::gateway::HttpModelGateway;
use crate::runs::{AgentPrograms, GoingRuns, RunChange, RunPublisher, RunShare};
use crate::sandbox::{Provider, Uniqueness};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::store::usage::UsageStore;
use crate::sync::SyncWorker;
use crate::types::{LiveSecrets, NamedSecrets, TemplateName};
use crate::verification::IssueVerifier;

use self::credentials::{app_setup, checkouts, github_rules, said_by, take_in, verifier};
use super::accounts;
use super::entry::{EntryEvent, EntryPublisher};
use super::github::{self, ReloadGitHub};
use super::life_log::{self, LifeLog};
use super::models;
use super::notices;
use super::providers::{self, ProviderMap, Reloads};
use super::reload::Reload;
use super::work::WorkParts;
use super::{CALLS_TIME_MAX, REQUESTS_TIME_MAX};

/// The inputs of a server.
pub(super) struct ServerParts {
    pub config: Config,
    /// Whether a new installation was asked for.
    pub is_new: bool,
    pub secrets: Secrets,
    pub listener: TcpListener,
    pub ended: watch::Receiver<bool>,
    pub reloads: mpsc::Receiver<Config>,
    pub login_links: Arc<LoginLinks>,
    /// Notified when the next server is to start in its place; `None` if nothing starts one.
    pub restart: Option<Arc<Notify>>,
}

/// Serves until it is stopped. The returned channel disconnects once the last thread has dropped the
/// store and it is closed.
pub(super) async fn serve(
    parts: ServerParts,
    io: tokio::runtime::Handle,
    calls: tokio::runtime::Handle,
    ready: mpsc::SyncSender<SandboxServices>,
) -> anyhow::Result<Option<mpsc::Receiver<()>>> {
    let ServerParts { config, is_new, secrets, listener, ended, reloads, login_links, restart } =
        parts;
    let (adapters, provider_reloads) = Adapters::open(&config, is_new, &listener, &io)?;
    let (store, closed) = (Arc::clone(&adapters.sqlite), adapters.sqlite.closed());
    let access = accounts::open(&config, &store).await?;
    let reload = reload_of(&config, &secrets, &adapters, &access, &login_links, &io);
    let reload = Reload { providers: provider_reloads, ..reload };
    let feed = Arc::new(Feed::new(&format!("{}-{}", store.instance(), store.epoch())));
    let (publisher, entries, run_changes) = publishers(&feed, adapters.github.is_some());
    keep_books(&config, &adapters, &feed, &io, &ended);
    let arbiter = Arbiter::new();
    let threads = Threads { arbiter: arbiter.handle(), io: io.clone(), calls };
    let engine = start_engine(&config, &secrets, &adapters, publisher, threads).await?;
    let reload = Reload { engine: engine.downgrade(), ..reload };
    let live = reload_on_request(reload, Arc::clone(&access), reloads);
    let logs = open_logs(&config, &adapters.clock)?;
    let intake = take_in(&config, &adapters, &engine, &access, &io, &ended);
    let sessions = Arc::clone(&adapters.sqlite) as _;
    accounts::follow(&access, &engine, &feed, sessions, (&io, &ended));
    let checkouts = checkouts(&config, &adapters, &engine, &logs, &io)?;
    let verifier = verifier(&adapters, &engine, &access, intake.triggers());
    let sync = syncs::start(&config, &adapters, &io, &ended)?;
    let work = WorkParts {
        config: &config,
        engine: &engine,
        sqlite: &adapters.sqlite,
        going: &adapters.going,
        programs: adapters.programs.clone(),
        providers: &adapters.providers,
        logs: &logs,
        clock: &adapters.clock,
        checkouts: checkouts.clone(),
        sync: sync.clone(),
        verifier: verifier.clone(),
        models: adapters.model_gateway.clone(),
        entries,
        run_changes,
        ended: ended.clone(),
        io: &io,
    };
    let (runs, hooks) = work.start();
    notices::record(adapters.providers.values(), &logs, &io);
    let (gateway, models) = (adapters.gateway.clone(), adapters.models.clone());
    let ending =
        EndingParts { engine: engine.clone(), logs: logs.clone(), gateway, models, arbiter, store };
    let address = listener.local_addr()?;
    let app_setup = app_setup(&config, &adapters, &io, restart)?;
    let (closing, work) = (ended.clone(), (checkouts, verifier, runs, hooks));
    let shared = EdgeParts { engine, logs, feed, login_links, live, intake, work, sync, closing };
    let edge = shared.edge(&config, adapters, app_setup);
    let services = edge.services();
    let server = crate::http::build(edge, listener)?;
    let serving = actix::spawn(server.run(until_ended(ended)));
    let file = config.server.announce(address).context("cannot write to the data directory")?;
    ready.send(services).context("the server was given up while it started")?;
    if !serving.await.context("the HTTP server panicked")?? {
        tracing::warn!("the time to shut down is over: requests still in flight were aborted");
    }
    drop(file);
    ending.end().await;
    Ok(closed)
}

/// What a reload replaces, but for the providers' part.
fn reload_of(
    config: &Config,
    secrets: &Secrets,
    adapters: &Adapters,
    access: &Arc<Access>,
    login_links: &Arc<LoginLinks>,
    io: &tokio::runtime::Handle,
) -> Reload {
    Reload {
        access: Arc::downgrade(access),
        webhook_secrets: LiveSecrets::new(secrets.webhook_secrets.clone()),
        admin_token: LiveToken::new(TokenHash::of(&secrets.admin_token)),
        config: config.clone(),
        secrets: secrets.clone(),
        login_links: Arc::clone(login_links),
        named_secrets: adapters.named_secrets.clone(),
        github: ReloadGitHub::of(adapters.github.as_ref(), io),
        sign_in: adapters.sign_in.clone(),
        engine: WeakEngine::default(),
        declared: (adapters.providers.iter())
            .map(|(name, provider)| (name.clone(), Arc::clone(&provider.descriptor)))
            .collect(),
        models: adapters.model_gateway.clone(),
        providers: Reloads::new(),
    }
}

async fn until_ended(mut ended: watch::Receiver<bool>) {
    // An error means that the owner is gone, so the server stops too.
    drop(ended.wait_for(|ended| *ended).await);
}

/// What the server uses of the world outside.
struct Adapters {
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    sqlite: Arc<SqliteStore>,
    named_secrets: NamedSecrets,
    providers: ProviderMap,
    /// The agents' programs on this machine.
    programs: AgentPrograms,
    github: Option<Arc<GitHubClient>>,
    /// Where people log in with GitHub.
    sign_in: Option<Arc<AppSignIn>>,
    gateway: Option<LateGateway>,
    models: LateModelGateway,
    /// Does not keep it, since it keeps the store.
    model_gateway: Weak<HttpModelGateway>,
    /// The runs that go on: those for which it asks models.
    going: Arc<GoingRuns>,
    /// What GitHub says of people; `None` without credentials.
    permissions: Option<Arc<RepositoryPermissions>>,
    publisher: LatePublisher,
}

impl Adapters {
    fn open(
        config: &Config,
        is_new: bool,
        listener: &TcpListener,
        io: &tokio::runtime::Handle,
    ) -> anyhow::Result<(Self, Reloads)> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let ids: Arc<dyn IdSource> = Arc::new(SystemIds);
        let open = if is_new { SqliteStore::open_new } else { SqliteStore::open };
        let sqlite = Arc::new(open(&config.server.data)?);
        let named_secrets = NamedSecrets::new(config.secrets.clone());
        let _on_io = io.enter();
        let github = github::open(&config.github, &clock, Arc::clone(&sqlite) as _)?;
        let sign_in = github::open_sign_in(config, &clock)?;
        let gateway = github.as_ref().map(|_| LateGateway::new(&config.github.web_url));
        let gateway = gateway.transpose().map_err(anyhow::Error::msg).context("github.web_url")?;
        let server = listener.local_addr()?;
        let models = LateModelGateway::default();
        let gateways = (gateway.as_ref(), &models);
        let programs = AgentPrograms::of_machine(&config.agents);
        let given = programs.given();
        let opened =
            providers::open(config, server, &named_secrets, gateways, &given, &clock, &ids)?;
        let (providers, provider_reloads) = opened;
        let going = Arc::new(GoingRuns::new(Arc::clone(&clock)));
        let (store, runs) = (Arc::clone(&sqlite) as _, Arc::clone(&going) as _);
        let to_models = models::open(&config.models, store, runs, Arc::clone(&clock))?;
        let model_gateway = Arc::downgrade(&to_models);
        models.set(Some(to_models));
        let permissions = github.as_ref().map(|client| {
            let api = Arc::clone(client) as _;
            Arc::new(RepositoryPermissions::new(api, Arc::clone(&clock)))
        });
        let adapters = Self {
            clock,
            ids,
            sqlite,
            named_secrets,
            providers,
            programs,
            github,
            sign_in,
            gateway,
            models,
            model_gateway,
            going,
            permissions,
            publisher: LatePublisher::default(),
        };
        Ok((adapters, provider_reloads))
    }
}

/// What admits to the edge, which can change while the server runs.
struct LiveEdgeSecrets {
    access: Arc<Access>,
    webhook: LiveSecrets,
    admin_token: LiveToken,
}

/// Applies every configuration that comes through the channel, on a thread of its own.
fn reload_on_request(
    mut reload: Reload,
    access: Arc<Access>,
    reloads: mpsc::Receiver<Config>,
) -> LiveEdgeSecrets {
    let webhook = reload.webhook_secrets.clone();
    let admin_token = reload.admin_token.clone();
    // The thread ends with the sender, that is with the server.
    std::thread::spawn(move || {
        while let Ok(config) = reloads.recv() {
            reload.apply_and_log(config);
        }
    });
    LiveEdgeSecrets { access, webhook, admin_token }
}

/// What takes the engine's changes, and what of them entry commands and runs of agents are given.
fn publishers(
    feed: &Arc<Feed>,
    verifies: bool,
) -> (
    EntryPublisher,
    mpsc_async::UnboundedReceiver<EntryEvent>,
    mpsc_async::UnboundedReceiver<RunChange>,
) {
    let logged = Arc::new(LifeLog::new(Arc::clone(feed) as _));
    let (logged, run_changes) = RunPublisher::new(logged);
    let (publisher, entries) = EntryPublisher::new(Arc::new(logged), verifies);
    (publisher, entries, run_changes)
}

/// Sums up deliveries in the log, and tidies up the records of requests to models, in the background.
fn keep_books(
    config: &Config,
    adapters: &Adapters,
    feed: &Arc<Feed>,
    io: &tokio::runtime::Handle,
    ended: &watch::Receiver<bool>,
) {
    io.spawn(life_log::sum_up_deliveries(Arc::clone(feed), ended.clone()));
    let store: Arc<dyn UsageStore> = Arc::clone(&adapters.sqlite) as _;
    let (clock, keep) = (Arc::clone(&adapters.clock), config.retention.timeline);
    io.spawn(models::tidy(Arc::downgrade(&store), clock, keep, ended.clone()));
}

async fn start_engine(
    config: &Config,
    secrets: &Secrets,
    adapters: &Adapters,
    publisher: EntryPublisher,
    threads: Threads,
) -> anyhow::Result<Engine> {
    let Adapters { clock, ids, sqlite, providers, github, .. } = adapters;
    let github_rules = github.as_ref().map(|_| github_rules(config));
    Engine::start(EngineParts {
        github: github.as_ref().map(|client| said_by(config, secrets, adapters, client)),
        retention: Retention {
            deliveries: config.retention.deliveries,
            timeline: config.retention.timeline,
            deleted: config.retention.deleted,
        },
        store: Arc::clone(sqlite) as _,
        clock: Arc::clone(clock),
        ids: Arc::clone(ids),
        rules: Rules { github: github_rules, ..rules(config, providers)? },
        templates: config.all_templates().into_iter().collect(),
        providers: (providers.iter())
            .map(|(name, provider)| (name.clone(), Arc::clone(&provider.lifecycle)))
            .collect(),
        creates_in_flight: config.quota.creates_in_flight,
        quotas: Quotas {
            account: config.quota.live,
            repository: config.quota.live_per_repository,
            server: config.quota.live_server,
        },
        publisher: Arc::new(publisher),
        spawner: Arc::new(threads),
        reconcile: Some(config.lifecycle.reconcile),
    })
    .await
    .map_err(|error| not_resumed(sqlite, error))
}

fn open_logs(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Logs> {
    let bounds = LogBounds {
        sandbox_len_max: config.logs.sandbox_len_max,
        total_len_max: config.logs.total_len_max,
        age_max: config.logs.age_max,
    };
    Logs::open(&config.server.data.join("logs"), bounds, Arc::clone(clock))
        .context("cannot use the directory of sandboxes' logs")
}

/// What the edge gets beside the configuration and the adapters.
struct EdgeParts {
    engine: Engine,
    logs: Logs,
    feed: Arc<Feed>,
    login_links: Arc<LoginLinks>,
    live: LiveEdgeSecrets,
    intake: Intake,
    work: (Option<CheckoutWorker>, Option<Arc<IssueVerifier>>, RunShare, Arc<HookRunner>),
    sync: Option<SyncWorker>,
    closing: watch::Receiver<bool>,
}

impl EdgeParts {
    fn edge(self, config: &Config, adapters: Adapters, app_setup: Option<AppSetup>) -> Edge {
        let Self { engine, logs, feed, login_links, live, intake, work, sync, closing } = self;
        let (checkouts, verifier, runs, hooks) = work;
        let Adapters { clock, ids, sqlite, providers, github, sign_in, publisher, .. } = adapters;
        let session = config.auth.github.as_ref().map(|people| people.session);
        let models = adapters.model_gateway.upgrade();
        let models = models.map(|gateway| gateway.figures()).unwrap_or_default();
        Edge {
            engine,
            providers,
            store: Arc::clone(&sqlite) as _,
            sessions: Arc::clone(&sqlite) as _,
            reports: sqlite,
            access: live.access,
            login_links,
            feed,
            logs,
            runs,
            hooks,
            started_at: clock.now(),
            clock,
            ids,
            webhook_secrets: live.webhook,
            intake,
            checkouts,
            sync,
            github: github.map(|client| client as Arc<dyn GitHubApi>),
            verifier,
            app_setup,
            people: sign_in.zip(session).map(|(sign_in, session)| PeopleSetup { sign_in, session }),
            publisher,
            models,
            admin_token: live.admin_token,
            public_url: config.server.public_url.clone(),
            trusted_proxies: config.server.trusted_proxies.clone(),
            limits: Limits {
                drain_time_max: REQUESTS_TIME_MAX,
                accounts_in_metrics_max: config.accounts_in_metrics_max,
                ..Limits::default()
            },
            closing,
        }
    }
}

/// What is ended behind the HTTP server.
struct EndingParts {
    engine: Engine,
    logs: Logs,
    gateway: Option<LateGateway>,
    models: LateModelGateway,
    arbiter: Arbiter,
    store: Arc<SqliteStore>,
}

impl EndingParts {
    async fn end(self) {
        let Self { engine, logs, gateway, models, arbiter, store } = self;
        let left = engine.stop(CALLS_TIME_MAX).await;
        if let Some(gateway) = gateway {
            gateway.set(None);
        }
        models.set(None);
        if left > 0 {
            tracing::warn!(
                left,
                "provider calls are still in flight; the next start checks their outcome"
            );
        }
        drop(engine);
        logs.close();
        arbiter.stop();
        // The arbiter's thread holds the actors, and they hold the store. Their writes finish before
        // the store closes.
        if arbiter.join().is_err() {
            tracing::error!("the engine's thread panicked");
        }
        drop(store);
    }
}

/// Why the engine did not start: a damaged database has a way out of its own.
fn not_resumed(store: &SqliteStore, error: EngineError) -> anyhow::Error {
    let text = error.to_string();
    match store.troubles().into_iter().find(|trouble| text.contains(&trouble.to_string())) {
        Some(trouble) => trouble.into(),
        None => anyhow::Error::new(error).context("failed to resume unfinished work"),
    }
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
        github: None,
        create: bounds(lifecycle.create),
        start: bounds(lifecycle.start),
        stop: bounds(lifecycle.stop),
        delete: bounds(lifecycle.delete),
        idle_stop: lifecycle.idle_stop,
        delete_after_close: lifecycle.delete_after_close,
        ttl: lifecycle.ttl,
        trigger_label: config.triggers.map(|triggers| triggers.label.clone()),
        default_template: default_template.clone(),
        repositories: config.repositories.clone(),
        providers: providers.iter().map(|(name, p)| (name.clone(), of_provider(p))).collect(),
    })
}
