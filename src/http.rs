//! The edge: everything that is spoken over HTTP, and nothing that decides.
//!
//! Deliveries, calls and people come in here; each is authenticated, parsed into the vocabulary
//! once, handed to the engine, and answered with what the engine made durable. Look-ups and event
//! streams never reach the engine: they are served from what it published ([`feed`]).
//!
//! # Guarantees
//! - A delivery's signature is checked before anything of it is parsed (`webhooks`).
//! - Everything under `/v1` says who is calling before any route is looked at (`middleware`).
//! - Memory is bounded: one body, the sum of all bodies, the ring of events, log-in links, failed
//!   log-ins and refused deliveries each have a stated size, and what happens at it is an answer.
//! - The served description is made from the routes themselves ([`routes`]).
//! - The listener, the clock, ids and the end of the server come from outside.
//!
//! # Races that are accepted
//! A list is read from the store and may be older than an event that was already streamed; its
//! `eventCursor` is taken before it is read, so a client that applies events to it ends right.

mod answers;
pub mod api;
mod attempts;
mod auth;
mod body;
mod doc;
mod ending;
pub mod error;
pub mod events;
pub mod feed;
mod fields;
mod health;
mod limits;
pub mod live;
pub mod login_links;
pub mod metrics;
mod middleware;
pub mod page;
mod query;
mod refused;
pub mod routes;
mod server;
mod sessions;
mod shared;
mod sse;
mod survey;
mod webhooks;
mod websocket;
pub mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Clock, IdSource};
use crate::engine::Engine;
use crate::github::policy::TriggerPolicy;
use crate::logs::Logs;
use crate::store::Store;
use crate::store::report::Reports;
use crate::store::session::SessionStore;
use crate::types::{LiveSecrets, Timestamp};

pub use auth::{LiveToken, TokenHash};
pub use feed::Feed;
pub use login_links::LoginLinks;
pub use server::build;
pub use sessions::SESSION_COOKIE;

use shared::Shared;

/// What the edge is made of.
#[derive(Clone)]
pub struct Edge {
    /// Who does the work.
    pub engine: Engine,
    /// For reads of what is not live.
    pub store: Arc<dyn Store>,
    /// People's sessions.
    pub sessions: Arc<dyn SessionStore>,
    /// What happened over time.
    pub reports: Arc<dyn Reports>,
    /// Links that log a person in once.
    pub login_links: Arc<LoginLinks>,
    /// What the engine publishes to.
    pub feed: Arc<Feed>,
    /// What commands in sandboxes wrote.
    pub logs: Logs,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Request ids and session secrets.
    pub ids: Arc<dyn IdSource>,
    /// Any of these may have signed a delivery.
    pub webhook_secrets: LiveSecrets,
    /// Who and what may trigger.
    pub triggers: TriggerPolicy,
    /// The admin token, as its hash.
    pub admin_token: LiveToken,
    /// How people reach the server, where that is not the address they ask.
    pub public_url: Option<String>,
    /// Whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<IpAddr>,
    /// Bounds on what clients may do.
    pub limits: Limits,
    /// When this server started.
    pub started_at: Timestamp,
    /// Becomes true once the server is to end: streams and waits end then.
    pub closing: watch::Receiver<bool>,
}

/// Bounds on what clients may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// HTTP worker threads.
    pub workers: usize,
    /// Longest body of a delivery, in bytes. GitHub's own limit is 25 MB.
    pub delivery_len_max: usize,
    /// Longest body of other calls, in bytes.
    pub body_len_max: usize,
    /// Longest file that can be put into a workspace, in bytes.
    pub upload_len_max: u64,
    /// Bytes of bodies that may be held in memory at the same moment, all requests together.
    pub bodies_sum_max: usize,
    /// How long request headers may take.
    pub header_time_max: Duration,
    /// How long a body may take. GitHub gives up after 10 seconds.
    pub body_time_max: Duration,
    /// How long a file upload may be silent between two pieces.
    pub upload_silence_max: Duration,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// For how long the rest of a refused body is read and thrown away, so that the refusal
    /// reaches the client. At least a second: actix-web's clock for this is half a second coarse,
    /// and a moment that has passed when it is set is never noticed.
    pub linger: Duration,
    /// How long requests in flight may take once the server is to end; whole seconds, and looked
    /// at once a second. What takes longer is cut off.
    pub drain_time_max: Duration,
    /// How much of each output stream an exec answers with, in bytes.
    pub exec_output_max: usize,
    /// How often the client of a WebSocket is pinged. One that answers none of four is given up.
    pub ping_every: Duration,
    /// For how long an answer that goes on may outlive the session that asked for it: so often is
    /// the session looked at.
    pub session_lag_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 16)),
            delivery_len_max: 25 * 1024 * 1024,
            body_len_max: 1024 * 1024,
            upload_len_max: 1024 * 1024 * 1024,
            bodies_sum_max: 128 * 1024 * 1024,
            header_time_max: Duration::from_secs(10),
            body_time_max: Duration::from_secs(10),
            upload_silence_max: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            linger: Duration::from_secs(5),
            drain_time_max: Duration::from_secs(5),
            exec_output_max: 1024 * 1024,
            ping_every: Duration::from_secs(15),
            session_lag_max: Duration::from_secs(15),
        }
    }
}
