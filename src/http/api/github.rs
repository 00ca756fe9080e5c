//! GitHub as the server sees it: who it is there, what is left of its limits, and what is not done yet.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::AdminCaller;
use crate::http::doc::words::{GithubStateWord, GithubWorkWord};
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::Success;
use crate::store::github::{GithubRow, GithubState};
use crate::types::{Check, CheckState};

/// Most effects that are listed.
pub const EFFECTS_MAX: usize = 200;

/// GitHub as the server sees it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GitHub)]
pub struct GithubBody {
    /// Whether there are credentials. Without them nothing is asked of GitHub, and the rest is empty.
    pub connected: bool,
    /// Who the server is at GitHub, and what each installation lacks, as sentences.
    pub checks: Vec<GithubCheckBody>,
    /// The fewest calls that GitHub leaves to one of our identities in its hour; null if unknown.
    pub remaining: Option<u64>,
    /// How many writes wait for their turn.
    pub queue: u64,
    /// Effects that are not done, the oldest first, at most 200.
    pub effects: Vec<GithubEffectBody>,
}

/// Something that was found at GitHub.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GitHubCheck)]
pub struct GithubCheckBody {
    /// Whether nothing is to be done.
    pub ok: bool,
    /// What was found.
    pub found: String,
    /// What to do; null if nothing.
    pub remedy: Option<String>,
}

impl From<&Check> for GithubCheckBody {
    fn from(check: &Check) -> Self {
        Self {
            ok: check.state == CheckState::Right,
            found: check.found.clone(),
            remedy: check.remedy.clone(),
        }
    }
}

/// Something to be done at GitHub.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GitHubEffect)]
pub struct GithubEffectBody {
    /// Its number, for a retry.
    pub id: i64,
    /// What is to be done.
    #[schema(value_type = GithubWorkWord)]
    pub kind: &'static str,
    /// How far it is.
    #[schema(value_type = GithubStateWord)]
    pub state: &'static str,
    /// The issue, as `owner/name#number` if that is known, else its id.
    pub issue: String,
    /// Why it is not done; null before the first try.
    pub reason: Option<String>,
    /// How many tries failed one after the other.
    pub tries: u32,
    /// When the next try is due; null if something must change first.
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
}

/// GitHub as the server sees it: identity, limits, and what is not done yet.
#[utoipa::path(
    operation_id = "getGitHub", tag = "server",
    responses(
        (status = 200, description = "the state", body = Success<GithubBody>),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/github")]
pub async fn github(
    shared: web::Data<Shared>,
    _caller: AdminCaller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    Ok(HttpResponse::Ok().json(Success::of(look(&shared).await?)))
}

/// Retries something that is to be done at GitHub, now. Nothing happens to what is done.
#[utoipa::path(
    operation_id = "retryGitHubEffect", tag = "server",
    params(("effect" = i64, Path, description = "The number of the effect")),
    responses(
        (status = 202, description = "it is tried now", body = Success<GithubBody>),
        answers::StoreWriteErrors,
    )
)]
#[post("/v1/github/effects/{effect}/retry")]
pub async fn retry(
    shared: web::Data<Shared>,
    _caller: AdminCaller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let number = path.parse().map_err(|_| ApiError::field("effect", "must be a whole number"))?;
    shared.edge.engine.retry_github_effect(number).await?;
    Ok(HttpResponse::Accepted().json(Success::of(look(&shared).await?)))
}

/// What is known now.
///
/// # Errors
/// 503 if the store cannot be read.
pub async fn look(shared: &Shared) -> Result<GithubBody, ApiError> {
    let Some(api) = &shared.edge.github else {
        return Ok(GithubBody {
            connected: false,
            checks: Vec::new(),
            remaining: None,
            queue: 0,
            effects: Vec::new(),
        });
    };
    let figures = api.figures();
    let rows = shared.edge.engine.unfinished_github_effects(EFFECTS_MAX).await?;
    let mut effects = Vec::with_capacity(rows.len());
    for row in rows {
        effects.push(effect(shared, row).await?);
    }
    let checks: Arc<Vec<Check>> = shared.github_checks(api.as_ref()).await;
    Ok(GithubBody {
        connected: true,
        checks: checks.iter().map(GithubCheckBody::from).collect(),
        remaining: figures.remaining,
        queue: figures.queue,
        effects,
    })
}

async fn effect(shared: &Shared, row: GithubRow) -> Result<GithubEffectBody, ApiError> {
    let issue = shared.edge.store.load(row.home).await?;
    let issue = issue.map_or_else(String::new, |issue| {
        let facts = issue.facts;
        match (facts.repository, facts.number) {
            (Some(repository), Some(number)) => format!("{repository}#{number}"),
            _ => facts.issue_id.to_string(),
        }
    });
    Ok(GithubEffectBody {
        id: row.id.number,
        kind: row.effect.kind().as_str(),
        state: row.state.as_str(),
        issue,
        reason: row.reason,
        tries: row.tries,
        due_at: row.due_at.map(|at| at.to_string()),
    })
}

/// Whether a person must do something before it goes on.
pub fn needs_person(state: GithubState) -> bool {
    matches!(state, GithubState::Held | GithubState::Gone | GithubState::GivenUp)
}
