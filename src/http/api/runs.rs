//! Runs of agents: their list, and ending or retrying one.

use actix_web::{HttpRequest, HttpResponse, get, post, web};

use serde::Serialize;
use utoipa::ToSchema;

use super::conversations::{RunBody, of_run, run_body};
use super::issues::IssueNames;
use super::sandboxes::parse_issue_id;
use crate::conversation::{PersonAnswer, Run, RunEvent, RunReply};
use crate::http::Shared;
use crate::http::answers;
use crate::http::body::JsonBody;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, Code, only};
use crate::http::query::Query;
use crate::http::question::AnswerRequest;
use crate::http::wire::{ListAnswer, Success};
use crate::store::Page;
use crate::store::conversation::{RunFilter, RunRow};
use crate::types::{Alias, RunId, RunState};

/// A run in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ListedRun)]
pub struct ListedRunBody {
    /// The run.
    #[serde(flatten)]
    pub run: RunBody,
    /// Its issue; null if it is not known any more.
    pub issue: Option<IssueNames>,
}

/// Lists the runs of the account's agents, newest first.
#[utoipa::path(
    operation_id = "listRuns", tag = "conversations",
    params(
        params::PageOf,
        ("state" = Option<String>, Query,
         description = "Only runs in this state; several with commas between them"),
        ("issueId" = Option<String>, Query, description = "Only runs of this issue"),
    ),
    responses(
        (status = 200, body = ListAnswer<ListedRunBody>, description = "a page of the runs"),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/runs")]
pub async fn list(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    let states = query.text("state")?;
    let issue = query.text("issueId")?.as_deref().map(parse_issue_id).transpose()?;
    query.finish()?;
    let state = |word: &str| {
        let known = RunState::ALL.map(RunState::as_str).join(", ");
        RunState::parse(word)
            .ok_or_else(|| ApiError::field("state", format!("must be one of {known}")))
    };
    let states = states.as_deref().map(|words| words.split(',').map(state).collect());
    let states: Vec<RunState> = states.transpose()?.unwrap_or_default();
    let mut filter = RunFilter { home: None, states };
    let mut found = Page { items: Vec::new(), next: None, total: 0 };
    let is_known = match issue {
        None => true,
        Some(issue) => {
            let alias = Alias::Issue(issue);
            filter.home = shared.edge.store.resolve(&caller.account, &alias).await?;
            filter.home.is_some()
        }
    };
    if is_known {
        found = shared.edge.runs.rows.runs(&caller.account, &filter, &page).await?;
    }
    let mut runs = Vec::with_capacity(found.items.len());
    for RunRow { home, run } in &found.items {
        let usage = of_run(&shared, *home, run.id).await?;
        let issue = IssueNames::of_home(&shared, *home).await?;
        runs.push(ListedRunBody { run: run_body(run, usage), issue });
    }
    Ok(HttpResponse::Ok().json(ListAnswer {
        success: true,
        data: runs,
        next_cursor: found.next,
        total: found.total,
        event_cursor: None,
    }))
}

/// Ends a run: one that waits at once, one whose process goes on by asking the agent to end.
#[utoipa::path(
    operation_id = "cancelRun", tag = "conversations",
    params(params::OneRun),
    responses(
        (status = 202, body = Success<RunBody>, description = "the run after that"),
        answers::StoreWriteErrors, only::RunNotFound, only::RunRefused,
    )
)]
#[post("/v1/runs/{run}/cancel")]
pub async fn cancel(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let row = find(&shared, &caller, &path).await?;
    let reason = format!("{} ended it", caller.name);
    ask(&shared, &row, RunEvent::Cancel(Some(row.run.id), reason)).await
}

/// Tries a run again that ended without success: the same messages are answered.
#[utoipa::path(
    operation_id = "retryRun", tag = "conversations",
    params(params::OneRun),
    responses(
        (status = 202, body = Success<RunBody>, description = "the run after that"),
        answers::StoreWriteErrors, only::RunNotFound, only::RunRefused,
    )
)]
#[post("/v1/runs/{run}/retry")]
pub async fn retry(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let row = find(&shared, &caller, &path).await?;
    ask(&shared, &row, RunEvent::Retry(Some(row.run.id))).await
}

/// Answers the question that a run's agent asks. The agent goes on with it.
///
/// Only the first answer counts. A second one is refused, and the message says what was answered.
#[utoipa::path(
    operation_id = "answerRun", tag = "conversations",
    params(params::OneRun),
    request_body = AnswerRequest,
    responses(
        (status = 202, body = Success<RunBody>, description = "the run after that"),
        answers::StoreWriteErrors, only::RunNotFound, only::RunRefused,
    )
)]
#[post("/v1/runs/{run}/answer")]
pub async fn answer_question(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let row = find(&shared, &caller, &path).await?;
    let mut fields = body.0;
    let (question, option) = (fields.text("question")?, fields.text("option")?);
    fields.finish()?;
    let question = question.ok_or_else(|| ApiError::field("question", "is missing"))?;
    let option = option.ok_or_else(|| ApiError::field("option", "is missing"))?;
    let by = caller.name.to_string();
    let answer = given_answer(&row.run, PersonAnswer { question, option, by })?;
    ask(&shared, &row, RunEvent::Answer(row.run.id, answer)).await
}

/// The answer, if the question that a run waits with has its option. Whether it waits is decided later,
/// in one step with what follows from it.
///
/// # Errors
/// [`Code::InvalidRequest`] with the options.
pub fn given_answer(run: &Run, answer: PersonAnswer) -> Result<PersonAnswer, ApiError> {
    let asked = run.questions.open.as_ref().filter(|asked| asked.id == answer.question);
    if let Some(asked) = asked
        && !asked.options.iter().any(|option| option.id == answer.option)
    {
        let known: Vec<_> = asked.options.iter().map(|option| option.id.as_str()).collect();
        return Err(ApiError::field("option", format!("must be one of {}", known.join(", "))));
    }
    Ok(answer)
}

async fn find(shared: &Shared, caller: &Caller, id: &str) -> Result<RunRow, ApiError> {
    let not_found = || ApiError::new(Code::RunNotFound, "there is no such run");
    let id = RunId::parse(id).ok_or_else(not_found)?;
    shared.edge.runs.rows.run(&caller.account, id).await?.ok_or_else(not_found)
}

async fn ask(shared: &Shared, row: &RunRow, event: RunEvent) -> Result<HttpResponse, ApiError> {
    match shared.edge.engine.run_event(row.home, event).await? {
        RunReply::Is(run) => {
            let usage = of_run(shared, row.home, run.id).await?;
            Ok(HttpResponse::Accepted().json(Success::of(run_body(&run, usage))))
        }
        reply => {
            tracing::error!(?reply, "the answer to what was asked of a run does not fit");
            Err(ApiError::new(Code::StoreFailed, "the run's answer does not fit"))
        }
    }
}
