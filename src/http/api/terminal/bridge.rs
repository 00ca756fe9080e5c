//! Connects one terminal with its WebSocket.
//!
//! The directions are independent: a client that does not read blocks its command, and a command
//! that does not read blocks its client's input, but neither stops the other direction. All buffers
//! are bounded: the terminal's queues, the 32 messages of a socket, and those of the connection. A
//! silent client is disconnected after four pings, unless its input is blocked: then its pongs wait
//! behind that input.

use actix_ws::{AggregatedMessageStream, Closed, Session};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::frames::{self, FromClient};
use crate::http::api::command_socket::{CommandSocket, START_WAIT};
use crate::http::api::exec;
use crate::http::error::ApiError;
use crate::http::websocket::ClientLiveness;
use crate::http::websocket::client::{self, ClientMessage, SocketClient, SocketEnd, out_of_turn};
use crate::sandbox::{Terminal, TerminalControl, TerminalEvent, TerminalRequest};
use crate::types::Sandbox;

/// Serves one terminal until its end. Dropping it hangs up.
pub async fn serve(
    command: &CommandSocket,
    socket: &Session,
    messages: &mut AggregatedMessageStream,
) -> SocketEnd {
    let pulse = ClientLiveness::new();
    let (pulse, slips) = (&pulse, &command.slips);
    let mut client =
        TerminalClient(SocketClient { messages, socket: socket.clone(), pulse, slips });
    let request = match timeout(START_WAIT, client.start()).await {
        Ok(Ok(request)) => with_prompt(request, &command.work.sandbox),
        Ok(Err(end)) => return end,
        Err(_) => {
            return SocketEnd::Wrong(ApiError::field(
                "type",
                "a start message must come first, within 10 seconds",
            ));
        }
    };
    let argv = request.command.clone();
    let terminal = match command
        .work
        .provider
        .processes
        .terminal(command.work.target.clone(), request)
        .await
    {
        Ok(terminal) => terminal,
        Err(error) => return SocketEnd::Wrong(error.into()),
    };
    let CommandSocket { work, logs, request_id, ping_every, slips: _ } = command;
    let terminal = logs.keep_shown(&work.sandbox.id, request_id, &argv, terminal);
    let Terminal { input, control, events } = terminal;
    tokio::select! {
        biased;
        end = show(socket.clone(), events) => end,
        end = client.type_into(&input, &control) => end,
        () = pulse.stops(socket.clone(), *ping_every) => SocketEnd::Gone,
    }
}

/// Adds the prompt of a shell, unless the client sets one: a person with several terminals must see in
/// which sandbox a command would run. Both bash and a plain `sh` expand `$PWD` in it.
fn with_prompt(mut request: TerminalRequest, sandbox: &Sandbox) -> TerminalRequest {
    if request.env.iter().all(|(name, _)| name != "PS1") {
        let place = match (&sandbox.repository, sandbox.issue_number) {
            (Some(repository), Some(number)) => {
                let name = repository.as_str().rsplit('/').next().unwrap_or_default();
                format!("{name}-{number}")
            }
            (None, _) | (_, None) => sandbox.name.clone(),
        };
        request.env.push(("PS1".to_owned(), format!("agent@{place}:$PWD\\$ ")));
    }
    request
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
    /// Reads messages until the start. A wrong one before it is answered, as later ones are.
    async fn start(&mut self) -> Result<TerminalRequest, SocketEnd> {
        loop {
            let refused = match self.0.next().await? {
                ClientMessage::Text(text) => match FromClient::read(&text) {
                    Ok(FromClient::Start(request)) => return Ok(request),
                    Ok(FromClient::Control(_)) => out_of_turn(),
                    Err(error) => error,
                },
                ClientMessage::Bytes(_) => out_of_turn(),
            };
            self.0.refuse(&refused);
        }
    }

    /// Forwards input at the speed of the command, until the client disconnects. A message that is
    /// wrong is answered, and the terminal goes on: its work is worth more.
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
                Ok(FromClient::Start(_)) => self.0.refuse(&out_of_turn()),
                Err(error) => self.0.refuse(&error),
            }
        }
    }
}
