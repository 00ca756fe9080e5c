//! The HTTP side of the model: requests are read, answered by the API or a toolbox, and remembered.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::model::{Exchange, Fault, KEY, Model};
use super::toolbox;

/// The longest body that is remembered, in bytes. Of longer ones nothing is.
const REMEMBERED_MAX: usize = 16 << 10;

/// An answer before it is sent.
pub struct ModelAnswer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl From<(u16, serde_json::Value)> for ModelAnswer {
    fn from((status, body): (u16, serde_json::Value)) -> Self {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        Self { status, content_type: "application/json", body }
    }
}

/// Serves the model from a thread of its own, until the process ends.
pub fn serve(model: Arc<Model>, listener: std::net::TcpListener) {
    listener.set_nonblocking(true).expect("it can be");
    std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let model = Arc::clone(&model);
                let service = service_fn(move |request| handle(Arc::clone(&model), request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let serving = serving.with_upgrades();
                // An error means that the client has gone, or that an answer is to be lost.
                tokio::spawn(async move { drop(serving.await) });
            }
        });
    });
}

/// An answer that is lost ends the connection.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost")]
struct Lost;

async fn handle(
    model: Arc<Model>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Lost> {
    if request.headers().contains_key("upgrade") {
        return Ok(connect(&model, request));
    }
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let method = head.method.as_str().to_owned();
    // A body that breaks off does nothing.
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let is_known = head.headers.get("authorization").and_then(|value| value.to_str().ok())
        == Some(&format!("Bearer {KEY}"));
    let (is_toolbox, rest) = match path.strip_prefix("/toolbox") {
        Some(rest) => (true, rest),
        None => (false, path.strip_prefix("/api").unwrap_or(&path)),
    };
    let (sandbox, rest) = match rest.trim_start_matches('/').split_once('/') {
        Some((sandbox, tail)) if is_toolbox => (sandbox, format!("/{tail}")),
        _ => ("", rest.to_owned()),
    };
    let fault = model.fault_of(&format!("{method} {rest}"));
    let answer: ModelAnswer = match &fault {
        _ if !is_known => (401, json!({"statusCode": 401, "message": "Unauthorized"})).into(),
        Some(Fault::Status(status, _, message)) => {
            (*status, json!({"statusCode": status, "message": message})).into()
        }
        Some(Fault::LoseAnswer) | None if is_toolbox => {
            toolbox::answer(&model, sandbox, &method, &rest, &query, body.clone()).await
        }
        Some(Fault::LoseAnswer) | None => {
            let segments: Vec<String> =
                rest.split('/').skip(1).map(|part| decoded(part.as_bytes())).collect();
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            model.answer(&method, &segments, &pairs(&query), &body).into()
        }
    };
    let short = |body: &Bytes| match body.len() {
        0..=REMEMBERED_MAX => body.to_vec(),
        _ => Vec::new(),
    };
    model.exchanges.lock().expect("not poisoned").push(Exchange {
        is_toolbox,
        method,
        path: rest,
        query,
        request: short(&body),
        status: answer.status,
        answer_type: answer.content_type.into(),
        answer: short(&answer.body),
    });
    if matches!(fault, Some(Fault::LoseAnswer)) {
        return Err(Lost);
    }
    let mut response = Response::builder().status(answer.status);
    response = response.header("content-type", answer.content_type);
    if let Some(Fault::Status(_, Some(retry_after), _)) = fault {
        response = response.header("retry-after", retry_after);
    }
    Ok(response.body(Full::new(answer.body)).expect("a good answer"))
}

/// Connects to a terminal.
fn connect(model: &Model, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').splitn(3, '/').collect();
    let ["toolbox", sandbox, rest] = parts[..] else { panic!("{path} is no toolbox's") };
    let terminal = rest.strip_prefix("process/pty/").and_then(|rest| rest.strip_suffix("/connect"));
    let header = |name| request.headers().get(name).expect("it is there").as_bytes();
    assert_eq!(header("authorization"), format!("Bearer {KEY}").as_bytes());
    let accept = derive_accept_key(header("sec-websocket-key"));
    model.with(sandbox, |sandbox| {
        let terminal = terminal.and_then(|terminal| sandbox.terminals.get(terminal));
        terminal.expect("there is such a terminal").connect(request);
    });
    model.exchanges.lock().expect("not poisoned").push(Exchange {
        is_toolbox: true,
        method: "GET".into(),
        path: format!("/{rest}"),
        query: String::new(),
        request: Vec::new(),
        status: 101,
        answer_type: String::new(),
        answer: Vec::new(),
    });
    let response = Response::builder().status(101).header("connection", "upgrade");
    let response = response.header("upgrade", "websocket").header("sec-websocket-accept", accept);
    response.body(Full::new(Bytes::new())).expect("a good answer")
}

fn decoded(text: &[u8]) -> String {
    percent_encoding::percent_decode(text).decode_utf8_lossy().into_owned()
}

/// The names and values of a query.
pub fn pairs(query: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name.as_bytes()), decoded(value.replace('+', " ").as_bytes()))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}
