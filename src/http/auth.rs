//! Authentication: by the admin token, or by a session of the dashboard.
//!
//! The token is kept as its SHA-256 and compared in constant time. Wrong tokens are counted by
//! address; the wrong ones of an address with too many are refused for a while, and the right one is
//! not: others at that address cannot lock its owner out. A short token could be guessed, so that
//! for a while it is refused there, too. A session's cookie can read everything below `/v1`. A change also needs the same origin and the
//! session's form token, since browsers send the cookie with requests of foreign pages.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
use super::sessions::SessionKey;

/// The header in which a script sends its session's form token.
pub const FORM_TOKEN_HEADER: &str = "x-form-token";

/// The SHA-256 of a token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash {
    hash: [u8; 32],
    is_short: bool,
}

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &Secret) -> Self {
        let hash = Sha256::digest(token.expose().as_bytes()).into();
        Self { hash, is_short: token.is_short() }
    }

    /// The bytes of the hash, for data that is bound to the token.
    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Whether the token [is short](Secret::is_short).
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Compares a token in constant time.
    pub fn matches(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        self.hash.ct_eq(&given).into()
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The hash of the admin token in force. It can be replaced while the server runs; clones share it.
#[derive(Clone, Debug)]
pub struct LiveToken(Arc<watch::Sender<TokenHash>>);

impl LiveToken {
    /// Starts with this token.
    pub fn new(token: TokenHash) -> Self {
        Self(Arc::new(watch::Sender::new(token)))
    }

    /// The token in force.
    pub fn in_force(&self) -> TokenHash {
        self.0.borrow().clone()
    }

    /// Replaces the token. Streams and sessions that began with the old one end, and its log-in
    /// links become invalid.
    pub fn replace(&self, token: TokenHash) {
        self.0.send_replace(token);
    }

    /// Notices replacements.
    pub(super) fn watch(&self) -> watch::Receiver<TokenHash> {
        self.0.subscribe()
    }
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account whose sandboxes it may see and change.
    pub account: AccountName,
    /// `admin` or `page`.
    pub name: &'static str,
    /// Its request's id.
    pub request_id: Arc<str>,
    /// The session of a caller from the dashboard.
    pub session: Option<SessionKey>,
    /// Notices every admin token that came into force since before this caller was authenticated.
    pub token: watch::Receiver<TokenHash>,
}

impl Caller {
    /// The caller as the cause of a step.
    pub fn cause(&self) -> Cause {
        Cause::Caller { name: self.name.to_owned(), request_id: self.request_id.to_string() }
    }
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = std::future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // The middleware sets it for routes below /v1.
        std::future::ready(request.extensions().get::<Self>().cloned().ok_or_else(unauthorized))
    }
}

/// Authenticates a request below `/v1`.
///
/// # Errors
/// 401 without a valid token or session, 403 for a change by a session from another origin, 429
/// for a wrong token of an address that sent too many.
pub async fn authenticate(
    shared: &Shared,
    request: &HttpRequest,
    request_id: &Arc<str>,
) -> Result<Caller, ApiError> {
    // Before the comparison, so that a long answer cannot miss a change in between.
    let token = shared.edge.admin_token.watch();
    let caller = |name, session| Caller {
        account: AccountName::default_account(),
        name,
        request_id: Arc::clone(request_id),
        session,
        token,
    };
    if let Some(given) = request.headers().get(header::AUTHORIZATION) {
        check_token(shared, request, bearer(given))?;
        return Ok(caller("admin", None));
    }
    let session = session(shared, request).await?.ok_or_else(unauthorized)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let token = request.headers().get(FORM_TOKEN_HEADER).and_then(|v| v.to_str().ok());
        check_change(shared, request, &session, token.unwrap_or_default())?;
    }
    Ok(caller("page", Some(session)))
}

/// Requires the admin token; for routes that are open to local callers without it.
///
/// # Errors
/// As [`authenticate`].
pub fn require_token(shared: &Shared, request: &HttpRequest) -> Result<(), ApiError> {
    let given = request.headers().get(header::AUTHORIZATION).ok_or_else(unauthorized)?;
    check_token(shared, request, bearer(given))
}

/// Compares a token, and counts wrong ones by address.
///
/// # Errors
/// 401 if it is wrong, 429 if the address gave too many wrong ones: for a wrong token, and also for
/// the right one if it is short.
pub fn check_token(
    shared: &Shared,
    request: &HttpRequest,
    given: Option<&str>,
) -> Result<(), ApiError> {
    let in_force = shared.edge.admin_token.in_force();
    let is_right = given.is_some_and(|token| in_force.matches(token));
    attempt(shared, request, is_right, in_force.is_short())
}

/// Uses a log-in link up. Wrong links count as wrong tokens.
///
/// # Errors
/// As for [`check_token`]; a right link is never refused.
pub fn take_link(shared: &Shared, request: &HttpRequest, key: &str) -> Result<(), ApiError> {
    let is_right = shared.edge.login_links.take(key, shared.edge.clock.now());
    attempt(shared, request, is_right, false)
}

/// Counts a wrong credential. One that could be guessed is refused although it is right, if its
/// address sent too many wrong ones. The address of any other is not looked for, which takes a
/// system call where a local client names the machine.
fn attempt(
    shared: &Shared,
    request: &HttpRequest,
    is_right: bool,
    is_guessable: bool,
) -> Result<(), ApiError> {
    if is_right && !is_guessable {
        return Ok(());
    }
    let (address, now) = (client_address(shared, request), shared.edge.clock.now());
    if let Some(secs) = shared.attempts.blocked_secs(address, now) {
        let error = ApiError::new(Code::TooManyAttempts, "this address sent too many wrong tokens");
        return Err(error.hint("wait, then send the right token").retry_after(secs));
    }
    if is_right {
        return Ok(());
    }
    shared.attempts.failed(address, now);
    Err(unauthorized())
}

/// The server's address: as configured, or as in this request.
pub fn base_url(shared: &Shared, request: &HttpRequest) -> String {
    match &shared.edge.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let host = text(request.headers(), "host").unwrap_or("127.0.0.1:8787");
            format!("http://{host}")
        }
    }
}

/// The session of the request's cookie, if it has not ended.
///
/// # Errors
/// 503 if the store cannot be read.
pub async fn session(
    shared: &Shared,
    request: &HttpRequest,
) -> Result<Option<SessionKey>, ApiError> {
    let (name, now) = (shared.session_cookie(), shared.edge.clock.now());
    let given: Vec<String> = match request.cookies() {
        Ok(cookies) => {
            let ours = cookies.iter().filter(|cookie| cookie.name() == name);
            ours.take(SAME_COOKIES_MAX).map(|cookie| cookie.value().to_owned()).collect()
        }
        Err(_) => Vec::new(),
    };
    // Without https any server of this host can add a cookie of this name.
    for secret in given {
        if let Some(session) = shared.sessions.find(&secret, now).await? {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// How many cookies of the session's name are tried.
const SAME_COOKIES_MAX: usize = 4;

/// Checks that a change by a session comes from its own page.
///
/// # Errors
/// 403 if it comes from another origin or without the session's form token.
pub fn check_change(
    shared: &Shared,
    request: &HttpRequest,
    session: &SessionKey,
    form_token: &str,
) -> Result<(), ApiError> {
    check_origin(shared, request)?;
    if !session.form_token_matches(form_token) {
        return Err(ApiError::new(Code::Forbidden, "the form token is missing or wrong")
            .hint("load the page again, then repeat the action"));
    }
    Ok(())
}

/// Checks that a request comes from a page of this server.
///
/// # Errors
/// 403 if it comes from another page, or if the browser does not say.
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
        .hint("if the server is behind a proxy, set public_url to its public address"))
}

/// Checks the same of a form on a page that sends no referrer, for which browsers send no origin either.
/// Only for a form that holds a secret of its session.
///
/// # Errors
/// 403 if it comes from another page.
pub fn check_origin_if_sent(shared: &Shared, request: &HttpRequest) -> Result<(), ApiError> {
    let is_unsent = text(request.headers(), "origin") == Some("null");
    let site = text(request.headers(), "sec-fetch-site");
    if is_unsent && site.is_none_or(|site| site == "same-origin") {
        return Ok(());
    }
    check_origin(shared, request)
}

/// The address of this server's pages to which GitHub may lead a browser back: as configured, or the one
/// that it listens on. Nothing that a request says decides it.
pub fn own_url(shared: &Shared) -> String {
    match &shared.edge.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let url = format!("http://{}", reachable(shared.listens_on));
            // As browsers write it.
            url.strip_suffix(":80").unwrap_or(&url).to_owned()
        }
    }
}

/// Whether a form was sent from the page at [`own_url`], and not at another address of this server, where
/// a browser has another session.
pub fn is_at_own_url(shared: &Shared, request: &HttpRequest) -> bool {
    let origin = text(request.headers(), "origin").unwrap_or_default();
    is_origin_of(origin, &own_url(shared))
}

/// The address at which this machine reaches a listener.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}

fn is_origin_of(origin: &str, url: &str) -> bool {
    url.strip_prefix(origin)
        .is_some_and(|rest| !origin.is_empty() && (rest.is_empty() || rest.starts_with('/')))
}

/// The client's address: the peer's, or behind trusted proxies the last forwarded address that is
/// not a trusted proxy's.
pub fn client_address(shared: &Shared, request: &HttpRequest) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip();
    let trusted = &shared.edge.trusted_proxies;
    if !trusted.contains(&peer) {
        // An untrusted proxy on this machine: all its clients share one count, apart from that of
        // direct local clients.
        let behind = peer.to_canonical().is_loopback() && !is_local(shared, request);
        return Some(if behind { BEHIND_A_PROXY } else { peer });
    }
    let forwarded = request.headers().get_all("x-forwarded-for");
    let hops = forwarded.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let hops: Vec<_> = hops.map(hop_address).collect();
    // A hop that cannot be read was written by a trusted proxy. What stands before it is the
    // client's own word, so that the client stays unknown behind the peer.
    let last = hops.into_iter().rev().find(|hop| hop.is_none_or(|hop| !trusted.contains(&hop)));
    Some(last.flatten().unwrap_or(peer))
}

/// The address of a hop in `X-Forwarded-For`. Some proxies add the port, and brackets around IPv6.
fn hop_address(hop: &[u8]) -> Option<IpAddr> {
    let hop = std::str::from_utf8(hop).ok()?.trim();
    let bracketed = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']'));
    let with_port = || hop.parse().ok().map(|hop: SocketAddr| hop.ip());
    bracketed.unwrap_or(hop).parse().ok().or_else(with_port)
}

/// Stands for all clients of an untrusted proxy on this machine.
const BEHIND_A_PROXY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Whether the request comes from this machine, not through a proxy, and names this server: a page
/// of another site that has its own name lead to this machine (DNS rebinding) is no local caller.
pub fn is_local(shared: &Shared, request: &HttpRequest) -> bool {
    let proxied = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback())
        && !proxied.iter().any(|name| request.headers().contains_key(*name))
        && text(request.headers(), "host").is_none_or(|host| names_this_server(shared, host))
}

/// Whether a `Host` is an address, a name of this machine, or that of `public_url`.
fn names_this_server(shared: &Shared, host: &str) -> bool {
    let public = shared.edge.public_url.as_deref().and_then(|url| url.split_once("://"));
    if public.is_some_and(|(_, rest)| rest.split('/').next() == Some(host)) {
        return true;
    }
    let host = host.to_ascii_lowercase();
    let (name, port) = host.rsplit_once(':').unwrap_or((&host, ""));
    let name = if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { &host };
    let address = name.trim_matches(['[', ']']);
    address.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || rustix::system::uname().nodename().to_bytes().eq_ignore_ascii_case(name.as_bytes())
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn unauthorized() -> ApiError {
    ApiError::new(Code::Unauthorized, "the token is missing or wrong")
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
    fn hops_of_proxies_are_read_in_each_of_their_forms() {
        for (hop, address) in [
            (" 9.9.9.9 ", Some("9.9.9.9")),
            ("9.9.9.9:4711", Some("9.9.9.9")),
            ("2001:db8::5", Some("2001:db8::5")),
            ("[2001:db8::5]", Some("2001:db8::5")),
            ("[2001:db8::5]:4711", Some("2001:db8::5")),
            ("unknown", None),
            ("_hidden", None),
            ("", None),
            ("9.9.9.9:x", None),
        ] {
            assert_eq!(
                hop_address(hop.as_bytes()),
                address.map(|a| a.parse().expect("one")),
                "{hop}"
            );
        }
    }

    #[test]
    fn an_origin_is_that_of_a_url_only_where_it_ends_there() {
        assert!(is_origin_of("https://box.example", "https://box.example/x"));
        assert!(is_origin_of("https://box.example", "https://box.example"));
        assert!(!is_origin_of("https://box.exam", "https://box.example"));
        assert!(!is_origin_of("", "https://box.example"));
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_here() {
        let of = |text: &str| reachable(text.parse().expect("an address")).to_string();
        assert_eq!(of("0.0.0.0:8787"), "127.0.0.1:8787");
        assert_eq!(of("[::]:8787"), "127.0.0.1:8787");
        assert_eq!(of("192.0.2.1:8787"), "192.0.2.1:8787");
    }
}
