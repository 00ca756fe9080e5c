//! One-time log-in links: `POST /v1/login-links`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Shared;
use crate::http::auth::{Caller, base_url};
use crate::http::error::{ApiError, Code, only};
use crate::http::login_links::path_of;
use crate::http::query::Query;
use crate::http::wire::Success;

/// A one-time log-in link.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LoginLink)]
pub struct LoginLinkBody {
    /// The address to open in a browser.
    pub url: String,
    /// When it expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// Creates a one-time link that logs into the dashboard.
#[utoipa::path(
    operation_id = "createLoginLink", tag = "server",
    responses(
        (status = 201, description = "the link", body = Success<LoginLinkBody>),
        only::Forbidden,
    )
)]
#[post("/v1/login-links")]
pub async fn make(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    if caller.session.is_some() {
        // Otherwise a session could create the next one, and never end.
        return Err(ApiError::new(Code::Forbidden, "a session cannot create a log-in link")
            .hint("send the admin token, as issuebox login does"));
    }
    let edge = &shared.edge;
    let (key, expires_at) = edge.login_links.make(&*edge.ids, edge.clock.now());
    let url = format!("{}{}", base_url(&shared, &request), path_of(&key));
    let link = LoginLinkBody { url, expires_at: expires_at.to_string() };
    Ok(HttpResponse::build(StatusCode::CREATED).json(Success::of(link)))
}
