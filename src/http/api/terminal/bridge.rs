//! Connects one terminal with its WebSocket.
//!
//! The directions are independent: a client that does not read blocks its command, and a command
//! that does not read blocks its client's input, but neither stops the other direction. All buffers
//! are bounded: the terminal's queues, the 32 messages of a socket, and those of the connection. A
//! silent client is disconnected after four pings, unless its input is blocked: then its pongs wait
//! behind that input.

use std::sync::Arc;
use std::time::Duration;

use actix_ws::{
    AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, Closed, MessageStream,
    ProtocolError, Session,
};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::frames::{self, FromClient};
use crate::http::api::exec;
use crate::http::ending::{Ended, Ending};
use crate::http::error::{ApiError, Code};
use crate::http::websocket::{ClientLiveness, LAST_WORDS_WAIT, MESSAGE_LEN_MAX};
use crate::http::work::OpenSandbox;
use crate::logs::Logs;
use crate::sandbox::{Terminal, TerminalControl, TerminalEvent, TerminalRequest};

/// Timeout of the client's start message.
const START_WAIT: Duration = Duration::from_secs(10);

/// The log that records a terminal's output.
pub struct TerminalLog {
    /// The logs of all sandboxes.
    pub logs: Logs,
    /// The id of the request that opened the terminal.
    pub request_id: Arc<str>,
}

/// One terminal and its client.
pub struct Bridge {
    work: OpenSandbox,
    keeper: TerminalLog,
    socket: Session,
    messages: AggregatedMessageStream,
    ending: Ending,
    ping_every: Duration,
}

/// Why a terminal ended.
enum BridgeEnd {
    /// The command ended, and the client was informed.
    Exited,
    /// The client disconnected, or was silent for too long.
    Gone,
    /// The server, the session or the token ended.
    Ended(Ended),
    /// A message of the client was invalid, or the sandbox failed.
    Wrong(ApiError),
}

impl Bridge {
    /// Begins with a new WebSocket.
    pub fn new(
        work: OpenSandbox,
        keeper: TerminalLog,
        (socket, messages): (Session, MessageStream),
        ending: Ending,
        ping_every: Duration,
    ) -> Self {
        let messages = messages
            .max_frame_size(MESSAGE_LEN_MAX)
            .aggregate_continuations()
            .max_continuation_size(MESSAGE_LEN_MAX);
        Self { work, keeper, socket, messages, ending, ping_every }
    }

    /// Serves the terminal until its end, then sends the reason and closes.
    pub async fn run(self) {
        let Self { work, keeper, socket, mut messages, mut ending, ping_every } = self;
        let end = tokio::select! {
            biased;
            ended = ending.come() => BridgeEnd::Ended(ended),
            end = serve(&work, &keeper, &socket, &mut messages, ping_every) => end,
        };
        // The terminal was hung up already; a client that does not read cannot delay that.
        let _too_slow = timeout(LAST_WORDS_WAIT, send_end(socket, end)).await;
    }
}

async fn send_end(mut socket: Session, end: BridgeEnd) {
    let (text, code) = match end {
        BridgeEnd::Gone => return,
        BridgeEnd::Exited => (None, CloseCode::Normal),
        BridgeEnd::Ended(ended) => (Some(frames::error(&ended.error())), CloseCode::Away),
        BridgeEnd::Wrong(error) => (Some(frames::error(&error)), CloseCode::Policy),
    };
    if let Some(text) = text
        && socket.text(text).await.is_err()
    {
        return;
    }
    // An error means that the client disconnected.
    let _gone = socket.close(Some(CloseReason { code, description: None })).await;
}

async fn serve(
    work: &OpenSandbox,
    keeper: &TerminalLog,
    socket: &Session,
    messages: &mut AggregatedMessageStream,
    ping_every: Duration,
) -> BridgeEnd {
    let pulse = ClientLiveness::new();
    let mut client = TerminalClient { messages, socket: socket.clone(), pulse: &pulse };
    let request = match timeout(START_WAIT, client.start()).await {
        Ok(Ok(request)) => request,
        Ok(Err(end)) => return end,
        Err(_) => {
            return BridgeEnd::Wrong(ApiError::field(
                "type",
                "a start message must come first, within 10 seconds",
            ));
        }
    };
    let argv = request.command.clone();
    let terminal = match work.provider.processes.terminal(work.target.clone(), request).await {
        Ok(terminal) => terminal,
        Err(error) => return BridgeEnd::Wrong(error.into()),
    };
    let TerminalLog { logs, request_id } = keeper;
    let terminal = logs.keep_shown(&work.sandbox.id, request_id, &argv, terminal);
    let Terminal { input, control, events } = terminal;
    tokio::select! {
        biased;
        end = show(socket.clone(), events) => end,
        end = client.type_into(&input, &control) => end,
        () = pulse.stops(socket.clone(), ping_every) => BridgeEnd::Gone,
    }
}

/// Sends the terminal's output, at the speed of the client.
async fn show(mut socket: Session, mut events: mpsc::Receiver<TerminalEvent>) -> BridgeEnd {
    if socket.text(frames::started()).await.is_err() {
        return BridgeEnd::Gone;
    }
    while let Some(event) = events.recv().await {
        match event {
            TerminalEvent::Output(bytes) => {
                if socket.binary(bytes).await.is_err() {
                    return BridgeEnd::Gone;
                }
            }
            // Also at the speed of the client, which may still read earlier output.
            TerminalEvent::Exit { code } => {
                return match socket.text(frames::exit(code)).await {
                    Ok(()) => BridgeEnd::Exited,
                    Err(Closed) => BridgeEnd::Gone,
                };
            }
        }
    }
    BridgeEnd::Wrong(exec::went_away())
}

/// The client's side of the socket.
struct TerminalClient<'a> {
    messages: &'a mut AggregatedMessageStream,
    socket: Session,
    pulse: &'a ClientLiveness,
}

impl TerminalClient<'_> {
    /// Reads the start message.
    async fn start(&mut self) -> Result<TerminalRequest, BridgeEnd> {
        match self.next().await? {
            ClientMessage::Text(text) => match FromClient::read(&text).map_err(BridgeEnd::Wrong)? {
                FromClient::Start(request) => Ok(request),
                FromClient::Control(_) => Err(out_of_turn()),
            },
            ClientMessage::Bytes(_) => Err(out_of_turn()),
        }
    }

    /// Forwards input at the speed of the command, until the client disconnects.
    async fn type_into(
        &mut self,
        input: &mpsc::Sender<Bytes>,
        control: &mpsc::Sender<TerminalControl>,
    ) -> BridgeEnd {
        loop {
            let said = match self.next().await {
                Ok(ClientMessage::Bytes(bytes)) => {
                    self.pulse.is_held.set(true);
                    // An error means that the command ended, which is reported elsewhere.
                    let _ended = input.send(bytes).await;
                    self.pulse.is_held.set(false);
                    continue;
                }
                Ok(ClientMessage::Text(text)) => text,
                Err(end) => return end,
            };
            match FromClient::read(&said) {
                Ok(FromClient::Control(done)) => drop(control.send(done).await),
                Ok(FromClient::Start(_)) => return out_of_turn(),
                Err(error) => return BridgeEnd::Wrong(error),
            }
        }
    }

    /// The next message with input or control.
    async fn next(&mut self) -> Result<ClientMessage, BridgeEnd> {
        loop {
            let message = self.messages.recv().await;
            self.pulse.heard.set(Instant::now());
            match message {
                Some(Ok(AggregatedMessage::Binary(bytes))) => {
                    return Ok(ClientMessage::Bytes(bytes));
                }
                Some(Ok(AggregatedMessage::Text(text))) => {
                    return Ok(ClientMessage::Text(text.to_string()));
                }
                Some(Ok(AggregatedMessage::Ping(bytes))) => {
                    // A full buffer means that the client does not read, so the pong is skipped.
                    let _ = self.socket.pong(&bytes).now_or_never();
                }
                Some(Ok(AggregatedMessage::Pong(_))) => {}
                Some(Err(ProtocolError::Io(_))) | Some(Ok(AggregatedMessage::Close(_))) | None => {
                    return Err(BridgeEnd::Gone);
                }
                Some(Err(error)) => {
                    let message = format!("invalid WebSocket message: {error}");
                    return Err(BridgeEnd::Wrong(ApiError::new(Code::InvalidRequest, message)));
                }
            }
        }
    }
}

/// A message of the client.
enum ClientMessage {
    Text(String),
    Bytes(Bytes),
}

fn out_of_turn() -> BridgeEnd {
    BridgeEnd::Wrong(ApiError::field("type", "start must be the first message, and sent once"))
}
