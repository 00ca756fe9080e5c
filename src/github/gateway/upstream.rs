//! Passes requests on to the host of the repositories, with a token and as streams both ways.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{Method, Response, StatusCode};

use crate::git::{BodyError, GitBody};
use crate::types::Secret;

/// How long a connection may take to be made. Silence afterwards is bounded by the sandbox's own
/// connection: some servers compute a pack for minutes.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");

/// The headers of a request that are passed on; credentials of the sandbox are none of them.
const ASKED: [HeaderName; 6] =
    [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, CONTENT_ENCODING, USER_AGENT, GIT_PROTOCOL];

/// The headers of an answer that are passed on.
const ANSWERED: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH, CACHE_CONTROL];

/// The host of the repositories.
#[derive(Clone, Debug)]
pub struct Upstream {
    http: reqwest::Client,
}

impl Upstream {
    /// A client that follows no redirect and remembers no cookie.
    ///
    /// # Errors
    /// If the system's certificates cannot be used.
    pub fn new() -> reqwest::Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT)
            .build()?;
        Ok(Self { http })
    }

    /// Sends a request with those headers of the sandbox's that are passed on, and with our own.
    /// Returns the answer once its head is here.
    ///
    /// # Errors
    /// If there is no answer. Whether the request was carried out is unknown then.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        asked: &HeaderMap,
        own: &HeaderMap,
        body: reqwest::Body,
    ) -> reqwest::Result<Response<GitBody>> {
        let mut request = self.http.request(method, url).body(body);
        for name in ASKED {
            for value in asked.get_all(&name) {
                request = request.header(&name, value);
            }
        }
        Ok(answer(request.headers(own.clone()).send().await?))
    }
}

/// The headers that carry a token.
pub fn authorization(token: Option<&Secret>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let pair = format!("x-access-token:{}", token.expose());
        let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
        // Base64 is a header's value, whatever is in the token.
        if let Ok(mut value) = HeaderValue::try_from(basic) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    }
    headers
}

/// The answer with only the headers that are passed on.
fn answer(from: reqwest::Response) -> Response<GitBody> {
    let (status, headers) = (from.status(), from.headers().clone());
    let body = reqwest::Body::from(from).map_err(BodyError::other).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for name in ANSWERED {
        if let Some(value) = headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// What an answer means that is no success, for people.
pub fn words_for(status: StatusCode) -> String {
    match status.as_u16() {
        401 => "GitHub does not accept the server's credentials; ask who runs it to look at \
                `issuebox doctor`"
            .into(),
        403 => "GitHub refuses it: the server's App or token lacks a permission there".into(),
        404 => "GitHub does not know this repository, or does not show it to the server".into(),
        429 => "GitHub's limit is reached; try again in a minute".into(),
        500.. => format!("GitHub has trouble ({status}); nothing changed, try again in a moment"),
        _ => format!("GitHub answered {status}"),
    }
}
