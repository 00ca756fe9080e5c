//! Routes for machines: liveness, readiness, metrics and the API document.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::answers;
use super::auth;
use super::doc::words::ReadyWord;
use super::error::{ApiError, Code, only};
use super::shared::Degraded;
use super::wire::Success;
use crate::access::KnownAccount;
use crate::store::StoreError;
use crate::types::AccountName;

/// The answer of the liveness probe.
#[derive(Debug, Serialize, ToSchema)]
pub struct Alive {
    /// `ok`.
    pub status: &'static str,
}

/// The answer of the readiness probe.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ready)]
pub struct ReadyBody {
    /// `degraded` if a provider cannot work, if drift needs a decision, or if a part of the database
    /// is damaged.
    #[schema(value_type = ReadyWord)]
    pub status: &'static str,
    /// Providers that cannot work, kinds of drift that need a decision as `provider: kind`, and
    /// `store` if a part of the database is damaged.
    pub degraded: Vec<String>,
    /// The reasons, each once, with the number of equal ones.
    pub reasons: Vec<String>,
}

/// Liveness probe: answers as long as the process runs.
#[utoipa::path(operation_id = "getHealth", tag = "server", responses((status = 200, description = "the process runs", body = Success<Alive>)))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Success::of(Alive { status: "ok" }))
}

/// Readiness probe: 503 only if deliveries cannot be stored. Problems of a provider or of single
/// records are `degraded`.
#[utoipa::path(
    operation_id = "getReadiness", tag = "server",
    responses(
        (status = 200, description = "deliveries are accepted", body = Success<ReadyBody>),
        answers::StoreReadErrors, only::ShuttingDown,
    )
)]
#[get("/readyz")]
pub async fn readyz(shared: web::Data<Shared>) -> Result<HttpResponse, ApiError> {
    if *shared.edge.closing.borrow() {
        return Err(ApiError::new(Code::ShuttingDown, "the server is shutting down"));
    }
    shared.store_check().await.map_err(not_ready)?;
    let (mut degraded, mut reasons) = (Vec::new(), Vec::new());
    for Degraded { what, reason } in shared.degraded(false).await {
        if !degraded.contains(&what) {
            degraded.push(what);
        }
        reasons.push(reason);
    }
    let status = if degraded.is_empty() { "ready" } else { "degraded" };
    Ok(HttpResponse::Ok().json(Success::of(ReadyBody { status, degraded, reasons })))
}

/// What is wrong with the store's files is shown; other errors of the store stay in the log.
fn not_ready(error: StoreError) -> ApiError {
    match error {
        StoreError::Damaged { .. } | StoreError::Replaced { .. } => {
            ApiError::new(Code::StoreFailed, error.to_string()).retry_after(5)
        }
        StoreError::BadCursor | StoreError::Failed(_) => error.into(),
    }
}

/// Metrics for Prometheus: open to this machine, otherwise with the token.
#[utoipa::path(
    operation_id = "getMetrics", tag = "server",
    responses(
        (status = 200, description = "all metrics",
         body = String, content_type = "application/openmetrics-text"),
        only::TooManyAttempts, only::Unauthorized,
    )
)]
#[get("/metrics")]
pub async fn metrics(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    if !auth::is_local(&shared, &request) {
        auth::require_token(&shared, &request)?;
    }
    let feed = &shared.edge.feed;
    if let Some(github) = &shared.edge.github {
        feed.metrics.set_github(&github.figures());
    }
    feed.metrics.set_models(shared.edge.models.counts());
    let accounts_max = shared.edge.limits.accounts_in_metrics_max;
    if accounts_max > 0 {
        feed.metrics.set_accounts(&feed.live, &accounts_in_metrics(&shared, accounts_max));
    }
    feed.metrics.set_intake(&shared.edge.intake.figures());
    Ok(HttpResponse::Ok()
        .insert_header((
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ))
        .body(feed.metrics.encode(
            &feed.live,
            [shared.budget.used(), shared.answers.used()],
            &shared.edge.engine.figures(),
        )))
}

/// The accounts with series of their own: `default` and those of the configuration, by name. What
/// callers create by themselves has none.
fn accounts_in_metrics(shared: &Shared, at_most: usize) -> Vec<AccountName> {
    let is_of_operator =
        |one: &KnownAccount| one.is_configured || one.name == AccountName::default_account();
    let known = shared.edge.access.known_accounts().into_iter().filter(is_of_operator);
    known.map(|account| account.name).take(at_most).collect()
}

/// This OpenAPI document.
#[utoipa::path(operation_id = "getDescription", tag = "server", responses((status = 200, description = "the OpenAPI document", body = Object)))]
#[get("/openapi.json")]
pub async fn openapi(shared: web::Data<Shared>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .body(shared.document.json.clone())
}
