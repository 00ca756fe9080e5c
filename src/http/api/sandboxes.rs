//! Sandboxes: list and get.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, web};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::conversations::RunCosts;
use super::syncs::last_sync;
use crate::engine::{SandboxRef, WaitFor};
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::{PhaseFilterWord, UntilWord};
use crate::http::error::ApiError;
use crate::http::live::LiveAnswer;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::{self, ListAnswer, SandboxBody};
use crate::store::{SandboxFilter, Store};
use crate::types::{
    AccountName, Alias, ExternalId, IssueId, Phase, ProviderName, Repository, Sandbox, TemplateName,
};

/// What a deleted sandbox is shown with in place of a phase.
pub const DELETED: &str = "deleted";
/// Longest accepted title, template and search text, in bytes.
const TEXT_LEN_MAX: usize = 1_024;

/// A sandbox after a wait.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxAnswer<'a> {
    /// Always true.
    pub success: bool,
    /// The sandbox.
    pub data: SandboxBody<'a>,
    /// Its id.
    pub sandbox_id: &'a str,
    /// Whether the awaited state came before `wait` timed out; absent without `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
}

impl<'a> SandboxAnswer<'a> {
    /// A sandbox, and the result of the wait.
    pub fn new(sandbox: &'a Sandbox, settled: Option<bool>) -> Self {
        let sandbox_id = sandbox.id.as_str();
        Self { success: true, data: SandboxBody::from(sandbox), sandbox_id, settled }
    }
}

/// Text of a bounded length.
pub fn bounded(field: &str, text: Option<String>) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if text.len() > TEXT_LEN_MAX => {
            Err(ApiError::field(field, format!("is longer than {TEXT_LEN_MAX} bytes")))
        }
        text => Ok(text),
    }
}

/// Parses an issue id of a path or field.
pub fn parse_issue_id(text: &str) -> Result<IssueId, ApiError> {
    IssueId::parse(text).map_err(|wrong| ApiError::invalid_id("issueId", &wrong))
}

/// Parses a repository of a field.
pub fn parse_repository(text: &str) -> Result<Repository, ApiError> {
    Repository::parse(text).map_err(|wrong| ApiError::invalid_id("repository", &wrong))
}

/// Lists sandboxes, newest first. Deleted ones are listed only with `deleted=true`.
#[utoipa::path(
    operation_id = "listSandboxes", tag = "sandboxes",
    params(
        ("phase" = Option<PhaseFilterWord>, Query,
         description = "Filter by phase; `deleted` lists deleted sandboxes alone"),
        ("provider" = Option<String>, Query, description = "Filter by provider"),
        ("repository" = Option<String>, Query, description = "Filter by repository, `owner/name`"),
        ("issueId" = Option<String>, Query, description = "Filter by issue"),
        ("template" = Option<String>, Query, description = "Filter by template"),
        ("externalId" = Option<String>, Query, description = "Filter by the id at the provider"),
        ("q" = Option<String>, Query,
         description = "Text in the name, issue title, repository or id"),
        ("deleted" = Option<bool>, Query, description = "Whether to list deleted sandboxes, too"),
        params::PageOf,
    ),
    responses(
        (status = 200, description = "a page of sandboxes", body = ListAnswer<SandboxBody>),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/sandboxes")]
pub async fn list(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    let issue = query.text("issueId")?.as_deref().map(parse_issue_id).transpose()?;
    let mut filter = read_filter(&mut query)?;
    query.finish()?;
    // Taken before the list is read: a change in between is in both, and none is missed.
    let events = &shared.edge.feed.events;
    let event_cursor = Some(events.cursor(events.now()));
    if let Some(issue) = issue {
        let alias = Alias::Issue(issue);
        filter.home = shared.edge.store.resolve(&caller.account, &alias).await?;
        if filter.home.is_none() {
            let data: Vec<SandboxBody<'_>> = Vec::new();
            let none =
                ListAnswer { success: true, data, next_cursor: None, total: 0, event_cursor };
            return Ok(HttpResponse::Ok().json(none));
        }
    }
    let list =
        async move |store: Arc<dyn Store>| store.sandboxes(&caller.account, &filter, &page).await;
    let found = shared.read_list(list).await?;
    let costs = RunCosts::of(&shared, &found.items).await?;
    let mut data = Vec::with_capacity(found.items.len());
    for one in &found.items {
        let synced = last_sync(&shared, &one.id).await?;
        data.push(SandboxBody::of(one, costs.of_sandbox(one)).with_sync(synced.as_ref()));
    }
    Ok(HttpResponse::Ok().json(ListAnswer {
        success: true,
        data,
        next_cursor: found.next,
        total: found.total,
        event_cursor,
    }))
}

/// Reads the filters that need no look-up in the store.
pub fn read_filter(query: &mut Query) -> Result<SandboxFilter, ApiError> {
    let (phase, only_deleted) = match query.text("phase")?.as_deref() {
        Some(DELETED) => (None, true),
        Some(word) => (Some(parse_phase("phase", word)?), false),
        None => (None, false),
    };
    let repository = query.text("repository")?;
    Ok(SandboxFilter {
        phase,
        provider: query.text("provider")?.map(ProviderName::trusted),
        repository: repository.as_deref().map(parse_repository).transpose()?,
        home: None,
        template: query.text("template")?.map(TemplateName::trusted),
        external_id: query.text("externalId")?.map(ExternalId::trusted),
        text: bounded("q", query.text("q")?)?,
        include_deleted: query.flag("deleted")?,
        only_deleted,
    })
}

fn parse_phase(field: &str, word: &str) -> Result<Phase, ApiError> {
    Phase::parse(word).ok_or_else(|| {
        let words = Phase::ALL.iter().map(|phase| phase.as_str()).chain([DELETED]);
        ApiError::field(field, format!("must be one of {}", words.collect::<Vec<_>>().join(", ")))
    })
}

/// Gets a sandbox by its id, live or deleted, or by its name, which means the newest of its issue.
#[utoipa::path(
    operation_id = "getSandbox", tag = "sandboxes",
    params(
        params::OneSandbox,
        params::ResultWait,
        ("until" = Option<UntilWord>, Query,
         description = "What to wait for; default `settled`"),
    ),
    responses(
        (status = 200, description = "the sandbox", body = SandboxAnswer),
        answers::SandboxReadErrors,
    )
)]
#[get("/v1/sandboxes/{id}")]
pub async fn get(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, 0)?;
    let until = match query.text("until")?.as_deref() {
        None | Some("settled") => WaitFor::Settled,
        Some(DELETED) => WaitFor::Absent,
        Some(word) => WaitFor::Phase(parse_phase("until", word)?),
    };
    query.finish()?;
    let of = sandbox_ref(&path);
    if let Some(waited) = shared.wait(&caller, &of, until, at_most).await? {
        // Waiting follows the issue, but a wait for the deletion of an id means that sandbox.
        let seen = if let (SandboxRef::Id(id), WaitFor::Absent) = (&of, until) {
            shared.edge.store.sandbox(&caller.account, id).await?
        } else {
            waited.sandbox
        };
        let sandbox = seen.ok_or_else(ApiError::sandbox_not_found)?;
        return Ok(HttpResponse::Ok().json(SandboxAnswer::new(&sandbox, Some(waited.settled))));
    }
    let live = &shared.edge.feed.live;
    let answer = match &of {
        SandboxRef::Id(id) => live.sandbox(&caller.account, id),
        SandboxRef::Name(name) => {
            IssueId::from_sandbox_name(name).and_then(|issue| live.issue(&caller.account, &issue))
        }
    };
    if let Some(answer) = answer {
        return answer_live(&shared, answer).await;
    }
    let sandbox = load(&shared, &caller.account, &of).await?;
    let synced = last_sync(&shared, &sandbox.id).await?;
    Ok(super::ready(Bytes::from(wire::answer_json(&sandbox, None, synced.as_ref()))))
}

/// Answers about a live sandbox. Only of one with an agent, or where workspaces are synced, is
/// anything read: what its run cost, and its last sync.
pub async fn answer_live(shared: &Shared, answer: LiveAnswer) -> Result<HttpResponse, ApiError> {
    let LiveAnswer { json, sandbox } = answer;
    let costs = RunCosts::of(shared, [&*sandbox]).await?;
    let synced = last_sync(shared, &sandbox.id).await?;
    Ok(super::ready(match (costs.of_sandbox(&sandbox), synced) {
        (None, None) => json,
        (cost, synced) => Bytes::from(wire::answer_json(&sandbox, cost, synced.as_ref())),
    }))
}

/// Reads a sandbox from the store.
///
/// # Errors
/// 404 if there is none, 503 if the store cannot be read.
pub async fn load(
    shared: &Shared,
    account: &AccountName,
    of: &SandboxRef,
) -> Result<Sandbox, ApiError> {
    stored(shared, account, of).await?.ok_or_else(ApiError::sandbox_not_found)
}

/// Reads a sandbox from the store, live or deleted.
///
/// # Errors
/// 503 if the store cannot be read.
async fn stored(
    shared: &Shared,
    account: &AccountName,
    of: &SandboxRef,
) -> Result<Option<Sandbox>, ApiError> {
    let store = &shared.edge.store;
    match of {
        SandboxRef::Id(id) => Ok(store.sandbox(account, id).await?),
        SandboxRef::Name(name) => {
            let Some(issue) = IssueId::from_sandbox_name(name) else { return Ok(None) };
            match store.resolve(account, &Alias::Issue(issue)).await? {
                Some(home) => Ok(store.newest_sandbox(home).await?),
                None => Ok(None),
            }
        }
    }
}
