//! Calls over HTTP, to Daytona's API and to the toolboxes: the key, the deadline, the size of answers.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::CallFailure;
use crate::types::Secret;
use crate::web_socket::{WebSocket, WebSocketCall, opened};

/// How long a connection may take to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long one call may take, from its beginning to the end of its answer, unless it says otherwise.
pub(super) const CALL_WAIT: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes. A page of a list has some 200 KB.
const ANSWER_LEN_MAX: usize = 16 << 20;

/// Sends requests with the key.
#[derive(Debug)]
pub(super) struct HttpCaller {
    http: reqwest::Client,
    key: Secret,
    authorization: HeaderValue,
}

impl HttpCaller {
    /// A client that follows no redirect and remembers no cookie.
    ///
    /// # Errors
    /// What is wrong with the key or the system's certificates.
    pub fn new(key: Secret, api_url: &str) -> Result<Self, String> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", key.expose()))
            .map_err(|_| "its API key has characters that no header can have".to_owned())?;
        authorization.set_sensitive(true);
        let mut builder = reqwest::Client::builder();
        // A proxy that the environment names carries what only TLS reads.
        if !api_url.starts_with("https://") {
            builder = builder.no_proxy();
        }
        let http = builder
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT)
            .tcp_nodelay(true)
            .user_agent(concat!("issuebox/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { http, key, authorization })
    }

    /// A request, not sent yet.
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url).header(AUTHORIZATION, self.authorization.clone())
    }

    /// Sends a request; returns the answer once its head is here, if it is a success.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn send(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<Response, CallFailure> {
        self.agreed(request, wait, |answer| answer.status().is_success()).await
    }

    /// Asks for a WebSocket.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn web_socket(&self, url: &str) -> Result<WebSocket, CallFailure> {
        let call = WebSocketCall::new(None);
        let request = call.of(self.request(Method::GET, url));
        let answer = self.agreed(request, CALL_WAIT, |answer| call.is_agreed(answer)).await?;
        opened(answer).await.map_err(|error| CallFailure::NoAnswer(not_answered(&error)))
    }

    /// Sends a request; returns the answer once its head is here, if it is as it should be.
    async fn agreed(
        &self,
        request: RequestBuilder,
        wait: Duration,
        is_good: impl Fn(&Response) -> bool,
    ) -> Result<Response, CallFailure> {
        let answer = match tokio::time::timeout(wait, request.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(CallFailure::NoAnswer(not_answered(&error))),
            Err(_) => {
                let seconds = wait.as_secs_f32();
                return Err(CallFailure::NoAnswer(format!("no answer within {seconds:.1} s")));
            }
        };
        if is_good(&answer) {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get(RETRY_AFTER).cloned();
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        // An error whose words do not arrive is that error all the same.
        let body = tokio::time::timeout(wait, read(answer)).await;
        let body = body.unwrap_or(Ok(Vec::new())).unwrap_or_default();
        Err(CallFailure::read(status, retry_after, &body, &self.key))
    }

    /// Sends a request and reads the JSON of its answer.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<T, CallFailure> {
        let whole = async {
            let body = read(self.send(request, wait).await?).await?;
            serde_json::from_slice(&body).map_err(|error| {
                CallFailure::NoAnswer(format!("Daytona's answer is not understood: {error}"))
            })
        };
        let late = || CallFailure::NoAnswer(format!("no whole answer within {} s", wait.as_secs()));
        tokio::time::timeout(wait, whole).await.unwrap_or_else(|_| Err(late()))
    }

    /// A request with a JSON body.
    pub fn post(&self, url: &str, body: &impl Serialize) -> RequestBuilder {
        self.request(Method::POST, url).json(body)
    }
}

/// Reads the body of an answer, up to a bound.
async fn read(mut answer: Response) -> Result<Vec<u8>, CallFailure> {
    let mut body = Vec::new();
    loop {
        let chunk = answer.chunk().await;
        let chunk = chunk.map_err(|error| CallFailure::NoAnswer(not_answered(&error)))?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() + chunk.len() > ANSWER_LEN_MAX {
            return Err(CallFailure::NoAnswer("Daytona's answer is too large".into()));
        }
        body.extend_from_slice(&chunk);
    }
}

/// Why there is no answer. The address is left out: it says nothing that the operator does not know.
fn not_answered(error: &reqwest::Error) -> String {
    let begin =
        if error.is_connect() { "Daytona cannot be reached" } else { "Daytona's answer broke off" };
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    let mut cause = String::new();
    while let Some(error) = source {
        cause = format!(": {error}");
        source = error.source();
    }
    format!("{begin}{cause}")
}
