//! What is allowed to a sandbox, and how each of its limits holds.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::load;
use crate::http::Shared;
use crate::http::auth::Caller;
use crate::http::error::ApiError;
use crate::http::limits::{Allowed, Limits};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::{Failed, Success};
use crate::sandbox::{Enforcement, LimitKind};

/// One limit of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Limit)]
pub struct LimitBody {
    /// `cpu`, `memory`, `processes`, `disk`, `openFiles` or `fileSize`.
    pub name: &'static str,
    /// How much is allowed; null where that is not for its template to say, or not known any more.
    pub allowed: Option<f64>,
    /// What it is counted in: `CPU` or `MiB`; null for a number of things.
    pub unit: Option<&'static str>,
    /// `enforced` for the sandbox as a whole, `per process`, `watched` (what runs in it is killed
    /// when it is seen to exceed it) or `none`.
    pub holds: &'static str,
}

impl From<(LimitKind, Option<Allowed>, Enforcement)> for LimitBody {
    fn from((limit, allowed, how): (LimitKind, Option<Allowed>, Enforcement)) -> Self {
        let unit = allowed.as_ref().map(|allowed| allowed.unit).filter(|unit| !unit.is_empty());
        let (name, holds) = (limit.as_str(), how.as_str());
        Self { name, allowed: allowed.map(|allowed| allowed.value), unit, holds }
    }
}

/// The limits of one sandbox as they are in force, which may not be what its template says now.
#[utoipa::path(
    tag = "sandboxes",
    params(("id" = String, Path, description = "The sandbox's id or name")),
    responses(
        (status = 200, body = Success<Vec<LimitBody>>),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 404, body = Failed, description = "sandbox_not_found"),
        (status = 503, body = Failed, description = "store_failed"),
    )
)]
#[get("/v1/sandboxes/{id}/limits")]
pub async fn limits(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let sandbox = load(&shared, &caller.account, &sandbox_ref(&path)).await?;
    let limits = Limits::of(&shared, &sandbox).await.each();
    let limits: Vec<LimitBody> = limits.into_iter().map(LimitBody::from).collect();
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, limits)))
}
