//! Error pages: the errors of the API, for people.

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use maud::html;

use crate::engine::EngineError;
use crate::http::error::{ApiError, Code};
use crate::sandbox::WorkError;
use crate::store::StoreError;
use crate::types::inert;

use super::{respond, session, shell};

/// Why a page is not shown.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no session; after the log-in the page at `next` is shown.
    #[error("there is no session")]
    LogIn {
        /// Path and query.
        next: String,
        /// The front page was requested, which is no error.
        is_welcome: bool,
        /// The address that begins a log-in with GitHub, if people can.
        with_github: Option<String>,
    },
    /// As for programs.
    #[error(transparent)]
    Failed(#[from] ApiError),
}

impl From<EngineError> for PageError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<WorkError> for PageError {
    fn from(error: WorkError) -> Self {
        Self::Failed(error.into())
    }
}

impl ResponseError for PageError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::LogIn { is_welcome: true, .. } => StatusCode::OK,
            Self::LogIn { .. } => StatusCode::UNAUTHORIZED,
            Self::Failed(error) => error.status_code(),
        }
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Self::LogIn { next, is_welcome: _, with_github } => {
                let answer = HttpResponse::build(self.status_code());
                respond(answer, &session::log_in_page(None, next, with_github.as_deref()))
            }
            Self::Failed(error) => {
                let message = inert(error.message());
                let main = html! {
                    div .card .problem role="alert" {
                        h1 { (headline(error.code())) }
                        p .first-up { bdi { (message) } }
                        @if let Some(advice) = advice(error.code()) { p .lead { (advice) } }
                        p { a .button href="/" { "All sandboxes" } }
                    }
                };
                respond(begin(error), &shell::bare("Action failed", &main))
            }
        }
    }
}

/// Begins the answer to an error: its status, and when to retry.
pub fn begin(error: &ApiError) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(error.status_code());
    if let Some(secs) = error.retry_after_secs() {
        answer.insert_header((header::RETRY_AFTER, secs.to_string()));
    }
    for (name, value) in error.headers() {
        answer.insert_header((name.clone(), value.clone()));
    }
    answer
}

/// What happened, in a few words.
const fn headline(code: Code) -> &'static str {
    match code.status() {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::SERVICE_UNAVAILABLE => "Service unavailable",
        StatusCode::BAD_REQUEST => "Invalid request",
        _ => "Action failed",
    }
}

/// What to do next, in words for people.
pub const fn advice(code: Code) -> Option<&'static str> {
    match code {
        Code::Forbidden => {
            Some("Ask an admin of this server; or load the page again and repeat it.")
        }
        Code::RouteNotFound => Some("There is no page at this address."),
        Code::MethodNotAllowed => Some("This address is for programs, or for a form."),
        Code::Unauthorized => Some("Log in on the front page, then open this address again."),
        Code::SandboxNotFound => Some("It never existed, or its history was pruned."),
        Code::SandboxDeleted => Some("Create the issue's next sandbox on the page of this one."),
        Code::Deleting => Some("Wait until it is deleted; the request is carried out after that."),
        Code::RunNotFound => Some("It was removed with its issue, or never existed."),
        Code::RunRefused => Some("The conversation says what it is now."),
        Code::QueueFull => Some("Wait for the run in progress, or stop it."),
        Code::AgentUnknown => Some("Set `agent` in the sandbox's template."),
        Code::TemplateUnknown | Code::TemplateOnly => Some("Name one of the templates alone."),
        Code::NotFailed => Some("Only failed sandboxes can be retried: check its phase."),
        Code::SyncNotConfigured => Some("Set `url` in [sync] and restart the server."),
        Code::VersionNotFound => Some("Push the workspace first, or choose another version."),
        Code::SyncFailed => Some("The server's log has the reason. Try again later."),
        Code::NotPublished => Some("Look at the sandbox's log for what its last push said."),
        Code::Stopped | Code::NotRunning => Some("Start it first."),
        Code::DriftOver => Some("List the drift again: the last sweep changed it."),
        Code::ProviderUnknown => Some("Configure its provider again and restart the server."),
        Code::Held => Some("Release the hold on the page “Holds and quotas”."),
        Code::QuotaExceeded => Some("Delete a sandbox that is not needed, or raise the quota."),
        Code::NoRoom => Some(
            "It continues automatically when there is capacity. Deleting sandboxes frees some.",
        ),
        Code::NotSupported => Some("Its provider cannot do this."),
        Code::ProviderFailed => Some("The page “Providers” shows its health."),
        Code::Overloaded | Code::ShuttingDown => Some("Nothing was changed. Try again shortly."),
        Code::StoreFailed => Some("Nothing was changed. The server's log says what is wrong."),
        Code::IssueClosed => Some("Reopen the issue on GitHub first."),
        Code::GithubUnavailable => Some("Nothing was changed. Try again later."),
        Code::FileExists => Some("Choose another path, or allow replacing it."),
        Code::PortClosed => Some("Start a server on that port first."),
        Code::PortNotListed => Some("List the port in the sandbox's template."),
        Code::FileNotFound => Some("It may have been removed meanwhile."),
        Code::AccountNotFound => Some("An admin can create it."),
        Code::InvalidRequest
        | Code::TokenNotFound
        | Code::AccountConfigured
        | Code::TooManyTokens
        | Code::PathNotAllowed
        | Code::BadSignature
        | Code::RequestTimeout
        | Code::IssueIdConflict
        | Code::BodyTooLarge
        | Code::UnsupportedMediaType
        | Code::ProcessNotFound
        | Code::StdinClosed
        | Code::IssueUnknown
        | Code::RangeNotSatisfiable
        | Code::BadArchive
        | Code::WrongKind
        | Code::CommandNotFound
        | Code::CannotStart
        | Code::RefusedInside
        | Code::UpgradeRequired
        | Code::TooManyAttempts => None,
    }
}
