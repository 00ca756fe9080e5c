//! What callers note with a sandbox.

use actix_web::{HttpRequest, HttpResponse, put, web};
use utoipa::ToSchema;

use super::sandboxes::SandboxAnswer;
use crate::http::Shared;
use crate::http::answers;
use crate::http::body::JsonBody;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::types::MetaChange;

/// What is to be noted.
#[derive(Debug, ToSchema)]
#[schema(as = MetaRequest)]
#[allow(dead_code, reason = "only its description is used; the handler reads fields by name")]
pub struct MetaRequestBody {
    /// Names and values, at most 16, which take the place of those before; empty removes them. A
    /// name has at most 64 letters, digits, and any of `.`, `_`, `-`, `/`; a value at most 512 bytes.
    meta: std::collections::HashMap<String, String>,
}

/// Sets what is noted with a sandbox: names and values of yours, which the server keeps and shows.
/// Nothing is started.
#[utoipa::path(
    operation_id = "setSandboxMeta", tag = "sandboxes",
    params(params::OneSandbox),
    request_body = MetaRequestBody,
    responses(
        (status = 200, body = SandboxAnswer, description = "the sandbox with what is noted now"),
        answers::SandboxWriteErrors, only::SandboxDeleted,
    )
)]
#[put("/v1/sandboxes/{id}/meta")]
pub async fn set(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let mut fields = body.0;
    let change = MetaChange::Replace(fields.meta()?);
    fields.finish()?;
    let engine = &shared.edge.engine;
    let of = sandbox_ref(&path);
    let sandbox = engine.set_meta(&caller.account, &of, change, caller.cause()).await?;
    Ok(HttpResponse::Ok().json(SandboxAnswer::new(&sandbox, None)))
}
