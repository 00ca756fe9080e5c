//! Connects one terminal with its WebSocket.
//!
//! The directions are independent: a client that does not read blocks its command, and a command
//! that does not read blocks its client's input, but neither stops the other direction. All buffers
//! are bounded: the terminal's queues, the 32 messages of a socket, and those of the connection. A
//! silent client is disconnected after four pings, unless its input is blocked: then its pongs wait
//! behind that input.

use std::sync::Arc;
use std::time::Duration;

use actix_ws::{AggregatedMessageStream, Closed, MessageStream, Session};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::frames::{self, FromClient};
use crate::http::api::exec;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::websocket::ClientLiveness;
use crate::http::websocket::client::{self, ClientMessage, SocketClient, SocketEnd, out_of_turn};
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

impl Bridge {
    /// Begins with a new WebSocket.
    pub fn new(
        work: OpenSandbox,
        keeper: TerminalLog,
        (socket, messages): (Session, MessageStream),
        ending: Ending,
        ping_every: Duration,
    ) -> Self {
        let messages = client::aggregate(messages);
        Self { work, keeper, socket, messages, ending, ping_every }
    }

    /// Serves the terminal until its end, then sends the reason and closes.
    pub async fn run(self) {
        let Self { work, keeper, socket, mut messages, mut ending, ping_every } = self;
        let end = tokio::select! {
            biased;
            ended = ending.come() => SocketEnd::Ended(ended),
            end = serve(&work, &keeper, &socket, &mut messages, ping_every) => end,
        };
        // The terminal was hung up already.
        client::close(socket, end).await;
    }
}

async fn serve(
    work: &OpenSandbox,
    keeper: &TerminalLog,
    socket: &Session,
    messages: &mut AggregatedMessageStream,
    ping_every: Duration,
) -> SocketEnd {
    let pulse = ClientLiveness::new();
    let mut client =
        TerminalClient(SocketClient { messages, socket: socket.clone(), pulse: &pulse });
    let request = match timeout(START_WAIT, client.start()).await {
        Ok(Ok(request)) => request,
        Ok(Err(end)) => return end,
        Err(_) => {
            return SocketEnd::Wrong(ApiError::field(
                "type",
                "a start message must come first, within 10 seconds",
            ));
        }
    };
    let argv = request.command.clone();
    let terminal = match work.provider.processes.terminal(work.target.clone(), request).await {
        Ok(terminal) => terminal,
        Err(error) => return SocketEnd::Wrong(error.into()),
    };
    let TerminalLog { logs, request_id } = keeper;
    let terminal = logs.keep_shown(&work.sandbox.id, request_id, &argv, terminal);
    let Terminal { input, control, events } = terminal;
    tokio::select! {
        biased;
        end = show(socket.clone(), events) => end,
        end = client.type_into(&input, &control) => end,
        () = pulse.stops(socket.clone(), ping_every) => SocketEnd::Gone,
    }
}

/// Sends the terminal's output, at the speed of the client.
async fn show(mut socket: Session, mut events: mpsc::Receiver<TerminalEvent>) -> SocketEnd {
    if socket.text(client::started_text()).await.is_err() {
        return SocketEnd::Gone;
    }
    while let Some(event) = events.recv().await {
        match event {
            TerminalEvent::Output(bytes) => {
                if socket.binary(bytes).await.is_err() {
                    return SocketEnd::Gone;
                }
            }
            // Also at the speed of the client, which may still read earlier output.
            TerminalEvent::Exit { code } => {
                return match socket.text(frames::exit(code)).await {
                    Ok(()) => SocketEnd::Exited,
                    Err(Closed) => SocketEnd::Gone,
                };
            }
        }
    }
    SocketEnd::Wrong(exec::went_away())
}

/// The client's side of the socket.
struct TerminalClient<'a>(SocketClient<'a>);

impl TerminalClient<'_> {
    /// Reads the start message.
    async fn start(&mut self) -> Result<TerminalRequest, SocketEnd> {
        match self.0.next().await? {
            ClientMessage::Text(text) => match FromClient::read(&text).map_err(SocketEnd::Wrong)? {
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
    ) -> SocketEnd {
        loop {
            let said = match self.0.next().await {
                Ok(ClientMessage::Bytes(bytes)) => {
                    self.0.pulse.is_held.set(true);
                    // An error means that the command ended, which is reported elsewhere.
                    let _ended = input.send(bytes).await;
                    self.0.pulse.is_held.set(false);
                    continue;
                }
                Ok(ClientMessage::Text(text)) => text,
                Err(end) => return end,
            };
            match FromClient::read(&said) {
                Ok(FromClient::Control(done)) => drop(control.send(done).await),
                Ok(FromClient::Start(_)) => return out_of_turn(),
                Err(error) => return SocketEnd::Wrong(error),
            }
        }
    }
}
