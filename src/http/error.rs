//! Maps every error to its HTTP answer, in one place.
//!
//! A caller branches on `code`, which is stable; `message` is for people, `hint` says what to do
//! next, `field` names the input that was wrong. Details that only an operator may see, such as a
//! store's own message, are logged here and do not leave the server.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};

use crate::access::AccessError;
use crate::conversation::RunRefusal;
use crate::engine::EngineError;
use crate::issue::DenialKind;
use crate::issue::commit::CommandRefusal;
use crate::sandbox::WorkError;
use crate::store::{CommitError, StoreError};
use crate::types::InvalidId;
use crate::verification::{EnsureError, VerificationError};

use super::wire::{ErrorAnswer, ErrorBody};

/// Declares the codes with their statuses, so that no code is without one.
macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal, $status:ident;)*) => {
        /// An error code: stable, and sent with one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])* $name,)* }

        impl Code {
            /// Every code, in the order of the statuses.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The HTTP status of its answers.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// What it means, in a sentence of the served description.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim(),)* }
            }
        }

        /// Each code as a type, for handlers that answer with it beside the groups of
        /// `answers`.
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
    /// An input has an invalid form or value; `field` names it.
    InvalidRequest = "invalid_request", BAD_REQUEST;
    /// The path leads out of the workspace, or its form is invalid.
    PathNotAllowed = "path_not_allowed", BAD_REQUEST;
    /// The token is missing or wrong.
    Unauthorized = "unauthorized", UNAUTHORIZED;
    /// The delivery's signature is missing or wrong.
    BadSignature = "bad_signature", UNAUTHORIZED;
    /// The caller's role is too low or its account is disabled; or the request used a session's cookie
    /// from another origin, or without its form token.
    Forbidden = "forbidden", FORBIDDEN;
    /// There is no such route.
    RouteNotFound = "route_not_found", NOT_FOUND;
    /// The server has no such account.
    AccountNotFound = "account_not_found", NOT_FOUND;
    /// The server has no such token.
    TokenNotFound = "token_not_found", NOT_FOUND;
    /// The account has no such run.
    RunNotFound = "run_not_found", NOT_FOUND;
    /// The account has no such sandbox.
    SandboxNotFound = "sandbox_not_found", NOT_FOUND;
    /// The workspace has no such file or directory.
    FileNotFound = "file_not_found", NOT_FOUND;
    /// The sandbox has no such version in the object storage, or none at all.
    VersionNotFound = "version_not_found", NOT_FOUND;
    /// The route does not accept this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// The body did not arrive in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT;
    /// The sandbox is deleted.
    SandboxDeleted = "sandbox_deleted", CONFLICT;
    /// The sandbox is being deleted.
    Deleting = "deleting", CONFLICT;
    /// Only a failed sandbox can be retried.
    NotFailed = "not_failed", CONFLICT;
    /// The work of the sandbox cannot be published now.
    NotPublished = "not_published", CONFLICT;
    /// No object storage is configured, so workspaces are not synced.
    SyncNotConfigured = "sync_not_configured", CONFLICT;
    /// A person stopped the sandbox, so it is not started automatically.
    Stopped = "stopped", CONFLICT;
    /// The sandbox is not running.
    NotRunning = "not_running", CONFLICT;
    /// The issue is closed on GitHub.
    IssueClosed = "issue_closed", CONFLICT;
    /// The issue id and the repository and number belong to different issues.
    IssueIdConflict = "issue_id_conflict", CONFLICT;
    /// The drift item has changed since it was listed.
    DriftOver = "drift_over", CONFLICT;
    /// Only a run in progress can be cancelled, only one that ended without success retried, only a waiting
    /// question answered, once; and nothing can be said on an issue that was deleted on GitHub.
    RunRefused = "run_refused", CONFLICT;
    /// The path already exists.
    FileExists = "file_exists", CONFLICT;
    /// The account is in the configuration, which alone can change it.
    AccountConfigured = "account_configured", CONFLICT;
    /// There are as many tokens as there may be.
    TooManyTokens = "too_many_tokens", CONFLICT;
    /// The sandbox's provider is no longer configured.
    ProviderUnknown = "provider_unknown", CONFLICT;
    /// The body is too large.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    /// The requested range starts after the end of the file.
    RangeNotSatisfiable = "range_not_satisfiable", RANGE_NOT_SATISFIABLE;
    /// The body's content type or encoding is not supported.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    /// The repository and number are unknown, and the request has no issue id. With credentials for
    /// GitHub it is asked; if GitHub does not know the issue, the status is 404.
    IssueUnknown = "issue_unknown", UNPROCESSABLE_ENTITY;
    /// The template is not configured, or no template has that provider; `known` lists those that
    /// can be named.
    TemplateUnknown = "template_unknown", UNPROCESSABLE_ENTITY;
    /// A create configures the sandbox by itself; only templates do that. `field` names the input.
    TemplateOnly = "template_only", UNPROCESSABLE_ENTITY;
    /// The archive is malformed or truncated, or contains an entry that is not allowed.
    BadArchive = "bad_archive", UNPROCESSABLE_ENTITY;
    /// There is no such agent, or the sandbox's template has none.
    AgentUnknown = "agent_unknown", UNPROCESSABLE_ENTITY;
    /// The path has the wrong kind, such as a directory instead of a file.
    WrongKind = "wrong_kind", UNPROCESSABLE_ENTITY;
    /// The sandbox has no such program.
    CommandNotFound = "command_not_found", UNPROCESSABLE_ENTITY;
    /// The command could not be started for another reason: not executable, no such directory.
    CannotStart = "cannot_start", UNPROCESSABLE_ENTITY;
    /// The sandbox has no space or no permission for it.
    RefusedInside = "refused_inside", UNPROCESSABLE_ENTITY;
    /// A hold on the server, the account, the repository or the issue is in force.
    Held = "held", LOCKED;
    /// The quota of live sandboxes is used up.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS;
    /// The provider has no capacity for more sandboxes.
    NoRoom = "no_room", INSUFFICIENT_STORAGE;
    /// As many messages wait for the agent's next run as can.
    QueueFull = "queue_full", TOO_MANY_REQUESTS;
    /// The route is a WebSocket, and the request does not open one with its sub-protocol.
    UpgradeRequired = "upgrade_required", UPGRADE_REQUIRED;
    /// This address sent too many wrong tokens.
    TooManyAttempts = "too_many_attempts", TOO_MANY_REQUESTS;
    /// The sandbox's provider does not support this.
    NotSupported = "not_supported", NOT_IMPLEMENTED;
    /// The sandbox has no process with that id.
    ProcessNotFound = "process_not_found", NOT_FOUND;
    /// The process no longer reads its input.
    StdinClosed = "stdin_closed", CONFLICT;
    /// No server in the sandbox answers on that port.
    PortClosed = "port_closed", BAD_GATEWAY;
    /// The template does not list that port.
    PortNotListed = "port_not_listed", NOT_FOUND;
    /// The sandbox's provider could not be reached or failed.
    ProviderFailed = "provider_failed", BAD_GATEWAY;
    /// The object storage could not be reached or failed, or a version there is damaged.
    SyncFailed = "sync_failed", BAD_GATEWAY;
    /// GitHub could not be asked about the issue; nothing was stored.
    GithubUnavailable = "github_unavailable", SERVICE_UNAVAILABLE;
    /// The server is overloaded; nothing was stored.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE;
    /// The store failed; nothing was stored.
    StoreFailed = "store_failed", SERVICE_UNAVAILABLE;
    /// The server is shutting down; nothing was stored.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE;
}

impl Code {
    /// The status of its answers if GitHub was asked, where that is another one.
    pub const fn status_by_github(self) -> Option<StatusCode> {
        if matches!(self, Self::IssueUnknown) { Some(StatusCode::NOT_FOUND) } else { None }
    }
}

/// An error that is ready to be answered.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", .code.as_str())]
pub struct ApiError {
    code: Code,
    status: StatusCode,
    message: Box<str>,
    hint: Option<String>,
    field: Option<String>,
    known: Box<[String]>,
    retry_after_secs: Option<u32>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl ApiError {
    /// An error with a message for people.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            message: message.into().into_boxed_str(),
            hint: None,
            field: None,
            known: Box::default(),
            retry_after_secs: None,
            headers: Vec::new(),
        }
    }

    /// An error with a message for people, by what GitHub said.
    fn by_github(code: Code, message: impl Into<String>) -> Self {
        let status = code.status_by_github().unwrap_or(code.status());
        Self { status, ..Self::new(code, message) }
    }

    /// 400: this input is wrong.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::InvalidRequest, message) }
    }

    /// 400: this identifier does not have its form.
    pub fn invalid_id(field: &str, wrong: &InvalidId) -> Self {
        Self::field(field, wrong.to_string())
    }

    /// 401: the request has no valid token or session.
    pub fn unauthorized() -> Self {
        Self::new(Code::Unauthorized, "the token is missing or wrong")
            .hint("send Authorization: Bearer <token>")
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"issuebox\""))
    }

    /// 404: the caller's account has no such sandbox.
    pub fn sandbox_not_found() -> Self {
        EngineError::SandboxNotFound.into()
    }

    /// The same with another message.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into().into_boxed_str();
        self
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the input that was wrong.
    pub fn about(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Adds what the input could have named.
    pub fn known(mut self, names: impl IntoIterator<Item = impl ToString>) -> Self {
        self.known = names.into_iter().map(|name| name.to_string()).collect();
        self
    }

    /// Adds when to retry, in seconds.
    pub fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// Adds a header to the answer.
    pub fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The error code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// After how many seconds to retry, if known.
    pub const fn retry_after_secs(&self) -> Option<u32> {
        self.retry_after_secs
    }

    /// The headers of its answer.
    pub fn headers(&self) -> &[(header::HeaderName, HeaderValue)] {
        &self.headers
    }

    /// The input that was wrong.
    pub fn wrong_field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status
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
                known: &self.known,
            },
        })
    }
}

impl From<RunRefusal> for ApiError {
    fn from(refusal: RunRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            RunRefusal::NoAgent => Self::new(Code::AgentUnknown, message).about("agentId"),
            RunRefusal::QueueFull => Self::new(Code::QueueFull, message).retry_after(60),
            RunRefusal::IssueDeleted
            | RunRefusal::ChecksGoOnFailing
            | RunRefusal::MessageJoined
            | RunRefusal::NotInProgress
            | RunRefusal::Answered(_)
            | RunRefusal::NotAsked(_)
            | RunRefusal::NotNow(_)
            | RunRefusal::Held(_)
            | RunRefusal::NothingToRetry => Self::new(Code::RunRefused, message),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::TemplateUnknown { known, .. } => {
                Self::new(Code::TemplateUnknown, message)
                    .about("template")
                    .hint("issuebox templates, or GET /v1/templates, lists them")
                    .known(known)
            }
            EngineError::NoTemplateOf { known, .. } => Self::new(Code::TemplateUnknown, message)
                .about("provider")
                .hint("issuebox templates, or GET /v1/templates, shows the provider of each")
                .known(known),
            EngineError::OtherProvider { .. } => Self::field("provider", message),
            EngineError::IssueUnknown(..) => Self::new(Code::IssueUnknown, message)
                .about("issueNumber")
                .hint("send issueId as well; it links the issue to its repository and number"),
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
                    .hint("wait until it runs: GET /v1/sandboxes/{id}?until=running&wait=60")
            }
            EngineError::Denied(denial) => match denial.kind {
                DenialKind::Held => Self::new(Code::Held, denial.reason).hint(
                    "it continues when the hold is released: issuebox holds and issuebox release, \
                         or GET /v1/holds and DELETE /v1/holds/…",
                ),
                DenialKind::Quota => Self::new(Code::QuotaExceeded, denial.reason)
                    .hint("delete a sandbox that is no longer needed, or raise the quota")
                    .retry_after(60),
                DenialKind::NoRoom => Self::new(Code::NoRoom, denial.reason)
                    .hint("it continues automatically when there is capacity; GET /v1/system shows how much")
                    .retry_after(60),
            },
            EngineError::ProviderUnknown => Self::new(Code::ProviderUnknown, message)
                .hint("configure the provider again, then restart the server"),
            EngineError::ProviderFailed(name, why) => {
                tracing::warn!(provider = %name, error = %why, "a provider failed at a request; its caller gets an error");
                Self::new(Code::ProviderFailed, format!("cannot reach the provider {name}"))
                    .hint("GET /v1/system shows the provider's health")
            }
            EngineError::ProviderBusy(_) | EngineError::CreateBeingUndone => {
                Self::new(Code::Overloaded, message).retry_after(1)
            }
            EngineError::Overloaded => {
                Self::new(Code::Overloaded, "the server is overloaded; nothing was stored").retry_after(1)
            }
            EngineError::StoreFailed(why) => store_failed(&why),
            EngineError::ActorEnded => store_failed(&message),
            EngineError::RecordTooSlow => Self::new(Code::StoreFailed, message)
                .hint("check GET /readyz until the store works again; then ensure the issue again")
                .retry_after(5),
            EngineError::RunRefused(refusal) => refusal.into(),
            EngineError::ShuttingDown => Self::new(Code::ShuttingDown, message).retry_after(5),
        }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let message = error.to_string();
        match error {
            AccessError::AccountUnknown(_) => Self::new(Code::AccountNotFound, message)
                .hint("PUT /v1/accounts/{name} creates one")
                .about("account"),
            AccessError::AccountConfigured(_) => Self::new(Code::AccountConfigured, message)
                .hint("change it there, and reload the configuration (SIGHUP)"),
            AccessError::TooManyTokens(_) => {
                Self::new(Code::TooManyTokens, message).hint("delete those that have expired")
            }
            AccessError::NoRandomness => EngineError::StoreFailed(message).into(),
            AccessError::Write(CommitError::Overloaded) => EngineError::Overloaded.into(),
            AccessError::Write(_) | AccessError::Read(_) => {
                EngineError::StoreFailed(message).into()
            }
        }
    }
}

impl From<EnsureError> for ApiError {
    fn from(error: EnsureError) -> Self {
        let message = error.to_string();
        match error {
            EnsureError::OtherAccount { .. } => Self::new(Code::Forbidden, message)
                .about("repository")
                .hint("use a token of its account; the rules of accounts say which one that is"),
            EnsureError::Verification(error) => error.into(),
            EnsureError::Engine(error) => error.into(),
        }
    }
}

impl From<VerificationError> for ApiError {
    fn from(error: VerificationError) -> Self {
        let message = error.to_string();
        match error {
            VerificationError::Unknown { .. } => {
                Self::by_github(Code::IssueUnknown, message).about("issueNumber").hint(
                    "check the repository and the number, and that the App is installed on the \
                     repository or the token may read its issues",
                )
            }
            VerificationError::Closed(..) => Self::by_github(Code::IssueClosed, message)
                .hint("reopen the issue on GitHub first, then ensure it again"),
            VerificationError::IdConflict => EngineError::IssueIdConflict.into(),
            VerificationError::Unavailable { retry_after_secs, .. } => {
                Self::by_github(Code::GithubUnavailable, message)
                    .hint("try again later; nothing was stored")
                    .retry_after(retry_after_secs)
            }
            VerificationError::Engine(error) => error.into(),
        }
    }
}

impl From<CommandRefusal> for ApiError {
    fn from(refusal: CommandRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            CommandRefusal::SandboxDeleted => Self::new(Code::SandboxDeleted, message)
                .hint("ensure the issue again to create its next generation"),
            CommandRefusal::Deleting => Self::new(Code::Deleting, message)
                .hint("ensure the issue again; its next generation is created after the delete"),
            CommandRefusal::NotFailed(_) => Self::new(Code::NotFailed, message),
            CommandRefusal::StoppedByPerson => Self::new(Code::Stopped, message)
                .hint("start it first: POST /v1/sandboxes/{id}/start"),
            CommandRefusal::BadMeta(_) => Self::new(Code::InvalidRequest, message).about("meta"),
            CommandRefusal::ObservationOutdated => {
                Self::new(Code::DriftOver, message).hint("list again: GET /v1/system/drift")
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BadCursor => {
                Self::field("cursor", "the cursor does not belong to this list")
                    .hint("send nextCursor of the previous page, with the same filters")
            }
            StoreError::Failed(why) => store_failed(&why),
            StoreError::Damaged { .. } | StoreError::Replaced { .. } => {
                store_failed(&error.to_string())
            }
        }
    }
}

impl From<WorkError> for ApiError {
    fn from(error: WorkError) -> Self {
        let message = error.to_string();
        match error {
            WorkError::NotRunning => {
                Self::new(Code::NotRunning, message).hint("it stopped meanwhile; check its phase")
            }
            WorkError::NoSuchFile => Self::new(Code::FileNotFound, message).about("path"),
            WorkError::PathNotAllowed(_) => Self::new(Code::PathNotAllowed, message).about("path"),
            WorkError::Exists(_) => Self::new(Code::FileExists, message).about("path"),
            WorkError::BadArchive(_) => Self::new(Code::BadArchive, message)
                .hint("the entries before that one are in the workspace"),
            WorkError::OutOfRange { size } => {
                let value = HeaderValue::from_str(&format!("bytes */{size}"));
                Self::new(Code::RangeNotSatisfiable, message)
                    .header(header::CONTENT_RANGE, value.expect("digits are header text"))
            }
            WorkError::WrongKind(_) => Self::new(Code::WrongKind, message).about("path"),
            WorkError::CommandNotFound(_) => {
                Self::new(Code::CommandNotFound, message).about("command")
            }
            WorkError::CannotStart(_) => Self::new(Code::CannotStart, message).about("command"),
            WorkError::Refused(_) | WorkError::Shortage(_) => {
                Self::new(Code::RefusedInside, message)
            }
            WorkError::NotListening => Self::new(Code::PortClosed, message).hint(
                "start a server on that port, on 127.0.0.1 or on all addresses of the sandbox",
            ),
            WorkError::NoSuchProcess => Self::new(Code::ProcessNotFound, message),
            WorkError::StdinClosed => Self::new(Code::StdinClosed, message),
            WorkError::Unsupported(_) => Self::new(Code::NotSupported, message),
            WorkError::Broken(why) => {
                tracing::warn!(error = %why, "a provider failed at a command or file in a sandbox; its caller gets an error");
                Self::new(Code::ProviderFailed, "the sandbox's provider failed")
                    .hint("GET /v1/system shows the provider's health")
            }
        }
    }
}

fn store_failed(why: &str) -> ApiError {
    tracing::error!(error = %why, "the store failed at a request; its caller gets an error");
    ApiError::new(Code::StoreFailed, "the store failed; nothing was stored")
        .hint("check GET /readyz until the store works again")
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
