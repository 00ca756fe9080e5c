//! Syncs of a workspace with the object storage, and its versions there.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::exec::work_with;
use super::sandboxes::load;
use crate::engine::EngineError;
use crate::http::Shared;
use crate::http::answers;
use crate::http::body::JsonBody;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::SyncDirectionWord;
use crate::http::error::{ApiError, Code, only};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::shared::{closed, sandbox_ref};
use crate::http::wire::{ListAnswer, Success, SyncStatsBody};
use crate::sandbox::Capability;
use crate::store::sync::SyncRow;
use crate::sync::{
    SyncError, SyncOrder, SyncPlace, SyncSubject, SyncWorker, Synced, SyncedTree, SyncedVersion,
    SyncedVersions,
};
use crate::types::{Phase, Sandbox, SandboxId, SyncDirection, SyncVersion};

/// Longest age of a sync that is asked for, in seconds: ten years.
const SECONDS_MAX: u64 = 315_360_000;

/// What is asked of a sync.
#[derive(Debug, ToSchema)]
#[schema(as = SyncRequest, rename_all = "camelCase")]
#[allow(dead_code, reason = "only its description is used; the handler reads fields by name")]
pub struct SyncRequestBody {
    /// Which way; `push` if it is left out.
    #[schema(value_type = Option<SyncDirectionWord>)]
    direction: Option<String>,
    /// The version to pull; the newest if it is left out.
    version: Option<String>,
    /// Push only if the last sync ended longer ago than this and something changed since. Else the
    /// last sync is the answer.
    if_older_than_seconds: Option<u64>,
}

/// A sync that was carried out.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sync)]
pub struct SyncBody {
    /// The version that was pushed or pulled.
    pub version: String,
    /// Which way.
    #[schema(value_type = SyncDirectionWord)]
    pub direction: &'static str,
    /// What it did.
    pub stats: SyncStatsBody,
    /// True if this is an earlier sync, because it ended recently enough; else left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

impl From<Synced> for SyncBody {
    fn from(Synced { row, is_skipped }: Synced) -> Self {
        Self {
            version: row.version.to_string(),
            direction: row.direction.as_str(),
            stats: row.stats.into(),
            skipped: is_skipped,
        }
    }
}

/// A stored version of a workspace.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SyncVersion)]
pub struct SyncVersionBody {
    /// Its name.
    pub version: String,
    /// When the workspace was read.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Its regular files and links.
    pub files: u64,
    /// The sum of their sizes, in bytes.
    pub size: u64,
    /// What the push did that made it.
    pub stats: SyncStatsBody,
}

impl From<SyncedVersion> for SyncVersionBody {
    fn from(one: SyncedVersion) -> Self {
        Self {
            version: one.version.to_string(),
            created_at: one.walked_at.to_string(),
            files: one.stats.files_processed,
            size: one.size,
            stats: one.stats.into(),
        }
    }
}

/// Pushes the workspace to the object storage as a new version, or brings it to a stored one.
///
/// A pull deletes what the version does not have, except what `.issueboxignore` names. A push with
/// `ifOlderThanSeconds` does nothing if the last sync is recent enough. A stopped sandbox is started. Another sync of the sandbox is waited for.
#[utoipa::path(
    operation_id = "syncSandbox", tag = "work",
    params(params::OneSandbox, params::StartupWait),
    request_body = SyncRequestBody,
    responses(
        (status = 200, body = Success<SyncBody>, description = "the sync is done"),
        answers::WorkErrors, answers::SyncErrors,
    )
)]
#[post("/v1/sandboxes/{id}/sync")]
pub async fn sync(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, super::WORK_WAIT_SECS)?;
    query.finish()?;
    let order = read_order(body.0)?;
    let (sandbox, synced) = carry_out(&shared, &caller, &id, order, at_most).await?;
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, SyncBody::from(synced))))
}

/// Carries a sync out. A stopped sandbox is started, if that is needed.
///
/// # Errors
/// [`ApiError`].
pub async fn carry_out(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    order: SyncOrder,
    at_most: Duration,
) -> Result<(Sandbox, Synced), ApiError> {
    let sandbox = load(shared, &caller.account, &sandbox_ref(id)).await?;
    let worker = configured(shared)?;
    match order {
        SyncOrder::Pull(version) if sandbox.phase.is_some() => {
            // A version that is not there starts nothing.
            worker.tree(subject(&sandbox), version).await?;
        }
        SyncOrder::PushIfStale(threshold) if sandbox.phase.is_some() => {
            // Neither does a push that is not needed.
            if let Some(row) = worker.fresh(&sandbox.id, threshold).await? {
                return Ok((sandbox, Synced { row, is_skipped: true }));
            }
        }
        SyncOrder::Push | SyncOrder::PushIfStale(_) | SyncOrder::Pull(_) => {}
    }
    let work = work_with(shared, caller, id, at_most, Capability::Archives).await?;
    let place = SyncPlace { workspace: work.provider.workspace, target: work.target };
    let syncing = worker.sync(subject(&work.sandbox), place, order, work.at_work);
    let synced = tokio::select! {
        biased;
        synced = syncing => synced?,
        () = closed(shared.edge.closing.clone()) => return Err(EngineError::ShuttingDown.into()),
    };
    Ok((work.sandbox, synced))
}

fn read_order(mut fields: Fields) -> Result<SyncOrder, ApiError> {
    let (direction, version) = (fields.text("direction")?, fields.text("version")?);
    let older_than = fields.number("ifOlderThanSeconds", 0..=SECONDS_MAX)?;
    fields.finish()?;
    let direction = match direction.as_deref().map(SyncDirection::parse) {
        None => SyncDirection::default(),
        Some(Some(direction)) => direction,
        Some(None) => return Err(ApiError::field("direction", "must be push or pull")),
    };
    let version = version.as_deref().map(parse_version).transpose()?;
    match (direction, version, older_than) {
        (SyncDirection::Push, None, None) => Ok(SyncOrder::Push),
        (SyncDirection::Push, None, Some(seconds)) => {
            Ok(SyncOrder::PushIfStale(Duration::from_secs(seconds)))
        }
        (SyncDirection::Push, Some(_), _) => {
            let why = "goes with direction pull: a push makes a new version";
            Err(ApiError::field("version", why))
        }
        (SyncDirection::Pull, version, None) => Ok(SyncOrder::Pull(version)),
        (SyncDirection::Pull, _, Some(_)) => {
            Err(ApiError::field("ifOlderThanSeconds", "goes with direction push"))
        }
    }
}

/// Lists the stored versions of a workspace, newest first, also of a deleted sandbox.
#[utoipa::path(
    operation_id = "listSyncVersions", tag = "work",
    params(params::OneSandbox, params::PageOf),
    responses(
        (status = 200, body = ListAnswer<SyncVersionBody>, description = "a page of the versions"),
        answers::SandboxReadErrors, only::SyncNotConfigured, only::SyncFailed,
    )
)]
#[get("/v1/sandboxes/{id}/sync/versions")]
pub async fn versions(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    query.finish()?;
    let after = page.cursor.as_deref().map(SyncVersion::parse);
    let after = after.map(|after| after.ok_or_else(|| ApiError::field("cursor", "is invalid")));
    let sandbox = load(&shared, &caller.account, &sandbox_ref(&id)).await?;
    let found = synced_versions(&shared, &sandbox, after.transpose()?, page.limit).await?;
    Ok(HttpResponse::Ok().json(ListAnswer {
        success: true,
        data: found.versions.into_iter().map(SyncVersionBody::from).collect(),
        next_cursor: found.next.map(|next| next.to_string()),
        total: found.total as u64,
        event_cursor: None,
    }))
}

/// The versions of a sandbox, newest first: at most `limit`, older than `after`.
///
/// # Errors
/// 409 if nothing is synced here.
pub async fn synced_versions(
    shared: &Shared,
    sandbox: &Sandbox,
    after: Option<SyncVersion>,
    limit: usize,
) -> Result<SyncedVersions, ApiError> {
    Ok(configured(shared)?.versions(subject(sandbox), after, limit).await?)
}

/// Pushes the workspace of a sandbox that is about to be deleted.
///
/// # Errors
/// Why it was not pushed.
pub async fn push_before_delete(
    shared: &Shared,
    caller: &Caller,
    id: &str,
) -> Result<(), ApiError> {
    let sandbox = load(shared, &caller.account, &sandbox_ref(id)).await?;
    let worker = configured(shared)?;
    if matches!(sandbox.phase, None | Some(Phase::Deleting)) {
        return Ok(());
    }
    let at_most = Duration::from_secs(super::WORK_WAIT_SECS);
    let work = work_with(shared, caller, id, at_most, Capability::Archives).await?;
    let place = SyncPlace { workspace: work.provider.workspace, target: work.target };
    worker.sync(subject(&work.sandbox), place, SyncOrder::Push, work.at_work).await?;
    // What the version lacks would be gone with the sandbox.
    let stored = synced_tree(shared, &sandbox, None).await?;
    let Some(path) = stored.left_out().first() else { return Ok(()) };
    let (count, path) = (stored.left_out().len(), String::from_utf8_lossy(path));
    let message = format!("{count} files or directories could not be read, such as {path:?}");
    Err(ApiError::new(Code::SyncFailed, message))
}

/// What a version of a sandbox has; the newest one if none is named.
///
/// # Errors
/// 409 if nothing is synced here, 404 if there is no such version.
pub async fn synced_tree(
    shared: &Shared,
    sandbox: &Sandbox,
    version: Option<SyncVersion>,
) -> Result<SyncedTree, ApiError> {
    Ok(configured(shared)?.tree(subject(sandbox), version).await?)
}

/// A sandbox's last sync, if anything is synced here.
///
/// # Errors
/// 503 if the store cannot be read.
pub async fn last_sync(shared: &Shared, sandbox: &SandboxId) -> Result<Option<SyncRow>, ApiError> {
    match &shared.edge.sync {
        Some(worker) => Ok(worker.last(sandbox).await?),
        None => Ok(None),
    }
}

/// Reads a version's name.
///
/// # Errors
/// 400 for another text.
pub fn parse_version(text: &str) -> Result<SyncVersion, ApiError> {
    let needed =
        || ApiError::field("version", "must be the name of a version, such as v1764627998-1");
    SyncVersion::parse(text).ok_or_else(needed)
}

fn configured(shared: &Shared) -> Result<&SyncWorker, ApiError> {
    shared.edge.sync.as_ref().ok_or_else(|| {
        let message = "no object storage is configured, so workspaces are not synced";
        ApiError::new(Code::SyncNotConfigured, message)
            .hint("set url in [sync] and restart the server; docs/sync.md says how")
    })
}

fn subject(sandbox: &Sandbox) -> SyncSubject {
    SyncSubject { account: sandbox.account.clone(), sandbox: sandbox.id.clone() }
}

impl From<SyncError> for ApiError {
    fn from(error: SyncError) -> Self {
        let message = error.to_string();
        match error {
            SyncError::Work(error) => error.into(),
            SyncError::NoSuchVersion(_) | SyncError::NoVersion => {
                Self::new(Code::VersionNotFound, message)
                    .about("version")
                    .hint("GET /v1/sandboxes/{id}/sync/versions lists the versions")
            }
            SyncError::Storage(why) => {
                tracing::warn!(error = %why, "the object storage failed; its caller gets an error");
                Self::new(Code::SyncFailed, "the object storage could not be reached or failed")
                    .hint("check [sync] in the configuration; the server's log has the reason")
            }
            SyncError::Damaged { .. }
            | SyncError::ContentMissing(_)
            | SyncError::ContentDamaged(_) => {
                Self::new(Code::SyncFailed, message).hint("pull another version")
            }
            SyncError::NotRecorded(why) => EngineError::StoreFailed(why).into(),
            SyncError::Ended => EngineError::ShuttingDown.into(),
        }
    }
}
