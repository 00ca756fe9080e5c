//! What other machines ask: does it live, can it work, what did it do, what can it be asked.

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

/// That the process lives.
#[derive(Debug, Serialize, ToSchema)]
pub struct Alive {
    /// `ok`.
    pub status: &'static str,
}

/// Whether deliveries can be taken in.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ready)]
pub struct ReadyBody {
    /// `ready`, or `degraded` where a provider cannot work now, or is not as our records say.
    #[schema(value_type = ReadyWord)]
    pub status: &'static str,
    /// The providers that cannot work now, and the kinds of drift that need a person, as
    /// `provider: kind`.
    pub degraded: Vec<String>,
    /// What is wrong with each of them, in words.
    pub reasons: Vec<String>,
}

/// Liveness: answers as long as the process does.
#[utoipa::path(operation_id = "getHealth", tag = "server", responses((status = 200, description = "the process runs", body = Success<Alive>)))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Success::of(Alive { status: "ok" }))
}

/// Readiness: 503 only where deliveries cannot be committed; a provider's trouble is 200.
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

/// Metrics as Prometheus reads them: open on this machine, else with the token.
#[utoipa::path(
    operation_id = "getMetrics", tag = "server",
    responses(
        (status = 200, description = "all metrics", body = String, content_type = "application/openmetrics-text"),
        only::TooManyAttempts, only::Unauthorized,
    )
)]
#[get("/metrics")]
pub async fn metrics(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    if !auth::is_local(&request) {
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

/// This description.
#[utoipa::path(operation_id = "getDescription", tag = "server", responses((status = 200, description = "the OpenAPI document", body = Object)))]
#[get("/openapi.json")]
pub async fn openapi(shared: web::Data<Shared>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .body(shared.document.clone())
}
