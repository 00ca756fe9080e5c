//! What is allowed to a sandbox, and how each of its limits holds.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::load;
use crate::http::Shared;
use crate::http::answers;
use crate::http::auth::Caller;
use crate::http::doc::params;
use crate::http::error::ApiError;
use crate::http::limits::{Allowed, SandboxLimits};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::Success;

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

impl From<(&'static str, Option<Allowed>, &'static str)> for LimitBody {
    fn from((name, allowed, holds): (&'static str, Option<Allowed>, &'static str)) -> Self {
        let unit = allowed.as_ref().map(|allowed| allowed.unit).filter(|unit| !unit.is_empty());
        Self { name, allowed: allowed.map(|allowed| allowed.value), unit, holds }
    }
}

/// The limits of one sandbox as they are in force, which may not be what its template says now.
#[utoipa::path(
    operation_id = "listLimits", tag = "sandboxes",
    params(params::OneSandbox),
    responses(
        (status = 200, description = "the limits in force", body = Success<Vec<LimitBody>>),
        answers::SandboxReadErrors,
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
    let limits = SandboxLimits::of(&shared, &sandbox).await.each();
    let limits: Vec<LimitBody> = limits.into_iter().map(LimitBody::from).collect();
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, limits)))
}
