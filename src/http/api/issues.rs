//! Issues: the sandbox and the timeline of an issue.
//!
//! A look-up answers an issue without a sandbox, an unknown issue and an issue of another account
//! in the same way: there is no sandbox, which is no error.

use actix_web::{HttpRequest, HttpResponse, get, web};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::{answer_live, parse_issue_id};
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::{self, LookupAnswer, TimelineBody};
use crate::types::{Alias, HomeId, IssueNumber, Repository};

/// An issue by its names.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssueNames {
    /// Its id.
    pub issue_id: String,
    /// `owner/name`, if known.
    pub repository: Option<String>,
    /// Its number in its repository, if known.
    pub issue_number: Option<u64>,
    /// Its title, if known.
    pub issue_title: Option<String>,
}

impl IssueNames {
    /// The issue of a home; `None` if it is not known any more.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn of_home(shared: &Shared, home: HomeId) -> Result<Option<Self>, ApiError> {
        let Some(issue) = shared.edge.store.load(home).await? else { return Ok(None) };
        let facts = issue.facts;
        Ok(Some(Self {
            issue_id: facts.issue_id.to_string(),
            repository: facts.repository.map(|repository| repository.to_string()),
            issue_number: facts.number.map(|number| number.0),
            issue_title: facts.title.map(|title| title.value),
        }))
    }
}

/// Gets the sandbox of an issue. `data` is null if it has none.
#[utoipa::path(
    operation_id = "getIssueSandbox", tag = "issues",
    params(params::OneIssue),
    responses(
        (status = 200, description = "the sandbox, or null", body = LookupAnswer),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/issues/{issueId}/sandbox")]
pub async fn sandbox(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let issue = parse_issue_id(&path)?;
    if let Some(answer) = shared.edge.feed.live.issue(&caller.account, &issue) {
        return answer_live(&shared, answer).await;
    }
    by_alias(&shared, &caller, &Alias::Issue(issue)).await
}

/// Gets the sandbox of an issue by repository and number.
#[utoipa::path(
    operation_id = "getNumberedIssueSandbox", tag = "issues",
    params(params::NumberedIssue),
    responses(
        (status = 200, description = "the sandbox, or null", body = LookupAnswer),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/repos/{owner}/{repo}/issues/{number}/sandbox")]
pub async fn numbered_sandbox(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<(String, String, String)>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let (repository, number) = parse_numbered(path.into_inner())?;
    if let Some(answer) = shared.edge.feed.live.numbered(&caller.account, &repository, number) {
        return answer_live(&shared, answer).await;
    }
    by_alias(&shared, &caller, &Alias::Numbered(repository, number)).await
}

fn parse_numbered(
    (owner, name, number): (String, String, String),
) -> Result<(Repository, IssueNumber), ApiError> {
    let repository = Repository::parse(&format!("{owner}/{name}"))
        .map_err(|wrong| ApiError::invalid_id("repository", &wrong))?;
    let number = number
        .parse()
        .ok()
        .filter(|number| *number > 0 && i64::try_from(*number).is_ok())
        .map(IssueNumber)
        .ok_or_else(|| ApiError::field("number", "must be a whole number from 1"))?;
    Ok((repository, number))
}

/// Looks up an alias that the live map does not have: it can be an old alias of a live home.
async fn by_alias(
    shared: &Shared,
    caller: &Caller,
    alias: &Alias,
) -> Result<HttpResponse, ApiError> {
    let none = || Ok(super::ready(Bytes::from_static(wire::NO_SANDBOX.as_bytes())));
    let Some(home) = shared.edge.store.resolve(&caller.account, alias).await? else {
        return none();
    };
    match shared.edge.feed.live.home(home) {
        Some(answer) => answer_live(shared, answer).await,
        None => none(),
    }
}

/// Lists the timeline of an issue, newest first, with the reason and cause of each entry.
#[utoipa::path(
    operation_id = "listIssueEvents", tag = "issues",
    params(params::OneIssue, params::PageOf),
    responses(
        (status = 200, description = "a page of the timeline", body = Timeline),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/issues/{issueId}/events")]
pub async fn timeline(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let alias = Alias::Issue(parse_issue_id(&path)?);
    timeline_of(&shared, &caller, &request, &alias).await
}

/// Lists the timeline of an issue by repository and number, also of an issue with a pending start.
#[utoipa::path(
    operation_id = "listNumberedIssueEvents", tag = "issues",
    params(params::NumberedIssue, params::PageOf),
    responses(
        (status = 200, description = "a page of the timeline", body = Timeline),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/repos/{owner}/{repo}/issues/{number}/events")]
pub async fn numbered_timeline(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<(String, String, String)>,
) -> Result<HttpResponse, ApiError> {
    let (repository, number) = parse_numbered(path.into_inner())?;
    timeline_of(&shared, &caller, &request, &Alias::Numbered(repository, number)).await
}

/// A page of an issue's timeline.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(rename_all = "camelCase")]
pub struct Timeline {
    /// Always true.
    success: bool,
    /// The account in which it was looked up.
    account: String,
    /// The issue's id; null if the account has no such issue.
    issue_id: Option<String>,
    /// The entries of this page.
    data: Vec<TimelineBody>,
    /// The `cursor` of the next page; null on the last.
    next_cursor: Option<String>,
    /// The number of entries on all pages.
    total: u64,
}

async fn timeline_of(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    alias: &Alias,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    query.finish()?;
    let store = &shared.edge.store;
    let account = caller.account.to_string();
    let (issue_id, data, next_cursor) = (None, Vec::new(), None);
    let mut answer = Timeline { success: true, account, issue_id, data, next_cursor, total: 0 };
    if let Some(home) = store.resolve(&caller.account, alias).await? {
        let found = store.timeline(home, &page).await?;
        let issue = store.load(home).await?;
        answer.issue_id = issue.map(|issue| issue.facts.issue_id.to_string());
        answer.data = found.items.into_iter().map(TimelineBody::from).collect();
        answer.next_cursor = found.next;
        answer.total = found.total;
    }
    Ok(HttpResponse::Ok().json(answer))
}
