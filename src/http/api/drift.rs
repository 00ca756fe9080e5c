//! What our records and the providers disagree on, and what people decide about it.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::{DriftItem, ObjectSide, ProviderSweeps, RecordSide, Remedy};
use crate::http::Shared;
use crate::http::answers;
use crate::http::auth::Caller;
use crate::http::doc::params;
use crate::http::doc::words::{DriftWord, ModeWord, ObjectWord, PhaseWord, RemedyWord};
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::wire::Success;

/// A page of drift, and how the sweeps that found it went.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DriftList)]
pub struct DriftListBody {
    /// Always true.
    pub success: bool,
    /// What is on this page.
    pub data: Vec<DriftBody>,
    /// The `cursor` of the next page; null on the last.
    pub next_cursor: Option<String>,
    /// How many there are; of each provider at most the first 1000 are listed.
    pub total: u64,
    /// The sweeps of each provider.
    pub sweeps: Vec<SweepsBody>,
}

/// One thing that a record and a provider disagree on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Drift)]
pub struct DriftBody {
    /// Its id; the same from sweep to sweep.
    pub id: String,
    /// Which provider.
    pub provider: String,
    /// `object_lost`, `killed_outside`, `started_outside`, `orphan`, `quarantined`,
    /// `duplicate`, `identity_changed`, `mass_loss`, `mass_removal` or `provider_unreachable`.
    #[schema(value_type = DriftWord)]
    pub kind: &'static str,
    /// Whether it needs a person: nothing that is done by itself makes it right.
    pub alarm: bool,
    /// The issue it concerns, where it concerns one.
    pub issue_id: Option<String>,
    /// What our record says; null where there is none.
    pub record: Option<DriftRecordBody>,
    /// What the provider says; null where it has no object.
    pub object: Option<DriftObjectBody>,
    /// What disagrees, in words.
    pub reason: String,
    /// Since when sweeps have found it.
    #[schema(format = DateTime)]
    pub since: String,
    /// What happens next by itself, in words.
    pub next: String,
    /// When that happens at the earliest, where it has a time.
    #[schema(format = DateTime)]
    pub next_at: Option<String>,
    /// What can be done about it: `adopt`, `remove`.
    #[schema(value_type = Vec<RemedyWord>)]
    pub remedies: Vec<&'static str>,
}

/// What our record says.
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
    /// Its object, where one is known.
    pub external_id: Option<String>,
}

/// What the provider says.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DriftObject)]
pub struct DriftObjectBody {
    /// The provider's id of the object.
    pub external_id: String,
    /// Its name.
    pub name: String,
    /// `partial`, `running`, `stopped` or `destroying`.
    #[schema(value_type = ObjectWord)]
    pub state: &'static str,
    /// The id of the sandbox it carries.
    pub sandbox_id: String,
    /// That sandbox's generation.
    pub generation: u32,
    /// How that sandbox's create was recorded: `strong` or `fast`.
    #[schema(value_type = ModeWord)]
    pub mode: &'static str,
}

/// The sweeps of one provider.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sweeps)]
pub struct SweepsBody {
    /// Which provider.
    pub provider: String,
    /// When the last one ended that looked at its list; null before the first.
    #[schema(format = DateTime)]
    pub last_at: Option<String>,
    /// Live sandboxes on record then.
    pub records: u64,
    /// Objects of this installation in the list then.
    pub objects: u64,
    /// How many looked at everything, since the server started.
    pub done: u64,
    /// How many found too much to act on anything.
    pub held_back: u64,
    /// How many could not look.
    pub not_made: u64,
    /// How many items there are of each kind that there are some of.
    pub counts: BTreeMap<&'static str, u64>,
}

/// What our records and the providers disagree on, as of each provider's last sweep.
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
    _caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    query.finish()?;
    let view = shared.edge.engine.drift();
    let (items, next_cursor) = super::page_of(&view.items, &page)?;
    Ok(HttpResponse::Ok().json(DriftListBody {
        success: true,
        data: items.iter().map(DriftBody::from).collect(),
        next_cursor,
        total: view.total as u64,
        sweeps: view.sweeps.iter().map(SweepsBody::from).collect(),
    }))
}

/// Takes what the provider says for right: an object becomes its issue's sandbox, a changed
/// identity is the provider's from now on, so many losses are true.
#[utoipa::path(
    operation_id = "adoptDrift", tag = "server",
    params(("driftId" = String, Path, description = "The item's id")),
    responses(
        (status = 202, body = Success<DriftBody>, description = "the item as it was shown"),
        answers::DriftErrors, only::IssueIdConflict,
    )
)]
#[post("/v1/system/drift/{driftId}/adopt")]
pub async fn adopt(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    carry_out(&shared, &caller, &request, &path, Remedy::Adopt).await
}

/// Removes an object, or says that a record's object is lost without waiting any longer.
#[utoipa::path(
    operation_id = "removeDrift", tag = "server",
    params(("driftId" = String, Path, description = "The item's id")),
    responses(
        (status = 202, body = Success<DriftBody>, description = "the item as it was shown"),
        answers::DriftErrors,
    )
)]
#[post("/v1/system/drift/{driftId}/remove")]
pub async fn remove(
    shared: web::Data<Shared>,
    caller: Caller,
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
