//! Forwards requests and bytes to a server in a sandbox.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::web::{self, Bytes};
use actix_web::{HttpResponse, HttpResponseBuilder, http::StatusCode};
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, split};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::headers::{Head, WEBSOCKET};
use crate::engine::AtWork;
use crate::http::api::files::transfer;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code};
use crate::sandbox::Stream;

/// Timeout until an answer begins: longer than usual long polls.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// Most interim answers (1xx) before an answer; servers send one or two. Each costs work and gives
/// the caller nothing.
const INTERIM_ANSWERS_MAX: usize = 10;

/// Most bytes of an answer that are read ahead, besides the kernel's buffers.
const READ_AHEAD_LEN: usize = 64 * 1024;

/// The lifetime of a forwarded answer: the sandbox counts as active meanwhile, and the answer ends
/// at shutdown or with its caller's session.
pub struct AnswerLifetime {
    /// Held until the answer ends.
    pub at_work: Arc<AtWork>,
    /// The early end of the answer.
    pub ending: Ending,
}

/// Forwards a request and its answer.
///
/// # Errors
/// 502 if there is no valid answer.
pub async fn forward(
    mut head: Head,
    payload: web::Payload,
    stream: Box<dyn Stream>,
    mut under: AnswerLifetime,
) -> Result<HttpResponse, ApiError> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(READ_AHEAD_LEN)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(closed)?;
    // It ends with the answer, or with an aborted request.
    let (interim, mut interims) = watch::channel(0);
    let carried = async move {
        tokio::select! {
            biased;
            Ok(_) = interims.wait_for(|count| *count > INTERIM_ANSWERS_MAX) => {}
            ended = connection.with_upgrades() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to a sandbox's port failed");
                }
            }
        }
    };
    actix_web::rt::spawn(carried);
    // An upgraded request has no body; later bytes belong to the upgraded connection.
    let (body, upgraded) = match head.opens_websocket {
        true => (None, Some(payload)),
        false => (Some(payload), None),
    };
    let moved = Rc::new(Cell::new(Instant::now()));
    let last_piece = Rc::clone(&moved);
    let body = futures_util::stream::iter(body).flatten();
    let body = StreamBody::new(body.map(move |piece| {
        last_piece.set(Instant::now());
        piece.map(Frame::data)
    }));
    let is_head = *head.request.method() == hyper::Method::HEAD;
    let mut request = std::mem::take(&mut head.request).map(|()| body);
    let counted = interim.clone();
    hyper::ext::on_informational(&mut request, move |_| counted.send_modify(|count| *count += 1));
    let sending = sender.send_request(request);
    let answered = answered(sending, &moved, &mut under.ending).await;
    if *interim.borrow() > INTERIM_ANSWERS_MAX {
        let message =
            format!("the server on that port sent more than {INTERIM_ANSWERS_MAX} interim answers");
        return Err(ApiError::new(Code::PortClosed, message));
    }
    let mut answer = answered?;
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut back = HttpResponse::build(status);
    for (name, value) in head.come_back(answer.headers()) {
        back.append_header((name, value));
    }
    match (status, upgraded) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(payload)) => {
            let stream = hyper::upgrade::on(&mut answer).await.map_err(closed)?;
            let bytes = join(payload, Box::new(TokioIo::new(stream)), under);
            Ok(back.upgrade(WEBSOCKET).streaming(bytes))
        }
        (StatusCode::SWITCHING_PROTOCOLS, None) => {
            let message = "the server on that port switched to a protocol that was not requested";
            Err(ApiError::new(Code::PortClosed, message))
        }
        (_, _) if is_head => Ok(without_body(back, answer.headers())),
        (_, _) => Ok(with_body(back, answer.into_body(), under)),
    }
}

/// Waits for an answer, at most [`ANSWER_WAIT`] after the last piece of the request's body.
async fn answered(
    sending: impl Future<Output = hyper::Result<hyper::Response<Incoming>>>,
    last_piece: &Cell<Instant>,
    ending: &mut Ending,
) -> Result<hyper::Response<Incoming>, ApiError> {
    let mut sending = pin!(sending);
    loop {
        let until = last_piece.get() + ANSWER_WAIT;
        tokio::select! {
            biased;
            ended = ending.come() => return Err(ended.error()),
            answered = &mut sending => return answered.map_err(closed),
            () = sleep_until(until) => {
                if last_piece.get() + ANSWER_WAIT > until {
                    continue;
                }
                let secs = ANSWER_WAIT.as_secs();
                let message = format!("the server on that port gave no answer in {secs} seconds");
                return Err(ApiError::new(Code::PortClosed, message));
            }
        }
    }
}

fn closed(error: hyper::Error) -> ApiError {
    let message = format!("the server on that port gave no valid answer: {error}");
    ApiError::new(Code::PortClosed, message)
        .hint("it must speak HTTP/1.1; for other protocols use issuebox port-forward")
}

/// The answer to HEAD: the declared length without a body.
fn without_body(mut back: HttpResponseBuilder, head: &hyper::HeaderMap) -> HttpResponse {
    let len = head.get(hyper::header::CONTENT_LENGTH).and_then(|len| len.to_str().ok());
    if let Some(len) = len.and_then(|len| len.parse().ok()) {
        back.no_chunking(len);
    }
    back.streaming(futures_util::stream::empty::<Result<Bytes, std::io::Error>>())
}

/// The answer with its body.
fn with_body(mut back: HttpResponseBuilder, body: Incoming, under: AnswerLifetime) -> HttpResponse {
    let len = hyper::body::Body::size_hint(&body).exact();
    let AnswerLifetime { at_work, ending } = under;
    let pieces = body.into_data_stream().map(|piece| piece.map_err(std::io::Error::other));
    let pieces = transfer::under(pieces, at_work, ending);
    match len {
        Some(len) => back.no_chunking(len).streaming(pieces),
        None => back.streaming(pieces),
    }
}

/// Carries bytes in both directions until both have ended, and streams those from `stream`.
pub fn join(
    payload: web::Payload,
    stream: Box<dyn Stream>,
    under: AnswerLifetime,
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> {
    let (reader, mut writer) = split(stream);
    let (sender, pieces) = mpsc::channel(1);
    let AnswerLifetime { at_work, mut ending } = under;
    actix_web::rt::spawn(async move {
        let mut payload = payload;
        let there = async {
            while let Some(Ok(piece)) = payload.next().await {
                if writer.write_all(&piece).await.is_err() {
                    return;
                }
            }
            // The other side reads to this end, and can continue to answer.
            let _ = writer.shutdown().await;
        };
        let back = read_all(reader, &sender);
        tokio::select! {
            _ = ending.come() => {}
            _ = sender.closed() => {}
            _ = futures_util::future::join(there, back) => {}
        }
        drop(at_work);
    });
    Pieces(pieces)
}

/// Reads to the end, at the speed of the receiver.
async fn read_all(
    mut reader: ReadHalf<Box<dyn Stream>>,
    sender: &mpsc::Sender<std::io::Result<Bytes>>,
) {
    let mut buffer = vec![0; READ_AHEAD_LEN];
    loop {
        let piece = match reader.read(&mut buffer).await {
            Ok(0) => return,
            Ok(len) => Ok(Bytes::copy_from_slice(&buffer[..len])),
            Err(error) => Err(error),
        };
        let is_last = piece.is_err();
        if sender.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// The received pieces as a stream.
struct Pieces(mpsc::Receiver<std::io::Result<Bytes>>);

impl futures_util::Stream for Pieces {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
