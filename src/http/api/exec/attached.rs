//! Commands whose input is streamed: `GET /v1/sandboxes/{id}/exec`, upgraded to a WebSocket.
//!
//! Input and output are independent and bounded: a client that does not read blocks its command's
//! output, a command that does not read blocks its client's input. The command ends when the
//! connection ends.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, get, web};
use actix_ws::{AggregatedMessageStream, Session};
use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{TIMEOUT_SECS_MAX, check, went_away};
use crate::http::Shared;
use crate::http::answers;
use crate::http::api::command_socket::{CommandSocket, START_WAIT};
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, only};
use crate::http::fields::Fields;
use crate::http::websocket::ClientLiveness;
use crate::http::websocket::client::{self, ClientMessage, SocketClient, SocketEnd, out_of_turn};
use crate::sandbox::{ExecEvent, ExecInput, ExecRequest, Execution};

/// The sub-protocol that a client must offer.
pub const PROTOCOL: &str = "issuebox.exec.v1";

/// The first byte of a binary message of the server.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// Runs a command in a sandbox and streams its input, as a WebSocket with the sub-protocol
/// `issuebox.exec.v1`. A stopped sandbox is started.
///
/// The client begins with the text message `{"type":"start","command":["cat"],"cwd":"src",
/// "env":{"A":"b"},"timeoutSeconds":60}`; all but `type` and `command` are optional. Its binary
/// messages are the command's standard input, and `{"type":"endOfInput"}` ends that. The server sends
/// `{"type":"started"}`, then binary messages whose first byte is 1 for standard output and 2 for
/// standard error, and at the end `{"type":"exit","exitCode":0,"timedOut":false}` or
/// `{"type":"error","code":"…","message":"…"}`. Messages have at most 64 KiB. One that is longer or
/// otherwise wrong, also before the start, is left out and answered by `{"type":"refused","code":"…",
/// "message":"…"}`; the command goes on. The server pings every 15 seconds and disconnects a client
/// that is silent for 60. Closing the connection kills the command. The output is recorded in the sandbox's log.
#[utoipa::path(
    operation_id = "attachExec", tag = "work",
    params(params::OneSandbox, params::StartupWait),
    responses(
        (status = 101, description = "the connection becomes a WebSocket"),
        answers::StartupErrors, only::Forbidden, only::UpgradeRequired,
    )
)]
#[get("/v1/sandboxes/{id}/exec")]
pub async fn attached_exec(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let socket = (&request, body);
    CommandSocket::open(&shared, &caller, &path, socket, (PROTOCOL, None), serve).await
}

/// Serves one command.
async fn serve(
    command: &CommandSocket,
    socket: &Session,
    messages: &mut AggregatedMessageStream,
) -> SocketEnd {
    let pulse = ClientLiveness::new();
    let (pulse, slips) = (&pulse, &command.slips);
    let mut client = SocketClient { messages, socket: socket.clone(), pulse, slips };
    let (input, stdin) = ExecInput::channel();
    let request = match timeout(START_WAIT, start(&mut client, stdin)).await {
        Ok(Ok(request)) => request,
        Ok(Err(end)) => return end,
        Err(_elapsed) => return SocketEnd::Wrong(out_of_turn()),
    };
    let (argv, processes) = (request.command.clone(), &command.work.provider.processes);
    let execution = match processes.exec(command.work.target.clone(), request).await {
        Ok(execution) => execution,
        Err(error) => return SocketEnd::Wrong(error.into()),
    };
    let execution =
        command.logs.keep(&command.work.sandbox.id, &command.request_id, &argv, execution);
    tokio::select! {
        biased;
        end = send_output(socket.clone(), execution) => end,
        end = feed(&mut client, input) => end,
        () = pulse.stops(socket.clone(), command.ping_every) => SocketEnd::Gone,
    }
}

/// Reads messages until the start. A wrong one before it is answered, as later ones are.
async fn start(client: &mut SocketClient<'_>, stdin: ExecInput) -> Result<ExecRequest, SocketEnd> {
    loop {
        let refused = match client.next().await? {
            ClientMessage::Text(text) => match start_of(&text) {
                Ok(request) => return Ok(ExecRequest { stdin, ..request }),
                Err(error) => error,
            },
            ClientMessage::Bytes(_) => out_of_turn(),
        };
        client.refuse(&refused);
    }
}

/// The request, without its input.
fn start_of(text: &str) -> Result<ExecRequest, ApiError> {
    let mut fields = Fields::parse(text.as_bytes())?;
    if fields.text("type")?.as_deref() != Some("start") {
        return Err(ApiError::field("type", "must be start in the first message"));
    }
    let command = fields.texts("command")?.unwrap_or_default();
    let (cwd, env) = (fields.text("cwd")?, fields.pairs("env")?);
    let timeout = fields.number("timeoutSeconds", 1..=TIMEOUT_SECS_MAX)?;
    fields.finish()?;
    check(&command, cwd.as_deref(), &env)?;
    let cwd = cwd.filter(|cwd| !cwd.is_empty());
    let (stdin, timeout) = (Bytes::new().into(), timeout.map(Duration::from_secs));
    Ok(ExecRequest { command, cwd, env, stdin, timeout })
}

/// Passes the client's input on at the speed of the command, until the client disconnects. What the
/// command does not read any more is dropped.
async fn feed(client: &mut SocketClient<'_>, input: mpsc::Sender<Bytes>) -> SocketEnd {
    let mut input = Some(input);
    loop {
        let text = match client.next().await {
            Ok(ClientMessage::Bytes(bytes)) => {
                if let Some(sender) = &input {
                    client.pulse.is_held.set(true);
                    if sender.send(bytes).await.is_err() {
                        input = None;
                    }
                    client.pulse.is_held.set(false);
                }
                continue;
            }
            Ok(ClientMessage::Text(text)) => text,
            Err(end) => return end,
        };
        match end_of_input(&text) {
            Ok(()) => input = None,
            Err(error) => client.refuse(&error),
        }
    }
}

fn end_of_input(text: &str) -> Result<(), ApiError> {
    let mut fields = Fields::parse(text.as_bytes())?;
    match fields.text("type")?.as_deref() {
        Some("endOfInput") => fields.finish(),
        Some(_) | None => Err(ApiError::field("type", "must be endOfInput after the start")),
    }
}

/// Sends the output at the speed of the client.
async fn send_output(mut socket: Session, mut execution: Execution) -> SocketEnd {
    if socket.text(client::started_text()).await.is_err() {
        return SocketEnd::Gone;
    }
    while let Some(event) = execution.events.recv().await {
        let (stream, bytes) = match event {
            ExecEvent::Stdout(bytes) => (STDOUT, bytes),
            ExecEvent::Stderr(bytes) => (STDERR, bytes),
            ExecEvent::Exit { code, timed_out } => {
                let text = json!({"type": "exit", "exitCode": code, "timedOut": timed_out});
                return match socket.text(text.to_string()).await {
                    Ok(()) => SocketEnd::Exited,
                    Err(_closed) => SocketEnd::Gone,
                };
            }
        };
        let mut message = BytesMut::with_capacity(bytes.len() + 1);
        message.extend_from_slice(&[stream]);
        message.extend_from_slice(&bytes);
        if socket.binary(message.freeze()).await.is_err() {
            return SocketEnd::Gone;
        }
    }
    SocketEnd::Wrong(went_away())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_whole() {
        let text = r#"{"type":"start","command":["cat"],"cwd":"src","env":{"A":"b"},
            "timeoutSeconds":5}"#;
        let request = start_of(text).expect("valid");
        assert_eq!((request.command, request.cwd), (vec!["cat".into()], Some("src".into())));
        assert_eq!(request.env, [("A".into(), "b".into())]);
        assert_eq!(request.timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_wrong_message_is_refused() {
        for (text, field) in [
            ("[]", None),
            ("{}", Some("type")),
            (r#"{"type":"start"}"#, Some("command")),
            (r#"{"type":"start","command":["cat"],"stdin":"x"}"#, Some("stdin")),
            (r#"{"type":"start","command":["cat"],"timeoutSeconds":0}"#, Some("timeoutSeconds")),
        ] {
            assert_eq!(start_of(text).expect_err(text).wrong_field(), field, "{text}");
        }
        assert!(end_of_input(r#"{"type":"endOfInput"}"#).is_ok());
        for text in [r#"{"type":"start"}"#, r#"{"type":"endOfInput","a":1}"#, "x"] {
            assert!(end_of_input(text).is_err(), "{text}");
        }
    }
}
