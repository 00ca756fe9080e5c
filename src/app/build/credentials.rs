//! What a server has because there are credentials for GitHub: it says things on issues, and its sandboxes
//! have checkouts; it asks what senders may do, and finds deliveries that did not arrive.

use std::sync::Arc;

use anyhow::Context;
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Notify, watch};

use crate::access::Access;
use crate::checkout::{CheckoutParts, CheckoutWorker, SandboxWorkplaces};
use crate::config::{Config, GitHubLogin, Secrets};
use crate::engine::{Engine, GithubParts};
use crate::github::client::{AppRegistrar, GitHubClient};
use crate::github::gateway::GitHubGateway;
use crate::github::messages::{MessageContext, OutgoingTexts};
use crate::github::permissions::RepositoryPermissions;
use crate::github::policy::{TriggerPolicies, TriggerPolicy};
use crate::github::text::KnownSecrets;
use crate::http::AppSetup;
use crate::intake::{Intake, PermissionParts, RecoveryPace, RecoveryParts, RecoveryWorker};
use crate::issue::GithubRules;
use crate::logs::Logs;
use crate::sandbox::Capability;
use crate::store::Store;
use crate::verification::IssueVerifier;

use super::Adapters;
use crate::app::github;

/// What is said on issues where there are credentials.
pub(super) fn github_rules(config: &Config) -> GithubRules {
    GithubRules {
        comments: config.github.comments,
        reactions: config.github.reactions,
        pull_request: config.github.pull_request,
        statuses: config.github.statuses,
        working_label: !config.github.working_label.is_empty(),
    }
}

/// What is needed to say something on issues.
pub(super) fn said_by(
    config: &Config,
    secrets: &Secrets,
    adapters: &Adapters,
    client: &Arc<GitHubClient>,
) -> GithubParts {
    let Adapters { sqlite: store, publisher, .. } = adapters;
    let url = config.server.public_url.as_deref();
    let known = Arc::new(known_secrets(config, secrets));
    GithubParts {
        api: Arc::clone(client) as _,
        outbox: Arc::clone(store) as _,
        checkouts: Arc::clone(store) as _,
        publisher: publisher.clone(),
        working_label: config.github.working_label.clone(),
        context: config.triggers.map(|triggers| MessageContext {
            instance: store.instance(),
            public_url: url.map(|url| url.trim_end_matches('/').to_owned()),
            command: triggers.command.clone(),
        }),
        runs: Arc::clone(store) as _,
        live: Arc::clone(&adapters.going) as _,
        texts: config.triggers.map(|triggers| OutgoingTexts {
            host: host_of(&config.github.web_url),
            command: triggers.command.clone(),
            secrets: Arc::clone(&known),
        }),
    }
}

/// The host of an address.
fn host_of(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.split('/').next().unwrap_or_default().to_owned()
}

/// What must not be published: the secrets of the configuration, as of the start.
fn known_secrets(config: &Config, secrets: &Secrets) -> KnownSecrets {
    let login = config.github.login.as_ref().map(|login| match login {
        GitHubLogin::App { key, .. } => key,
        GitHubLogin::Token(token) => token,
    });
    let of_edge = secrets.webhook_secrets.iter().chain([&secrets.admin_token]);
    let of_models = config.models.endpoints.values().map(|endpoint| &endpoint.key);
    let client = config.auth.github.as_ref().map(|people| &people.client_secret);
    let all = of_edge.chain(login).chain(client).chain(of_models).chain(config.secrets.values());
    KnownSecrets::new(all)
}

/// Sets the git gateway, and returns what makes checkouts, if there are credentials.
pub(super) fn checkouts(
    config: &Config,
    adapters: &Adapters,
    engine: &Engine,
    logs: &Logs,
    io: &tokio::runtime::Handle,
) -> anyhow::Result<Option<CheckoutWorker>> {
    let Adapters { github, gateway, permissions, .. } = adapters;
    let (Some(client), Some(gateway), Some(permissions)) = (github, gateway, permissions) else {
        return Ok(None);
    };
    let web_url = config.github.web_url.clone();
    let processes = (adapters.providers.iter())
        .filter(|(_, provider)| provider.descriptor.offers(Capability::Git))
        .map(|(name, provider)| (name.clone(), Arc::clone(&provider.processes)));
    let parts = Arc::new(CheckoutParts {
        engine: engine.clone(),
        processes: processes.collect(),
        logs: logs.clone(),
        store: Arc::clone(&adapters.sqlite) as _,
        rows: Arc::clone(&adapters.sqlite) as _,
        writing: Mutex::default(),
        api: Arc::clone(client) as _,
        said: github_rules(config),
        publish: config.github.publish,
        command: config.triggers.map(|triggers| triggers.command.clone()),
        permissions: Arc::clone(permissions),
        pattern: config.github.branch.clone(),
        web_url: web_url.clone(),
        clock: Arc::clone(&adapters.clock),
        runtime: io.clone(),
    });
    let workplaces = Arc::new(SandboxWorkplaces::new(Arc::clone(&parts)));
    adapters.publisher.set(Arc::downgrade(&workplaces) as _);
    io.spawn(Arc::clone(&workplaces).resume());
    let (api, tokens) = (Arc::clone(client) as _, Arc::clone(client) as _);
    let opened = GitHubGateway::new(&web_url, api, tokens, workplaces);
    gateway.set(Some(Arc::new(opened.context("cannot start the git gateway")?)));
    Ok(Some(CheckoutWorker::new(parts)))
}

/// What takes deliveries in. With credentials it learns who we are, asks GitHub what senders may do, and
/// recovers what did not arrive.
pub(super) fn take_in(
    config: &Config,
    adapters: &Adapters,
    engine: &Engine,
    access: &Arc<Access>,
    io: &tokio::runtime::Handle,
    ended: &watch::Receiver<bool>,
) -> Intake {
    let triggers = TriggerPolicy::all(&config.triggers, &config.github);
    let own = triggers.usual().bot_user_id.clone();
    let intake = Intake::new(engine.clone(), triggers).by_account(Arc::clone(access));
    let (Some(client), Some(permissions)) = (&adapters.github, &adapters.permissions) else {
        return intake;
    };
    if config.github.bot_user_id == 0 {
        io.spawn(github::learn_own_account(Arc::clone(client), own));
    }
    let intake = intake.asking(PermissionParts {
        permissions: Arc::clone(permissions),
        waiting: Arc::clone(&adapters.sqlite) as _,
        owners: Arc::clone(&adapters.sqlite) as _,
        store: Arc::clone(&adapters.sqlite) as _,
        clock: Arc::clone(&adapters.clock),
    });
    io.spawn(intake.clone().take_waiting(ended.clone()));
    recover(config, adapters, permissions, &intake, io, ended.clone());
    intake
}

/// Recovers deliveries that did not arrive, until the server stops.
fn recover(
    config: &Config,
    adapters: &Adapters,
    permissions: &Arc<RepositoryPermissions>,
    intake: &Intake,
    io: &tokio::runtime::Handle,
    mut ended: watch::Receiver<bool>,
) {
    let worker = RecoveryWorker::new(RecoveryParts {
        intake: intake.clone(),
        api: Arc::clone(permissions.api()),
        permissions: Arc::clone(permissions),
        store: Arc::clone(&adapters.sqlite) as _,
        rows: Arc::clone(&adapters.sqlite) as _,
        clock: Arc::clone(&adapters.clock),
        mode: config.github.intake,
        public_url: config.server.public_url.clone(),
        web_url: config.github.web_url.clone(),
        pace: RecoveryPace::of(config.github.intake),
    });
    io.spawn(async move {
        tokio::select! {
            () = worker.run() => {}
            // An error means that the owner is gone, so the server stops, too.
            _ = ended.wait_for(|ended| *ended) => {}
        }
    });
}

/// Verifies issues, if there are credentials.
pub(super) fn verifier(
    adapters: &Adapters,
    engine: &Engine,
    access: &Arc<Access>,
    triggers: &TriggerPolicies,
) -> Option<Arc<IssueVerifier>> {
    let permissions = Arc::clone(adapters.permissions.as_ref()?);
    let (store, clock) = (Arc::clone(&adapters.sqlite), Arc::clone(&adapters.clock));
    let triggers = triggers.clone();
    let verifier = IssueVerifier::new(engine.clone(), store, permissions, clock, triggers);
    Some(Arc::new(verifier.by_account(Arc::clone(access))))
}

/// What the server needs to register itself as a GitHub App; `None` if its credentials are configured, or if
/// nothing restarts it.
pub(super) fn app_setup(
    config: &Config,
    adapters: &Adapters,
    io: &tokio::runtime::Handle,
    restart: Option<Arc<Notify>>,
) -> anyhow::Result<Option<AppSetup>> {
    let (Some(restart), github) = (restart, &config.github) else { return Ok(None) };
    if github.login.is_some() && github.stored_app.is_none() {
        return Ok(None);
    }
    let _on_io = io.enter();
    let registration = AppRegistrar::new(&github.api_url, Arc::clone(&adapters.clock))?;
    // Names of Apps are unique at GitHub, so it is one of this server's own.
    let instance = Sha256::digest(adapters.sqlite.instance().to_string());
    Ok(Some(AppSetup {
        registration: Arc::new(registration),
        data: config.server.data.clone(),
        web_url: github.web_url.clone(),
        api_url: github.api_url.clone(),
        in_use: github.stored_app.clone(),
        suggested_name: format!("issuebox-{}", hex::encode(&instance[..3])),
        restart,
    }))
}
