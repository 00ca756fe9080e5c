//! One-time log-in links: `POST /v1/login-links`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Shared;
use crate::http::auth::base_url;
use crate::http::caller::{Caller, Credential};
use crate::http::error::{ApiError, Code, only};
use crate::http::login_links::{LinkHolder, path_of};
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

/// Creates a one-time link that logs into the dashboard, with the account and the role of the caller.
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
    let holder = match caller.credential {
        Credential::Admin(_) => LinkHolder::Admin,
        Credential::Token(token) => LinkHolder::Token(token),
        // Otherwise a session could create the next one, and never end.
        Credential::Session(_) => {
            return Err(ApiError::new(Code::Forbidden, "a session cannot create a log-in link")
                .hint("send a token, as issuebox login does"));
        }
    };
    let edge = &shared.edge;
    let (key, expires_at) = edge.login_links.make(holder, &*edge.ids, edge.clock.now());
    let url = format!("{}{}", base_url(&shared, &request), path_of(&key));
    let link = LoginLinkBody { url, expires_at: expires_at.to_string() };
    Ok(HttpResponse::build(StatusCode::CREATED).json(Success::of(link)))
}
