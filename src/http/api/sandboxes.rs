//! Sandboxes: ensure, list, get.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, post, put, web};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::{EnsureIssue, IssueKey, SandboxRef, WaitFor};
use crate::http::Shared;
use crate::http::auth::Caller;
use crate::http::body::JsonBody;
use crate::http::error::{ApiError, Code};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::{self, Failed, Listed, SandboxBody};
use crate::store::SandboxFilter;
use crate::types::{
    Alias, ExternalId, IssueId, IssueNumber, Mode, Outcome, Phase, ProviderName, Repository,
    Sandbox, TemplateName,
};

/// Longest accepted title, template and search text, in bytes.
const TEXT_LEN_MAX: usize = 1_024;

/// A call to *ensure*.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct EnsureRequest {
    /// The issue's id; may be left out where repository and number are known.
    pub issue_id: Option<String>,
    /// `owner/name`; together with `issueNumber`.
    pub repository: Option<String>,
    /// The issue's number in its repository.
    pub issue_number: Option<u64>,
    /// The template to make it from; the default where it is left out.
    pub template: Option<String>,
    /// `strong`; `fast` is not available yet.
    pub mode: Option<String>,
    /// The issue's title, where the caller knows it.
    pub issue_title: Option<String>,
}

/// The answer to *ensure*.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsureAnswer<'a> {
    /// Always true.
    pub success: bool,
    /// The issue's one sandbox.
    pub data: SandboxBody<'a>,
    /// Its id.
    pub sandbox_id: &'a str,
    /// `created`, `existing`, `resumed`, `adopted`, `queued` or `failed`.
    pub outcome: &'static str,
    /// The same in words.
    pub reason: String,
    /// Whether nothing is under way; false where `wait` ran out first.
    pub settled: bool,
    /// Which parts of what was asked differ from what is there: `template`.
    pub mismatch: Vec<&'static str>,
}

/// A sandbox that was waited for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxAnswer<'a> {
    /// Always true.
    pub success: bool,
    /// The sandbox.
    pub data: SandboxBody<'a>,
    /// Its id.
    pub sandbox_id: &'a str,
    /// Whether what was waited for came before `wait` ran out; left out where nobody waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
}

impl<'a> SandboxAnswer<'a> {
    /// A sandbox, and how waiting for it ended.
    pub fn new(sandbox: &'a Sandbox, settled: Option<bool>) -> Self {
        let sandbox_id = sandbox.id.as_str();
        Self { success: true, data: SandboxBody::from(sandbox), sandbox_id, settled }
    }
}

/// Gives an issue its one sandbox: the one it has, or a new one.
#[utoipa::path(
    tag = "sandboxes",
    params(("wait" = Option<u64>, Query, description = "Seconds to wait until it runs, up to 300")),
    request_body = EnsureRequest,
    responses(
        (status = 201, body = EnsureAnswer, description = "a new one; `Location` names it",
         headers(("Location" = String))),
        (status = 200, body = EnsureAnswer, description = "the one it has"),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 409, body = Failed, description = "issue_id_conflict"),
        (status = 422, body = Failed, description = "issue_unknown, template_unknown, not_available"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
    )
)]
#[post("/v1/sandboxes")]
pub async fn ensure(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    answer_ensure(&shared, &caller, &request, body.0, None).await
}

/// Gives an issue its one sandbox: the same call, with the issue in the path.
#[utoipa::path(
    tag = "issues",
    params(
        ("issueId" = String, Path, description = "The issue's id"),
        ("wait" = Option<u64>, Query, description = "Seconds to wait until it runs, up to 300"),
    ),
    request_body = Option<EnsureRequest>,
    responses(
        (status = 201, body = EnsureAnswer, description = "a new one; `Location` names it",
         headers(("Location" = String))),
        (status = 200, body = EnsureAnswer, description = "the one it has"),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 409, body = Failed, description = "issue_id_conflict"),
        (status = 422, body = Failed, description = "template_unknown, not_available"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
    )
)]
#[put("/v1/issues/{issueId}/sandbox")]
pub async fn ensure_issue(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    let issue = parse_issue_id(&path)?;
    answer_ensure(&shared, &caller, &request, body.0, Some(issue)).await
}

async fn answer_ensure(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    fields: Fields,
    issue: Option<IssueId>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, 0)?;
    query.finish()?;
    let ask = EnsureRequest::read(fields)?.into_ask(issue, caller)?;
    let ensured = shared.edge.engine.ensure(&caller.account, ask).await?;
    let mut sandbox = ensured.sandbox;
    let mut settled = sandbox.phase.is_some_and(|phase| !phase.is_transitional());
    if !settled {
        let of = SandboxRef::Id(sandbox.id.clone());
        let until = WaitFor::Phase(Phase::Running);
        if let Some(waited) = shared.wait(caller, &of, until, at_most).await? {
            settled = waited.settled;
            sandbox = waited.sandbox.unwrap_or(sandbox);
        }
    }
    let mut answer = match ensured.outcome {
        Outcome::Created => {
            let location = format!("/v1/sandboxes/{}", sandbox.id);
            let mut answer = HttpResponse::Created();
            answer.insert_header((header::LOCATION, location));
            answer
        }
        Outcome::Existing
        | Outcome::Resumed
        | Outcome::Adopted
        | Outcome::Queued
        | Outcome::Failed
        | Outcome::Refused => HttpResponse::Ok(),
    };
    Ok(answer.json(EnsureAnswer {
        success: true,
        data: SandboxBody::from(&sandbox),
        sandbox_id: sandbox.id.as_str(),
        outcome: ensured.outcome.as_str(),
        reason: ensured.reason,
        settled,
        mismatch: ensured.mismatch,
    }))
}

impl EnsureRequest {
    fn read(mut fields: Fields) -> Result<Self, ApiError> {
        let request = Self {
            issue_id: fields.text("issueId")?,
            repository: fields.text("repository")?,
            issue_number: fields.number("issueNumber", 1..=i64::MAX as u64)?,
            template: fields.text("template")?,
            mode: fields.text("mode")?,
            issue_title: fields.text("issueTitle")?,
        };
        fields.finish()?;
        Ok(request)
    }

    fn into_ask(self, issue: Option<IssueId>, caller: &Caller) -> Result<EnsureIssue, ApiError> {
        let given = self.issue_id.as_deref().map(parse_issue_id).transpose()?;
        if let (Some(path), Some(given)) = (&issue, &given)
            && path != given
        {
            return Err(ApiError::field("issueId", "is not the issue that the path names"));
        }
        let numbered = match (self.repository, self.issue_number) {
            (Some(repository), Some(number)) => {
                Some((parse_repository(&repository)?, IssueNumber(number)))
            }
            (None, None) => None,
            (Some(_), None) => {
                return Err(ApiError::field("issueNumber", "is needed with repository"));
            }
            (None, Some(_)) => {
                return Err(ApiError::field("repository", "is needed with issueNumber"));
            }
        };
        let id = issue.or(given);
        if id.is_none() && numbered.is_none() {
            return Err(ApiError::field("issueId", "is missing")
                .hint("say which issue: issueId, or repository and issueNumber"));
        }
        check_mode(self.mode.as_deref())?;
        let template = bounded("template", self.template)?;
        Ok(EnsureIssue {
            issue: IssueKey { id, numbered },
            template: template.map(TemplateName::trusted),
            title: bounded("issueTitle", self.issue_title)?,
            cause: caller.cause(),
        })
    }
}

fn check_mode(mode: Option<&str>) -> Result<(), ApiError> {
    match mode.map(Mode::parse) {
        None | Some(Some(Mode::Strong)) => Ok(()),
        Some(Some(Mode::Fast)) => {
            Err(ApiError::new(Code::NotAvailable, "fast mode is not available in this version")
                .about("mode")
                .hint("leave mode out"))
        }
        Some(None) => Err(ApiError::field("mode", "must be strong or fast")),
    }
}

fn bounded(field: &str, text: Option<String>) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if text.len() > TEXT_LEN_MAX => {
            Err(ApiError::field(field, format!("is longer than {TEXT_LEN_MAX} bytes")))
        }
        text => Ok(text),
    }
}

/// Reads an issue id out of a path or field.
pub fn parse_issue_id(text: &str) -> Result<IssueId, ApiError> {
    IssueId::parse(text).map_err(|wrong| ApiError::invalid_id("issueId", &wrong))
}

fn parse_repository(text: &str) -> Result<Repository, ApiError> {
    Repository::parse(text).map_err(|wrong| ApiError::invalid_id("repository", &wrong))
}

/// Lists sandboxes, newest first; without `deleted=true` only live ones.
#[utoipa::path(
    tag = "sandboxes",
    params(
        ("phase" = Option<String>, Query, description = "In this phase"),
        ("provider" = Option<String>, Query, description = "Of this provider"),
        ("repository" = Option<String>, Query, description = "Of this repository, `owner/name`"),
        ("issueId" = Option<String>, Query, description = "Of this issue"),
        ("externalId" = Option<String>, Query, description = "With this id at its provider"),
        ("q" = Option<String>, Query,
         description = "Whose name, issue title, repository or id contains this"),
        ("deleted" = Option<bool>, Query, description = "Deleted ones too"),
        ("limit" = Option<u64>, Query, description = "How many, 1 to 200; 50 where left out"),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, body = Listed<SandboxBody>),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 503, body = Failed, description = "store_failed"),
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
    // Before the list is read: a change in between is in both, never in neither.
    let events = &shared.edge.feed.events;
    let event_cursor = Some(events.cursor(events.now()));
    if let Some(issue) = issue {
        let alias = Alias::Issue(issue);
        filter.home = shared.edge.store.resolve(&caller.account, &alias).await?;
        if filter.home.is_none() {
            let data: Vec<SandboxBody<'_>> = Vec::new();
            let none = Listed { success: true, data, next_cursor: None, total: 0, event_cursor };
            return Ok(HttpResponse::Ok().json(none));
        }
    }
    let found = shared.edge.store.sandboxes(&caller.account, &filter, &page).await?;
    Ok(HttpResponse::Ok().json(Listed {
        success: true,
        data: found.items.iter().map(SandboxBody::from).collect(),
        next_cursor: found.next,
        total: found.total,
        event_cursor,
    }))
}

/// Reads the filters that need no look-up.
pub fn read_filter(query: &mut Query) -> Result<SandboxFilter, ApiError> {
    let phase = match query.text("phase")? {
        Some(word) => Some(parse_phase("phase", &word)?),
        None => None,
    };
    let repository = query.text("repository")?;
    Ok(SandboxFilter {
        phase,
        provider: query.text("provider")?.map(ProviderName::trusted),
        repository: repository.as_deref().map(parse_repository).transpose()?,
        home: None,
        external_id: query.text("externalId")?.map(ExternalId::trusted),
        text: bounded("q", query.text("q")?)?,
        include_deleted: query.flag("deleted")?,
    })
}

fn parse_phase(field: &str, word: &str) -> Result<Phase, ApiError> {
    Phase::parse(word).ok_or_else(|| {
        let words: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
        ApiError::field(field, format!("must be one of {}", words.join(", ")))
    })
}

/// One sandbox by its id, also a deleted one, or by its name: the newest of its issue.
#[utoipa::path(
    tag = "sandboxes",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("wait" = Option<u64>, Query, description = "Seconds to wait, up to 300"),
        ("until" = Option<String>, Query,
         description = "What to wait for: a phase, `settled` (the default) or `deleted`"),
    ),
    responses(
        (status = 200, body = SandboxAnswer),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 404, body = Failed, description = "sandbox_not_found"),
        (status = 503, body = Failed, description = "store_failed"),
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
        Some("deleted") => WaitFor::Absent,
        Some(word) => WaitFor::Phase(parse_phase("until", word)?),
    };
    query.finish()?;
    let of = sandbox_ref(&path);
    if let Some(waited) = shared.wait(&caller, &of, until, at_most).await? {
        // Waiting follows the issue; who waits for the end of an id means that very sandbox.
        let seen = if let (SandboxRef::Id(id), WaitFor::Absent) = (&of, until) {
            shared.edge.store.sandbox(&caller.account, id).await?
        } else {
            waited.sandbox
        };
        let sandbox = seen.ok_or_else(ApiError::sandbox_not_found)?;
        return Ok(HttpResponse::Ok().json(SandboxAnswer::new(&sandbox, Some(waited.settled))));
    }
    let found = find(&shared, &caller, &of).await?;
    found.map(super::ready).ok_or_else(ApiError::sandbox_not_found)
}

/// A sandbox's answer: from the live map, else from the store.
async fn find(
    shared: &Shared,
    caller: &Caller,
    of: &SandboxRef,
) -> Result<Option<Bytes>, ApiError> {
    let (live, store) = (&shared.edge.feed.live, &shared.edge.store);
    let stored = match of {
        SandboxRef::Id(id) => {
            if let Some(answer) = live.sandbox(&caller.account, id) {
                return Ok(Some(answer));
            }
            store.sandbox(&caller.account, id).await?
        }
        SandboxRef::Name(name) => {
            let Some(issue) = IssueId::from_sandbox_name(name) else { return Ok(None) };
            if let Some(answer) = live.issue(&caller.account, &issue) {
                return Ok(Some(answer));
            }
            match store.resolve(&caller.account, &Alias::Issue(issue)).await? {
                Some(home) => store.newest_sandbox(home).await?,
                None => None,
            }
        }
    };
    Ok(stored
        .map(|sandbox| Bytes::from(wire::answer_json(&sandbox, &wire::sandbox_json(&sandbox)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AccountName;

    fn ask(body: &str, path: Option<&str>) -> Result<EnsureIssue, ApiError> {
        let caller = Caller {
            account: AccountName::default_account(),
            name: "admin",
            request_id: "r".into(),
        };
        let issue = path.map(|id| IssueId::parse(id).expect("a valid id"));
        EnsureRequest::read(Fields::parse(body.as_bytes())?)?.into_ask(issue, &caller)
    }

    #[test]
    fn an_issue_is_named_by_id_or_by_repository_and_number() {
        let by_id = ask(r#"{"issueId":"test-123","template":"big"}"#, None).expect("by id");
        assert_eq!(by_id.issue.id.map(|id| id.to_string()).as_deref(), Some("test-123"));
        let by_number = ask(r#"{"repository":"octo/hello","issueNumber":7}"#, None);
        assert!(by_number.is_ok_and(|ask| ask.issue.id.is_none() && ask.issue.numbered.is_some()));
        let by_path = ask("", Some("5")).expect("by path");
        assert_eq!(by_path.issue.id.map(|id| id.to_string()).as_deref(), Some("5"));
    }

    #[test]
    fn what_is_wrong_with_an_ensure_is_named() {
        for (body, field) in [
            ("{}", "issueId"),
            (r#"{"issueId":5}"#, "issueId"),
            (r#"{"issueId":"a b"}"#, "issueId"),
            (r#"{"issueId":"1","repository":"octo/hello"}"#, "issueNumber"),
            (r#"{"issueId":"1","issueNumber":7}"#, "repository"),
            (r#"{"repository":"octo","issueNumber":7}"#, "repository"),
            (r#"{"repository":"octo/hello","issueNumber":0}"#, "issueNumber"),
            (r#"{"issueId":"1","mode":"slow"}"#, "mode"),
            (r#"{"issueId":"1","mode":"fast"}"#, "mode"),
            (r#"{"issueId":"1","colour":"red"}"#, "colour"),
        ] {
            let error = ask(body, None).expect_err(body);
            let shown = format!("{error:?}");
            assert!(shown.contains(&format!("field: Some(\"{field}\")")), "{body}: {shown}");
        }
        assert!(ask(r#"{"issueId":"1"}"#, Some("2")).is_err(), "path and body disagree");
    }
}
