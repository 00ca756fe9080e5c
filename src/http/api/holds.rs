//! Holds: the brake that people put on the server, an account, a repository or one issue.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::{bounded, parse_issue_id, parse_repository};
use crate::http::Shared;
use crate::http::answers;
use crate::http::auth::Caller;
use crate::http::body::JsonBody;
use crate::http::doc::params;
use crate::http::doc::words::ScopeWord;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::wire::{ListAnswer, Success};
use crate::types::{AccountName, Hold, HoldScope};

/// A hold to put on.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct HoldRequest {
    /// Why, for whoever is refused.
    pub reason: Option<String>,
}

/// A hold that is on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Hold)]
pub struct HoldBody {
    /// Its place below `/v1/holds`: `server`, `accounts/A`, `repositories/O/R` or `issues/I`.
    pub id: String,
    /// What it covers: `server`, `account`, `repository` or `issue`.
    #[schema(value_type = ScopeWord)]
    pub scope: &'static str,
    /// Which account, repository or issue; null for the server.
    pub name: Option<String>,
    /// Why; empty where nothing was said.
    pub reason: String,
    /// Since when.
    #[schema(format = DateTime)]
    pub since: String,
    /// Who put it on.
    pub by: String,
}

/// What came of a release.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Released)]
pub struct ReleasedBody {
    /// Its place below `/v1/holds`.
    pub id: String,
    /// Whether there was a hold.
    pub released: bool,
}

impl From<&Hold> for HoldBody {
    fn from(hold: &Hold) -> Self {
        let name = Some(hold.scope.name().to_owned()).filter(|name| !name.is_empty());
        Self {
            id: id_of(&hold.scope),
            scope: hold.scope.kind(),
            name,
            reason: hold.reason.clone(),
            since: hold.since.to_string(),
            by: hold.by.clone(),
        }
    }
}

fn id_of(scope: &HoldScope) -> String {
    match scope {
        HoldScope::Server => "server".to_owned(),
        HoldScope::Account(account) => format!("accounts/{account}"),
        HoldScope::Repository(repository) => format!("repositories/{repository}"),
        HoldScope::Issue(issue) => format!("issues/{issue}"),
    }
}

/// Lists holds, the widest first.
#[utoipa::path(
    operation_id = "listHolds", tag = "holds",
    params(params::PageOf),
    responses(
        (status = 200, description = "a page of holds", body = ListAnswer<HoldBody>),
    )
)]
#[get("/v1/holds")]
pub async fn list(
    shared: web::Data<Shared>,
    _caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    query.finish()?;
    let holds = shared.edge.engine.holds();
    let (on_page, next_cursor) = super::page_of(&holds, &page)?;
    Ok(HttpResponse::Ok().json(ListAnswer {
        success: true,
        data: on_page.iter().map(HoldBody::from).collect(),
        next_cursor,
        total: holds.len() as u64,
        event_cursor: None,
    }))
}

/// Declares the two routes of a scope: what both have in common is written once.
macro_rules! routes {
    ($route:literal, $of:literal, $hold:ident as $hold_id:literal, $release:ident as $release_id:literal, $path:ty, $scope:expr,
     [$($param:tt)*]) => {
        #[doc = concat!("Holds ", $of, ": nothing it covers is made, started or resumed until it is")]
        #[doc = "released. What is under way goes on. Holding again replaces the reason."]
        #[utoipa::path(
            operation_id = $hold_id, tag = "holds",
            params($($param)*),
            request_body = Option<HoldRequest>,
            responses(
                (status = 200, body = Success<HoldBody>, description = "the hold"),
                answers::StoreWriteErrors,
            )
        )]
        #[put($route)]
        pub async fn $hold(
            shared: web::Data<Shared>,
            caller: Caller,
            request: HttpRequest,
            path: web::Path<$path>,
            body: JsonBody,
        ) -> Result<HttpResponse, ApiError> {
            let scope = $scope(path.into_inner())?;
            hold(&shared, &caller, &request, scope, body.0).await
        }

        #[doc = concat!("Releases the hold on ", $of, ", where there is one. What waited for that")]
        #[doc = "is made now."]
        #[utoipa::path(
            operation_id = $release_id, tag = "holds",
            params($($param)*),
            responses(
                (status = 200, body = Success<ReleasedBody>, description = "it is not held"),
                answers::StoreWriteErrors,
            )
        )]
        #[delete($route)]
        pub async fn $release(
            shared: web::Data<Shared>,
            _caller: Caller,
            request: HttpRequest,
            path: web::Path<$path>,
        ) -> Result<HttpResponse, ApiError> {
            let scope = $scope(path.into_inner())?;
            release(&shared, &request, &scope).await
        }
    };
}

routes!("/v1/holds/server", "the whole server", hold_server as "holdServer", release_server as "releaseServer", (), server, []);
routes!(
    "/v1/holds/accounts/{account}",
    "an account",
    hold_account as "holdAccount",
    release_account as "releaseAccount",
    String,
    account,
    [("account" = String, Path, description = "The account")]
);
routes!(
    "/v1/holds/repositories/{owner}/{repo}",
    "a repository",
    hold_repository as "holdRepository",
    release_repository as "releaseRepository",
    (String, String),
    repository,
    [
        ("owner" = String, Path, description = "The repository's owner"),
        ("repo" = String, Path, description = "The repository's name"),
    ]
);
routes!(
    "/v1/holds/issues/{issueId}",
    "an issue",
    hold_issue as "holdIssue",
    release_issue as "releaseIssue",
    String,
    issue,
    [("issueId" = String, Path, description = "The issue's id")]
);

async fn hold(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    scope: HoldScope,
    mut fields: Fields,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let reason = bounded("reason", fields.text("reason")?)?.unwrap_or_default();
    fields.finish()?;
    let by = caller.name.to_owned();
    let hold = shared.edge.engine.hold(&caller.account, scope, reason, by).await?;
    Ok(HttpResponse::Ok().json(Success::of(HoldBody::from(&hold))))
}

async fn release(
    shared: &Shared,
    request: &HttpRequest,
    scope: &HoldScope,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let released = shared.edge.engine.release(scope).await?;
    Ok(HttpResponse::Ok().json(Success::of(ReleasedBody { id: id_of(scope), released })))
}

/// What is to be held, by its kind and name.
///
/// # Errors
/// 400 where there is no such kind, or the name does not have its form.
pub fn parse_scope(kind: &str, name: &str) -> Result<HoldScope, ApiError> {
    match kind {
        "server" => Ok(HoldScope::Server),
        "account" => account(name.to_owned()),
        "repository" => parse_repository(name).map(HoldScope::Repository),
        "issue" => parse_issue_id(name).map(HoldScope::Issue),
        _ => Err(ApiError::field("kind", "must be server, account, repository or issue")),
    }
}

fn server((): ()) -> Result<HoldScope, ApiError> {
    Ok(HoldScope::Server)
}

/// An account's name has no form of its own yet; as an issue id it stays readable everywhere.
fn account(name: String) -> Result<HoldScope, ApiError> {
    let wrong = |_| {
        let form = "must be letters, digits, '.', '_' and '-', at most 64";
        ApiError::field("account", form)
    };
    crate::types::IssueId::parse(&name).map_err(wrong)?;
    Ok(HoldScope::Account(AccountName::trusted(name)))
}

fn repository((owner, name): (String, String)) -> Result<HoldScope, ApiError> {
    parse_repository(&format!("{owner}/{name}")).map(HoldScope::Repository)
}

fn issue(id: String) -> Result<HoldScope, ApiError> {
    parse_issue_id(&id).map(HoldScope::Issue)
}
