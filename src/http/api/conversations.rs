//! Conversations: what was said to the agent of an issue, its runs, and their events as they come.

mod follow;
mod usage;
mod wire;

use actix_web::{HttpRequest, HttpResponse, get, post, put, web};

use super::ensure::{parse_place, read_number};
use super::sandboxes::parse_issue_id;
use crate::conversation::{Run, RunReply, SaidWords};
use crate::engine::{IssueKey, SandboxRef};
use crate::http::Shared;
use crate::http::answers;
use crate::http::body::MessageJson;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, Code, only};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::sse;
use crate::http::wire::Success;
use crate::types::{AgentName, Alias, HomeId, MessageId};

pub use usage::{RunCosts, RunUsage, of_run};
pub use wire::{
    ConversationBody, MessageBody, MessageRef, RunBody, SaidBody, SayRequest, SayToIssueRequest,
    UsageBody, run_body,
};

/// Longest text of one message, in bytes.
pub const MESSAGE_LEN_MAX: usize = 4 << 20;
/// How many of the last events a stream can begin with.
const TAIL_MAX: u64 = 10_000;
/// How many messages and runs of a conversation are answered: the newest.
const NEWEST: usize = 1_000;

/// Says something to the agent of a sandbox.
///
/// The message waits for the agent's next run, together with those that wait already. A stopped sandbox
/// is started for it, unless a person stopped it. With `Accept: text/event-stream` the answer is the
/// stream of the conversation's events from this message on, until the run ends.
#[utoipa::path(
    operation_id = "sayInSandbox", tag = "conversations",
    params(params::OneSandbox),
    request_body = SayRequest,
    responses(
        (status = 202, body = Success<SaidBody>, description = "the message and the run that answers it"),
        answers::SandboxWriteErrors, only::SandboxDeleted, only::AgentUnknown, only::QueueFull,
        only::RunRefused,
    )
)]
#[post("/v1/sandboxes/{id}/messages")]
pub async fn say(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: MessageJson,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let words = words(&shared, &caller, body.0)?;
    let engine = &shared.edge.engine;
    let (home, reply) =
        engine.say_in(&caller.account, &sandbox_ref(&path), words, caller.cause()).await?;
    said(&shared, &caller, &request, home, reply)
}

/// Says something to the agent of an issue, and makes its sandbox if it has none. With repository and
/// number that sandbox gets a checkout, and counts for the repository's quota and holds.
#[utoipa::path(
    operation_id = "sayInIssue", tag = "conversations",
    params(params::OneIssue),
    request_body = SayToIssueRequest,
    responses(
        (status = 202, body = Success<SaidBody>, description = "the message and the run that answers it"),
        answers::StoreWriteErrors, only::AgentUnknown, only::QueueFull, only::IssueIdConflict,
        only::RunRefused,
    )
)]
#[put("/v1/issues/{issueId}/messages")]
pub async fn say_in_issue(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: MessageJson,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let id = Some(parse_issue_id(&path)?);
    let mut fields = body.0;
    let (repository, number) = (fields.text("repository")?, read_number(&mut fields)?);
    let issue = IssueKey { id, numbered: parse_place(repository, number)? };
    let words = words(&shared, &caller, fields)?;
    shared.edge.callers().check_account(&caller.account, &issue)?;
    let engine = &shared.edge.engine;
    let (home, reply) = engine.say(&caller.account, &issue, words, caller.cause()).await?;
    said(&shared, &caller, &request, home, reply)
}

fn words(shared: &Shared, caller: &Caller, mut fields: Fields) -> Result<SaidWords, ApiError> {
    let text = fields.text("text")?;
    let agent = fields.text("agentId")?;
    let interrupts = fields.flag("interrupt")?.unwrap_or_default();
    fields.finish()?;
    let text = text.ok_or_else(|| ApiError::field("text", "is missing"))?;
    if text.trim().is_empty() {
        return Err(ApiError::field("text", "is empty"));
    }
    if text.len() > MESSAGE_LEN_MAX {
        let most = MESSAGE_LEN_MAX >> 20;
        return Err(ApiError::field("text", format!("is longer than {most} MiB")));
    }
    let agent = agent.map(AgentName::trusted);
    if let Some(agent) = &agent
        && !shared.edge.runs.programs.is_known(agent)
    {
        let known = shared.edge.runs.programs.names().join(", ");
        let message = format!("there is no agent {agent}; there are {known}");
        return Err(ApiError::new(Code::AgentUnknown, message).about("agentId"));
    }
    Ok(SaidWords { agent, interrupts, ..SaidWords::of_caller(caller.name.to_string(), text) })
}

fn said(
    shared: &web::Data<Shared>,
    caller: &Caller,
    request: &HttpRequest,
    home: HomeId,
    reply: RunReply,
) -> Result<HttpResponse, ApiError> {
    let RunReply::Said(message, run) = reply else {
        return Err(ApiError::new(Code::StoreFailed, "the message was not taken in"));
    };
    if sse::is_wanted(request) {
        return Ok(sse::answer(follow::until_run_ends(shared, caller, home, (message, run.id))));
    }
    let said = SaidBody::of(message, &run);
    Ok(HttpResponse::Accepted().json(Success::of(said)))
}

/// Gets the conversation of a sandbox's issue.
#[utoipa::path(
    operation_id = "getSandboxConversation", tag = "conversations",
    params(params::OneSandbox),
    responses(
        (status = 200, body = Success<ConversationBody>, description = "the newest 1,000 messages and runs, oldest first"),
        answers::SandboxReadErrors,
    )
)]
#[get("/v1/sandboxes/{id}/conversation")]
pub async fn of_sandbox(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let home = home_of_sandbox(&shared, &caller, &path).await?;
    answer(&shared, home).await
}

/// Gets the conversation of an issue; empty if nothing was said.
#[utoipa::path(
    operation_id = "getIssueConversation", tag = "conversations",
    params(params::OneIssue),
    responses(
        (status = 200, body = Success<ConversationBody>, description = "the newest 1,000 messages and runs, oldest first"),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/issues/{issueId}/conversation")]
pub async fn of_issue(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    match home_of_issue(&shared, &caller, &path).await? {
        Some(home) => answer(&shared, home).await,
        None => Ok(HttpResponse::Ok().json(Success::of(ConversationBody::default()))),
    }
}

async fn answer(shared: &Shared, home: HomeId) -> Result<HttpResponse, ApiError> {
    let rows = &shared.edge.runs.rows;
    let messages = rows.newest_messages(home, NEWEST).await?;
    let runs = rows.runs_of(home, NEWEST).await?;
    let usage = usage::RunUsage::of_home(shared, home).await?;
    let body = ConversationBody::of(&messages, &runs, &usage);
    Ok(HttpResponse::Ok().json(Success::of(body)))
}

/// Streams the events of a sandbox's conversation: messages, states of runs, and what the agent does.
///
/// Without `Last-Event-ID` it begins at the conversation's beginning. Each event's `data` is one JSON
/// object with its `type`; the same event has the same bytes and id for every reader, also after a restart.
#[utoipa::path(
    operation_id = "streamSandboxConversation", tag = "conversations",
    params(
        params::OneSandbox,
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received"),
        ("tail" = Option<u64>, Query, minimum = 0, maximum = 10000,
         description = "Begin with the last so many events; by default with all. `Last-Event-ID` goes before it"),
    ),
    responses(
        (status = 200, description = "a stream of server-sent events",
         body = String, content_type = "text/event-stream"),
        answers::SandboxReadErrors,
    )
)]
#[get("/v1/sandboxes/{id}/conversation/events")]
pub async fn events_of_sandbox(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let tail = tail(&request)?;
    let home = home_of_sandbox(&shared, &caller, &path).await?;
    follow::stream(&shared, &caller, &request, home, tail).await
}

/// Streams the events of an issue's conversation, as those of its sandbox. It ends at once if the issue is
/// not known yet.
#[utoipa::path(
    operation_id = "streamIssueConversation", tag = "conversations",
    params(
        params::OneIssue,
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received"),
        ("tail" = Option<u64>, Query, minimum = 0, maximum = 10000,
         description = "Begin with the last so many events; by default with all. `Last-Event-ID` goes before it"),
    ),
    responses(
        (status = 200, description = "a stream of server-sent events",
         body = String, content_type = "text/event-stream"),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/issues/{issueId}/conversation/events")]
pub async fn events_of_issue(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let tail = tail(&request)?;
    let home = home_of_issue(&shared, &caller, &path).await?;
    match home {
        Some(home) => follow::stream(&shared, &caller, &request, home, tail).await,
        // Nothing was said yet. Readers come again by themselves.
        None => Ok(sse::answer(futures_util::stream::iter([Ok(sse::GREETING)]))),
    }
}

/// Reads `?tail=`.
fn tail(request: &HttpRequest) -> Result<Option<usize>, ApiError> {
    let mut query = Query::parse(request.query_string());
    let tail = query.number("tail", 0..=TAIL_MAX)?;
    query.finish()?;
    Ok(tail.and_then(|tail| usize::try_from(tail).ok()))
}

async fn home_of_sandbox(shared: &Shared, caller: &Caller, id: &str) -> Result<HomeId, ApiError> {
    let reference: SandboxRef = sandbox_ref(id);
    Ok(shared.edge.engine.sandbox(&caller.account, &reference).await?.home)
}

async fn home_of_issue(
    shared: &Shared,
    caller: &Caller,
    id: &str,
) -> Result<Option<HomeId>, ApiError> {
    let alias = Alias::Issue(parse_issue_id(id)?);
    Ok(shared.edge.store.resolve(&caller.account, &alias).await?)
}

/// The message and run of an answer.
impl SaidBody {
    fn of(message: MessageId, run: &Run) -> Self {
        let message = MessageRef { id: message.to_string(), run: run.id.to_string() };
        // Nothing was used yet, or it is asked for when the run has ended.
        Self { message, run: run_body(run, UsageBody::default()) }
    }
}
