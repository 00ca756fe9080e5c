//! Who is calling: the admin token, or a session of the page.
//!
//! The token is kept as its SHA-256 and compared in constant time. Wrong ones are counted for
//! each address; an address that gives too many is refused for a while, right or wrong, so that
//! guessing costs time. A session's cookie reads everything under `/v1`; to change something it
//! needs the same origin and the session's form token as well, since a browser sends the cookie
//! along whoever wrote the page that asks.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::types::{AccountName, Cause, Secret};

use super::Shared;
use super::error::{ApiError, Code};
use super::sessions::{SESSION_COOKIE, SessionKey};

/// The header in which a script gives its session's form token.
pub const FORM_TOKEN_HEADER: &str = "x-form-token";

/// SHA-256 of a token: what is kept of it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &Secret) -> Self {
        Self(Sha256::digest(token.expose().as_bytes()).into())
    }

    /// For what is bound to the token.
    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether this is the token, in a time that does not depend on where it differs.
    pub fn matches(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        self.0.ct_eq(&given).into()
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The admin token in force, as its hash. It can be replaced while the server runs; what is cloned
/// shares it.
#[derive(Clone, Debug)]
pub struct LiveToken(Arc<watch::Sender<TokenHash>>);

impl LiveToken {
    /// This one is in force at first.
    pub fn new(token: TokenHash) -> Self {
        Self(Arc::new(watch::Sender::new(token)))
    }

    /// The one that is in force now.
    pub fn in_force(&self) -> TokenHash {
        self.0.borrow().clone()
    }

    /// From now on this one is in force. What goes on by the old one, or by a session that was
    /// begun with it, ends; links that were made with it are worth nothing.
    pub fn replace(&self, token: TokenHash) {
        self.0.send_replace(token);
    }

    /// Tells when it is replaced.
    pub(super) fn watch(&self) -> watch::Receiver<TokenHash> {
        self.0.subscribe()
    }
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account whose sandboxes it may see and change.
    pub account: AccountName,
    /// What is known of it: `admin` or `page`.
    pub name: &'static str,
    /// Its request's id.
    pub request_id: Arc<str>,
    /// The session it has, where it is one of the page.
    pub session: Option<SessionKey>,
    /// Tells of every admin token that came into force since before its own was looked at.
    pub token: watch::Receiver<TokenHash>,
}

impl Caller {
    /// The same as the cause of a step.
    pub fn cause(&self) -> Cause {
        Cause::Caller { name: self.name.to_owned(), request_id: self.request_id.to_string() }
    }
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = std::future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // Put there by the gate in front of everything under /v1; a route elsewhere has none.
        std::future::ready(request.extensions().get::<Self>().cloned().ok_or_else(unauthorized))
    }
}

/// Finds out who calls something under `/v1`.
///
/// # Errors
/// 401 without a valid token or session, 403 for a change by a session from elsewhere, 429 for
/// an address that gave too many wrong tokens.
pub async fn authenticate(
    shared: &Shared,
    request: &HttpRequest,
    request_id: &Arc<str>,
) -> Result<Caller, ApiError> {
    // Before anything is compared: what goes on for long must not miss a change in between.
    let token = shared.edge.admin_token.watch();
    let caller = |name, session| Caller {
        account: AccountName::default_account(),
        name,
        request_id: Arc::clone(request_id),
        session,
        token,
    };
    if let Some(given) = request.headers().get(header::AUTHORIZATION) {
        check_token(shared, client_address(shared, request), bearer(given))?;
        return Ok(caller("admin", None));
    }
    let session = session(shared, request).await?.ok_or_else(unauthorized)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let token = request.headers().get(FORM_TOKEN_HEADER).and_then(|v| v.to_str().ok());
        check_change(shared, request, &session, token.unwrap_or_default())?;
    }
    Ok(caller("page", Some(session)))
}

/// Whether the request carries the admin token; for routes that are open to some without it.
///
/// # Errors
/// As [`authenticate`].
pub fn require_token(shared: &Shared, request: &HttpRequest) -> Result<(), ApiError> {
    let given = request.headers().get(header::AUTHORIZATION).ok_or_else(unauthorized)?;
    check_token(shared, client_address(shared, request), bearer(given))
}

/// Compares a token, counting the wrong ones of the address it came from.
///
/// # Errors
/// 401 where it is wrong, 429 where the address gave too many wrong ones.
pub fn check_token(
    shared: &Shared,
    address: Option<IpAddr>,
    given: Option<&str>,
) -> Result<(), ApiError> {
    let in_force = shared.edge.admin_token.in_force();
    attempt(shared, address, || given.is_some_and(|token| in_force.matches(token)))
}

/// Uses a log-in link up, counting the wrong ones as wrong tokens.
///
/// # Errors
/// As for [`check_token`].
pub fn take_link(shared: &Shared, address: Option<IpAddr>, key: &str) -> Result<(), ApiError> {
    let now = shared.edge.clock.now();
    attempt(shared, address, || shared.edge.login_links.take(key, now))
}

/// Tries a credential, unless its address gave too many wrong ones.
fn attempt(
    shared: &Shared,
    address: Option<IpAddr>,
    is_right: impl FnOnce() -> bool,
) -> Result<(), ApiError> {
    let now = shared.edge.clock.now();
    if let Some(secs) = shared.attempts.blocked_secs(address, now) {
        let error = ApiError::new(Code::TooManyAttempts, "too many wrong tokens from this address");
        return Err(error.hint("wait, then try the right one").retry_after(secs));
    }
    if is_right() {
        return Ok(());
    }
    shared.attempts.failed(address, now);
    Err(unauthorized())
}

/// How the server is reached: as configured, or as this request did.
pub fn base_url(shared: &Shared, request: &HttpRequest) -> String {
    match &shared.edge.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let host = text(request.headers(), "host").unwrap_or("127.0.0.1:8787");
            format!("http://{host}")
        }
    }
}

/// The session that the request's cookie names, if it has not ended.
///
/// # Errors
/// 503 where the store cannot be read.
pub async fn session(
    shared: &Shared,
    request: &HttpRequest,
) -> Result<Option<SessionKey>, ApiError> {
    let Some(cookie) = request.cookie(SESSION_COOKIE) else { return Ok(None) };
    shared.sessions.find(cookie.value(), shared.edge.clock.now()).await
}

/// Whether a change by a session was really asked by its page.
///
/// # Errors
/// 403 where it came from another origin or without the session's form token.
pub fn check_change(
    shared: &Shared,
    request: &HttpRequest,
    session: &SessionKey,
    form_token: &str,
) -> Result<(), ApiError> {
    check_origin(shared, request)?;
    if !session.form_token_matches(form_token) {
        return Err(ApiError::new(Code::Forbidden, "the form token is missing or wrong")
            .hint("load the page again"));
    }
    Ok(())
}

/// Whether a form was sent from a page of this server.
///
/// # Errors
/// 403 where the browser says, or leaves open, that it was another's.
pub fn check_origin(shared: &Shared, request: &HttpRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let same_site = text(headers, "sec-fetch-site").is_none_or(|site| site == "same-origin");
    let origin = text(headers, "origin").unwrap_or_default();
    let host = text(headers, "host").unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, of)| of == host && !of.is_empty());
    let public = shared.edge.public_url.as_deref().is_some_and(|url| is_origin_of(origin, url));
    if same_site && (own || public) {
        return Ok(());
    }
    Err(ApiError::new(Code::Forbidden, "the request did not come from this server's own page")
        .hint("behind a proxy, set public_url to the address that people use"))
}

fn is_origin_of(origin: &str, url: &str) -> bool {
    url.strip_prefix(origin)
        .is_some_and(|rest| !origin.is_empty() && (rest.is_empty() || rest.starts_with('/')))
}

/// The client's address: the peer's, or behind a trusted proxy what the nearest proxy that is
/// not trusted any more was told.
pub fn client_address(shared: &Shared, request: &HttpRequest) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip();
    let trusted = &shared.edge.trusted_proxies;
    if !trusted.contains(&peer) {
        // A proxy on this machine that nobody named: whoever comes through it shares one count,
        // which is not that of the people on the machine itself.
        let behind = peer.to_canonical().is_loopback() && !is_local(request);
        return Some(if behind { BEHIND_A_PROXY } else { peer });
    }
    let forwarded = request.headers().get_all("x-forwarded-for");
    let hops: Vec<IpAddr> = forwarded
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|hop| hop.trim().parse().ok())
        .collect();
    Some(hops.into_iter().rev().find(|hop| !trusted.contains(hop)).unwrap_or(peer))
}

/// What stands for all who come through a proxy on this machine that is not trusted.
const BEHIND_A_PROXY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Whether the request comes from this very machine, and not through a proxy on it.
pub fn is_local(request: &HttpRequest) -> bool {
    let proxied = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback())
        && !proxied.iter().any(|name| request.headers().contains_key(*name))
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn unauthorized() -> ApiError {
    ApiError::new(Code::Unauthorized, "a valid token is needed")
        .hint("send Authorization: Bearer <admin token>")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"issuebox\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_matches_its_hash() {
        let hash = TokenHash::of(&Secret::new("right"));
        assert!(hash.matches("right"));
        for wrong in ["", "Right", "right ", "wrong"] {
            assert!(!hash.matches(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{hash:?}"), "***");
    }

    #[test]
    fn bearer_tokens_are_read_whatever_the_case_of_the_scheme() {
        for (value, token) in
            [("Bearer x", Some("x")), ("bearer x", Some("x")), ("Basic x", None), ("x", None)]
        {
            assert_eq!(bearer(&HeaderValue::from_static(value)), token, "{value}");
        }
    }

    #[test]
    fn an_origin_is_that_of_a_url_only_where_it_ends_there() {
        assert!(is_origin_of("https://box.example", "https://box.example/x"));
        assert!(is_origin_of("https://box.example", "https://box.example"));
        assert!(!is_origin_of("https://box.exam", "https://box.example"));
        assert!(!is_origin_of("", "https://box.example"));
    }
}
