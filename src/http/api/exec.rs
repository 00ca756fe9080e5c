//! Commands in a sandbox: `POST /v1/sandboxes/{id}/exec`.
//!
//! The command lives as long as its request: a caller that goes away drops the answer, which
//! drops the execution, which ends the command and its session. As JSON each output stream is
//! bounded, and what is beyond is read and thrown away so that the command can go on; as events
//! nothing is gathered, and a caller that does not read holds its command up.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, post, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use crate::engine::Work;
use crate::http::Shared;
use crate::http::auth::Caller;
use crate::http::body::JsonBody;
use crate::http::error::{ApiError, Code};
use crate::http::fields::Fields;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::sse;
use crate::http::wire::{self, Failed, Success};
use crate::sandbox::{ExecEvent, ExecRequest, Execution};

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

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As they are; what is not UTF-8 becomes U+FFFD.
    Utf8,
    /// In base64.
    Base64,
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

/// A piece of output, as an event.
#[derive(Serialize)]
struct Piece<'a> {
    data: &'a str,
    encoding: &'static str,
}

/// The end, as an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exited {
    exit_code: i32,
    timed_out: bool,
    duration_ms: u64,
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
    let execution = work.provider.exec(work.target.clone(), exec).await?;
    if sse::is_wanted(&request) {
        return Ok(sse::answer(as_events(execution, encoding, began)));
    }
    let output_max = shared.edge.limits.exec_output_max;
    let answer = gather(execution, encoding, began, output_max).await?;
    Ok(HttpResponse::Ok().json(Success::about(&work.sandbox, answer)))
}

/// A running sandbox to work in; the server's end ends the wait.
pub async fn work(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    at_most: Duration,
) -> Result<Work, ApiError> {
    let of = sandbox_ref(id);
    tokio::select! {
        biased;
        work = shared.edge.engine.work(&caller.account, &of, caller.cause(), at_most) => Ok(work?),
        () = crate::http::shared::closed(shared.edge.closing.clone()) => {
            Err(crate::engine::EngineError::ShuttingDown.into())
        }
    }
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
        if self.command.first().is_none_or(String::is_empty) {
            return Err(ApiError::field("command", "must name a program and its arguments"));
        }
        // What the kernel takes ends at a NUL: anything behind it would be lost silently.
        let holds_nul = |text: &String| text.contains('\0');
        if self.command.iter().any(holds_nul) {
            return Err(ApiError::field("command", "must not hold NUL characters"));
        }
        if self.cwd.as_ref().is_some_and(holds_nul) {
            return Err(ApiError::field("cwd", "must not hold NUL characters"));
        }
        if self.env.iter().any(|(name, value)| {
            name.is_empty() || name.contains('=') || holds_nul(name) || holds_nul(value)
        }) {
            return Err(ApiError::field("env", "names must not be empty nor hold '=' or NUL"));
        }
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
            stdin: Bytes::from(stdin),
            timeout: self.timeout_seconds.map(Duration::from_secs),
        })
    }
}

impl Encoding {
    fn read(fields: &mut Fields, name: &str) -> Result<Self, ApiError> {
        match fields.text(name)?.as_deref() {
            None | Some("utf-8") => Ok(Self::Utf8),
            Some("base64") => Ok(Self::Base64),
            Some(_) => Err(ApiError::field(name, "must be utf-8 or base64")),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Base64 => "base64",
        }
    }

    fn write(self, bytes: &[u8]) -> String {
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
            Self::Base64 => BASE64.encode(bytes),
        }
    }
}

/// Gathers what a command does, up to `output_max` bytes of each stream.
async fn gather(
    mut execution: Execution,
    encoding: Encoding,
    began: Instant,
    output_max: usize,
) -> Result<ExecAnswer, ApiError> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut truncated = false;
    while let Some(event) = execution.events.recv().await {
        let (kept, bytes) = match event {
            ExecEvent::Stdout(bytes) => (&mut stdout, bytes),
            ExecEvent::Stderr(bytes) => (&mut stderr, bytes),
            ExecEvent::Exit { code, timed_out } => {
                return Ok(ExecAnswer {
                    exit_code: code,
                    stdout: encoding.write(&stdout),
                    stderr: encoding.write(&stderr),
                    truncated,
                    timed_out,
                    duration_ms: millis_since(began),
                });
            }
        };
        let room = bytes.len().min(output_max - kept.len());
        truncated |= room < bytes.len();
        kept.extend_from_slice(&bytes[..room]);
    }
    Err(went_away())
}

/// The same as events, as they come.
fn as_events(
    execution: Execution,
    encoding: Encoding,
    began: Instant,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let running = Running { execution, encoding, began, stdout: Vec::new(), stderr: Vec::new() };
    let rest = stream::unfold(Some(running), |running| async move {
        let mut running = running?;
        let (text, goes_on) = running.next().await;
        Some((Ok(Bytes::from(text)), goes_on.then_some(running)))
    });
    stream::once(async { Ok(sse::GREETING) }).chain(rest)
}

/// A command whose output is being told.
struct Running {
    execution: Execution,
    encoding: Encoding,
    began: Instant,
    /// The beginning of a character whose rest has not come yet.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Running {
    /// What is written next, and whether there is more.
    async fn next(&mut self) -> (String, bool) {
        let heartbeat = Instant::now() + sse::HEARTBEAT;
        let event = tokio::select! {
            biased;
            event = self.execution.events.recv() => event,
            () = sleep_until(heartbeat) => return (": still running\n\n".into(), true),
        };
        match event {
            Some(ExecEvent::Stdout(bytes)) => {
                (piece("stdout", self.encoding, &mut self.stdout, &bytes), true)
            }
            Some(ExecEvent::Stderr(bytes)) => {
                (piece("stderr", self.encoding, &mut self.stderr, &bytes), true)
            }
            Some(ExecEvent::Exit { code, timed_out }) => {
                let exited =
                    Exited { exit_code: code, timed_out, duration_ms: millis_since(self.began) };
                let mut text = self.leftovers();
                text.push_str(&sse::event("exit", None, &wire::to_json(&exited)));
                (text, false)
            }
            None => {
                let error = went_away();
                let data = serde_json::json!({
                    "code": error.code().as_str(), "message": error.message(),
                });
                let mut text = self.leftovers();
                text.push_str(&sse::event("error", None, &data.to_string()));
                (text, false)
            }
        }
    }

    /// What is left of characters whose rest never came.
    fn leftovers(&mut self) -> String {
        let mut text = String::new();
        for (name, kept) in [("stdout", &mut self.stdout), ("stderr", &mut self.stderr)] {
            if !kept.is_empty() {
                let data = self.encoding.write(kept);
                text.push_str(&output(name, self.encoding, &data));
                kept.clear();
            }
        }
        text
    }
}

/// One piece of output. Pieces are cut anywhere: in UTF-8 the beginning of a character is kept
/// for the next piece, so that it does not become two U+FFFD.
fn piece(name: &str, encoding: Encoding, kept: &mut Vec<u8>, bytes: &[u8]) -> String {
    if encoding == Encoding::Base64 {
        return output(name, encoding, &BASE64.encode(bytes));
    }
    kept.extend_from_slice(bytes);
    let whole = kept.len() - unfinished_len(kept);
    let data = String::from_utf8_lossy(&kept[..whole]).into_owned();
    kept.drain(..whole);
    if data.is_empty() { String::from(": \n\n") } else { output(name, encoding, &data) }
}

fn output(name: &str, encoding: Encoding, data: &str) -> String {
    sse::event(name, None, &wire::to_json(&Piece { data, encoding: encoding.as_str() }))
}

/// How many bytes at the end are the beginning of a character.
fn unfinished_len(bytes: &[u8]) -> usize {
    let tail = bytes.utf8_chunks().last().map_or(&b""[..], |chunk| chunk.invalid());
    let begins =
        |tail: &[u8]| std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if bytes.ends_with(tail) && !tail.is_empty() && begins(tail) { tail.len() } else { 0 }
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn went_away() -> ApiError {
    ApiError::new(Code::NotRunning, "the sandbox went away under the command")
        .hint("look at its timeline: GET /v1/issues/{issueId}/events")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn execution(events: Vec<ExecEvent>) -> Execution {
        let (tx, rx) = mpsc::channel(events.len().max(1));
        for event in events {
            tx.try_send(event).expect("there is room");
        }
        Execution { events: rx }
    }

    fn out(bytes: &'static [u8]) -> ExecEvent {
        ExecEvent::Stdout(Bytes::from_static(bytes))
    }

    const EXIT: ExecEvent = ExecEvent::Exit { code: 3, timed_out: false };

    async fn events_of(events: Vec<ExecEvent>, encoding: Encoding) -> String {
        let stream = as_events(execution(events), encoding, Instant::now());
        let pieces: Vec<_> = stream.collect().await;
        let bytes: Vec<u8> = pieces
            .into_iter()
            .flat_map(|piece| piece.unwrap_or_else(|never| match never {}))
            .collect();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[tokio::test]
    async fn output_is_gathered_up_to_its_bound() {
        let events =
            vec![out(b"abc"), ExecEvent::Stderr(Bytes::from_static(b"e")), out(b"def"), EXIT];
        let answer = gather(execution(events), Encoding::Utf8, Instant::now(), 4).await;
        let answer = answer.expect("it exited");
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("abcd", "e"));
        assert!(answer.truncated && answer.exit_code == 3);
    }

    #[tokio::test]
    async fn a_command_without_an_exit_is_an_error() {
        let error = gather(execution(vec![out(b"x")]), Encoding::Utf8, Instant::now(), 9).await;
        assert_eq!(error.err().map(|error| error.code()), Some(Code::NotRunning));
        assert!(events_of(vec![out(b"x")], Encoding::Utf8).await.contains("event: error\n"));
    }

    #[tokio::test]
    async fn characters_cut_between_pieces_stay_whole() {
        let text =
            events_of(vec![out(b"a\xc3"), out(b"\xa4b"), out(b"\xff"), EXIT], Encoding::Utf8).await;
        assert!(text.contains(r#"{"data":"a","encoding":"utf-8"}"#), "{text}");
        assert!(text.contains(r#"{"data":"äb","encoding":"utf-8"}"#), "{text}");
        assert!(text.contains("{\"data\":\"\u{fffd}\",\"encoding\":\"utf-8\"}"), "{text}");
        assert!(
            text.contains(r#"event: exit"#) && text.contains(r#"{"exitCode":3,"timedOut":false"#)
        );
    }

    #[tokio::test]
    async fn a_character_that_never_ends_is_not_lost() {
        let text = events_of(vec![out(b"\xe2\x82"), EXIT], Encoding::Utf8).await;
        assert!(text.contains('\u{fffd}'), "{text}");
        let text = events_of(vec![out(b"\xe2\x82"), EXIT], Encoding::Base64).await;
        assert!(text.contains(r#"{"data":"4oI=","encoding":"base64"}"#), "{text}");
    }

    fn request(body: &str) -> Result<ExecRequest, ApiError> {
        ExecCall::read(Fields::parse(body.as_bytes())?)?.into_request()
    }

    #[test]
    fn a_call_is_read_whole() {
        let body = r#"{"command":["sh","-c","x"],"cwd":"src","env":{"A":"b"},"stdin":"aGk=",
            "stdinEncoding":"base64","timeoutSeconds":5,"encoding":"base64"}"#;
        let request = request(body).expect("it is valid");
        assert_eq!(request.command, ["sh", "-c", "x"]);
        assert_eq!(request.cwd.as_deref(), Some("src"));
        assert_eq!(request.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(&*request.stdin, b"hi");
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
