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
    /// `degraded` if a provider cannot work, or if drift needs a decision.
    #[schema(value_type = ReadyWord)]
    pub status: &'static str,
    /// Providers that cannot work, and kinds of drift that need a decision as `provider: kind`.
    pub degraded: Vec<String>,
    /// The reason of each.
    pub reasons: Vec<String>,
}

/// Liveness probe: answers as long as the process runs.
#[utoipa::path(operation_id = "getHealth", tag = "server", responses((status = 200, description = "the process runs", body = Success<Alive>)))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Success::of(Alive { status: "ok" }))
}

/// Readiness probe: 503 only if deliveries cannot be stored. Problems of a provider are `degraded`.
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
    shared.store_check().await?;
    let (mut degraded, mut reasons) = (Vec::new(), Vec::new());
    for Degraded { what, reason } in shared.degraded().await {
        if !degraded.contains(&what) {
            degraded.push(what);
        }
        reasons.push(reason);
    }
    let status = if degraded.is_empty() { "ready" } else { "degraded" };
    Ok(HttpResponse::Ok().json(Success::of(ReadyBody { status, degraded, reasons })))
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
    Ok(HttpResponse::Ok()
        .insert_header((
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ))
        .body(feed.metrics.encode(&feed.live, shared.budget.used(), &shared.edge.engine.figures())))
}

/// This OpenAPI document.
#[utoipa::path(operation_id = "getDescription", tag = "server", responses((status = 200, description = "the OpenAPI document", body = Object)))]
#[get("/openapi.json")]
pub async fn openapi(shared: web::Data<Shared>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .body(shared.document.clone())
}
