//! What a page says where something goes wrong: the same errors as under `/v1`, for people.

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
    /// There is no session; after the log-in this place is shown.
    #[error("there is no session")]
    LogIn {
        /// Path and query.
        next: String,
        /// Nothing is wrong: somebody came to the front page.
        is_welcome: bool,
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
            Self::LogIn { next, is_welcome: _ } => {
                let answer = HttpResponse::build(self.status_code());
                respond(answer, &session::log_in_page(None, next))
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
                respond(begin(error), &shell::bare("Not done", &main))
            }
        }
    }
}

/// The answer to an error before what it shows: its status, and when to come again.
pub fn begin(error: &ApiError) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(error.status_code());
    if let Some(secs) = error.retry_after_secs() {
        answer.insert_header((header::RETRY_AFTER, secs.to_string()));
    }
    answer
}

/// What happened, in a few words.
const fn headline(code: Code) -> &'static str {
    match code.status() {
        StatusCode::NOT_FOUND => "There is nothing here",
        StatusCode::SERVICE_UNAVAILABLE => "Not now",
        StatusCode::BAD_REQUEST => "That is not understood",
        _ => "That was not done",
    }
}

/// What to do next, in words for people.
pub const fn advice(code: Code) -> Option<&'static str> {
    match code {
        Code::Forbidden => Some("Load the page again and repeat what you did."),
        Code::SandboxNotFound => Some("It may never have existed, or its history is gone."),
        Code::SandboxDeleted => Some("Ask for the issue's next sandbox on this one's page."),
        Code::Deleting => Some("Wait until it is gone; what was asked for follows then."),
        Code::SandboxFailed => Some("Retry it, or delete it."),
        Code::NotFailed => Some("There is nothing to retry: look at its phase."),
        Code::Stopped | Code::NotRunning => Some("Start it first."),
        Code::DriftOver => Some("Look at the list again: the last sweep found something else."),
        Code::ProviderUnknown => Some("Configure its provider again and restart the server."),
        Code::Held => Some("Release the hold on the page “Holds and quotas”."),
        Code::QuotaExceeded => Some("Delete a sandbox that is not needed, or raise the quota."),
        Code::NoRoom => {
            Some("It goes on by itself once there is room; deleting sandboxes makes some.")
        }
        Code::NotSupported => Some("Its provider cannot do this."),
        Code::ProviderFailed => Some("The page “Providers” says how it is."),
        Code::Overloaded | Code::ShuttingDown => Some("Nothing was changed. Try again shortly."),
        Code::StoreFailed => Some("Nothing was changed. The server's log says what is wrong."),
        Code::FileExists => Some("Choose another place, or say that it may be replaced."),
        Code::PortClosed => Some("Start the server there first."),
        Code::PortNotListed => Some("List the port in the sandbox's template."),
        Code::FileNotFound => Some("It may have been removed meanwhile."),
        Code::InvalidRequest
        | Code::PathNotAllowed
        | Code::Unauthorized
        | Code::BadSignature
        | Code::RouteNotFound
        | Code::MethodNotAllowed
        | Code::RequestTimeout
        | Code::IssueIdConflict
        | Code::BodyTooLarge
        | Code::UnsupportedMediaType
        | Code::ProcessNotFound
        | Code::StdinClosed
        | Code::IssueUnknown
        | Code::TemplateUnknown
        | Code::RangeNotSatisfiable
        | Code::BadArchive
        | Code::WrongKind
        | Code::CannotStart
        | Code::RefusedInside
        | Code::UpgradeRequired
        | Code::TooManyAttempts => None,
    }
}
