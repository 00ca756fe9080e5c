//! The makers of the models: where they are, with which key, and for which models.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, RETRY_AFTER};
use tokio::time::timeout;

use super::super::refusal::ModelRefusal;
use super::route::{self, ModelRoute};
use crate::types::{ModelPattern, Secret, Timestamp};

/// How long a connection may take to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The longest wait that an agent's process may sit through.
const SITS_MAX: Duration = Duration::from_secs(60);

/// One endpoint, as `[models.NAME]` configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEndpoint {
    /// The name of its section.
    pub name: String,
    /// Its address, without `/v1`.
    pub base_url: String,
    /// Our key.
    pub key: Secret,
    /// Which models it may be asked for.
    pub models: Vec<ModelPattern>,
    /// Most tokens of output of one request.
    pub output_max: u64,
    /// The longest silence: until the head of a streamed answer, and between two pieces of any.
    pub silence_max: Duration,
}

impl ModelEndpoint {
    /// Whether a model may be asked for.
    pub fn allows(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| pattern.matches(model))
    }
}

/// Time limits towards the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayTimes {
    /// Until the head of an answer that is not streamed, which comes when all of it is written.
    pub whole_answer: Duration,
    /// For a request in all. After twice this a reservation that is still open is settled by time.
    pub request: Duration,
}

impl Default for GatewayTimes {
    fn default() -> Self {
        Self { whole_answer: Duration::from_secs(600), request: Duration::from_secs(3_600) }
    }
}

/// Why there is no answer that can be passed on.
#[derive(Debug)]
pub struct NoModelAnswer {
    /// What the agent is answered.
    pub refusal: ModelRefusal,
    /// Whether the model may have the request.
    pub is_sent: bool,
    /// The status of its answer, if it gave one.
    pub status: Option<u16>,
}

/// Sends requests to the makers of the models.
#[derive(Clone, Debug)]
pub struct ModelUpstream {
    /// For `https://`. A proxy that the environment names carries what only TLS reads.
    encrypted: reqwest::Client,
    /// For `http://` on the loopback, with no proxy, which would read the key.
    plain: reqwest::Client,
}

impl ModelUpstream {
    /// A client that follows no redirect, remembers no cookie and decodes nothing.
    ///
    /// # Errors
    /// If the system's certificates cannot be used.
    pub fn new() -> reqwest::Result<Self> {
        let client = || {
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_WAIT)
                .tcp_nodelay(true)
        };
        Ok(Self { encrypted: client().build()?, plain: client().no_proxy().build()? })
    }

    /// Sends a request; returns its answer once the head is here.
    ///
    /// # Errors
    /// [`NoModelAnswer`].
    pub async fn send(
        &self,
        endpoint: &ModelEndpoint,
        route: &ModelRoute<'_>,
        (headers, is_beta, body): (&HeaderMap, bool, bytes::Bytes),
        wait: Duration,
        now: Timestamp,
    ) -> Result<reqwest::Response, NoModelAnswer> {
        let Some(headers) = route::asked(headers, route.api, &endpoint.key) else {
            let refusal = ModelRefusal::Key(endpoint.name.clone());
            return Err(NoModelAnswer { refusal, is_sent: false, status: None });
        };
        let beta = if is_beta { "?beta=true" } else { "" };
        let base = endpoint.base_url.trim_end_matches('/');
        let url = format!("{base}{}{beta}", route.upstream_path());
        let http = if url.starts_with("https://") { &self.encrypted } else { &self.plain };
        let sending = http.post(url).headers(headers).body(body).send();
        let answer = match timeout(wait, sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(not_answered(endpoint, &error)),
            Err(_) => {
                let refusal = ModelRefusal::Away(format!("no answer within {} s", wait.as_secs()));
                tracing::warn!(endpoint = endpoint.name, %refusal, "a model does not answer");
                return Err(NoModelAnswer { refusal, is_sent: true, status: None });
            }
        };
        match trouble(endpoint, &answer, now) {
            Some(refusal) => {
                let status = Some(answer.status().as_u16());
                Err(NoModelAnswer { refusal, is_sent: true, status })
            }
            None => Ok(answer),
        }
    }
}

fn not_answered(endpoint: &ModelEndpoint, error: &reqwest::Error) -> NoModelAnswer {
    // The address is the operator's, and no part of it is for the sandbox.
    let words = if error.is_connect() {
        "it cannot be reached"
    } else {
        "the connection ended before an answer"
    };
    tracing::warn!(endpoint = endpoint.name, error = %chain(error), "a model does not answer");
    let refusal = ModelRefusal::Away(words.into());
    NoModelAnswer { refusal, is_sent: !error.is_connect(), status: None }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What of an answer is no agent's to handle.
fn trouble(
    endpoint: &ModelEndpoint,
    answer: &reqwest::Response,
    now: Timestamp,
) -> Option<ModelRefusal> {
    let (status, headers) = (answer.status().as_u16(), answer.headers());
    let refusal = match status {
        401 | 403 => ModelRefusal::Key(endpoint.name.clone()),
        402 => ModelRefusal::NoCredit(endpoint.name.clone()),
        300..400 => ModelRefusal::Away("it answers with a redirect".into()),
        _ if status < 400 && headers.get(CONTENT_ENCODING).is_some_and(|it| it != "identity") => {
            ModelRefusal::Away("its answer is compressed".into())
        }
        400.. => {
            let wait = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
            let wait = Duration::from_secs(wait);
            if wait <= SITS_MAX {
                return None;
            }
            ModelRefusal::Wait(now.after(wait))
        }
        _ => return None,
    };
    tracing::warn!(endpoint = endpoint.name, status, %refusal, "a model refuses a request");
    Some(refusal)
}
