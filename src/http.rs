//! The edge: the HTTP interface. It decides nothing.
//!
//! Deliveries, API calls and page views arrive here. Each request is authenticated, parsed into the
//! vocabulary once, passed to the engine, and answered with the state that the engine made durable.
//! Look-ups and event streams do not reach the engine: they read what it published ([`feed`]).
//!
//! # Guarantees
//! - A delivery's signature is verified before its body is parsed (`webhooks`).
//! - Requests below `/v1` are authenticated before they are routed (`middleware`).
//! - Memory is bounded: connections, heads, one body, the sum of all heads and bodies, the ring of
//!   events, log-in links, failed log-ins and refused deliveries have stated limits. Where clients
//!   share a limit, the slowest gives way (`budget`, `server`).
//! - Where a request ends is checked before it is parsed (`server`).
//! - The served description is made from the routes themselves ([`routes`]).
//! - The listener, the clock, ids and the shutdown signal are injected.
//!
//! # Races that are accepted
//! A list is read from the store and can be older than an event that was already streamed. Its
//! `eventCursor` is taken before the read, so a client that applies later events converges.

pub mod admin_token;
mod answers;
pub mod api;
mod app_setup;
mod attempts;
mod auth;
mod body;
mod budget;
mod caller;
mod doc;
mod ending;
pub mod error;
pub mod events;
pub mod feed;
mod fields;
mod health;
mod hold_access;
mod hold_labels;
mod instruction;
mod limits;
pub mod live;
pub mod login_links;
pub mod metrics;
mod middleware;
pub mod page;
mod people;
mod query;
pub mod question;
mod refused;
mod room;
pub mod routes;
mod server;
mod sessions;
mod shared;
mod sse;
mod survey;
mod webhooks;
mod websocket;
pub mod wire;
pub mod work;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::access::Access;
use crate::checkout::CheckoutWorker;
use crate::clock::{Clock, IdSource};
use crate::engine::Engine;
use crate::git::LatePublisher;
use crate::github::api::GitHubApi;
use crate::hooks::HookRunner;
use crate::intake::Intake;
use crate::issue_sandbox::SandboxServices;
use crate::logs::Logs;
use crate::models::figures::ModelFigures;
use crate::runs::RunShare;
use crate::sandbox::Provider;
use crate::store::Store;
use crate::store::report::Reports;
use crate::store::session::SessionStore;
use crate::sync::SyncWorker;
use crate::types::{LiveSecrets, ProviderName, Timestamp};
use crate::verification::{CallersEnsure, IssueVerifier};

pub use admin_token::{LiveToken, TokenHash};
pub use app_setup::AppSetup;
pub use feed::Feed;
pub use login_links::LoginLinks;
pub use people::PeopleSetup;
pub use server::{HttpServer, build};
pub use sessions::SESSION_COOKIE;

use shared::Shared;

/// How long programs of this process wait for a sandbox by default, beside its cold start: also for one
/// whose image is pulled first.
const STARTUP_TIME_MAX: Duration = Duration::from_secs(600);

/// The parts of the edge.
#[derive(Clone)]
pub struct Edge {
    /// The engine.
    pub engine: Engine,
    /// The configured providers, by name.
    pub providers: BTreeMap<ProviderName, Provider>,
    /// Reads of everything that is not live.
    pub store: Arc<dyn Store>,
    /// People's sessions.
    pub sessions: Arc<dyn SessionStore>,
    /// Reports over time.
    pub reports: Arc<dyn Reports>,
    /// Links that log a person in once.
    pub login_links: Arc<LoginLinks>,
    /// The changes that the engine publishes.
    pub feed: Arc<Feed>,
    /// The logs of sandboxes.
    pub logs: Logs,
    /// Conversations and runs of agents.
    pub runs: RunShare,
    /// Carries the hooks of templates out.
    pub hooks: Arc<HookRunner>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Request ids and session secrets.
    pub ids: Arc<dyn IdSource>,
    /// The webhook secrets; a delivery may be signed with any of them.
    pub webhook_secrets: LiveSecrets,
    /// Takes deliveries in.
    pub intake: Intake,
    /// The checkouts of sandboxes; `None` without credentials for GitHub.
    pub checkouts: Option<CheckoutWorker>,
    /// Carries out syncs of workspaces; `None` without an object storage.
    pub sync: Option<SyncWorker>,
    /// GitHub's API; `None` without credentials.
    pub github: Option<Arc<dyn GitHubApi>>,
    /// Asks GitHub about issues; `None` without credentials.
    pub verifier: Option<Arc<IssueVerifier>>,
    /// Registers the server as a GitHub App; `None` where that cannot be: its credentials are
    /// configured, or nothing restarts it.
    pub app_setup: Option<AppSetup>,
    /// Logs people in with GitHub; `None` if they do not.
    pub people: Option<PeopleSetup>,
    /// Publishes the work of sandboxes.
    pub publisher: LatePublisher,
    /// Counts what is asked of models.
    pub models: Arc<ModelFigures>,
    /// Tokens that people created, and accounts.
    pub access: Arc<Access>,
    /// The admin token, as its hash.
    pub admin_token: LiveToken,
    /// The public address of the server, if it differs from the requested one.
    pub public_url: Option<String>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpAddr>,
    /// Limits for clients.
    pub limits: Limits,
    /// When this server started.
    pub started_at: Timestamp,
    /// Becomes true at shutdown: streams and waits end then.
    pub closing: watch::Receiver<bool>,
}

impl Edge {
    /// Gives issues their sandboxes.
    pub fn callers(&self) -> CallersEnsure {
        let (engine, access) = (self.engine.clone(), Arc::clone(&self.access));
        CallersEnsure { engine, access, verifier: self.verifier.clone() }
    }

    /// What of it programs of this process work in sandboxes with.
    pub fn services(&self) -> SandboxServices {
        SandboxServices {
            engine: self.engine.clone(),
            callers: self.callers(),
            providers: Arc::new(self.providers.clone()),
            runs: self.runs.clone(),
            logs: self.logs.clone(),
            sync: self.sync.clone(),
            hooks: self.hooks.clone(),
            ids: Arc::clone(&self.ids),
            startup_max: STARTUP_TIME_MAX,
        }
    }
}

/// Limits for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// HTTP worker threads.
    pub workers: usize,
    /// Longest body of a delivery, in bytes. GitHub's own limit is 25 MB.
    pub delivery_len_max: usize,
    /// Longest body of other calls, in bytes.
    pub body_len_max: usize,
    /// The same of a message to an agent.
    pub message_len_max: usize,
    /// Longest file that can be put into a workspace, in bytes.
    pub upload_len_max: u64,
    /// Connections that may be open at the same moment. It is lowered to half of the files that the
    /// process may open, which leaves the other half to sandboxes, the store and pipes. One address
    /// has at most half of them.
    pub connections_max: usize,
    /// Bytes of heads and bodies that may be held in memory at the same moment, all requests
    /// together. A quarter is kept for bodies of at most 64 KiB, and one address has at most a
    /// quarter.
    pub bodies_sum_max: usize,
    /// Bytes of answers that may wait in memory until their clients read, all clients together.
    pub answers_sum_max: usize,
    /// Longest head of a request, in bytes.
    pub head_len_max: usize,
    /// How long request headers may take.
    pub header_time_max: Duration,
    /// How long a body may take. GitHub gives up after 10 seconds.
    pub body_time_max: Duration,
    /// How long a file upload may be silent between two pieces.
    pub upload_silence_max: Duration,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// How long the rest of a refused body is read and discarded, so that the refusal reaches the
    /// client. At least one second: actix-web's clock has a resolution of half a second, and a
    /// deadline in the past is never noticed.
    pub linger: Duration,
    /// How long requests in flight may take at shutdown, in whole seconds. Longer ones are aborted.
    pub drain_time_max: Duration,
    /// How much of each output stream an exec answers with, in bytes.
    pub exec_output_max: usize,
    /// How often the client of a WebSocket is pinged. After four unanswered pings it is closed.
    pub ping_every: Duration,
    /// Tokens that people may create; each is kept in memory.
    pub tokens_max: usize,
    /// Accounts with series of their own in the metrics; 0 for no such series.
    pub accounts_in_metrics_max: usize,
    /// How long a streaming answer may outlive its session: the interval of checks.
    pub session_lag_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 16)),
            delivery_len_max: 25 * 1024 * 1024,
            body_len_max: 1024 * 1024,
            message_len_max: 8 * 1024 * 1024,
            upload_len_max: 1024 * 1024 * 1024,
            connections_max: 8_192,
            bodies_sum_max: 128 * 1024 * 1024,
            answers_sum_max: 64 * 1024 * 1024,
            head_len_max: 32 * 1024,
            header_time_max: Duration::from_secs(10),
            body_time_max: Duration::from_secs(10),
            upload_silence_max: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            linger: Duration::from_secs(5),
            drain_time_max: Duration::from_secs(5),
            exec_output_max: 1024 * 1024,
            ping_every: Duration::from_secs(15),
            tokens_max: 10_000,
            accounts_in_metrics_max: 0,
            session_lag_max: Duration::from_secs(15),
        }
    }
}
