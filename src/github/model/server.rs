//! The server: what it does with a request from its first byte to its record.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, HeaderMap, IF_NONE_MATCH};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use jiff::fmt::rfc2822::DateTimePrinter;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::auth::{ModelAccess, ModelCaller};
use super::faults::{self, FaultKind};
use super::limits::{is_write, secondary};
use super::rest::{RestReply, RestRequest, failure};
use super::state::ModelState;
use super::{ModelCall, ModelShared, git, lfs, oauth, pages};

/// Largest body of a request to the API, in bytes.
const BODY_MAX: usize = 8 << 20;

pub(super) type ModelBody = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is all there.
pub(super) fn whole(body: impl Into<Bytes>) -> ModelBody {
    Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// An answer without JSON.
pub(super) fn plain(status: u16, words: impl Into<Bytes>) -> Response<ModelBody> {
    let answer = Response::builder().status(status).header("content-type", "text/plain");
    answer.body(whole(words)).expect("a valid answer")
}

/// The connection ends without an answer.
fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "a fault was ordered")
}

/// Accepts connections until the model ends.
pub(super) async fn run(shared: Arc<ModelShared>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| serve(shared.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // Clients go away, and ordered faults end connections: neither is an error here.
            let _ended = connection.await;
        });
    }
}

async fn serve(
    shared: Arc<ModelShared>,
    request: Request<Incoming>,
) -> Result<Response<ModelBody>, io::Error> {
    let path = request.uri().path().to_owned();
    if let Some(rest) = path.strip_prefix("/.lfs/") {
        return lfs::object(&shared, rest, request).await;
    }
    if let Some(service) = git::service(&path) {
        return git::serve(&shared, service, request).await;
    }
    if let Some(page) = oauth::page(&path) {
        return oauth::serve(&shared, page, request).await;
    }
    if let Some(page) = pages::page(&path) {
        return pages::serve(&shared, page, request).await;
    }
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Ok(plain(413, "too large")),
    };
    let query = head.uri.query().unwrap_or_default();
    let exchange = Exchange::new(head.method.as_str(), &path, query, &body, &head.headers);
    exchange.answer(&shared).await
}

/// One request to the API.
struct Exchange {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    body: Option<Value>,
    authorization: Option<String>,
    if_none_match: Option<String>,
}

/// Ends a writing call when the exchange ends, also when the client goes away.
struct WriteGuard<'a>(&'a ModelShared, Option<String>);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if let Some(identity) = &self.1 {
            self.0.state().limits.end_write(identity);
        }
    }
}

impl Exchange {
    fn new(method: &str, path: &str, query: &str, body: &[u8], headers: &HeaderMap) -> Self {
        let decoded = |text: &str| {
            percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            method: method.to_owned(),
            path: path.strip_prefix("/api/v3").unwrap_or(path).to_owned(),
            query: pairs.map(|(key, value)| (decoded(key), decoded(value))).collect(),
            body: match body {
                [] => Some(Value::Null),
                body => serde_json::from_slice(body).ok(),
            },
            authorization: header(AUTHORIZATION).map(str::to_owned),
            if_none_match: header(IF_NONE_MATCH).map(str::to_owned),
        }
    }

    fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    async fn answer(self, shared: &ModelShared) -> Result<Response<ModelBody>, io::Error> {
        let (fault, access, guard) = {
            let mut state = shared.state();
            let fault = faults::take(&mut state.faults, &self.method, &self.path);
            let access = state.access(self.authorization.as_deref());
            let caller = access.as_ref().map_or(ModelCaller::Anonymous, |access| access.caller);
            let writes = is_write(&self.method, &self.path);
            if writes {
                state.begin_write(caller, &self.line());
            }
            (fault, access, WriteGuard(shared, writes.then(|| caller.identity())))
        };
        let caller = access.as_ref().map_or(ModelCaller::Anonymous, |access| access.caller);
        let expires = access.as_ref().ok().and_then(|access| access.token.as_ref()?.expires);
        let expires = expires.filter(|_| matches!(caller, ModelCaller::User(_)));
        let (route, mut reply) = self.decide(&mut shared.state(), access, fault.as_ref());
        match &fault {
            Some(FaultKind::Slow(time)) => tokio::time::sleep(*time).await,
            Some(FaultKind::Held) => shared.wait_for_release().await,
            Some(FaultKind::StatusAfter(status)) => reply = failure(*status, "Server Error"),
            Some(_) | None => {}
        }
        let is_lost = matches!(fault, Some(FaultKind::LostBefore | FaultKind::LostAfter));
        let mut state = shared.state();
        let date_ahead = if let Some(FaultKind::DateAhead(ahead)) = fault { ahead } else { 0 };
        let mut headers = state.finish(&self, caller, &mut reply, date_ahead);
        headers.extend(expires.map(|at| {
            let words = at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
            ("github-authentication-token-expiration", words)
        }));
        let call = ModelCall {
            identity: caller.identity(),
            operation: route,
            method: self.method,
            path: self.path,
            query: self.query,
            request: self.body.unwrap_or_default(),
            status: if is_lost { 0 } else { reply.status },
            answer: reply.body.clone(),
            at: state.now(),
        };
        #[cfg(test)]
        super::description::check(&call).into_iter().for_each(|wrong| {
            state.violations.push(wrong);
        });
        state.calls.push(call);
        drop(state);
        drop(guard);
        shared.changed();
        match is_lost {
            true => Err(lost()),
            false => Ok(respond(reply, headers, fault.as_ref())),
        }
    }

    /// Counts the call and answers it, unless a fault keeps it from having an effect.
    fn decide(
        &self,
        state: &mut ModelState,
        access: Result<ModelAccess, RestReply>,
        fault: Option<&FaultKind>,
    ) -> (Option<String>, RestReply) {
        match fault {
            Some(FaultKind::LostBefore) => return (None, failure(502, "lost")),
            Some(FaultKind::Status(status)) => return (None, failure(*status, "Server Error")),
            Some(FaultKind::Refused(words)) => return (None, failure(403, words)),
            Some(FaultKind::SecondaryLimit(status, after)) => {
                return (None, secondary(*status, *after));
            }
            Some(FaultKind::HourlyLimit) => {
                if let Ok(access) = &access {
                    let now = state.now();
                    state.limits.leave(&access.caller.identity(), 0, now);
                }
                return (None, failure(403, "API rate limit exceeded"));
            }
            Some(_) | None => {}
        }
        let access = match access {
            Ok(access) => access,
            Err(refused) => return (None, refused),
        };
        if self.path != "/rate_limit"
            && let Err(refused) = state.count_call(access.caller)
        {
            return (None, refused);
        }
        if is_write(&self.method, &self.path)
            && let Err(refused) = state.count_write(&self.line())
        {
            return (None, refused);
        }
        let Some(body) = self.body.clone() else {
            return (None, failure(400, "Problems parsing JSON"));
        };
        if self.path == "/graphql" || self.path == "/api/graphql" {
            return (Some("POST /graphql".to_owned()), state.answer_graphql(&access, &body));
        }
        state.answer_rest(RestRequest {
            method: self.method.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            body,
            access,
            parts: Vec::new(),
            repository: 0,
        })
    }
}

impl ModelState {
    /// The headers of an answer. An unchanged answer becomes 304 and does not count.
    fn finish(
        &mut self,
        exchange: &Exchange,
        caller: ModelCaller,
        reply: &mut RestReply,
        date_ahead: i64,
    ) -> Vec<(&'static str, String)> {
        let (identity, now) = (caller.identity(), self.now());
        let mut headers = std::mem::take(&mut reply.headers);
        if exchange.method == "GET" && reply.status == 200 {
            let text = format!("{}{headers:?}", reply.body);
            let etag = format!("W/\"{}\"", hex::encode(Sha256::digest(text)));
            let known = exchange.if_none_match.as_deref();
            if known.is_some_and(|known| known.trim_start_matches("W/") == &etag[2..]) {
                *reply = RestReply { status: 304, body: Value::Null, headers: Vec::new() };
                self.limits.forgive(&identity, now);
            }
            headers.push(("etag", etag));
        }
        headers.extend(self.limits.headers(&identity, now));
        let at = now + SignedDuration::from_secs(date_ahead);
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&at);
        headers.push(("date", date.unwrap_or_default()));
        headers
    }
}

fn respond(
    reply: RestReply,
    headers: Vec<(&'static str, String)>,
    fault: Option<&FaultKind>,
) -> Response<ModelBody> {
    let text = if reply.body.is_null() { String::new() } else { reply.body.to_string() };
    let mut answer = Response::builder().status(reply.status);
    for (name, value) in headers {
        answer = answer.header(name, value);
    }
    if !text.is_empty() {
        answer = answer.header("content-type", "application/json; charset=utf-8");
    }
    let body = match fault {
        Some(FaultKind::CutOff) if text.len() > 1 => {
            answer = answer.header("content-length", text.len());
            let half = Bytes::from(text[..text.floor_char_boundary(text.len() / 2)].to_owned());
            let parts = [Ok(Frame::data(half)), Err(lost())];
            BodyExt::boxed_unsync(StreamBody::new(stream::iter(parts)))
        }
        Some(_) | None => whole(text),
    };
    answer.body(body).expect("a valid answer")
}
