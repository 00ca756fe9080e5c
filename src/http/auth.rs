//! Authentication: by the admin token, by a token that a person created, or by a session of the
//! dashboard.
//!
//! The admin token is kept as its SHA-256 and compared in constant time; others are found by theirs,
//! which says nothing of them. Wrong tokens are counted by
//! address; the wrong ones of an address with too many are refused for a while, and the right one is
//! not: others at that address cannot lock its owner out. A short token could be guessed, so that
//! for a while it is refused there, too. A session's cookie can read everything below `/v1`. A change also needs the same origin and the
//! session's form token, since browsers send the cookie with requests of foreign pages.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use tokio::sync::watch;

use crate::access::KnownToken;
use crate::types::{AccountName, Role, TokenDigest, is_token};

use super::Shared;
use super::admin_token::TokenHash;
use super::caller::{Caller, Credential};
use super::error::{ApiError, Code};
use super::login_links::LinkHolder;
use super::sessions::{SessionHolder, SessionKey};

/// The header in which a script sends its session's form token.
pub const FORM_TOKEN_HEADER: &str = "x-form-token";

/// The header by which an admin acts in another account.
pub const ACCOUNT_HEADER: &str = "x-issuebox-account";

/// Authenticates a request below `/v1`.
///
/// # Errors
/// 401 without a valid token or session, 403 for a change by a session from another origin, for a role
/// that is too low and for a disabled account, 404 for an account that an admin names and that is not
/// there, 429 for a wrong token of an address that sent too many.
pub async fn authenticate(
    shared: &Shared,
    request: &HttpRequest,
    request_id: &Arc<str>,
) -> Result<Caller, ApiError> {
    let caller = match request.headers().get(header::AUTHORIZATION) {
        Some(given) => {
            let bearer = check_token(shared, request, bearer(given))?;
            of_bearer(shared, request, bearer, request_id)?
        }
        None => {
            let session = session(shared, request).await?.ok_or_else(ApiError::unauthorized)?;
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                let token = request.headers().get(FORM_TOKEN_HEADER).and_then(|v| v.to_str().ok());
                check_change(shared, request, &session, token.unwrap_or_default())?;
            }
            of_session(shared, session, Arc::clone(request_id))?
        }
    };
    caller.may(request)?;
    Ok(caller)
}

/// A token that was given and is right.
#[derive(Clone, Debug)]
pub enum Bearer {
    /// The configured admin token. It notices every one that came into force since before it was
    /// compared.
    Admin(watch::Receiver<TokenHash>),
    /// One that a person created.
    Token(Arc<KnownToken>),
}

fn of_bearer(
    shared: &Shared,
    request: &HttpRequest,
    bearer: Bearer,
    request_id: &Arc<str>,
) -> Result<Caller, ApiError> {
    let (account, role, name, credential) = match bearer {
        Bearer::Admin(token) => {
            let account = AccountName::default_account();
            (account, Role::Admin, Arc::from("admin"), Credential::Admin(token))
        }
        Bearer::Token(token) => {
            let (account, name) = (token.account().clone(), Arc::from(token.name()));
            (account, token.role(), name, Credential::Token(token))
        }
    };
    let account = match request.headers().get(ACCOUNT_HEADER) {
        Some(given) if given.as_bytes() != account.as_str().as_bytes() => {
            chosen_account(shared, role, given)?
        }
        Some(_) | None => account,
    };
    let caller = Caller { account, role, name, request_id: Arc::clone(request_id), credential };
    in_enabled_account(shared, caller)
}

/// The caller of a session.
///
/// # Errors
/// 403 if its account is disabled.
pub fn of_session(
    shared: &Shared,
    session: SessionKey,
    request_id: Arc<str>,
) -> Result<Caller, ApiError> {
    let (account, role, name) = (session.account(), session.role(), session.name());
    let credential = Credential::Session(session);
    in_enabled_account(shared, Caller { account, role, name, request_id, credential })
}

fn in_enabled_account(shared: &Shared, caller: Caller) -> Result<Caller, ApiError> {
    if !caller.is_admin() && shared.edge.access.is_disabled(&caller.account) {
        let message = format!("the account {} is disabled", caller.account);
        return Err(ApiError::new(Code::Forbidden, message).hint("ask an admin of this server"));
    }
    Ok(caller)
}

/// The account that a caller names in a header.
fn chosen_account(
    shared: &Shared,
    role: Role,
    given: &HeaderValue,
) -> Result<AccountName, ApiError> {
    if role != Role::Admin {
        return Err(ApiError::new(Code::Forbidden, "another account needs the role admin")
            .hint("leave X-Issuebox-Account out: a token has one account"));
    }
    let given = given.to_str().unwrap_or_default();
    let name = AccountName::parse(given)
        .map_err(|wrong| ApiError::invalid_id("X-Issuebox-Account", &wrong))?;
    match shared.edge.access.has_account(&name) {
        true => Ok(name),
        false => Err(account_not_found(&name)),
    }
}

/// The answer about an account that is not there.
pub fn account_not_found(name: &AccountName) -> ApiError {
    ApiError::new(Code::AccountNotFound, format!("there is no account {name}"))
        .hint("issuebox account ls lists all; issuebox account set NAME creates one")
}

/// Requires a token of an admin; for routes that are open to local callers without it.
///
/// # Errors
/// As [`authenticate`].
pub fn require_token(shared: &Shared, request: &HttpRequest) -> Result<(), ApiError> {
    let given = request.headers().get(header::AUTHORIZATION).ok_or_else(ApiError::unauthorized)?;
    let bearer = check_token(shared, request, bearer(given))?;
    let request_id = Arc::from("");
    of_bearer(shared, request, bearer, &request_id)?.has_role(Role::Admin)
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
) -> Result<Bearer, ApiError> {
    // Before the comparison, so that a long answer cannot miss a change in between.
    let watched = shared.edge.admin_token.watch();
    let is_guessable = watched.borrow().is_short();
    let bearer = given.and_then(|given| {
        if watched.borrow().matches(given) {
            return Some(Bearer::Admin(watched.clone()));
        }
        let digest = is_token(given).then(|| TokenDigest::of(given))?;
        shared.edge.access.find(&digest, shared.edge.clock.now()).map(Bearer::Token)
    });
    let is_right = bearer.is_some();
    let is_guessable = is_guessable && !matches!(bearer, Some(Bearer::Token(_)));
    attempt(shared, request, is_right, is_guessable)?;
    bearer.ok_or_else(ApiError::unauthorized)
}

/// Uses a log-in link up, and returns whom it logs in. Wrong links count as wrong tokens.
///
/// # Errors
/// As for [`check_token`]; a right link is never refused.
pub fn take_link(
    shared: &Shared,
    request: &HttpRequest,
    key: &str,
) -> Result<SessionHolder, ApiError> {
    let now = shared.edge.clock.now();
    let holder = match shared.edge.login_links.take(key, now) {
        Some(LinkHolder::Admin) => Some(SessionHolder::Admin(shared.edge.admin_token.in_force())),
        // It may have been removed since the link was made.
        Some(LinkHolder::Token(token)) => {
            shared.edge.access.admits(&token, now).then_some(SessionHolder::Token(token))
        }
        None => None,
    };
    attempt(shared, request, holder.is_some(), false)?;
    holder.ok_or_else(ApiError::unauthorized)
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
    check_attempts(shared, request)?;
    if is_right {
        return Ok(());
    }
    count_failure(shared, request);
    Err(ApiError::unauthorized())
}

/// Checks that a request's address did not send too many wrong credentials.
///
/// # Errors
/// 429 if it did.
pub fn check_attempts(shared: &Shared, request: &HttpRequest) -> Result<(), ApiError> {
    let (address, now) = (client_address(shared, request), shared.edge.clock.now());
    let Some(secs) = shared.attempts.blocked_secs(address, now) else { return Ok(()) };
    let error = ApiError::new(Code::TooManyAttempts, "this address sent too many wrong tokens");
    Err(error.hint("wait, then send the right token").retry_after(secs))
}

/// Counts a wrong credential for the request's address.
pub fn count_failure(shared: &Shared, request: &HttpRequest) {
    shared.attempts.failed(client_address(shared, request), shared.edge.clock.now());
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
    let now = shared.edge.clock.now();
    for secret in given_cookies(request, shared.session_cookie()) {
        if let Some(session) = shared.sessions.find(&secret, now).await? {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// How many cookies of one name are tried.
const SAME_COOKIES_MAX: usize = 4;

/// The first cookies of this name. Without https any server of this host can add one.
pub fn given_cookies(request: &HttpRequest, name: &str) -> Vec<String> {
    let Ok(cookies) = request.cookies() else { return Vec::new() };
    let ours = cookies.iter().filter(|cookie| cookie.name() == name);
    ours.take(SAME_COOKIES_MAX).map(|cookie| cookie.value().to_owned()).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
