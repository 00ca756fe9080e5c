//! Tokens of the API: `/v1/tokens`. Only an admin reads and changes them.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::ListedPage;
use super::accounts::parse_account;
use super::sandboxes::bounded;
use crate::access::{AccessError, NewToken};
use crate::config::SECONDS_MAX;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::caller::{AdminCaller, Caller};
use crate::http::doc::params;
use crate::http::doc::words::RoleWord;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code, only};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::wire::{ListAnswer, Success};
use crate::types::{ApiToken, Role, Secret, TokenId, inert};

/// The body of a new token.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TokenRequest {
    /// What people call it: who or what uses it.
    pub name: String,
    /// What its bearer may do.
    #[schema(value_type = RoleWord, required)]
    pub role: Option<String>,
    /// The account whose sandboxes its bearer sees; by default the caller's.
    pub account: Option<String>,
    /// How long it is valid, in seconds; by default until it is deleted.
    pub expires_in_seconds: Option<u64>,
}

/// A token of the API, without the token itself.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub struct TokenBody {
    /// Its id; no secret.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What its bearer may do.
    #[schema(value_type = RoleWord)]
    pub role: &'static str,
    /// The account whose sandboxes its bearer sees.
    pub account: String,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Until when it is valid; null until it is deleted.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// When it was used last, to the minute; null if never.
    #[schema(format = DateTime)]
    pub last_used_at: Option<String>,
}

impl From<&ApiToken> for TokenBody {
    fn from(token: &ApiToken) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            role: token.role.as_str(),
            account: token.account.to_string(),
            created_at: token.created_at.to_string(),
            expires_at: token.expires_at.map(|at| at.to_string()),
            last_used_at: token.last_used_at.map(|at| at.to_string()),
        }
    }
}

/// A new token. The token itself is shown here alone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NewToken)]
pub struct NewTokenBody {
    /// What is known of it.
    #[serde(flatten)]
    pub known: TokenBody,
    /// The token, which is sent as `Authorization: Bearer`. The server keeps its SHA-256 alone.
    pub token: String,
}

/// Creates a token. The answer is the only place where it can be read.
#[utoipa::path(
    operation_id = "createToken", tag = "access",
    request_body = TokenRequest,
    responses(
        (status = 201, description = "the token", body = Success<NewTokenBody>),
        only::Overloaded, only::StoreFailed, only::TooManyTokens,
    )
)]
#[post("/v1/tokens")]
pub async fn create(
    shared: web::Data<Shared>,
    caller: AdminCaller,
    request: HttpRequest,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let (token, secret) = create_for(&shared, &caller, TokenRequest::read(body.0)?).await?;
    let known = TokenBody::from(&token);
    let created = NewTokenBody { known, token: secret.expose().to_owned() };
    Ok(HttpResponse::build(StatusCode::CREATED).json(Success::of(created)))
}

/// Lists all tokens, the oldest first, those that have expired included.
#[utoipa::path(
    operation_id = "listTokens", tag = "access",
    params(params::PageOf),
    responses(
        (status = 200, description = "a page of tokens", body = ListAnswer<TokenBody>),
    )
)]
#[get("/v1/tokens")]
pub async fn list(
    shared: web::Data<Shared>,
    _caller: AdminCaller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let tokens = shared.edge.access.tokens();
    Ok(ListedPage::of(&request, &tokens)?.answer(TokenBody::from))
}

/// Deletes a token. It is refused from then on; streams and terminals of its bearers end at once.
#[utoipa::path(
    operation_id = "deleteToken", tag = "access",
    params(("token" = String, Path, description = "The id of the token")),
    responses(
        (status = 204, description = "it is deleted"),
        only::Overloaded, only::StoreFailed, only::TokenNotFound,
    )
)]
#[delete("/v1/tokens/{token}")]
pub async fn remove(
    shared: web::Data<Shared>,
    caller: AdminCaller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    delete_for(&shared, &caller, &path).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Creates a token for an admin.
///
/// # Errors
/// 400 if something of it is wrong, 401 if the admin's own credential ended meanwhile, 409 if there are
/// as many as there may be, 503 if it cannot be stored.
pub async fn create_for(
    shared: &Shared,
    caller: &AdminCaller,
    request: TokenRequest,
) -> Result<(ApiToken, Secret), ApiError> {
    let new = request.into_new(caller)?;
    Ending::new(shared, caller).check().await?;
    let edge = &shared.edge;
    let (token, secret) =
        edge.access.create_token(new, edge.limits.tokens_max, edge.clock.now()).await?;
    tracing::info!(token = %token.id, name = %inert(&token.name), role = token.role.as_str(), account = %token.account, by = %inert(&caller.name), "a token was created");
    Ok((token, secret))
}

/// Deletes a token for an admin.
///
/// # Errors
/// 404 if there is none of this id, 503 if that cannot be stored.
pub async fn delete_for(shared: &Shared, caller: &AdminCaller, id: &str) -> Result<(), ApiError> {
    let id = TokenId::trusted(id);
    if !shared.edge.access.remove_token(&id).await.map_err(AccessError::from)? {
        return Err(ApiError::new(Code::TokenNotFound, "there is no such token")
            .hint("GET /v1/tokens lists all"));
    }
    tracing::info!(token = %id, by = %inert(&caller.name), "a token was deleted");
    Ok(())
}

impl TokenRequest {
    fn read(mut fields: Fields) -> Result<Self, ApiError> {
        let request = Self {
            name: bounded("name", fields.text("name")?)?.unwrap_or_default(),
            role: fields.text("role")?,
            account: fields.text("account")?,
            expires_in_seconds: fields.number("expiresInSeconds", 1..=SECONDS_MAX)?,
        };
        fields.finish()?;
        Ok(request)
    }

    /// Reads the form of a page.
    ///
    /// # Errors
    /// 400 if a field does not have its form.
    pub fn read_form(form: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            name: bounded("name", form.text("name")?)?.unwrap_or_default(),
            role: form.text("role")?,
            account: None,
            expires_in_seconds: form.number("expiresInSeconds", 1..=SECONDS_MAX)?,
        })
    }

    fn into_new(self, caller: &Caller) -> Result<NewToken, ApiError> {
        if self.name.trim().is_empty() {
            return Err(ApiError::field("name", "is missing").hint("say who or what uses it"));
        }
        let role = self.role.as_deref().and_then(Role::parse);
        let role =
            role.ok_or_else(|| ApiError::field("role", "must be viewer, operator or admin"))?;
        let account = match self.account {
            Some(name) => parse_account(&name)?,
            None => caller.account.clone(),
        };
        let lifetime = self.expires_in_seconds.map(Duration::from_secs);
        Ok(NewToken { name: self.name, role, account, lifetime })
    }
}
