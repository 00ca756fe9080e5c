//! The client's side of a WebSocket whose messages are bytes and JSON texts, and the end of such a
//! socket.

use actix_ws::{
    AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, MessageStream,
    ProtocolError, Session,
};
use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{ClientLiveness, LAST_WORDS_WAIT, MESSAGE_LEN_MAX, Slip, Slips};
use crate::http::ending::Ended;
use crate::http::error::{ApiError, Code};

/// Most messages in a row that are none. A client that sends more sends something else.
const SLIPS_MAX: u32 = 16;

/// Why a socket ends.
pub enum SocketEnd {
    /// The command ended, and the client was informed.
    Exited,
    /// The client disconnected, or was silent for too long.
    Gone,
    /// The server, the session or the token ended.
    Ended(Ended),
    /// The command could not begin, the sandbox failed, or what the client sent cannot be read any
    /// further.
    Wrong(ApiError),
}

/// A message of the client.
pub enum ClientMessage {
    /// A JSON object.
    Text(String),
    /// Input.
    Bytes(Bytes),
}

/// The messages of a client, with those of the protocol handled.
pub struct SocketClient<'a> {
    /// Its messages.
    pub messages: &'a mut AggregatedMessageStream,
    /// Answers its pings.
    pub socket: Session,
    /// Whether it is alive.
    pub pulse: &'a ClientLiveness,
    /// What it did that is not among its messages.
    pub slips: &'a Slips,
}

impl SocketClient<'_> {
    /// The next message with input or control. What is no message is answered and left out.
    ///
    /// # Errors
    /// The end of the socket.
    pub async fn next(&mut self) -> Result<ClientMessage, SocketEnd> {
        let mut in_a_row = 0;
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
                Some(Ok(AggregatedMessage::Pong(_))) => match self.slips.take() {
                    Slip::None => {}
                    Slip::Dropped => self.refuse(&too_long()),
                    Slip::Lost => return Err(SocketEnd::Wrong(too_long())),
                },
                Some(Ok(AggregatedMessage::Close(_))) | None => return Err(SocketEnd::Gone),
                Some(Err(error)) => {
                    in_a_row += 1;
                    let refused = invalid(&error);
                    if !goes_on(&error) || in_a_row > SLIPS_MAX {
                        return Err(SocketEnd::Wrong(refused));
                    }
                    self.refuse(&refused);
                }
            }
        }
    }

    /// Answers a message that changes nothing. A client that does not read gets no answer.
    pub fn refuse(&mut self, error: &ApiError) {
        let _ = self.socket.text(text_of("refused", error)).now_or_never();
    }
}

/// Whether the messages behind this error can be read. The others leave the reader where it was.
fn goes_on(error: &ProtocolError) -> bool {
    matches!(
        error,
        // Text that is not UTF-8, or a message in parts that is too long. If the connection is gone,
        // the next read says so.
        ProtocolError::Io(_)
            | ProtocolError::Overflow
            | ProtocolError::ContinuationNotStarted
            | ProtocolError::ContinuationStarted
    )
}

fn invalid(error: &ProtocolError) -> ApiError {
    ApiError::new(Code::InvalidRequest, format!("invalid WebSocket message: {error}"))
}

fn too_long() -> ApiError {
    let message = format!("the message is longer than {} KiB", MESSAGE_LEN_MAX >> 10);
    ApiError::new(Code::InvalidRequest, message)
}

/// The messages of a new socket, in pieces of at most [`MESSAGE_LEN_MAX`].
pub fn aggregate(messages: MessageStream) -> AggregatedMessageStream {
    messages
        .max_frame_size(MESSAGE_LEN_MAX)
        .aggregate_continuations()
        .max_continuation_size(MESSAGE_LEN_MAX)
}

/// The error of a message that comes too early or twice.
pub fn out_of_turn() -> ApiError {
    ApiError::field("type", "start must be the first message, and sent once")
}

/// Sends the reason and closes. A client that does not read cannot delay this for long.
pub async fn close(socket: Session, end: SocketEnd) {
    let _too_slow = timeout(LAST_WORDS_WAIT, send_end(socket, end)).await;
}

async fn send_end(mut socket: Session, end: SocketEnd) {
    let (text, code) = match end {
        SocketEnd::Gone => return,
        SocketEnd::Exited => (None, CloseCode::Normal),
        SocketEnd::Ended(ended) => (Some(error_text(&ended.error())), CloseCode::Away),
        SocketEnd::Wrong(error) => (Some(error_text(&error)), CloseCode::Policy),
    };
    if let Some(text) = text
        && socket.text(text).await.is_err()
    {
        return;
    }
    // An error means that the client disconnected.
    let _gone = socket.close(Some(CloseReason { code, description: None })).await;
}

/// The message that the command runs.
pub fn started_text() -> String {
    json!({"type": "started"}).to_string()
}

fn error_text(error: &ApiError) -> String {
    text_of("error", error)
}

fn text_of(kind: &str, error: &ApiError) -> String {
    let mut message = json!({
        "type": kind, "code": error.code().as_str(), "message": error.message(),
    });
    if let Some(field) = error.wrong_field() {
        message["field"] = Value::from(field);
    }
    message.to_string()
}
