//! The checkout of a sandbox: which repository and branch it works on, and how far that is.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::load;
use crate::checkout::CheckoutRetryError;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::CheckoutWord;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::store::checkout::CheckoutRow;
use crate::types::{Phase, Sandbox};

/// The checkout of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Checkout)]
pub struct CheckoutBody {
    /// `fetching`, `ready` or `failed`.
    #[schema(value_type = CheckoutWord)]
    pub state: &'static str,
    /// Why it failed, or what is to be known of it; empty if nothing.
    pub reason: String,
    /// When the state last changed.
    #[schema(format = DateTime)]
    pub changed_at: String,
    /// The repository, as it was called when it was checked out.
    pub repository: String,
    /// The branch that the work begins at, once known.
    pub base: Option<String>,
    /// The sandbox's own branch, once chosen.
    pub branch: Option<String>,
    /// The last commit that was pushed from the sandbox.
    pub tip: Option<String>,
}

impl From<CheckoutRow> for CheckoutBody {
    fn from(row: CheckoutRow) -> Self {
        Self {
            state: row.state.as_str(),
            reason: row.reason,
            changed_at: row.changed_at.to_string(),
            repository: row.remote.to_string(),
            base: row.base,
            branch: row.branch,
            tip: row.tip,
        }
    }
}

/// The answer about a sandbox's checkout.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckoutAnswer {
    /// Always true.
    pub success: bool,
    /// The checkout; null if the sandbox has none.
    pub data: Option<CheckoutBody>,
    /// The sandbox's id.
    pub sandbox_id: String,
}

/// Gets the checkout of a sandbox. `data` is null if it has none.
#[utoipa::path(
    operation_id = "getCheckout", tag = "sandboxes",
    params(params::OneSandbox),
    responses(
        (status = 200, description = "the checkout, or null", body = CheckoutAnswer),
        answers::SandboxReadErrors,
    )
)]
#[get("/v1/sandboxes/{id}/checkout")]
pub async fn checkout(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let sandbox = load(&shared, &caller.account, &sandbox_ref(&path)).await?;
    let checkout = checkout_of(&shared, &sandbox).await?.map(CheckoutBody::from);
    let sandbox_id = sandbox.id.to_string();
    Ok(HttpResponse::Ok().json(CheckoutAnswer { success: true, data: checkout, sandbox_id }))
}

/// The checkout of a sandbox, if it has one.
///
/// # Errors
/// 503 if the store cannot be read.
pub async fn checkout_of(
    shared: &Shared,
    sandbox: &Sandbox,
) -> Result<Option<CheckoutRow>, ApiError> {
    let Some(checkouts) = &shared.edge.checkouts else { return Ok(None) };
    Ok(checkouts.checkout(&sandbox.id).await?)
}

/// Tries the checkout of a running sandbox again. Returns whether there was one to retry: a retry
/// of any other sandbox concerns the sandbox itself.
///
/// # Errors
/// 409 if the checkout is ready, 503 if the store cannot be read.
pub async fn retry_checkout(shared: &Shared, sandbox: &Sandbox) -> Result<bool, ApiError> {
    let Some(checkouts) = &shared.edge.checkouts else { return Ok(false) };
    if sandbox.phase != Some(Phase::Running) {
        return Ok(false);
    }
    match checkouts.retry(sandbox.home, &sandbox.id).await {
        Ok(()) => Ok(true),
        Err(CheckoutRetryError::None(_)) => Ok(false),
        Err(error @ CheckoutRetryError::Ready) => {
            let text = format!("only a failed sandbox can be retried, and {error}");
            Err(ApiError::new(Code::NotFailed, text))
        }
        Err(CheckoutRetryError::Store(error)) => Err(error.into()),
    }
}
