//! Drift between records and providers, and the decisions about it.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::ListedPage;
use crate::engine::{DriftItem, ObjectSide, ProviderSweeps, RecordSide, Remedy};
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::{AdminCaller, Caller};
use crate::http::doc::params;
use crate::http::doc::words::{DriftWord, ModeWord, ObjectWord, PhaseWord, RemedyWord};
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::wire::Success;

/// A page of drift, and the sweeps that found it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DriftList)]
pub struct DriftListBody {
    /// Always true.
    pub success: bool,
    /// The items of this page.
    pub data: Vec<DriftBody>,
    /// The `cursor` of the next page; null on the last.
    pub next_cursor: Option<String>,
    /// The number of all items. At most 1000 of each provider are listed.
    pub total: u64,
    /// The sweeps of each provider.
    pub sweeps: Vec<SweepsBody>,
}

/// A difference between a record and a provider.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Drift)]
pub struct DriftBody {
    /// Its id, stable across sweeps.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// The kind of difference.
    #[schema(value_type = DriftWord)]
    pub kind: &'static str,
    /// Whether a person should look at it soon. What happens otherwise is in `next`.
    pub alarm: bool,
    /// The account of that issue.
    pub account: Option<String>,
    /// The issue, if it concerns one.
    pub issue_id: Option<String>,
    /// The record; null if there is none.
    pub record: Option<DriftRecordBody>,
    /// The provider's object; null if there is none.
    pub object: Option<DriftObjectBody>,
    /// The difference in words.
    pub reason: String,
    /// When a sweep first found it.
    #[schema(format = DateTime)]
    pub since: String,
    /// The next automatic step, in words.
    pub next: String,
    /// The earliest time of that step, if it has one.
    #[schema(format = DateTime)]
    pub next_at: Option<String>,
    /// The possible decisions.
    #[schema(value_type = Vec<RemedyWord>)]
    pub remedies: Vec<&'static str>,
}

/// The record of a drift item.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DriftRecord)]
pub struct DriftRecordBody {
    /// The sandbox's id.
    pub sandbox_id: String,
    /// Its generation.
    pub generation: u32,
    /// Its phase.
    #[schema(value_type = PhaseWord)]
    pub phase: &'static str,
    /// Its object at the provider, if known.
    pub external_id: Option<String>,
}

/// The object of a drift item.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DriftObject)]
pub struct DriftObjectBody {
    /// The provider's id of the object.
    pub external_id: String,
    /// Its name.
    pub name: String,
    /// Its state.
    #[schema(value_type = ObjectWord)]
    pub state: &'static str,
    /// The sandbox's id in its labels.
    pub sandbox_id: String,
    /// That sandbox's generation.
    pub generation: u32,
    /// How that sandbox's create was recorded.
    #[schema(value_type = ModeWord)]
    pub mode: &'static str,
}

/// The sweeps of one provider.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sweeps)]
pub struct SweepsBody {
    /// The provider.
    pub provider: String,
    /// When the last complete sweep ended; null before the first.
    #[schema(format = DateTime)]
    pub last_at: Option<String>,
    /// Live sandboxes in the records then.
    pub records: u64,
    /// Objects of this installation at the provider then.
    pub objects: u64,
    /// Complete sweeps since the server started.
    pub done: u64,
    /// Sweeps that found too much drift to act.
    pub held_back: u64,
    /// Sweeps that failed.
    pub not_made: u64,
    /// The number of items of each kind that occurs.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Lists the drift that each provider's last sweep found.
#[utoipa::path(
    operation_id = "listDrift", tag = "server",
    params(params::PageOf),
    responses(
        (status = 200, description = "a page of drift items, and the sweeps", body = DriftListBody),
    )
)]
#[get("/v1/system/drift")]
pub async fn list(
    shared: web::Data<Shared>,
    _caller: AdminCaller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let view = shared.edge.engine.drift();
    let ListedPage { items, next_cursor, total: _ } = ListedPage::of(&request, &view.items)?;
    Ok(HttpResponse::Ok().json(DriftListBody {
        success: true,
        data: items.iter().map(DriftBody::from).collect(),
        next_cursor,
        total: view.total as u64,
        sweeps: view.sweeps.iter().map(SweepsBody::from).collect(),
    }))
}

/// Accepts the provider's state: an object becomes its issue's sandbox, a changed identity becomes
/// the provider's, or a mass loss is confirmed.
#[utoipa::path(
    operation_id = "adoptDrift", tag = "server",
    params(("driftId" = String, Path, description = "The item's id")),
    responses(
        (status = 202, body = Success<DriftBody>, description = "the item as it was listed"),
        answers::DriftErrors, only::IssueIdConflict,
    )
)]
#[post("/v1/system/drift/{driftId}/adopt")]
pub async fn adopt(
    shared: web::Data<Shared>,
    caller: AdminCaller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    carry_out(&shared, &caller, &request, &path, Remedy::Adopt).await
}

/// Deletes an object, or records at once that a record's object is lost.
#[utoipa::path(
    operation_id = "removeDrift", tag = "server",
    params(("driftId" = String, Path, description = "The item's id")),
    responses(
        (status = 202, body = Success<DriftBody>, description = "the item as it was listed"),
        answers::DriftErrors,
    )
)]
#[post("/v1/system/drift/{driftId}/remove")]
pub async fn remove(
    shared: web::Data<Shared>,
    caller: AdminCaller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    carry_out(&shared, &caller, &request, &path, Remedy::Remove).await
}

async fn carry_out(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    id: &str,
    remedy: Remedy,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let item = shared.edge.engine.remedy(id, remedy, caller.cause()).await?;
    Ok(HttpResponse::Accepted().json(Success::of(DriftBody::from(&item))))
}

impl From<&DriftItem> for DriftBody {
    fn from(item: &DriftItem) -> Self {
        Self {
            id: item.id.clone(),
            provider: item.provider.to_string(),
            kind: item.kind.as_str(),
            alarm: item.kind.is_alarm(),
            account: item.account.as_ref().map(ToString::to_string),
            issue_id: item.issue.as_ref().map(ToString::to_string),
            record: item.record.as_ref().map(DriftRecordBody::from),
            object: item.object.as_ref().map(DriftObjectBody::from),
            reason: item.reason.clone(),
            since: item.since.to_string(),
            next: item.next.clone(),
            next_at: item.next_at.as_ref().map(ToString::to_string),
            remedies: item.remedies.iter().map(|remedy| remedy.as_str()).collect(),
        }
    }
}

impl From<&RecordSide> for DriftRecordBody {
    fn from(side: &RecordSide) -> Self {
        Self {
            sandbox_id: side.sandbox.to_string(),
            generation: side.generation.0,
            phase: side.phase.as_str(),
            external_id: side.external_id.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&ObjectSide> for DriftObjectBody {
    fn from(side: &ObjectSide) -> Self {
        Self {
            external_id: side.external_id.to_string(),
            name: side.name.to_string(),
            state: side.state.as_str(),
            sandbox_id: side.sandbox.to_string(),
            generation: side.generation.0,
            mode: side.mode.as_str(),
        }
    }
}

impl From<&ProviderSweeps> for SweepsBody {
    fn from(sweeps: &ProviderSweeps) -> Self {
        let counts = sweeps.counts.iter().map(|(kind, count)| (kind.as_str(), *count as u64));
        Self {
            provider: sweeps.provider.to_string(),
            last_at: sweeps.last_at.as_ref().map(ToString::to_string),
            records: sweeps.records as u64,
            objects: sweeps.objects as u64,
            done: sweeps.done,
            held_back: sweeps.held_back,
            not_made: sweeps.not_made,
            counts: counts.collect(),
        }
    }
}
