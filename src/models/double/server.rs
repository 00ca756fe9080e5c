//! The double's server.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::ModelHttpBody;
use super::{DoubleFault, DoubleRequest, DoubleShared, DoubleTurn, script};

/// Serves connections until it is aborted.
pub async fn serve(listener: TcpListener, shared: Arc<DoubleShared>) {
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Small pieces are to leave at once.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        open.spawn(async move {
            let service = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(&shared, request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            // What ends a connection ends its requests, which are counted.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
        while open.try_join_next().is_some() {}
    }
}

async fn answer(shared: &Arc<DoubleShared>, request: Request<Incoming>) -> Response<ModelHttpBody> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return whole(400, &json!({})) };
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    let path = head.uri.to_string();
    let (headers, recorded) = (headers.collect(), body.clone());
    let number = {
        let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(DoubleRequest { path, headers, body: recorded });
        requests.len()
    };
    let path = head.uri.path();
    if path.ends_with("/count_tokens") {
        shared.counts.send_modify(|counts| counts.counts += 1);
        return whole(200, &json!({"input_tokens": 100}));
    }
    let is_response = path.ends_with("/v1/responses");
    if !is_response && !path.ends_with("/v1/messages") {
        return whole(404, &json!({}));
    }
    let turn = {
        let script = shared.script.lock().unwrap_or_else(PoisonError::into_inner);
        script::turn_for(&script, &body)
    };
    shared.counts.send_modify(|counts| counts.requests += 1);
    if let Some(DoubleFault::Status(status, headers)) = &turn.fault {
        let error = json!({"type": "double", "message": "the double was made to fail"});
        let mut answer = whole(*status, &json!({"type": "error", "error": error}));
        for (name, value) in headers {
            answer.headers_mut().insert(*name, value.parse().expect("a header's value"));
        }
        return answer;
    }
    let writing = Writing::begin(shared, &turn);
    let model = &body["model"];
    if body["stream"] == true {
        let events = match is_response {
            true => script::response_events(&turn, model, number),
            false => script::message_events(&turn, model, number),
        };
        return streamed(turn, events, writing);
    }
    sleep(turn.pause).await;
    writing.end();
    match is_response {
        true => whole(200, &script::response(&turn, model, number)),
        false => whole(200, &script::message(&turn, model, number)),
    }
}

/// An answer that is being written.
struct Writing {
    shared: Arc<DoubleShared>,
    has_ended: bool,
}

impl Writing {
    fn begin(shared: &Arc<DoubleShared>, turn: &DoubleTurn) -> Self {
        shared.counts.send_modify(|counts| {
            counts.open += 1;
            counts.open_max = counts.open_max.max(counts.open);
            counts.used += turn.usage;
        });
        Self { shared: Arc::clone(shared), has_ended: false }
    }

    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.shared.counts.send_modify(|counts| {
            counts.open -= 1;
            counts.canceled += usize::from(!self.has_ended);
        });
    }
}

fn whole(status: u16, body: &Value) -> Response<ModelHttpBody> {
    let body = Full::from(body.to_string()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response.headers_mut().insert("content-type", "application/json".parse().expect("a value"));
    response
}

fn streamed(turn: DoubleTurn, events: Vec<String>, writing: Writing) -> Response<ModelHttpBody> {
    let pieces = stream::unfold(
        (turn, events.into_iter().enumerate(), Some(writing)),
        |(turn, mut events, mut writing)| async move {
            let (index, event) = events.next()?;
            match turn.fault {
                Some(DoubleFault::Cut(at)) if index == at => {
                    if let Some(writing) = writing.take() {
                        writing.end();
                    }
                    // What was written before leaves first.
                    tokio::task::yield_now().await;
                    let cut = Err(io::Error::from(io::ErrorKind::ConnectionReset));
                    return Some((cut, (turn, events, writing)));
                }
                Some(DoubleFault::Stall(at)) if index == at => {
                    std::future::pending::<()>().await;
                }
                Some(_) | None => {}
            }
            if turn.pause > Duration::ZERO {
                sleep(turn.pause).await;
            }
            if events.len() == 0
                && let Some(writing) = writing.take()
            {
                writing.end();
            }
            Some((Ok(Frame::data(Bytes::from(event))), (turn, events, writing)))
        },
    );
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    let kind = "text/event-stream; charset=utf-8".parse().expect("a value");
    response.headers_mut().insert("content-type", kind);
    response
}
