//! Carries one terminal over its WebSocket.
//!
//! The two directions are apart: a client that does not read holds its command up, and a command
//! that does not read its client, but neither stops the other direction. What waits on the way is
//! bounded everywhere: by the terminal's queues, by the 32 messages that a socket holds, and by the
//! connection's own buffers. Who falls silent altogether is given up after four pings;
//! not while it is us who do not read, since its pongs stand behind what it typed.

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
use crate::engine::Work;
use crate::http::api::exec;
use crate::http::ending::{Ended, Ending};
use crate::http::error::{ApiError, Code};
use crate::http::websocket::{ClientLiveness, LAST_WORDS_WAIT, MESSAGE_LEN_MAX};
use crate::logs::Logs;
use crate::sandbox::{Terminal, TerminalControl, TerminalEvent, TerminalRequest};

/// How long a client may take to say what to run.
const START_WAIT: Duration = Duration::from_secs(10);

/// Where what a terminal shows is kept, and as whose.
pub struct TerminalLog {
    /// The logs of all sandboxes.
    pub logs: Logs,
    /// The request that opened it.
    pub request_id: Arc<str>,
}

/// One terminal and its client.
pub struct Bridge {
    work: Work,
    keeper: TerminalLog,
    socket: Session,
    messages: AggregatedMessageStream,
    ending: Ending,
    ping_every: Duration,
}

/// What ended it.
enum BridgeEnd {
    /// The command ended, and that has been said.
    Exited,
    /// The client hung up, or is silent for too long: there is nobody to tell.
    Gone,
    /// The server, the session or the token ended.
    Ended(Ended),
    /// Something was wrong with what the client said, or went wrong in the sandbox.
    Wrong(ApiError),
}

impl Bridge {
    /// Takes a WebSocket that has just been opened.
    pub fn new(
        work: Work,
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

    /// Serves until it ends, then says why and closes.
    pub async fn run(self) {
        let Self { work, keeper, socket, mut messages, mut ending, ping_every } = self;
        let end = tokio::select! {
            biased;
            ended = ending.come() => BridgeEnd::Ended(ended),
            end = serve(&work, &keeper, &socket, &mut messages, ping_every) => end,
        };
        // The terminal has been hung up; a client that does not read can't hold that back.
        let _too_slow = timeout(LAST_WORDS_WAIT, tell(socket, end)).await;
    }
}

async fn tell(mut socket: Session, end: BridgeEnd) {
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
    // Where it fails the client has gone.
    let _gone = socket.close(Some(CloseReason { code, description: None })).await;
}

async fn serve(
    work: &Work,
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
                "a start message must come first, at once",
            ));
        }
    };
    let argv = request.command.clone();
    let terminal = match work.provider.terminal(work.target.clone(), request).await {
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

/// Shows what the terminal shows, at the pace of the client.
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
            // At the client's pace too: it may still be reading what came before.
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
    /// What it wants to be started, which it says first.
    async fn start(&mut self) -> Result<TerminalRequest, BridgeEnd> {
        match self.next().await? {
            ClientMessage::Text(text) => match FromClient::read(&text).map_err(BridgeEnd::Wrong)? {
                FromClient::Start(request) => Ok(request),
                FromClient::Control(_) => Err(out_of_turn()),
            },
            ClientMessage::Bytes(_) => Err(out_of_turn()),
        }
    }

    /// Hands on what it types, at the pace of the command, until it hangs up.
    async fn type_into(
        &mut self,
        input: &mpsc::Sender<Bytes>,
        control: &mpsc::Sender<TerminalControl>,
    ) -> BridgeEnd {
        loop {
            let said = match self.next().await {
                Ok(ClientMessage::Bytes(bytes)) => {
                    self.pulse.is_held.set(true);
                    // Where nobody takes it the command has ended, which is told elsewhere.
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

    /// The next message that means something.
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
                    // Without room the client does not read, and would not see it.
                    let _ = self.socket.pong(&bytes).now_or_never();
                }
                Some(Ok(AggregatedMessage::Pong(_))) => {}
                Some(Err(ProtocolError::Io(_))) | Some(Ok(AggregatedMessage::Close(_))) | None => {
                    return Err(BridgeEnd::Gone);
                }
                Some(Err(error)) => {
                    let message = format!("the message is not accepted: {error}");
                    return Err(BridgeEnd::Wrong(ApiError::new(Code::InvalidRequest, message)));
                }
            }
        }
    }
}

/// A message that means something.
enum ClientMessage {
    Text(String),
    Bytes(Bytes),
}

fn out_of_turn() -> BridgeEnd {
    BridgeEnd::Wrong(ApiError::field("type", "start must come first, and once"))
}
