//! Calls to a server's API.
//!
//! Answers have a size limit. This module never retries: only the verb knows whether a repeat is
//! safe. It follows no redirects, and over http it uses no proxy, so the token reaches no other
//! machine.

mod socket;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::stream;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE};
use reqwest::{Method, RequestBuilder, Response, redirect};
use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::http::error::Code;
use crate::types::Secret;

use super::connect::{Chosen, is_loopback};
use super::failure::CliFailure;
use super::hints::{self, HintSubject};
use super::sse::{Decoder, SseEvent};

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to answer, beyond the wait that the request asks for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest silence of an event stream; servers send a heartbeat every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The content type of an event stream.
const EVENT_STREAM: &str = "text/event-stream";
/// Largest answer, in bytes: 200 sandboxes with long titles fit many times.
const ANSWER_LEN_MAX: usize = 32 * 1024 * 1024;

/// Largest page of a list.
const PAGE_LEN: u64 = 200;

/// Size of one read from a file, in bytes.
const PIECE_LEN: usize = 64 * 1024;

/// Characters that a path segment keeps; all others are percent-encoded.
const PATH_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The header that names the account to act in.
const ACCOUNT_HEADER: &str = "x-issuebox-account";
/// What to do about a token that a server does not accept.
const TOKEN_HINT: &str = "the right one is auth.admin_token of the server's configuration, or in the \
                          file admin-token beside its database";

/// A server and the token for it.
#[derive(Debug)]
pub(super) struct ApiClient {
    http: reqwest::Client,
    server: String,
    token: Secret,
    /// Where the token was found.
    token_from: String,
    /// The account to act in; `None` for that of the token.
    account: Option<String>,
    /// What the verb is about, for hints.
    subject: Mutex<HintSubject>,
}

/// A successful answer.
#[derive(Debug)]
pub(super) struct ApiAnswer {
    /// The whole JSON body.
    pub body: Value,
    /// The answer's `Date` header.
    pub date: Option<String>,
}

impl ApiAnswer {
    /// The answer's `data` field.
    pub fn data(&self) -> &Value {
        &self.body["data"]
    }
}

/// Rows of a list.
#[derive(Debug)]
pub(super) struct ApiList {
    pub items: Vec<Value>,
    /// How many the server has.
    pub total: u64,
    /// The last page's body without its rows: what stands beside them.
    pub last: Value,
}

/// One call, and how long the server may wait before it answers.
#[derive(Debug)]
pub(super) struct ApiRequest {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    /// Encoded parameters with arbitrary bytes, each with its separator.
    query_bytes: String,
    body: Option<Value>,
    wait: Duration,
}

impl ApiRequest {
    pub fn get<T: AsRef<str>>(path: &[T]) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: &[&str]) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn put(path: &[&str]) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// GET of a path outside of `/v1`.
    pub fn at(path: &str) -> Self {
        Self { path: path.to_owned(), ..Self::get::<&str>(&[]) }
    }

    /// `path` below `/v1`, segment by segment.
    fn new(method: Method, path: &[impl AsRef<str>]) -> Self {
        let encoded =
            path.iter().map(|part| utf8_percent_encode(part.as_ref(), PATH_SEGMENT).to_string());
        let path = format!("/v1/{}", encoded.collect::<Vec<_>>().join("/"));
        Self {
            method,
            path,
            query: Vec::new(),
            query_bytes: String::new(),
            body: None,
            wait: Duration::ZERO,
        }
    }

    /// Adds a query parameter if it has a value.
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.query.push((name, value.to_string()));
        }
        self
    }

    /// Adds a query parameter whose value is bytes.
    pub fn query_bytes(mut self, name: &str, value: &[u8]) -> Self {
        let with = if self.query_bytes.is_empty() { '?' } else { '&' };
        let value = percent_encode(value, NON_ALPHANUMERIC);
        self.query_bytes.push_str(&format!("{with}{name}={value}"));
        self
    }

    /// Asks the server to wait up to this many seconds.
    pub fn wait(mut self, seconds: Option<u64>) -> Self {
        self.wait = Duration::from_secs(seconds.unwrap_or(0));
        self.query("wait", seconds)
    }

    pub fn json(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

impl ApiClient {
    pub fn new(chosen: Chosen) -> anyhow::Result<Self> {
        let url = chosen.server();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("issuebox/", env!("CARGO_PKG_VERSION")));
        if url.scheme() == "http" || is_loopback(url) {
            // A proxy would read the token, and its loopback address is another machine.
            http = http.no_proxy();
        }
        if url.domain() == Some("localhost") {
            // This machine (RFC 6761, section 6.3), whatever a name server says. The port is the URL's.
            let here = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            http =
                http.resolve_to_addrs("localhost", &here.map(|ip: IpAddr| SocketAddr::new(ip, 0)));
        }
        let server = url.as_str().trim_end_matches('/').to_owned();
        let (token, token_from) = chosen.into_token();
        Ok(Self {
            http: http.build()?,
            server,
            token,
            token_from,
            account: None,
            subject: Mutex::default(),
        })
    }

    /// Acts in this account.
    pub fn in_account(self, account: Option<String>) -> Self {
        Self { account, ..self }
    }

    /// Says what the next calls are about, so that hints can name it.
    pub fn about(&self, subject: HintSubject) {
        *self.subject.lock().unwrap_or_else(PoisonError::into_inner) = subject;
    }

    /// The server's URL, without a trailing slash.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Makes a call and reads its answer.
    ///
    /// # Errors
    /// [`CliFailure::Api`] if the server refuses, [`CliFailure::Unreachable`] if it does not answer.
    pub async fn call(&self, call: ApiRequest) -> Result<ApiAnswer, CliFailure> {
        let allowed = call.wait + ANSWER_TIMEOUT;
        let request = self.request(&call).timeout(allowed);
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        let status = response.status().as_u16();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let date = date.map(str::to_owned);
        let bytes = self.read(response).await?;
        let body: Option<Value> = serde_json::from_slice(&bytes).ok();
        match body {
            Some(body) if (200..300).contains(&status) => Ok(ApiAnswer { body, date }),
            body => Err(self.refusal(status, body.as_ref())),
        }
    }

    /// Reads all pages of a list.
    ///
    /// # Errors
    /// As for [`ApiClient::call`].
    pub async fn every(&self, path: &[&str]) -> Result<Vec<Value>, CliFailure> {
        Ok(self.list(|| ApiRequest::get(path), u64::MAX).await?.items)
    }

    /// Reads the pages of a list until there are `limit` rows. `ask` is the call for it, to which the
    /// page's length and place are added.
    ///
    /// # Errors
    /// As for [`ApiClient::call`].
    pub async fn list(
        &self,
        ask: impl Fn() -> ApiRequest,
        limit: u64,
    ) -> Result<ApiList, CliFailure> {
        let mut items: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let left = limit - items.len() as u64;
            let call =
                ask().query("limit", Some(left.min(PAGE_LEN))).query("cursor", cursor.as_deref());
            let mut last = self.call(call).await?.body;
            if let Some(Value::Array(page)) = last.get_mut("data").map(Value::take) {
                items.extend(page);
            }
            cursor = last["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() as u64 >= limit {
                let total = last["total"].as_u64().unwrap_or_default();
                return Ok(ApiList { items, total, last });
            }
        }
    }

    /// Makes a call whose answer is a stream of events.
    ///
    /// # Errors
    /// As for [`ApiClient::call`]; [`CliFailure::Failed`] if the answer is not a stream.
    pub async fn stream(
        &self,
        call: ApiRequest,
        resume_from: Option<&str>,
    ) -> Result<EventStream, CliFailure> {
        let mut request = self.request(&call).header(ACCEPT, EVENT_STREAM);
        if let Some(cursor) = resume_from {
            request = request.header("Last-Event-ID", cursor);
        }
        let sent = tokio::time::timeout(call.wait + ANSWER_TIMEOUT, request.send()).await;
        let response = match sent {
            Ok(answered) => answered.map_err(|e| self.unreachable(e))?,
            Err(_elapsed) => return Err(self.silent()),
        };
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let bytes = self.read(response).await?;
            return Err(self.refusal(status, serde_json::from_slice(&bytes).ok().as_ref()));
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        if !content_type.is_some_and(|value| value.starts_with(EVENT_STREAM)) {
            return Err(self.refusal(status, None));
        }
        Ok(EventStream { bytes: response, decoder: Decoder::default(), ready: VecDeque::new() })
    }

    /// Makes a call whose answer is bytes, and writes them as they come.
    ///
    /// # Errors
    /// As for [`ApiClient::call`]; also if the bytes cannot be written, and
    /// [`CliFailure::BrokenOff`] if the answer ends too early.
    pub async fn download(&self, call: ApiRequest, out: &mut impl io::Write) -> anyhow::Result<()> {
        let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.request(&call).send()).await;
        let mut response = match sent {
            Ok(answered) => answered.map_err(|e| self.unreachable(e))?,
            Err(_elapsed) => return Err(self.silent().into()),
        };
        let status = response.status();
        if !status.is_success() {
            let bytes = self.read(response).await?;
            let body = serde_json::from_slice(&bytes).ok();
            return Err(self.refusal(status.as_u16(), body.as_ref()).into());
        }
        loop {
            let chunk = tokio::time::timeout(SILENCE_MAX, response.chunk()).await;
            let chunk = chunk.map_err(|_elapsed| self.silent())?;
            let Some(bytes) = chunk.map_err(|e| self.broken_off(e))? else { return Ok(()) };
            out.write_all(&bytes)?;
        }
    }

    /// Sends a file as the body and returns the answer's status. There is no time limit, because the
    /// file may be a pipe that another process fills slowly.
    ///
    /// # Errors
    /// As for [`ApiClient::call`].
    pub async fn upload(&self, call: ApiRequest, file: std::fs::File) -> Result<u16, CliFailure> {
        let file = tokio::fs::File::from_std(file);
        let pieces = stream::try_unfold(file, |mut file| async move {
            let mut piece = BytesMut::with_capacity(PIECE_LEN);
            let read = file.read_buf(&mut piece).await?;
            Ok::<_, io::Error>((read > 0).then(|| (piece.freeze(), file)))
        });
        self.status(self.request(&call).body(reqwest::Body::wrap_stream(pieces))).await
    }

    /// Makes a call and returns the answer's status.
    ///
    /// # Errors
    /// As for [`ApiClient::call`].
    pub async fn change(&self, call: ApiRequest) -> Result<u16, CliFailure> {
        self.status(self.request(&call).timeout(call.wait + ANSWER_TIMEOUT)).await
    }

    async fn status(&self, request: RequestBuilder) -> Result<u16, CliFailure> {
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(status.as_u16());
        }
        let bytes = self.read(response).await?;
        Err(self.refusal(status.as_u16(), serde_json::from_slice(&bytes).ok().as_ref()))
    }

    fn request(&self, call: &ApiRequest) -> RequestBuilder {
        let more = &call.query_bytes;
        let url = format!("{}{}{more}", self.server, call.path);
        let request = self
            .http
            .request(call.method.clone(), url)
            .bearer_auth(self.token.expose())
            .query(&call.query);
        let request = match &self.account {
            Some(account) => request.header(ACCOUNT_HEADER, account),
            None => request,
        };
        match &call.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, CliFailure> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.broken_off(e))? {
            if bytes.len() + chunk.len() > ANSWER_LEN_MAX {
                return Err(CliFailure::Failed {
                    message: format!("the answer of {} is larger than 32 MiB", self.server),
                    hint: "request fewer items at once".to_owned(),
                });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn unreachable(&self, source: reqwest::Error) -> CliFailure {
        // The source would repeat the address with every parameter.
        CliFailure::Unreachable { server: self.server.clone(), source: source.without_url() }
    }

    /// The error of an answer that has begun.
    fn broken_off(&self, source: reqwest::Error) -> CliFailure {
        CliFailure::BrokenOff { server: self.server.clone(), source: source.without_url() }
    }

    fn silent(&self) -> CliFailure {
        CliFailure::Failed {
            message: format!("{} did not answer in time", self.server),
            hint: "check the server's log and try again".to_owned(),
        }
    }

    /// The server's error; for an answer that is not from issuebox, the status.
    fn refusal(&self, status: u16, body: Option<&Value>) -> CliFailure {
        let error = body.map(|body| &body["error"]);
        let text = |name: &str| error.and_then(|error| error[name].as_str()).map(str::to_owned);
        match (text("code"), text("message")) {
            (Some(code), Some(_)) if code == Code::Unauthorized.as_str() => CliFailure::Api {
                message: format!("the token in {} is not that of {}", self.token_from, self.server),
                hint: Some(TOKEN_HINT.to_owned()),
                status,
                code,
            },
            (Some(code), Some(message)) => {
                let subject = self.subject.lock().unwrap_or_else(PoisonError::into_inner);
                let hint = hints::hint(&code, text("hint"), &subject);
                CliFailure::Api { status, code, message, hint }
            }
            (None, _) | (_, None) => CliFailure::Failed {
                message: format!("{} answered {status} without an issuebox error", self.server),
                hint: "check that this is the address of an issuebox server".to_owned(),
            },
        }
    }
}

/// A stream of server-sent events.
#[derive(Debug)]
pub(super) struct EventStream {
    bytes: Response,
    decoder: Decoder,
    ready: VecDeque<SseEvent>,
}

impl EventStream {
    /// The next event; `None` when the server ended the stream.
    ///
    /// # Errors
    /// [`CliFailure::Failed`] if the connection broke, was silent for too long or sent bad data.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, CliFailure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// The place in the stream that the server says before the first event; `None` if it ended the stream
    /// or sent an event first.
    ///
    /// # Errors
    /// As for [`EventStream::next`].
    pub async fn place(&mut self) -> Result<Option<String>, CliFailure> {
        loop {
            let place = self.decoder.id();
            if place.is_some() || !self.ready.is_empty() {
                return Ok(place.filter(|_| self.ready.is_empty()).map(str::to_owned));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Reads more; false at the end.
    async fn read(&mut self) -> Result<bool, CliFailure> {
        let broken = |message: String| CliFailure::Failed {
            message,
            hint: "check that the server still runs".to_owned(),
        };
        let chunk = tokio::time::timeout(SILENCE_MAX, self.bytes.chunk())
            .await
            .map_err(|_elapsed| broken("the connection went silent".to_owned()))?
            .map_err(|e| broken(format!("the connection broke: {}", e.without_url())))?;
        let Some(chunk) = chunk else { return Ok(false) };
        let events = self.decoder.push(&chunk).map_err(|e| broken(e.to_owned()))?;
        self.ready.extend(events);
        Ok(true)
    }
}
