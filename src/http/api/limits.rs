//! The limits of a sandbox, and how each is enforced.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::load;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::ApiError;
use crate::http::limits::{Allowed, SandboxLimits};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::Success;
use crate::sandbox::{Enforcement, LimitKind};

/// One limit of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Limit)]
pub struct LimitBody {
    /// `cpu`, `memory`, `processes`, `disk`, `openFiles`, `fileSize` or `userCounters`.
    pub name: &'static str,
    /// The limit; null if the template does not set it or is no longer known.
    pub allowed: Option<f64>,
    /// Its unit, `CPU` or `MiB`; null for a count.
    pub unit: Option<&'static str>,
    /// `enforced` for the whole sandbox, `per process`, `watched` (its processes are killed after
    /// they exceed the limit) or `none`.
    pub holds: &'static str,
}

impl From<(LimitKind, Option<Allowed>, Enforcement)> for LimitBody {
    fn from((limit, allowed, how): (LimitKind, Option<Allowed>, Enforcement)) -> Self {
        let unit = allowed.as_ref().map(|allowed| allowed.unit).filter(|unit| !unit.is_empty());
        let (name, holds) = (limit.as_str(), how.as_str());
        Self { name, allowed: allowed.map(|allowed| allowed.value), unit, holds }
    }
}

/// Lists the limits of a sandbox as in force, which can differ from those of its template.
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
