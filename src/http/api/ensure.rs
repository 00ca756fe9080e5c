//! *Ensure*: by `POST /v1/sandboxes`, or by `PUT` with the issue in the path.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, post, put, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::{bounded, parse_issue_id, parse_repository};
use crate::engine::{EnsureIssue, IssueKey, SandboxRef, WaitFor};
use crate::http::Shared;
use crate::http::answers;
use crate::http::body::JsonBody;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::{ModeWord, OutcomeWord};
use crate::http::error::{ApiError, Code, only};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::wire::SandboxBody;
use crate::types::{
    IssueId, IssueNumber, Mode, Outcome, ProviderName, Repository, SandboxMeta, TemplateName,
};

/// The body of an ensure.
#[derive(Debug, Default, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct EnsureRequest {
    /// The issue's id; optional if repository and number are known, or GitHub can be asked.
    pub issue_id: Option<String>,
    /// `owner/name`; together with `issueNumber`.
    pub repository: Option<String>,
    /// The issue's number in its repository.
    pub issue_number: Option<u64>,
    /// The template; by default the template `default`.
    pub template: Option<String>,
    /// The provider: its default template is meant, unless `template` is given, too. That is the one
    /// with the provider's name, else `default`, else the first by name, of those with this provider.
    pub provider: Option<String>,
    /// Your name for who works in the sandbox; kept with it and shown.
    pub agent_id: Option<String>,
    /// Your own names and values, at most 16; kept with it and shown. A name has at most 64 letters,
    /// digits, and any of `.`, `_`, `-`, `/`; a value at most 512 bytes.
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    pub meta: SandboxMeta,
    /// How a create is recorded; by default as the template says. In mode `fast` the answer comes
    /// after the create.
    #[schema(value_type = Option<ModeWord>)]
    pub mode: Option<String>,
    /// The issue's title, if the caller knows it.
    pub issue_title: Option<String>,
    /// Whether a failed sandbox is retried; by default it is returned as it is, with the outcome
    /// `failed`.
    pub retry: Option<bool>,
}

/// What a template says, and a create cannot.
const OF_TEMPLATES: [&str; 14] = [
    "image",
    "snapshot",
    "command",
    "env",
    "environment",
    "secrets",
    "user",
    "workingDir",
    "resources",
    "network",
    "ports",
    "mounts",
    "hooks",
    "sync",
];

/// The answer to an ensure.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EnsureAnswer)]
pub struct EnsureBody<'a> {
    /// Always true.
    pub success: bool,
    /// The issue's one sandbox.
    pub data: SandboxBody<'a>,
    /// Its id.
    pub sandbox_id: &'a str,
    /// The result.
    #[schema(value_type = OutcomeWord)]
    pub outcome: &'static str,
    /// The result in words.
    pub reason: String,
    /// Whether no step is under way; false if `wait` timed out first.
    pub settled: bool,
    /// Parts of the request that differ from the existing sandbox, which is kept as it is: `template`,
    /// or `provider` if only that was given, `agentId` and `meta`.
    pub mismatch: Vec<&'static str>,
}

/// Ensures an issue's sandbox: returns the existing one, or creates one.
#[utoipa::path(
    operation_id = "ensureSandbox", tag = "sandboxes",
    params(params::ResultWait),
    request_body = EnsureRequest,
    responses(
        (status = 201, body = EnsureBody, description = "a new sandbox; `Location` has its address",
         headers(("Location" = String))),
        (status = 200, body = EnsureBody, description = "the existing sandbox"),
        answers::EnsureErrors, answers::VerificationErrors, only::IssueUnknown,
    )
)]
#[post("/v1/sandboxes")]
pub async fn ensure(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    answer_ensure(&shared, &caller, &request, body.0, None).await
}

/// Ensures the sandbox of the issue in the path.
#[utoipa::path(
    operation_id = "ensureIssueSandbox", tag = "issues",
    params(params::OneIssue, params::ResultWait),
    request_body = Option<EnsureRequest>,
    responses(
        (status = 201, body = EnsureBody, description = "a new sandbox; `Location` has its address",
         headers(("Location" = String))),
        (status = 200, body = EnsureBody, description = "the existing sandbox"),
        answers::EnsureErrors, answers::VerificationErrors,
    )
)]
#[put("/v1/issues/{issueId}/sandbox")]
pub async fn ensure_issue(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    let issue = parse_issue_id(&path)?;
    answer_ensure(&shared, &caller, &request, body.0, Some(issue)).await
}

/// Reads the number of an issue from a body.
///
/// # Errors
/// 400 if it is no whole number from 1.
pub fn read_number(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    fields.number("issueNumber", 1..=i64::MAX as u64)
}

/// The issue's repository and number, if both are given.
///
/// # Errors
/// 400 if one is given alone, or the repository does not have its form.
pub fn parse_place(
    repository: Option<String>,
    number: Option<u64>,
) -> Result<Option<(Repository, IssueNumber)>, ApiError> {
    match (repository, number) {
        (Some(repository), Some(number)) => {
            Ok(Some((parse_repository(&repository)?, IssueNumber(number))))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(ApiError::field("issueNumber", "is required with repository")),
        (None, Some(_)) => Err(ApiError::field("repository", "is required with issueNumber")),
    }
}

async fn answer_ensure(
    shared: &Shared,
    caller: &Caller,
    request: &HttpRequest,
    fields: Fields,
    issue: Option<IssueId>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, 0)?;
    query.finish()?;
    let ask = EnsureRequest::read(fields)?.into_ask(issue, caller)?;
    let ensured = shared.edge.callers().ensure(&caller.account, ask).await?;
    let mut sandbox = ensured.sandbox;
    let mut settled = sandbox.phase.is_some_and(|phase| !phase.is_transitional());
    if !settled {
        let of = SandboxRef::Id(sandbox.id.clone());
        let until = WaitFor::Settled;
        if let Some(waited) = shared.wait(caller, &of, until, at_most).await? {
            settled = waited.settled;
            sandbox = waited.sandbox.unwrap_or(sandbox);
        }
    }
    let mut answer = match ensured.outcome {
        Outcome::Created => {
            let location = format!("/v1/sandboxes/{}", sandbox.id);
            let mut answer = HttpResponse::Created();
            answer.insert_header((header::LOCATION, location));
            answer
        }
        Outcome::Existing
        | Outcome::Resumed
        | Outcome::Adopted
        | Outcome::Queued
        | Outcome::Failed
        | Outcome::Refused => HttpResponse::Ok(),
    };
    Ok(answer.json(EnsureBody {
        success: true,
        data: SandboxBody::from(&sandbox),
        sandbox_id: sandbox.id.as_str(),
        outcome: ensured.outcome.as_str(),
        reason: ensured.reason,
        settled,
        mismatch: ensured.mismatch,
    }))
}

/// The refusal of a field that configures the sandbox.
fn template_only(field: &str) -> ApiError {
    let why = "a create cannot set it: a sandbox is configured by its template alone, so that \
               callers get nothing that the server's operator did not allow";
    ApiError::new(Code::TemplateOnly, why)
        .about(field)
        .hint("name a template that has it; issuebox templates, or GET /v1/templates, lists them")
}

impl EnsureRequest {
    fn read(mut fields: Fields) -> Result<Self, ApiError> {
        let request = Self {
            issue_id: fields.text("issueId")?,
            repository: fields.text("repository")?,
            issue_number: read_number(&mut fields)?,
            template: fields.text("template")?,
            provider: fields.text("provider")?,
            agent_id: fields.text("agentId")?,
            meta: fields.meta()?,
            mode: fields.text("mode")?,
            issue_title: fields.text("issueTitle")?,
            retry: fields.flag("retry")?,
        };
        if let Some(field) = fields.first_given(&OF_TEMPLATES) {
            return Err(template_only(field));
        }
        fields.finish()?;
        Ok(request)
    }

    /// The request for the engine; `issue` is one that the path names.
    ///
    /// # Errors
    /// 400 if a part is missing or does not have its form.
    pub fn into_ask(
        self,
        issue: Option<IssueId>,
        caller: &Caller,
    ) -> Result<EnsureIssue, ApiError> {
        let given = self.issue_id.as_deref().map(parse_issue_id).transpose()?;
        if let (Some(path), Some(given)) = (&issue, &given)
            && path != given
        {
            return Err(ApiError::field("issueId", "differs from the issue in the path"));
        }
        let numbered = parse_place(self.repository, self.issue_number)?;
        let id = issue.or(given);
        if id.is_none() && numbered.is_none() {
            return Err(ApiError::field("issueId", "is missing")
                .hint("send issueId, or repository and issueNumber"));
        }
        let mode = match self.mode.as_deref().map(Mode::parse) {
            Some(None) => return Err(ApiError::field("mode", "must be strong or fast")),
            Some(Some(mode)) => Some(mode),
            None => None,
        };
        let template = bounded("template", self.template)?;
        let provider = bounded("provider", self.provider)?;
        let agent_id = bounded("agentId", self.agent_id)?.filter(|id| !id.is_empty());
        Ok(EnsureIssue {
            issue: IssueKey { id, numbered },
            template: template.map(TemplateName::trusted),
            provider: provider.map(ProviderName::trusted),
            agent_id: agent_id.map(Into::into),
            meta: self.meta,
            mode,
            title: bounded("issueTitle", self.issue_title)?,
            retry: self.retry.unwrap_or_default(),
            cause: caller.cause(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::caller::Credential;
    use crate::http::{LiveToken, TokenHash};
    use crate::types::{AccountName, Role, Secret};

    fn ask(body: &str, path: Option<&str>) -> Result<EnsureIssue, ApiError> {
        let caller = Caller {
            account: AccountName::default_account(),
            role: Role::Admin,
            name: "admin".into(),
            request_id: "r".into(),
            credential: Credential::Admin(LiveToken::new(TokenHash::of(&Secret::new("t"))).watch()),
        };
        let issue = path.map(|id| IssueId::parse(id).expect("a valid id"));
        EnsureRequest::read(Fields::parse(body.as_bytes())?)?.into_ask(issue, &caller)
    }

    #[test]
    fn an_issue_is_named_by_id_or_by_repository_and_number() {
        let by_id = ask(r#"{"issueId":"test-123","template":"big"}"#, None).expect("by id");
        assert_eq!(by_id.issue.id.map(|id| id.to_string()).as_deref(), Some("test-123"));
        let by_number = ask(r#"{"repository":"octo/hello","issueNumber":7}"#, None);
        assert!(by_number.is_ok_and(|ask| ask.issue.id.is_none() && ask.issue.numbered.is_some()));
        let by_path = ask("", Some("5")).expect("by path");
        assert_eq!(by_path.issue.id.map(|id| id.to_string()).as_deref(), Some("5"));
    }

    #[test]
    fn the_mode_is_the_callers_where_it_is_given() {
        for (body, mode) in [
            (r#"{"issueId":"1"}"#, None),
            (r#"{"issueId":"1","mode":"strong"}"#, Some(Mode::Strong)),
            (r#"{"issueId":"1","mode":"fast"}"#, Some(Mode::Fast)),
        ] {
            assert_eq!(ask(body, None).expect(body).mode, mode);
        }
    }

    #[test]
    fn what_a_template_says_is_refused_and_what_is_unknown_stays_unknown() {
        for field in OF_TEMPLATES {
            let body = format!(r#"{{"issueId":"1","{field}":{{}}}}"#);
            let error = ask(&body, None).expect_err(field);
            assert_eq!((error.code(), error.wrong_field()), (Code::TemplateOnly, Some(field)));
            let absent = format!(r#"{{"issueId":"1","{field}":null}}"#);
            assert!(ask(&absent, None).is_ok(), "{field} is not given");
        }
        let other = ask(r#"{"issueId":"1","imagine":"x"}"#, None).expect_err("unknown");
        assert_eq!((other.code(), other.wrong_field()), (Code::InvalidRequest, Some("imagine")));
    }

    #[test]
    fn what_is_wrong_with_an_ensure_is_named() {
        for (body, field) in [
            ("{}", "issueId"),
            (r#"{"issueId":5}"#, "issueId"),
            (r#"{"issueId":"a b"}"#, "issueId"),
            (r#"{"issueId":"1","repository":"octo/hello"}"#, "issueNumber"),
            (r#"{"issueId":"1","issueNumber":7}"#, "repository"),
            (r#"{"repository":"octo","issueNumber":7}"#, "repository"),
            (r#"{"repository":"octo/hello","issueNumber":0}"#, "issueNumber"),
            (r#"{"issueId":"1","mode":"slow"}"#, "mode"),
            (r#"{"issueId":"1","colour":"red"}"#, "colour"),
        ] {
            let error = ask(body, None).expect_err(body);
            let shown = format!("{error:?}");
            assert!(shown.contains(&format!("field: Some(\"{field}\")")), "{body}: {shown}");
        }
        assert!(ask(r#"{"issueId":"1"}"#, Some("2")).is_err(), "path and body disagree");
    }
}
