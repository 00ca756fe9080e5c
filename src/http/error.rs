//! The one mapping from everything that can go wrong to an HTTP answer.
//!
//! A caller branches on `code`, which is stable; `message` is for people, `hint` says what to do
//! next, `field` which part of the input was wrong. What only an operator may know (a store's
//! own words) goes to the log here, at the place where the failure is handled, and nowhere else.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};

use crate::engine::EngineError;
use crate::issue::DenialKind;
use crate::issue::commit::CommandRefusal;
use crate::sandbox::WorkError;
use crate::store::StoreError;
use crate::types::InvalidId;

use super::wire::{ErrorAnswer, ErrorBody};

/// Declares the codes with their statuses, so that no code is without one.
macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal, $status:ident;)*) => {
        /// A stable word for what went wrong, with the status it is sent with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])* $name,)* }

        impl Code {
            /// Every code, in the order of the statuses.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The status it is sent with.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// What it means, in a sentence of the served description.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim(),)* }
            }
        }

        /// Each code as a type, for handlers that answer with it beside the groups of
        /// [`answers`](super::answers).
        pub mod only {
            $(
                $(#[doc = $doc])*
                #[derive(Debug)]
                pub struct $name;

                impl utoipa::IntoResponses for $name {
                    fn responses() -> crate::http::answers::ResponseMap {
                        crate::http::answers::of(&[super::Code::$name])
                    }
                }
            )*
        }
    };
}

codes! {
    /// Part of the input has a form or value that is not accepted; `field` names it.
    InvalidRequest = "invalid_request", BAD_REQUEST;
    /// The path leads out of the workspace or has a form that is not accepted.
    PathNotAllowed = "path_not_allowed", BAD_REQUEST;
    /// No token, or not the right one.
    Unauthorized = "unauthorized", UNAUTHORIZED;
    /// The delivery's signature is missing or wrong.
    BadSignature = "bad_signature", UNAUTHORIZED;
    /// A change came with a session's cookie but from another origin, or without its form token.
    Forbidden = "forbidden", FORBIDDEN;
    /// There is no such route.
    RouteNotFound = "route_not_found", NOT_FOUND;
    /// There is no such sandbox in this account.
    SandboxNotFound = "sandbox_not_found", NOT_FOUND;
    /// There is nothing at that path in the workspace.
    FileNotFound = "file_not_found", NOT_FOUND;
    /// The route exists, for other methods.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// The body did not come in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT;
    /// The sandbox is deleted.
    SandboxDeleted = "sandbox_deleted", CONFLICT;
    /// The sandbox is being deleted.
    Deleting = "deleting", CONFLICT;
    /// The sandbox has failed; only retry and delete lead on.
    SandboxFailed = "failed", CONFLICT;
    /// Only a failed sandbox can be retried.
    NotFailed = "not_failed", CONFLICT;
    /// A person stopped the sandbox, so work does not start it by itself.
    Stopped = "stopped", CONFLICT;
    /// Work needs a running sandbox.
    NotRunning = "not_running", CONFLICT;
    /// The issue id and the repository and number belong to different issues.
    IssueIdConflict = "issue_id_conflict", CONFLICT;
    /// What was to be adopted or removed is not as it was shown any more.
    DriftOver = "drift_over", CONFLICT;
    /// There is something at that path already.
    FileExists = "file_exists", CONFLICT;
    /// The configuration no longer has the sandbox's provider.
    ProviderUnknown = "provider_unknown", CONFLICT;
    /// The body is larger than accepted here.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    /// The range that was asked for begins behind the file's end.
    RangeNotSatisfiable = "range_not_satisfiable", RANGE_NOT_SATISFIABLE;
    /// The body's content type or encoding is not accepted here.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    /// The repository and number are not known yet, and no issue id was given.
    IssueUnknown = "issue_unknown", UNPROCESSABLE_ENTITY;
    /// The configuration has no such template.
    TemplateUnknown = "template_unknown", UNPROCESSABLE_ENTITY;
    /// An archive is malformed or cut off, or holds what is not taken into a workspace.
    BadArchive = "bad_archive", UNPROCESSABLE_ENTITY;
    /// What is at the path is of the wrong kind, such as a directory where a file is needed.
    WrongKind = "wrong_kind", UNPROCESSABLE_ENTITY;
    /// The command could not be started.
    CannotStart = "cannot_start", UNPROCESSABLE_ENTITY;
    /// The sandbox itself refused, for want of room or permission.
    RefusedInside = "refused_inside", UNPROCESSABLE_ENTITY;
    /// A hold on the server, the account, the repository or the issue forbids it now.
    Held = "held", LOCKED;
    /// There are as many live sandboxes as are allowed.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS;
    /// The provider has no room for more sandboxes now.
    NoRoom = "no_room", INSUFFICIENT_STORAGE;
    /// The route is a WebSocket, and the request does not open one of its kind.
    UpgradeRequired = "upgrade_required", UPGRADE_REQUIRED;
    /// Too many wrong tokens from this address.
    TooManyAttempts = "too_many_attempts", TOO_MANY_REQUESTS;
    /// The sandbox's provider does not offer this.
    NotSupported = "not_supported", NOT_IMPLEMENTED;
    /// Nothing in the sandbox accepts connections on that port, or it gave no answer there.
    PortClosed = "port_closed", BAD_GATEWAY;
    /// The template does not list that port.
    PortNotListed = "port_not_listed", NOT_FOUND;
    /// The sandbox's provider could not be reached or failed.
    ProviderFailed = "provider_failed", BAD_GATEWAY;
    /// Too much at once; nothing was stored.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE;
    /// The store failed; nothing was stored.
    StoreFailed = "store_failed", SERVICE_UNAVAILABLE;
    /// The server is shutting down; nothing was stored.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE;
}

/// Something went wrong, ready to be answered.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", .code.as_str())]
pub struct ApiError {
    code: Code,
    message: String,
    hint: Option<String>,
    field: Option<String>,
    retry_after_secs: Option<u32>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl ApiError {
    /// An error with a message for people.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            field: None,
            retry_after_secs: None,
            headers: Vec::new(),
        }
    }

    /// 400: this part of the input is wrong.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::InvalidRequest, message) }
    }

    /// 400: this identifier does not have its form.
    pub fn invalid_id(field: &str, wrong: &InvalidId) -> Self {
        Self::field(field, wrong.to_string())
    }

    /// 404: no such sandbox in the caller's account.
    pub fn sandbox_not_found() -> Self {
        EngineError::SandboxNotFound.into()
    }

    /// Says what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the part of the input that was wrong.
    pub fn about(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Says when to come back, in seconds.
    pub fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// Adds a header to the answer.
    pub fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// What went wrong, in a stable word.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What went wrong, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// After how many seconds to come again, where that is known.
    pub const fn retry_after_secs(&self) -> Option<u32> {
        self.retry_after_secs
    }

    /// Which part of the input was wrong.
    pub fn wrong_field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    fn error_response(&self) -> HttpResponse {
        let mut answer = HttpResponse::build(self.status_code());
        if let Some(secs) = self.retry_after_secs {
            answer.insert_header((header::RETRY_AFTER, secs.to_string()));
        }
        for (name, value) in &self.headers {
            answer.insert_header((name.clone(), value.clone()));
        }
        answer.json(ErrorAnswer {
            success: false,
            error: ErrorBody {
                code: self.code.as_str(),
                message: &self.message,
                hint: self.hint.as_deref(),
                field: self.field.as_deref(),
            },
        })
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::TemplateUnknown(_) => {
                Self::new(Code::TemplateUnknown, message).about("template")
            }
            EngineError::IssueUnknown(..) => Self::new(Code::IssueUnknown, message)
                .about("issueNumber")
                .hint("give issueId as well; the issue is then known by both"),
            EngineError::IssueIdConflict => {
                Self::new(Code::IssueIdConflict, message).about("issueId")
            }
            EngineError::IssueElsewhere(_) => Self::new(Code::IssueIdConflict, message),
            EngineError::SandboxNotFound => Self::new(Code::SandboxNotFound, message)
                .hint("GET /v1/sandboxes?deleted=true lists every sandbox"),
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::NotRunning(sandbox) => {
                let phase = sandbox.phase.map_or("deleted", crate::types::Phase::as_str);
                Self::new(Code::NotRunning, format!("the sandbox is {phase}, not running"))
                    .hint("wait for it: GET /v1/sandboxes/{id}?until=running&wait=60")
            }
            EngineError::Denied(denial) => match denial.kind {
                DenialKind::Held => Self::new(Code::Held, denial.reason).hint(
                    "it goes on once released: issuebox holds and issuebox release, or \
                         GET /v1/holds and DELETE /v1/holds/…",
                ),
                DenialKind::Quota => Self::new(Code::QuotaExceeded, denial.reason)
                    .hint("delete a sandbox that is not needed, or raise the quota")
                    .retry_after(60),
                DenialKind::NoRoom => Self::new(Code::NoRoom, denial.reason)
                    .hint("it goes on by itself once there is room; GET /v1/system shows how much")
                    .retry_after(60),
            },
            EngineError::ProviderUnknown => Self::new(Code::ProviderUnknown, message)
                .hint("configure the provider again, then restart the server"),
            EngineError::ProviderFailed(name, why) => {
                tracing::warn!(provider = %name, error = %why, "a provider could not be asked");
                Self::new(Code::ProviderFailed, format!("the provider {name} could not be asked"))
                    .hint("GET /v1/system shows the provider's health")
            }
            EngineError::ProviderBusy(_) => Self::new(Code::Overloaded, message).retry_after(1),
            EngineError::Overloaded => {
                Self::new(Code::Overloaded, "too much at once; nothing was stored").retry_after(1)
            }
            EngineError::StoreFailed(why) => store_failed(&why),
            EngineError::RecordTooSlow => Self::new(Code::StoreFailed, message)
                .hint("GET /readyz says whether the store works again; then ensure it again")
                .retry_after(5),
            EngineError::ShuttingDown => Self::new(Code::ShuttingDown, message).retry_after(5),
        }
    }
}

impl From<CommandRefusal> for ApiError {
    fn from(refusal: CommandRefusal) -> Self {
        match refusal {
            CommandRefusal::SandboxDeleted => {
                Self::new(Code::SandboxDeleted, "the sandbox is deleted")
                    .hint("ensure the issue again to get its next generation")
            }
            CommandRefusal::Deleting => Self::new(Code::Deleting, "the sandbox is being deleted")
                .hint("ensure the issue again; its next generation follows the delete"),
            CommandRefusal::Failed => Self::new(Code::SandboxFailed, "the sandbox has failed")
                .hint("retry it, or delete it"),
            CommandRefusal::NotFailed(_) => {
                Self::new(Code::NotFailed, "only a failed sandbox can be retried")
            }
            CommandRefusal::StoppedByPerson => {
                Self::new(Code::Stopped, "the sandbox was stopped by a person")
                    .hint("start it first: POST /v1/sandboxes/{id}/start")
            }
            CommandRefusal::ObservationOutdated => {
                Self::new(Code::DriftOver, "it is not as it was shown any more")
                    .hint("look again: GET /v1/system/drift")
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BadCursor => Self::field("cursor", "the cursor is not one of this list")
                .hint("use nextCursor of the page before, with the same filters"),
            StoreError::Failed(why) => store_failed(&why),
        }
    }
}

impl From<WorkError> for ApiError {
    fn from(error: WorkError) -> Self {
        let message = error.to_string();
        match error {
            WorkError::NotRunning => Self::new(Code::NotRunning, message)
                .hint("it went down meanwhile; look at its phase"),
            WorkError::NoSuchFile => Self::new(Code::FileNotFound, message).about("path"),
            WorkError::PathNotAllowed(_) => Self::new(Code::PathNotAllowed, message).about("path"),
            WorkError::Exists(_) => Self::new(Code::FileExists, message).about("path"),
            WorkError::BadArchive(_) => Self::new(Code::BadArchive, message)
                .hint("what came before that entry is in the workspace"),
            WorkError::OutOfRange { size } => {
                let value = HeaderValue::from_str(&format!("bytes */{size}"));
                Self::new(Code::RangeNotSatisfiable, message)
                    .header(header::CONTENT_RANGE, value.expect("digits are header text"))
            }
            WorkError::WrongKind(_) => Self::new(Code::WrongKind, message).about("path"),
            WorkError::CannotStart(_) => Self::new(Code::CannotStart, message).about("command"),
            WorkError::Refused(_) => Self::new(Code::RefusedInside, message),
            WorkError::NotListening => Self::new(Code::PortClosed, message)
                .hint("start the server there, on 127.0.0.1 or all addresses of the sandbox"),
            WorkError::Unsupported(_) => Self::new(Code::NotSupported, message),
            WorkError::Broken(why) => {
                tracing::warn!(error = %why, "work in a sandbox failed at its provider");
                Self::new(Code::ProviderFailed, "the sandbox's provider failed")
                    .hint("GET /v1/system shows the provider's health")
            }
        }
    }
}

fn store_failed(why: &str) -> ApiError {
    tracing::error!(error = %why, "the store failed under a request");
    ApiError::new(Code::StoreFailed, "the store failed; nothing was stored")
        .hint("GET /readyz says whether it works again")
        .retry_after(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_words() {
        let words: std::collections::HashSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(words.iter().all(|w| w.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    }

    #[test]
    fn what_the_store_says_stays_in_the_log() {
        let error = ApiError::from(EngineError::StoreFailed("disk /secret/path is full".into()));
        assert_eq!(error.code(), Code::StoreFailed);
        assert!(!format!("{error:?}").contains("/secret/path"));
    }

    #[actix_web::test]
    async fn the_envelope_names_code_hint_and_field() {
        let error = ApiError::field("limit", "must be a number").hint("leave it out");
        let answer = error.error_response();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let body = actix_web::body::to_bytes(answer.into_body()).await.expect("a body in memory");
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            body,
            serde_json::json!({"success": false, "error": {
                "code": "invalid_request", "message": "must be a number",
                "hint": "leave it out", "field": "limit"
            }})
        );
    }
}
