//! The state of the server: `GET /v1/system`.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::BreakerView;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::words::{BreakerWord, UniquenessWord};
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::Success;
use crate::sandbox::{Capacity, Health, Provider};
use crate::store::Store;
use crate::types::{Phase, ProviderName, Timestamp};

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemBody {
    /// The server's version.
    pub version: &'static str,
    /// When it started.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// How long it has been running.
    pub uptime_seconds: u64,
    /// The configured providers.
    pub providers: Vec<ProviderBody>,
    /// The problems that need a person, each in words. Only admins see why drift waits for a decision.
    pub degraded: Vec<String>,
    /// The account's live sandboxes in each phase.
    pub sandboxes: BTreeMap<&'static str, u64>,
}

/// A provider: its health, capacity and isolation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Provider)]
pub struct ProviderBody {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it can work.
    pub healthy: bool,
    /// Why it cannot work, and what to do.
    pub trouble: Option<String>,
    /// Its circuit breaker.
    pub breaker: BreakerBody,
    /// How it prevents two objects with one name.
    #[schema(value_type = UniquenessWord)]
    pub uniqueness: &'static str,
    /// What it can do beside what every provider can: `terminal`, `ports`, `tunnels`, `archives`,
    /// `detached_processes`, `snapshots`, `git`.
    pub capabilities: Vec<&'static str>,
    /// How sandboxes are isolated from the host.
    pub isolation: IsolationBody,
    /// Its capacity for sandboxes.
    pub capacity: CapacityBody,
}

/// The capacity of a provider, measured recently.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Capacity)]
pub struct CapacityBody {
    /// Free space on the disk of its sandboxes, in MiB; null if unknown.
    pub disk_free_mb: Option<u64>,
    /// Free space below which no sandbox is created or started, in MiB; null if unknown.
    pub disk_needed_mb: Option<u64>,
    /// Why no sandbox can be created or started, and what to do; null if there is capacity.
    pub shortage: Option<String>,
}

impl From<Capacity> for CapacityBody {
    fn from(capacity: Capacity) -> Self {
        Self {
            disk_free_mb: capacity.disk.map(|disk| disk.free >> 20),
            disk_needed_mb: capacity.disk.map(|disk| disk.kept_free >> 20),
            shortage: capacity.shortage,
        }
    }
}

/// The circuit breaker of a provider: it stops calls while the provider cannot be reached.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Breaker)]
pub struct BreakerBody {
    /// Its state.
    #[schema(value_type = BreakerWord)]
    pub state: &'static str,
    /// When it opened.
    #[schema(format = DateTime)]
    pub since: Option<String>,
    /// When the provider is tried next.
    #[schema(format = DateTime)]
    pub next_try_at: Option<String>,
    /// Why it is not closed.
    pub reason: Option<String>,
}

impl From<&BreakerView> for BreakerBody {
    fn from(view: &BreakerView) -> Self {
        Self {
            state: view.state.as_str(),
            since: view.since.map(|at| at.to_string()),
            next_try_at: view.next_try_at.map(|at| at.to_string()),
            reason: view.reason.clone(),
        }
    }
}

/// How sandboxes are isolated from the host and from each other.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Isolation)]
pub struct IsolationBody {
    /// `namespaces`, `simulated`, `none`, …
    pub kind: &'static str,
    /// How each limit is enforced: `enforced`, `per process`, `watched` or `none`.
    pub limits: BTreeMap<&'static str, &'static str>,
    /// What the limit on memory counts, for people; null if the provider has no such limit.
    pub memory_counts: Option<&'static str>,
    /// `enforced` if system calls are filtered, otherwise `none`.
    pub seccomp: &'static str,
    /// The widest network access of this provider's templates: `none`, `allow`, `full` or `host`.
    /// Each sandbox has its own.
    pub network: &'static str,
}

/// Gets the version, uptime, providers and counts by phase.
#[utoipa::path(
    operation_id = "getSystem", tag = "server",
    responses(
        (status = 200, description = "the state of the server", body = Success<SystemBody>),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/system")]
pub async fn system(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    Ok(HttpResponse::Ok().json(Success::of(look(&shared, &caller).await?)))
}

/// Collects the state of the server.
///
/// # Errors
/// 503 if the store cannot be read.
pub async fn look(shared: &Shared, caller: &Caller) -> Result<SystemBody, ApiError> {
    let edge = &shared.edge;
    let health = shared.provider_health().await;
    let breakers: BTreeMap<_, _> = edge.engine.figures().breakers.into_iter().collect();
    let now = edge.clock.now();
    let templates = edge.engine.templates();
    let network = |name: &ProviderName, provider: &Provider| {
        let of_it = templates.iter().filter(|template| template.provider == *name);
        provider.descriptor.network_of(of_it).as_str()
    };
    let providers = health
        .iter()
        .filter_map(|(name, health)| {
            let provider = edge.providers.get(name)?;
            let network = network(name, provider);
            Some(provider_body(name, health, breakers.get(name)?, provider, network, now))
        })
        .collect();
    let mut sandboxes: BTreeMap<_, _> = Phase::ALL.iter().map(|p| (p.as_str(), 0)).collect();
    let of = caller.account.clone();
    let counts = async move |store: Arc<dyn Store>| store.counts(&of).await;
    for (phase, count) in shared.read_list(counts).await? {
        sandboxes.insert(phase.as_str(), count);
    }
    let degraded = shared.degraded(caller.is_admin()).await.into_iter();
    Ok(SystemBody {
        version: env!("CARGO_PKG_VERSION"),
        started_at: edge.started_at.to_string(),
        uptime_seconds: edge.clock.now().since(edge.started_at).as_secs(),
        providers,
        degraded: degraded.map(|degraded| degraded.reason).collect(),
        sandboxes,
    })
}

fn provider_body(
    name: &ProviderName,
    health: &Health,
    breaker: &BreakerView,
    provider: &Provider,
    network: &'static str,
    now: Timestamp,
) -> ProviderBody {
    let trouble = breaker.trouble(name, now).or_else(|| health.trouble.clone());
    ProviderBody {
        name: name.to_string(),
        healthy: trouble.is_none(),
        trouble,
        breaker: breaker.into(),
        uniqueness: provider.descriptor.uniqueness.as_str(),
        capabilities: provider.descriptor.capabilities.iter().map(|one| one.as_str()).collect(),
        capacity: provider.lifecycle.capacity().into(),
        isolation: IsolationBody {
            kind: provider.descriptor.isolation.kind,
            limits: health
                .limits
                .iter()
                .map(|(limit, how)| (limit.as_str(), how.as_str()))
                .collect(),
            memory_counts: provider.descriptor.isolation.memory_counts,
            seccomp: provider.descriptor.isolation.seccomp.as_str(),
            network,
        },
    }
}
