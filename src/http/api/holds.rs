//! Holds on the server, an account, a repository or an issue.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::ListedPage;
use super::sandboxes::{bounded, parse_issue_id, parse_repository};
use crate::http::Shared;
use crate::http::answers;
use crate::http::body::JsonBody;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::ScopeWord;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::hold_access;
use crate::http::hold_labels;
use crate::http::query::Query;
use crate::http::wire::{ListAnswer, Success};
use crate::types::{AccountName, Hold, HoldScope};

/// A hold to create.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct HoldRequest {
    /// The reason, shown to refused callers.
    pub reason: Option<String>,
}

/// A hold in force.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Hold)]
pub struct HoldBody {
    /// Its path below `/v1/holds`: `server`, `accounts/A`, `repositories/O/R` or `issues/I`.
    pub id: String,
    /// What it covers.
    #[schema(value_type = ScopeWord)]
    pub scope: &'static str,
    /// The account, repository or issue; null for the server.
    pub name: Option<String>,
    /// What it covers, for people, such as `the issue octo/hello#7`.
    pub label: String,
    /// The reason; empty if none was given.
    pub reason: String,
    /// When it was created.
    #[schema(format = DateTime)]
    pub since: String,
    /// Who created it.
    pub by: String,
}

/// The result of a release.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Released)]
pub struct ReleasedBody {
    /// The hold's path below `/v1/holds`.
    pub id: String,
    /// What it covered, for people.
    pub label: String,
    /// Whether there was a hold.
    pub released: bool,
}

impl HoldBody {
    async fn of(shared: &Shared, hold: &Hold) -> Self {
        let name = Some(hold.scope.name().to_owned()).filter(|name| !name.is_empty());
        Self {
            id: id_of(&hold.scope),
            scope: hold.scope.kind(),
            name,
            label: hold_labels::label(shared, &hold.scope).await,
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
        HoldScope::Issue(_, issue) => format!("issues/{issue}"),
    }
}

/// Lists holds, widest scope first.
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
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut holds = shared.edge.engine.holds();
    holds.retain(|hold| hold_access::may_see(&shared, &caller, &hold.scope));
    let page = ListedPage::of(&request, &holds)?;
    let mut data = Vec::with_capacity(page.items.len());
    for hold in page.items {
        data.push(HoldBody::of(&shared, hold).await);
    }
    Ok(page.answer_with(data))
}

/// Declares the two routes of a scope.
macro_rules! routes {
    ($route:literal, $of:literal, $hold:ident as $hold_id:literal,
     $release:ident as $release_id:literal, $path:ty, $scope:expr, [$($param:tt)*]) => {
        #[doc = concat!("Holds ", $of, ".")]
        #[utoipa::path(
            operation_id = $hold_id, tag = "holds",
            summary = concat!("Holds ", $of),
            description = "Until the release, no sandbox that it covers is created, started or \
                           resumed. Steps under way continue. Another hold replaces the reason.",
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
            let scope = $scope(&caller, path.into_inner())?;
            hold(&shared, &caller, &request, scope, body.0).await
        }

        #[doc = concat!("Releases the hold on ", $of, ".")]
        #[utoipa::path(
            operation_id = $release_id, tag = "holds",
            summary = concat!("Releases the hold on ", $of, ", if there is one"),
            description = "Pending starts that it covered continue.",
            params($($param)*),
            responses(
                (status = 200, body = Success<ReleasedBody>, description = "the hold is released"),
                answers::StoreWriteErrors,
            )
        )]
        #[delete($route)]
        pub async fn $release(
            shared: web::Data<Shared>,
            caller: Caller,
            request: HttpRequest,
            path: web::Path<$path>,
        ) -> Result<HttpResponse, ApiError> {
            let scope = $scope(&caller, path.into_inner())?;
            release(&shared, &caller, &request, &scope).await
        }
    };
}

routes!(
    "/v1/holds/server",
    "the whole server",
    hold_server as "holdServer",
    release_server as "releaseServer",
    (),
    server,
    []
);
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
    hold_access::check(shared, caller, &scope)?;
    let by = caller.name.to_string();
    let hold = shared.edge.engine.hold(scope, reason, by).await?;
    let hold = HoldBody::of(shared, &hold).await;
    Ok(HttpResponse::Ok().json(Success::of(hold)))
}

async fn release(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    scope: &HoldScope,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    hold_access::check(shared, caller, scope)?;
    let released = shared.edge.engine.release(scope).await?;
    let label = hold_labels::label(shared, scope).await;
    Ok(HttpResponse::Ok().json(Success::of(ReleasedBody { id: id_of(scope), label, released })))
}

/// Parses the scope of a hold.
///
/// # Errors
/// 400 if the kind is unknown or the name is invalid.
pub fn parse_scope(caller: &Caller, kind: &str, name: &str) -> Result<HoldScope, ApiError> {
    match kind {
        "server" => Ok(HoldScope::Server),
        "account" => account(caller, name.to_owned()),
        "repository" => parse_repository(name).map(HoldScope::Repository),
        "issue" => issue(caller, name.to_owned()),
        _ => Err(ApiError::field("kind", "must be server, account, repository or issue")),
    }
}

fn server(_: &Caller, (): ()) -> Result<HoldScope, ApiError> {
    Ok(HoldScope::Server)
}

fn account(_: &Caller, name: String) -> Result<HoldScope, ApiError> {
    let name =
        AccountName::parse(&name).map_err(|wrong| ApiError::invalid_id("account", &wrong))?;
    Ok(HoldScope::Account(name))
}

fn repository(_: &Caller, (owner, name): (String, String)) -> Result<HoldScope, ApiError> {
    parse_repository(&format!("{owner}/{name}")).map(HoldScope::Repository)
}

fn issue(caller: &Caller, id: String) -> Result<HoldScope, ApiError> {
    Ok(HoldScope::Issue(caller.account.clone(), parse_issue_id(&id)?))
}
