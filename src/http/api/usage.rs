//! What agents used of models: sums by issue, repository, account, model or day.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::conversations::UsageBody;
use super::issues::IssueNames;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::words::UsageByWord;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::Success;
use crate::store::usage::{UsageAsk, UsageBy, UsageKey, UsageSum};
use crate::types::Timestamp;

/// Most sums of an answer.
const SUMS_MAX: u64 = 1_000;

/// What was used of models.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageReport)]
pub struct UsageReportBody {
    /// What the sums are made for.
    #[schema(value_type = UsageByWord)]
    pub by: &'static str,
    /// The sums: the dearest first, days in their order.
    pub sums: Vec<UsageSumBody>,
    /// The sum of all, also of those that are not listed.
    pub total: UsageBody,
}

/// What was used for one issue, repository, account, model or day.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageSum)]
pub struct UsageSumBody {
    /// The issue's id, the repository, the account, the model or the day (`2026-01-31`, UTC). Null for issues
    /// whose repository is not known, and for an issue that is not known any more.
    pub name: Option<String>,
    /// The issue, if the sum is of one.
    pub issue: Option<IssueNames>,
    /// What was used.
    pub usage: UsageBody,
}

/// Sums up what agents used of models.
///
/// Requests count on the day (UTC) on which they began. A request that is under way counts once it ended.
#[utoipa::path(
    operation_id = "getUsage", tag = "conversations",
    params(
        ("by" = Option<UsageByWord>, Query, description = "What sums are made for; by default `issue`"),
        ("since" = Option<String>, Query,
         description = "Only of requests of this day (`2026-01-31`, UTC) and later ones"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000,
         description = "At most so many sums; by default 1000"),
    ),
    responses(
        (status = 200, body = Success<UsageReportBody>, description = "the sums"),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/usage")]
pub async fn report(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let by = parse_by(query.text("by")?.as_deref())?;
    let since = query.text("since")?.as_deref().map(parse_day).transpose()?;
    let limit = query.number("limit", 1..=SUMS_MAX)?.unwrap_or(SUMS_MAX);
    query.finish()?;
    let limit = usize::try_from(limit).expect("at most 1,000");
    let ask = |by, limit| {
        let account = Some(caller.account.clone());
        UsageAsk { account, since, limit, ..UsageAsk::all(by) }
    };
    let store = &shared.edge.runs.usage;
    let found = store.usage(ask(by, limit)).await?;
    let total = store.usage(ask(UsageBy::Account, 1)).await?;
    let mut sums = Vec::with_capacity(found.len());
    for (key, sum) in &found {
        sums.push(sum_body(&shared, key, sum).await?);
    }
    let total = total.first().map(|(_, sum)| UsageBody::from(sum)).unwrap_or_default();
    let report = UsageReportBody { by: by.as_str(), sums, total };
    Ok(HttpResponse::Ok().json(Success::of(report)))
}

async fn sum_body(
    shared: &Shared,
    key: &UsageKey,
    sum: &UsageSum,
) -> Result<UsageSumBody, ApiError> {
    let issue = match key {
        UsageKey::Issue(home) => IssueNames::of_home(shared, *home).await?,
        _ => None,
    };
    let name = match key {
        UsageKey::Run(run) => Some(run.to_string()),
        UsageKey::Issue(_) => issue.as_ref().map(|issue| issue.issue_id.clone()),
        UsageKey::Repository(repository) => repository.as_ref().map(ToString::to_string),
        UsageKey::Account(account) => Some(account.to_string()),
        UsageKey::Model(model) => Some(model.clone()),
        UsageKey::Day(day) => day.to_string().split('T').next().map(str::to_owned),
    };
    Ok(UsageSumBody { name, issue, usage: UsageBody::from(sum) })
}

fn parse_by(word: Option<&str>) -> Result<UsageBy, ApiError> {
    let Some(word) = word else { return Ok(UsageBy::Issue) };
    let known = UsageBy::LISTED.into_iter().find(|by| by.as_str() == word);
    known.ok_or_else(|| {
        let words = UsageBy::LISTED.map(UsageBy::as_str).join(", ");
        ApiError::field("by", format!("must be one of {words}"))
    })
}

fn parse_day(text: &str) -> Result<Timestamp, ApiError> {
    let day = Timestamp::parse(&format!("{text}T00:00:00Z"));
    day.ok_or_else(|| ApiError::field("since", "must be a day such as 2026-01-31"))
}
