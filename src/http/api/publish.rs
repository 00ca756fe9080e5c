//! Publishing the work of a sandbox whose pushes wait for a person.

use actix_web::{HttpRequest, HttpResponse, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::EngineError;
use crate::git::PublishRefusal;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, Code, only};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::Success;
use crate::types::Sandbox;

/// Published work.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PublishedWork)]
pub struct PublishedWorkBody {
    /// The sandbox.
    pub sandbox_id: String,
    /// The branch that it pushed.
    pub branch: String,
}

/// Publishes the work of a sandbox whose pushes wait for that.
///
/// The sandbox may push from now on, and pushes its branch at once.
#[utoipa::path(
    operation_id = "publishSandbox", tag = "sandboxes",
    params(params::OneSandbox),
    responses(
        (status = 200, body = Success<PublishedWorkBody>, description = "its branch is pushed"),
        answers::SandboxReadErrors, only::NotPublished,
    )
)]
#[post("/v1/sandboxes/{id}/publish")]
pub async fn publish(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let sandbox = shared.edge.engine.sandbox(&caller.account, &sandbox_ref(&path)).await?;
    let branch = publish_work(&shared, &sandbox, &caller.name).await?;
    let published = PublishedWorkBody { sandbox_id: sandbox.id.to_string(), branch };
    Ok(HttpResponse::Ok().json(Success::of(published)))
}

/// Publishes the work of a sandbox for a person. Returns the branch.
pub async fn publish_work(
    shared: &Shared,
    sandbox: &Sandbox,
    by: &str,
) -> Result<String, ApiError> {
    let publisher = shared.edge.publisher.get().ok_or_else(|| {
        ApiError::new(Code::NotPublished, "publishing needs credentials for GitHub")
            .hint("set an App or a token in [github]")
    })?;
    Ok(publisher.publish(&sandbox.id, by).await?)
}

impl From<PublishRefusal> for ApiError {
    fn from(refusal: PublishRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            PublishRefusal::NoCheckout | PublishRefusal::TurnedOff | PublishRefusal::Closed => {
                Self::new(Code::NotPublished, message)
            }
            PublishRefusal::NotPushed(_) => Self::new(Code::NotPublished, message)
                .hint("remove the cause and publish again, or push inside the sandbox"),
            PublishRefusal::NotRecorded(why) => EngineError::StoreFailed(why).into(),
        }
    }
}
