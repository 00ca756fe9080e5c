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
use crate::http::websocket::{ClientLiveness, LAST_WORDS_WAIT, MESSAGE_LEN_MAX, Slip, Slips};
use crate::sandbox::Stream;

/// Carries bytes until both directions have ended, a side disconnects, or the server ends it.
pub async fn carry(
    socket: Session,
    (messages, slips): (MessageStream, Slips),
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
        // The other direction can last longer.
        ended.await.map_err(|_| Gone)
    };
    let code = tokio::select! {
        biased;
        _ = ending.come() => Some(CloseCode::Away),
        carried = carried => carried.is_ok().then_some(CloseCode::Normal),
        Gone = there(&mut messages, &slips, socket.clone(), writer, &pulse, end) => None,
        () = pulse.stops(socket.clone(), ping_every) => None,
    };
    drop(at_work);
    if let Some(code) = code {
        let last_words = socket.close(Some(CloseReason { code, description: None }));
        // A client that does not read must not delay the end.
        let _too_slow = timeout(LAST_WORDS_WAIT, last_words).await;
    }
}

/// The client disconnected.
struct Gone;

/// Sends the bytes of the port, at the speed of the client.
async fn back(mut socket: Session, mut reader: ReadHalf<Box<dyn Stream>>) -> Result<(), Gone> {
    let mut buffer = vec![0; MESSAGE_LEN_MAX];
    loop {
        // An error ends the direction, since a tunnel cannot report it.
        let len = reader.read(&mut buffer).await.unwrap_or(0);
        socket.binary(Bytes::copy_from_slice(&buffer[..len])).await.map_err(|_| Gone)?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// Forwards the client's bytes at the speed of the server until it stops reading, and handles the
/// client's control messages until it disconnects.
async fn there(
    messages: &mut AggregatedMessageStream,
    slips: &Slips,
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
                    // The other side reads to this end, and can continue to answer.
                    true => {
                        let _gone = writer.shutdown().await;
                        true
                    }
                    // If the server stopped reading, the client can still receive bytes.
                    false => writer.write_all(&bytes).await.is_err(),
                };
                pulse.is_held.set(false);
                if let Some(end) = end.take_if(|_| has_ended) {
                    let _ended = end.send(());
                }
            }
            Some(Ok(AggregatedMessage::Ping(bytes))) => {
                // A full buffer means that the client does not read, so the pong is skipped.
                let _ = socket.pong(&bytes).now_or_never();
            }
            // Bytes are missing, which a tunnel cannot say in another way.
            Some(Ok(AggregatedMessage::Pong(_))) if slips.take() != Slip::None => return Gone,
            Some(Ok(AggregatedMessage::Pong(_))) => {}
            Some(Ok(AggregatedMessage::Text(_) | AggregatedMessage::Close(_)) | Err(_)) | None => {
                return Gone;
            }
        }
    }
}
