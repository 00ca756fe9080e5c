//! Commands in a sandbox: `POST /v1/sandboxes/{id}/exec`.
//!
//! The command lives as long as its request: a caller that goes away drops the answer, which
//! drops the execution, which ends the command and its session. As JSON each output stream is
//! bounded, and what is beyond is read and thrown away so that the command can go on; as events
//! nothing is gathered, and a caller that does not read holds its command up.

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
use crate::http::auth::Caller;
use crate::http::body::JsonBody;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::sse;
use crate::http::wire::{Failed, Success};
use crate::http::work::OpenSandbox;
use crate::sandbox::{Capability, ExecRequest, Execution};

pub use output::Encoding;
pub use output::went_away;
use output::{as_events, gather};

/// Longest time a command may be given, in seconds: a day.
const TIMEOUT_SECS_MAX: u64 = 86_400;

/// A command to run.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ExecCall {
    /// Program and arguments; no shell is in between.
    pub command: Vec<String>,
    /// Working directory; the workspace where it is left out.
    pub cwd: Option<String>,
    /// Added to the sandbox's own environment.
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    pub env: Vec<(String, String)>,
    /// What the command reads.
    pub stdin: Option<String>,
    /// How `stdin` is written: `utf-8` (where it is left out) or `base64`.
    #[schema(value_type = Option<String>)]
    pub stdin_encoding: Encoding,
    /// After this the command is killed; no limit where it is left out.
    pub timeout_seconds: Option<u64>,
    /// How output is answered: `utf-8` (where it is left out; other bytes become U+FFFD) or
    /// `base64`.
    #[schema(value_type = Option<String>)]
    pub encoding: Encoding,
}

/// What a command did.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecAnswer {
    /// Its exit code; 128 + n where signal n killed it.
    pub exit_code: i32,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Whether it wrote more to one of them than is answered.
    pub truncated: bool,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
    /// How long it ran.
    pub duration_ms: u64,
}

/// Runs a command in a sandbox. With `Accept: text/event-stream` its output comes as events
/// `stdout` and `stderr`, then one `exit`; a caller that goes away ends its command.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    request_body = ExecCall,
    responses(
        (status = 200, content(
            (Success<ExecAnswer> = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 404, body = Failed, description = "sandbox_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown"),
        (status = 422, body = Failed, description = "cannot_start, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
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

/// Starts a command, and keeps what it writes for the sandbox's log.
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

/// A running sandbox to work in, started where it is stopped; the server's end ends the wait.
pub async fn work(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
) -> Result<OpenSandbox, ApiError> {
    OpenSandbox::open(shared, caller, id, true, at_most, None).await
}

/// The same, for what needs a capability of its provider.
pub async fn work_with(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
    needs: Capability,
) -> Result<OpenSandbox, ApiError> {
    OpenSandbox::open(shared, caller, id, true, at_most, Some(needs)).await
}

/// The same as [`work`], to look at what is in it. A session does not start it: its browser follows any link,
/// and GET is to be safe (RFC 9110, section 9.2.1). Who sends the token asks by themselves.
pub async fn work_to_read(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
) -> Result<OpenSandbox, ApiError> {
    let start = caller.session.is_none();
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

/// Refuses what no kernel takes as a command, its directory and its environment.
///
/// # Errors
/// 400 that names the field.
pub fn check(
    command: &[String],
    cwd: Option<&str>,
    env: &[(String, String)],
) -> Result<(), ApiError> {
    if command.first().is_none_or(String::is_empty) {
        return Err(ApiError::field("command", "must name a program and its arguments"));
    }
    // What the kernel takes ends at a NUL: anything behind it would be lost silently.
    let holds_nul = |text: &str| text.contains('\0');
    if command.iter().any(|text| holds_nul(text)) {
        return Err(ApiError::field("command", "must not hold NUL characters"));
    }
    if cwd.is_some_and(holds_nul) {
        return Err(ApiError::field("cwd", "must not hold NUL characters"));
    }
    if env.iter().any(|(name, value)| {
        name.is_empty() || name.contains('=') || holds_nul(name) || holds_nul(value)
    }) {
        return Err(ApiError::field("env", "names must not be empty nor hold '=' or NUL"));
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
