//! Commands to one sandbox: stop, start, retry, delete.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, delete, post, web};

use super::checkouts::retry_checkout;
use super::sandboxes::{SandboxAnswer, load};
use super::syncs::push_before_delete;
use crate::conversation::RunEvent;
use crate::engine::{Commanded, EngineError, SandboxRef, WaitFor};
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::issue::Command;
use crate::types::{Phase, Sandbox};

/// Stops a sandbox and keeps its workspace.
#[utoipa::path(
    operation_id = "stopSandbox", tag = "sandboxes",
    params(params::OneSandbox, params::ResultWait),
    responses(
        (status = 202, body = SandboxAnswer, description = "the sandbox after the command"),
        answers::SandboxWriteErrors, only::SandboxDeleted,
    )
)]
#[post("/v1/sandboxes/{id}/stop")]
pub async fn stop(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let until = WaitFor::Settled;
    answer(&shared, &caller, &request, &path, Command::Stop, until).await
}

/// Starts a stopped sandbox, or retries a failed one.
#[utoipa::path(
    operation_id = "startSandbox", tag = "sandboxes",
    params(params::OneSandbox, params::ResultWait),
    responses(
        (status = 202, body = SandboxAnswer, description = "the sandbox after the command"),
        answers::AdmissionErrors, only::SandboxNotFound,
        only::Deleting, only::SandboxDeleted,
    )
)]
#[post("/v1/sandboxes/{id}/start")]
pub async fn start(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let until = WaitFor::Settled;
    answer(&shared, &caller, &request, &path, Command::Start, until).await
}

/// Retries the step at which a sandbox failed; of a running one its checkout, or the agent's last run.
#[utoipa::path(
    operation_id = "retrySandbox", tag = "sandboxes",
    params(params::OneSandbox, params::ResultWait),
    responses(
        (status = 202, body = SandboxAnswer, description = "the sandbox after the command"),
        answers::AdmissionErrors, only::NotFailed, only::SandboxDeleted, only::SandboxNotFound,
    )
)]
#[post("/v1/sandboxes/{id}/retry")]
pub async fn retry(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    read_query(&request, Command::Retry)?;
    let sandbox = load(&shared, &caller.account, &sandbox_ref(&path)).await?;
    if retry_checkout(&shared, &sandbox).await? || retry_run(&shared, &sandbox).await? {
        return Ok(HttpResponse::Accepted().json(SandboxAnswer::new(&sandbox, None)));
    }
    answer(&shared, &caller, &request, &path, Command::Retry, WaitFor::Settled).await
}

/// Deletes a sandbox and its workspace.
#[utoipa::path(
    operation_id = "deleteSandbox", tag = "sandboxes",
    params(
        params::OneSandbox,
        params::ResultWait,
        ("force" = Option<bool>, Query,
         description = "Delete the record without the provider's confirmation, and also if a \
                        push fails"),
        ("sync" = Option<bool>, Query,
         description = "Push the workspace to the object storage first. If that fails, the \
                        sandbox is not deleted, unless `force` says so"),
    ),
    responses(
        (status = 202, body = SandboxAnswer, description = "the sandbox is being deleted"),
        (status = 200, body = SandboxAnswer, description = "the sandbox is deleted"),
        answers::SandboxWriteErrors, answers::PushErrors,
    )
)]
#[delete("/v1/sandboxes/{id}")]
pub async fn delete(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    answer(&shared, &caller, &request, &path, Command::Delete, WaitFor::Absent).await
}

/// Tries the last run of a running sandbox's agent again; false if there is none that failed.
async fn retry_run(shared: &Shared, sandbox: &Sandbox) -> Result<bool, ApiError> {
    if sandbox.phase != Some(Phase::Running) {
        return Ok(false);
    }
    match shared.edge.engine.run_event(sandbox.home, RunEvent::Retry(None)).await {
        Ok(_) => Ok(true),
        Err(EngineError::RunRefused(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn answer(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    id: &str,
    command: Command,
    until: WaitFor,
) -> Result<HttpResponse, ApiError> {
    let CommandQuery { at_most, command, syncs } = read_query(request, command)?;
    if syncs {
        push_first(shared, caller, id, command).await?;
    }
    let of = sandbox_ref(id);
    let Commanded { mut sandbox, absent } =
        shared.edge.engine.command(&caller.account, &of, command, caller.cause()).await?;
    let mut settled = (!at_most.is_zero()).then_some(absent);
    if !absent {
        // By its id: its name can mean the next generation by now.
        let of = SandboxRef::Id(sandbox.id.clone());
        if let Some(waited) = shared.wait(caller, &of, until, at_most).await? {
            settled = Some(waited.settled);
            // A delete concerns this sandbox; other commands follow the issue.
            let seen = match command {
                Command::Delete | Command::ForceDelete => {
                    shared.edge.store.sandbox(&caller.account, &sandbox.id).await?
                }
                Command::Stop | Command::Start | Command::Retry => waited.sandbox,
            };
            sandbox = seen.unwrap_or(sandbox);
        }
    }
    let deletes = matches!(command, Command::Delete | Command::ForceDelete);
    let mut answer =
        if deletes && is_gone(&sandbox) { HttpResponse::Ok() } else { HttpResponse::Accepted() };
    Ok(answer.json(SandboxAnswer::new(&sandbox, settled)))
}

/// Pushes a workspace before its sandbox is deleted.
///
/// # Errors
/// Why it was not pushed, unless the delete is forced.
async fn push_first(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    command: Command,
) -> Result<(), ApiError> {
    match push_before_delete(shared, caller, id).await {
        Ok(()) => Ok(()),
        Err(error) if command == Command::ForceDelete => {
            tracing::warn!(sandbox = id, %error, "a sandbox is deleted though its push failed");
            Ok(())
        }
        Err(error) => {
            let why =
                format!("the sandbox is not deleted, because its push failed: {}", error.message());
            Err(error.with_message(why).hint("remove the cause, or delete with force=true"))
        }
    }
}

/// What the query of a command says.
struct CommandQuery {
    at_most: Duration,
    command: Command,
    /// Whether the workspace is pushed first.
    syncs: bool,
}

fn read_query(request: &HttpRequest, command: Command) -> Result<CommandQuery, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, 0)?;
    let deletes = command == Command::Delete;
    let forced = deletes && query.flag("force")?;
    let syncs = deletes && query.flag("sync")?;
    query.finish()?;
    let command = if forced { Command::ForceDelete } else { command };
    Ok(CommandQuery { at_most, command, syncs })
}

fn is_gone(sandbox: &Sandbox) -> bool {
    sandbox.phase.is_none()
}
