//! Accounts: `/v1/accounts`. Only an admin reads and changes them.

use actix_web::{HttpRequest, HttpResponse, get, put, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::ListedPage;
use crate::access::KnownAccount;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::caller::AdminCaller;
use crate::http::doc::params;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, only};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::wire::{ListAnswer, Success};
use crate::types::{AccountName, AccountRules, RepositoryPattern, inert};

/// What belongs to an account. What is left out is empty.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct AccountRequest {
    /// Installations of the GitHub App, by their numeric ids.
    pub installations: Option<Vec<u64>>,
    /// Owners of repositories.
    pub owners: Option<Vec<String>>,
    /// Repositories: `owner/name` with `*` for any part of either.
    pub repositories: Option<Vec<String>>,
    /// Nothing starts in it, its sandboxes are stopped, and its tokens are refused.
    pub disabled: Option<bool>,
}

/// An account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Account)]
pub struct AccountBody {
    /// Its name.
    pub name: String,
    /// Installations of the GitHub App whose deliveries belong to it.
    pub installations: Vec<u64>,
    /// Owners whose repositories belong to it.
    pub owners: Vec<String>,
    /// Patterns of the repositories that belong to it.
    pub repositories: Vec<String>,
    /// Whether nothing starts in it and its tokens are refused.
    pub disabled: bool,
    /// Whether it is in the configuration, which alone can change it.
    pub configured: bool,
}

impl From<&KnownAccount> for AccountBody {
    fn from(account: &KnownAccount) -> Self {
        let KnownAccount { name, rules, is_configured } = account;
        Self {
            name: name.to_string(),
            installations: rules.installations.clone(),
            owners: rules.owners.clone(),
            repositories: rules.repositories.iter().map(ToString::to_string).collect(),
            disabled: rules.disabled,
            configured: *is_configured,
        }
    }
}

/// Lists all accounts, by name.
#[utoipa::path(
    operation_id = "listAccounts", tag = "access",
    params(params::PageOf),
    responses(
        (status = 200, description = "a page of accounts", body = ListAnswer<AccountBody>),
    )
)]
#[get("/v1/accounts")]
pub async fn list(
    shared: web::Data<Shared>,
    _caller: AdminCaller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let accounts = shared.edge.access.known_accounts();
    Ok(ListedPage::of(&request, &accounts)?.answer(AccountBody::from))
}

/// Creates an account, or replaces its rules. Issues that it has stay in it.
#[utoipa::path(
    operation_id = "putAccount", tag = "access",
    params(("name" = String, Path, description = "The name of the account")),
    request_body = Option<AccountRequest>,
    responses(
        (status = 200, description = "the account", body = Success<AccountBody>),
        only::Overloaded, only::StoreFailed, only::AccountConfigured,
    )
)]
#[put("/v1/accounts/{name}")]
pub async fn put(
    shared: web::Data<Shared>,
    caller: AdminCaller,
    request: HttpRequest,
    path: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let account = put_for(&shared, &caller, &path, AccountRequest::read(body.0)?).await?;
    Ok(HttpResponse::Ok().json(Success::of(AccountBody::from(&account))))
}

/// Parses the name of an account.
///
/// # Errors
/// 400 if it does not have its form.
pub fn parse_account(text: &str) -> Result<AccountName, ApiError> {
    AccountName::parse(text).map_err(|wrong| ApiError::invalid_id("account", &wrong))
}

/// Creates an account for an admin, or replaces its rules.
///
/// # Errors
/// 400 if something of it is wrong, 401 if the admin's own credential ended meanwhile, 409 if it is in
/// the configuration, 503 if it cannot be stored.
pub async fn put_for(
    shared: &Shared,
    caller: &AdminCaller,
    name: &str,
    request: AccountRequest,
) -> Result<KnownAccount, ApiError> {
    let (name, rules) = (parse_account(name)?, request.into_rules()?);
    Ending::new(shared, caller).check().await?;
    let account = shared.edge.access.put_account(name, rules).await?;
    tracing::info!(account = %account.name, disabled = account.rules.disabled, by = %inert(&caller.name), "an account was set");
    Ok(account)
}

impl AccountRequest {
    fn read(mut fields: Fields) -> Result<Self, ApiError> {
        let request = Self {
            installations: fields.numbers("installations")?,
            owners: fields.texts("owners")?,
            repositories: fields.texts("repositories")?,
            disabled: fields.flag("disabled")?,
        };
        fields.finish()?;
        Ok(request)
    }

    /// Reads the form of a page, in which lists are separated by commas or spaces.
    ///
    /// # Errors
    /// 400 if a field does not have its form.
    pub fn read_form(form: &mut Query) -> Result<Self, ApiError> {
        let mut texts = |name: &str| -> Result<Vec<String>, ApiError> {
            let text = form.text(name)?.unwrap_or_default();
            let each = text.split([',', ' ', '\n', '\r']).filter(|word| !word.is_empty());
            Ok(each.map(str::to_owned).collect())
        };
        let number = |text: &String| {
            let wrong = || ApiError::field("installations", "must be whole numbers");
            text.parse().map_err(|_| wrong())
        };
        Ok(Self {
            installations: Some(
                texts("installations")?.iter().map(number).collect::<Result<_, _>>()?,
            ),
            owners: Some(texts("owners")?),
            repositories: Some(texts("repositories")?),
            disabled: Some(form.flag("disabled")?),
        })
    }

    fn into_rules(self) -> Result<AccountRules, ApiError> {
        let pattern = |text: &String| {
            RepositoryPattern::parse(text).map_err(|needed| {
                ApiError::field("repositories", format!("{needed}, not {text:?}"))
            })
        };
        let patterns = self.repositories.unwrap_or_default();
        Ok(AccountRules {
            installations: self.installations.unwrap_or_default(),
            owners: self.owners.unwrap_or_default(),
            repositories: patterns.iter().map(pattern).collect::<Result<_, _>>()?,
            disabled: self.disabled.unwrap_or_default(),
        })
    }
}
