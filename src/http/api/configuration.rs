//! What a sandbox was made from, as its record says.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::templates::ConfigurationBody;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::TemplateTodayWord;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::wire::Success;
use crate::types::TemplateVersion;

/// What a sandbox was made from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SandboxConfiguration)]
pub struct SandboxConfigurationBody {
    /// The name of its template.
    pub template: String,
    /// The version that the template had then.
    pub template_version: String,
    /// How the template is now.
    #[schema(value_type = TemplateTodayWord)]
    pub template_today: &'static str,
    /// What the template said then.
    #[serde(flatten)]
    pub configuration: ConfigurationBody,
}

/// How the template of a sandbox is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateToday {
    /// As it was when the sandbox was recorded.
    Same,
    /// Otherwise: a new sandbox would differ.
    Changed,
    /// It is no longer configured.
    Removed,
}

impl TemplateToday {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Same, Self::Changed, Self::Removed];

    /// Compares the version that a sandbox was made from with that of today.
    pub fn of(made_from: TemplateVersion, today: Option<TemplateVersion>) -> Self {
        match today {
            None => Self::Removed,
            Some(today) if today == made_from => Self::Same,
            Some(_) => Self::Changed,
        }
    }

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// Gets what a sandbox was made from.
///
/// It is the copy in its record, so a changed template changes nothing here. Values of environment
/// variables and of secrets are not shown.
#[utoipa::path(
    operation_id = "getSandboxConfiguration", tag = "sandboxes",
    params(params::OneSandbox),
    responses(
        (status = 200, description = "its configuration", body = Success<SandboxConfigurationBody>),
        answers::SandboxReadErrors, only::SandboxDeleted,
    )
)]
#[get("/v1/sandboxes/{id}/configuration")]
pub async fn configuration(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let engine = &shared.edge.engine;
    let (sandbox, template) = engine.made_from(&caller.account, &sandbox_ref(&path)).await?;
    let version = template.version();
    let today = engine.version_today(&template.name, sandbox.repository.as_ref());
    let today = TemplateToday::of(version, today);
    let body = SandboxConfigurationBody {
        template: template.name.to_string(),
        template_version: version.to_string(),
        template_today: today.as_str(),
        configuration: (&template).into(),
    };
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, body)))
}
