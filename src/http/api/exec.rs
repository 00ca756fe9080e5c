//! Commands in a sandbox: `POST /v1/sandboxes/{id}/exec`.
//!
//! The command lives as long as its request: a disconnected caller drops the answer and the
//! execution, which ends the command and its session. In a JSON answer each output stream is
//! bounded; the rest is read and discarded, so that the command can continue. Events are not
//! collected: a caller that does not read blocks its command.

mod attached;
mod output;

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, post, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::http::Shared;
use crate::http::answers;
use crate::http::body::JsonBody;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::EncodingWord;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, only};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::sse;
use crate::http::wire::Success;
use crate::http::work::OpenSandbox;
use crate::sandbox::{Capability, ExecRequest, Execution};

pub use attached::attached_exec;
pub use output::Encoding;
pub use output::went_away;
use output::{as_events, gather};

/// Longest timeout of a command, in seconds: a day.
const TIMEOUT_SECS_MAX: u64 = 86_400;

/// A command to run.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ExecCall {
    /// Program and arguments, run without a shell.
    pub command: Vec<String>,
    /// Working directory; by default the workspace.
    pub cwd: Option<String>,
    /// Added to the sandbox's own environment.
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    pub env: Vec<(String, String)>,
    /// The command's standard input.
    pub stdin: Option<String>,
    /// The encoding of `stdin`; default `utf-8`.
    #[schema(value_type = Option<EncodingWord>)]
    pub stdin_encoding: Encoding,
    /// The command is killed after this time; by default never.
    pub timeout_seconds: Option<u64>,
    /// The encoding of the output; default `utf-8`, in which other bytes become U+FFFD.
    #[schema(value_type = Option<EncodingWord>)]
    pub encoding: Encoding,
}

/// The result of a command.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecAnswer {
    /// Its exit code; 128 + n if signal n killed it.
    pub exit_code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Whether one of them is truncated.
    pub truncated: bool,
    /// Whether it was killed by its timeout.
    pub timed_out: bool,
    /// How long it ran.
    pub duration_ms: u64,
}

/// Runs a command in a sandbox. A stopped sandbox is started. With `Accept: text/event-stream` the
/// output is sent as events `stdout` and `stderr`, then one `exit`. Disconnecting ends the command.
#[utoipa::path(
    operation_id = "execInSandbox", tag = "work",
    params(params::OneSandbox, params::StartupWait),
    request_body = ExecCall,
    responses(
        (status = 200, description = "the result of the command, or its output as events", content(
            (Success<ExecAnswer> = "application/json"),
            (String = "text/event-stream"),
        )),
        answers::WorkErrors, only::CommandNotFound, only::CannotStart,
    )
)]
#[post("/v1/sandboxes/{id}/exec")]
pub async fn exec(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: JsonBody,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, super::WORK_WAIT_SECS)?;
    query.finish()?;
    let call = ExecCall::read(body.0)?;
    let encoding = call.encoding;
    let exec = call.into_request()?;
    let work = work(&shared, &caller, &path, at_most).await?;
    let began = Instant::now();
    let execution = start(&shared, &caller, &work, exec).await?;
    let ending = Ending::new(&shared, &caller);
    if sse::is_wanted(&request) {
        return Ok(sse::answer(as_events(execution, encoding, began, work.at_work, ending)));
    }
    let output_max = shared.edge.limits.exec_output_max;
    let answer = gather(execution, encoding, began, output_max, ending).await?;
    Ok(HttpResponse::Ok().json(Success::about(&work.sandbox, answer)))
}

/// Starts a command, and records its output in the sandbox's log.
pub async fn start(
    shared: &Shared,
    caller: &Caller,
    work: &OpenSandbox,
    call: ExecRequest,
) -> Result<Execution, ApiError> {
    let argv = call.command.clone();
    let execution = work.provider.processes.exec(work.target.clone(), call).await?;
    Ok(shared.edge.logs.keep(&work.sandbox.id, &caller.request_id, &argv, execution))
}

/// Begins work in a sandbox, and starts it if it is stopped. A shutdown ends the wait.
pub async fn work(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
) -> Result<OpenSandbox, ApiError> {
    OpenSandbox::open(shared, caller, id, true, at_most, None).await
}

/// Begins work that needs a capability of the provider.
pub async fn work_with(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
    needs: Capability,
) -> Result<OpenSandbox, ApiError> {
    OpenSandbox::open(shared, caller, id, true, at_most, Some(needs)).await
}

/// Begins reading work. A session does not start the sandbox, because a browser follows any link
/// and GET must be safe (RFC 9110, section 9.2.1). A token starts it, if it may do more than read.
pub async fn work_to_read(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
) -> Result<OpenSandbox, ApiError> {
    let start = caller.starts_to_read();
    OpenSandbox::open(shared, caller, id, start, at_most, None).await
}

impl ExecCall {
    fn read(mut fields: Fields) -> Result<Self, ApiError> {
        let call = Self {
            command: fields.texts("command")?.unwrap_or_default(),
            cwd: fields.text("cwd")?,
            env: fields.pairs("env")?,
            stdin: fields.text("stdin")?,
            stdin_encoding: Encoding::read(&mut fields, "stdinEncoding")?,
            timeout_seconds: fields.number("timeoutSeconds", 1..=TIMEOUT_SECS_MAX)?,
            encoding: Encoding::read(&mut fields, "encoding")?,
        };
        fields.finish()?;
        Ok(call)
    }

    fn into_request(self) -> Result<ExecRequest, ApiError> {
        check(&self.command, self.cwd.as_deref(), &self.env)?;
        let stdin = match (self.stdin_encoding, self.stdin.unwrap_or_default()) {
            (Encoding::Utf8, text) => text.into_bytes(),
            (Encoding::Base64, text) => BASE64
                .decode(text)
                .map_err(|error| ApiError::field("stdin", format!("is not base64: {error}")))?,
        };
        Ok(ExecRequest {
            command: self.command,
            cwd: self.cwd.filter(|cwd| !cwd.is_empty()),
            env: self.env,
            stdin: Bytes::from(stdin).into(),
            timeout: self.timeout_seconds.map(Duration::from_secs),
        })
    }
}

/// Refuses commands, directories and environments that no kernel accepts.
///
/// # Errors
/// 400 that names the field.
pub fn check(
    command: &[String],
    cwd: Option<&str>,
    env: &[(String, String)],
) -> Result<(), ApiError> {
    if command.first().is_none_or(String::is_empty) {
        return Err(ApiError::field("command", "must contain a program and its arguments"));
    }
    // The kernel's strings end at a NUL, so the rest would be lost silently.
    let holds_nul = |text: &str| text.contains('\0');
    if command.iter().any(|text| holds_nul(text)) {
        return Err(ApiError::field("command", "must not contain NUL characters"));
    }
    if cwd.is_some_and(holds_nul) {
        return Err(ApiError::field("cwd", "must not contain NUL characters"));
    }
    if env.iter().any(|(name, value)| {
        name.is_empty() || name.contains('=') || holds_nul(name) || holds_nul(value)
    }) {
        return Err(ApiError::field("env", "names must not be empty or contain '=' or NUL"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Result<ExecRequest, ApiError> {
        ExecCall::read(Fields::parse(body.as_bytes())?)?.into_request()
    }

    #[tokio::test]
    async fn a_call_is_read_whole() {
        let body = r#"{"command":["sh","-c","x"],"cwd":"src","env":{"A":"b"},"stdin":"aGk=",
            "stdinEncoding":"base64","timeoutSeconds":5,"encoding":"base64"}"#;
        let mut request = request(body).expect("it is valid");
        assert_eq!(request.command, ["sh", "-c", "x"]);
        assert_eq!(request.cwd.as_deref(), Some("src"));
        assert_eq!(request.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(request.stdin.next().await.as_deref(), Some(b"hi".as_slice()));
        assert_eq!(request.stdin.next().await, None);
        assert_eq!(request.timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        for body in [
            "{}",
            r#"{"command":[]}"#,
            r#"{"command":[""]}"#,
            r#"{"command":"ls"}"#,
            r#"{"command":["a\u0000b"]}"#,
            r#"{"command":["a"],"env":{"A=B":"c"}}"#,
            r#"{"command":["a"],"env":{"":"c"}}"#,
            r#"{"command":["a"],"env":{"A":1}}"#,
            r#"{"command":["a"],"timeoutSeconds":0}"#,
            r#"{"command":["a"],"encoding":"hex"}"#,
            r#"{"command":["a"],"stdin":"!","stdinEncoding":"base64"}"#,
            r#"{"command":["a"],"nope":1}"#,
        ] {
            assert!(request(body).is_err(), "{body}");
        }
    }
}
