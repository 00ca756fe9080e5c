//! Carries bytes between a WebSocket and a port.

use std::time::Duration;

use actix_ws::{
    AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, MessageStream, Session,
};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::forward::AnswerLifetime;
use crate::http::websocket::{ClientLiveness, LAST_WORDS_WAIT, MESSAGE_LEN_MAX};
use crate::sandbox::Stream;

/// Carries until both directions have ended, either side has gone, or it has to end early.
pub async fn carry(
    socket: Session,
    messages: MessageStream,
    stream: Box<dyn Stream>,
    under: AnswerLifetime,
    ping_every: Duration,
) {
    let AnswerLifetime { at_work, mut ending } = under;
    let mut messages = messages
        .max_frame_size(MESSAGE_LEN_MAX)
        .aggregate_continuations()
        .max_continuation_size(MESSAGE_LEN_MAX);
    let (reader, writer) = split(stream);
    let pulse = ClientLiveness::new();
    let (end, ended) = oneshot::channel();
    let carried = async {
        back(socket.clone(), reader).await?;
        // The other direction may outlast this one.
        ended.await.map_err(|_| Gone)
    };
    let code = tokio::select! {
        biased;
        _ = ending.come() => Some(CloseCode::Away),
        carried = carried => carried.is_ok().then_some(CloseCode::Normal),
        Gone = there(&mut messages, socket.clone(), writer, &pulse, end) => None,
        () = pulse.stops(socket.clone(), ping_every) => None,
    };
    drop(at_work);
    if let Some(code) = code {
        let last_words = socket.close(Some(CloseReason { code, description: None }));
        // A client that does not read can't hold the end back.
        let _too_slow = timeout(LAST_WORDS_WAIT, last_words).await;
    }
}

/// The client has gone.
struct Gone;

/// What comes from the port, at the pace of the client.
async fn back(mut socket: Session, mut reader: ReadHalf<Box<dyn Stream>>) -> Result<(), Gone> {
    let mut buffer = vec![0; MESSAGE_LEN_MAX];
    loop {
        // What broke off has ended, as far as a client can be told.
        let len = reader.read(&mut buffer).await.unwrap_or(0);
        socket.binary(Bytes::copy_from_slice(&buffer[..len])).await.map_err(|_| Gone)?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// What the client sends, at the pace of whoever listens there, until that has ended; and what it
/// says beside it, until it goes.
async fn there(
    messages: &mut AggregatedMessageStream,
    mut socket: Session,
    mut writer: WriteHalf<Box<dyn Stream>>,
    pulse: &ClientLiveness,
    end: oneshot::Sender<()>,
) -> Gone {
    let mut end = Some(end);
    loop {
        let message = messages.recv().await;
        pulse.heard.set(Instant::now());
        match message {
            Some(Ok(AggregatedMessage::Binary(bytes))) => {
                pulse.is_held.set(true);
                let has_ended = match bytes.is_empty() {
                    // The other side reads to the end of what was sent, and may go on answering.
                    true => {
                        let _gone = writer.shutdown().await;
                        true
                    }
                    // Where nobody reads any more, what is still sent is of use to the client.
                    false => writer.write_all(&bytes).await.is_err(),
                };
                pulse.is_held.set(false);
                if let Some(end) = end.take_if(|_| has_ended) {
                    let _told = end.send(());
                }
            }
            Some(Ok(AggregatedMessage::Ping(bytes))) => {
                // Without room the client does not read, and would not see it.
                let _ = socket.pong(&bytes).now_or_never();
            }
            Some(Ok(AggregatedMessage::Pong(_))) => {}
            Some(Ok(AggregatedMessage::Text(_) | AggregatedMessage::Close(_)) | Err(_)) | None => {
                return Gone;
            }
        }
    }
}
