//! One HTTP exchange with GitHub, by octocrab: bounded in time and size, repeated never, redirected
//! never.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{ACCEPT, DATE, IF_NONE_MATCH};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Method, Uri};
use octocrab::Octocrab;
use serde_json::Value;

use crate::clock::Clock;
use crate::types::{Secret, Timestamp};

use super::super::api::GitHubError;
use super::ClientError;
use super::github_clock::{GitHubClock, http_date};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const READ_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest time of one exchange.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest answer that is read, in bytes.
const BODY_LEN_MAX: usize = 8 << 20;

/// The connection to one GitHub.
pub(super) struct Transport {
    octocrab: Octocrab,
    /// `https://api.github.com`, without a path.
    origin: String,
    /// The path of the REST base, such as `/api/v3`; empty at api.github.com.
    base_path: String,
    /// The media type that is asked for.
    accept: &'static str,
    pub clock: GitHubClock,
}

/// What is sent.
pub(super) struct HttpCall<'a> {
    pub method: Method,
    /// Path and query, with the base path.
    pub path: &'a str,
    pub body: Option<&'a Value>,
    pub etag: Option<&'a str>,
    pub token: Option<&'a Secret>,
}

/// What came back.
pub(super) struct HttpAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// By our clock.
    pub received_at: Timestamp,
}

impl HttpAnswer {
    /// A header's value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Transport {
    /// To the GitHub whose REST base this is. Needs a runtime, which then serves it.
    pub fn new(api_url: &str, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let wrong = |why: String| ClientError::Address { api_url: api_url.to_owned(), why };
        let uri: Uri = api_url.parse().map_err(|error| wrong(format!("{error}")))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong("it has no host".to_owned()));
        };
        let origin = format!("{scheme}://{authority}");
        let octocrab = Octocrab::builder()
            .base_uri(origin.as_str())
            .map_err(|error| wrong(said(&error)))?
            .set_connect_timeout(Some(CONNECT_TIME_MAX))
            .set_read_timeout(Some(READ_TIME_MAX))
            .set_write_timeout(Some(READ_TIME_MAX))
            .build()
            .map_err(|error| wrong(said(&error)))?;
        let base_path = uri.path().trim_end_matches('/').to_owned();
        let (accept, clock) = ("application/vnd.github+json", GitHubClock::new(clock));
        Ok(Self { octocrab, origin, base_path, accept, clock })
    }

    /// The same for answers of this media type.
    pub fn accepting(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    /// A path below the REST base.
    pub fn path(&self, below: &str) -> String {
        format!("{}{below}", self.base_path)
    }

    /// The path of GraphQL.
    pub fn graphql_path(&self) -> String {
        match self.base_path.strip_suffix("/api/v3") {
            Some(above) => format!("{above}/api/graphql"),
            None => format!("{}/graphql", self.base_path),
        }
    }

    /// What an address at GitHub leads to, as a path of ours; `None` for any other address.
    pub fn path_of<'a>(&self, address: &'a str) -> Option<&'a str> {
        let path = address.strip_prefix(&self.origin).unwrap_or(address);
        let below = path.strip_prefix(&self.base_path)?;
        below.starts_with('/').then_some(path).filter(|path| !path.starts_with("//"))
    }

    /// The part of a path that is below the REST base.
    pub fn below<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&self.base_path).unwrap_or(path)
    }

    /// One exchange.
    ///
    /// # Errors
    /// [`GitHubError::Unreachable`] if nothing was sent, else [`GitHubError::Unknown`].
    pub async fn send(&self, call: HttpCall<'_>) -> Result<HttpAnswer, GitHubError> {
        let octocrab = match call.token {
            Some(token) => {
                let with_token = self.octocrab.user_access_token(token.expose());
                Cow::Owned(with_token.map_err(|error| unsent(&error))?)
            }
            None => Cow::Borrowed(&self.octocrab),
        };
        let mut builder =
            Builder::new().method(call.method).uri(call.path).header(ACCEPT, self.accept);
        if let Some(etag) = call.etag {
            builder = builder.header(IF_NONE_MATCH, etag);
        }
        let request = octocrab.build_request(builder, call.body).map_err(|error| unsent(&error))?;
        let exchange = async {
            let response = octocrab.execute(request).await.map_err(|error| failed(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, BODY_LEN_MAX).collect().await;
            let body = body.map_err(|error| {
                GitHubError::Unknown(format!("the answer was cut off: {error}"))
            })?;
            Ok((parts, body.to_bytes()))
        };
        let exchanged = tokio::time::timeout(WHOLE_TIME_MAX, exchange).await;
        let (parts, body) =
            exchanged.map_err(|_| GitHubError::Unknown("no answer within 30 s".to_owned()))??;
        let received_at = self.clock.ours();
        if let Some(date) = parts.headers.get(DATE).and_then(|date| http_date(date.to_str().ok()?))
        {
            self.clock.note(date, received_at);
        }
        Ok(HttpAnswer { status: parts.status.as_u16(), headers: parts.headers, body, received_at })
    }
}

/// A request that could not be made: a token that is no header value, for example.
fn unsent(error: &octocrab::Error) -> GitHubError {
    GitHubError::Unreachable(said(error))
}

/// A request that got no answer. Only where no connection was made did certainly nothing happen.
fn failed(error: &octocrab::Error) -> GitHubError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        let legacy = current.downcast_ref::<hyper_util::client::legacy::Error>();
        if legacy.is_some_and(hyper_util::client::legacy::Error::is_connect) {
            return GitHubError::Unreachable(said(error));
        }
        cause = current.source();
    }
    GitHubError::Unknown(said(error))
}

/// The innermost cause: octocrab's own texts contain backtraces.
fn said(error: &octocrab::Error) -> String {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(current) = cause {
        cause = current.source();
        // An error of octocrab within another repeats what is below.
        if current.downcast_ref::<octocrab::Error>().is_none() {
            texts.push(current.to_string());
        }
    }
    texts.dedup();
    match texts.as_slice() {
        [] => "the request could not be made".to_owned(),
        texts => texts.join(": "),
    }
}
