//! The headers that are forwarded to a server in a sandbox, and those of its answer.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use hyper::header::{HeaderName, HeaderValue};

use super::allowed;
use super::http_way::HttpWay;
use crate::http::Shared;
use crate::http::auth;
use crate::http::caller::Caller;
use crate::http::sessions::{SESSION_COOKIE, SESSION_COOKIE_HTTPS};

/// Gives a document an opaque origin, without access to our origin's data.
pub const SANDBOX: &str = "sandbox allow-downloads allow-forms allow-modals allow-popups \
                           allow-scripts";

/// The only supported upgrade.
pub const WEBSOCKET: &str = "websocket";

/// The forwarded request.
pub struct Head {
    /// The request, without its body.
    pub request: hyper::Request<()>,
    /// Whether it asks to be upgraded to a WebSocket.
    pub opens_websocket: bool,
    /// The path of the server's root.
    prefix: String,
    /// The server's own addresses; a redirect to one of them stays at this port.
    own: Vec<String>,
    /// Whether cookies are the caller's own, not a browser's for our address.
    with_cookies: bool,
}

/// Whether shared caches may store an answer.
fn is_shared(value: &HeaderValue) -> bool {
    let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    value.contains("public") || value.contains("s-maxage")
}

/// The cookies without our own.
fn other_cookies(value: &[u8]) -> Vec<u8> {
    let is_other = |pair: &&[u8]| {
        let name = pair.trim_ascii().split(|byte| *byte == b'=').next().unwrap_or_default();
        ![SESSION_COOKIE, SESSION_COOKIE_HTTPS].iter().any(|own| own.as_bytes() == name)
    };
    value.split(|byte| *byte == b';').filter(is_other).collect::<Vec<_>>().join(&b';')
}

/// Whether a request asks for an upgrade to a WebSocket. Other upgrades may be ignored (RFC 9110,
/// section 7.8); some clients offer them with every request.
pub fn opens_websocket(headers: &HeaderMap) -> bool {
    let is_asked = |option: &String| option.eq_ignore_ascii_case("upgrade");
    let to = headers.get(header::UPGRADE).map(|value| value.as_bytes());
    to.is_some_and(|to| to.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
        && connection_options(headers).iter().any(is_asked)
}

impl Head {
    /// The forwarded head of a request below `/v1/sandboxes/{id}/ports/{port}/`.
    pub fn of(shared: &Shared, caller: &Caller, request: &HttpRequest, port: u16) -> Self {
        let (prefix, tail) = split(request.uri().path());
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let opens_websocket = opens_websocket(request.headers());
        let with_cookies = caller.session().is_none();
        let mut on = hyper::Request::new(());
        // A path and a method of actix-web are valid here, too.
        *on.method_mut() = request.method().as_str().parse().unwrap_or_default();
        *on.uri_mut() = format!("/{tail}{query}").parse().unwrap_or_default();
        let named = connection_options(request.headers());
        for (name, value) in request.headers() {
            let word = name.as_str();
            let is_kept = allowed::goes_in(word, with_cookies);
            if is_kept && !named.iter().any(|option| option.eq_ignore_ascii_case(word)) {
                match word {
                    "cookie" => append(on.headers_mut(), word, &other_cookies(value.as_bytes())),
                    word => append(on.headers_mut(), word, value.as_bytes()),
                }
            }
        }
        let base = auth::base_url(shared, request);
        let (scheme, host) = base.split_once("://").unwrap_or(("http", &base));
        let address = auth::client_address(shared, request);
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        for (name, value) in [
            ("host", format!("localhost:{port}").as_str()),
            ("x-forwarded-for", &address),
            ("x-forwarded-host", host),
            ("x-forwarded-proto", scheme),
            ("x-forwarded-prefix", &prefix),
        ] {
            append(on.headers_mut(), name, value.as_bytes());
        }
        if opens_websocket {
            append(on.headers_mut(), "upgrade", WEBSOCKET.as_bytes());
            append(on.headers_mut(), "connection", b"upgrade");
        }
        let own = vec![format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}")];
        Self { request: on, opens_websocket, prefix, own, with_cookies }
    }

    /// Sends the request by the provider's address for the port.
    pub fn aim(&mut self, way: &HttpWay) {
        way.aim(&mut self.request);
        self.own.splice(0..0, way.names());
    }

    /// The forwarded headers of an answer, in order.
    pub fn come_back(&self, answer: &hyper::HeaderMap) -> Vec<(String, Vec<u8>)> {
        let mut back = Vec::with_capacity(answer.len() + 1);
        for (name, value) in answer {
            let word = name.as_str();
            // The answer is for this caller alone, whatever it says to caches.
            let is_kept = allowed::comes_back(word, self.with_cookies)
                && !(word == "cache-control" && is_shared(value));
            if is_kept {
                let value = match (word, value.to_str()) {
                    ("location", Ok(to)) => self.location(to).into_bytes(),
                    _ => value.as_bytes().to_vec(),
                };
                back.push((word.to_owned(), value));
            }
        }
        back.push(("content-security-policy".to_owned(), SANDBOX.as_bytes().to_vec()));
        back
    }

    /// The target of a redirect, seen from outside: the server's own address is translated.
    fn location(&self, to: &str) -> String {
        let rest = self.own.iter().find_map(|own| {
            to.strip_prefix(own.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match rest {
            Some(rest) => format!("{}{rest}", self.prefix),
            None if to.starts_with('/') && !to.starts_with("//") => format!("{}{to}", self.prefix),
            None => to.to_owned(),
        }
    }
}

/// The path up to the port, and the rest.
fn split(path: &str) -> (String, &str) {
    // "", "v1", "sandboxes", id, "ports", port, tail
    let prefix_len: usize = path.split('/').take(6).map(|part| part.len() + 1).sum();
    let (prefix, tail) = path.split_at_checked(prefix_len).unwrap_or((path, ""));
    (prefix.trim_end_matches('/').to_owned(), tail)
}

fn connection_options(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|option| option.trim().to_owned()).collect()
}

fn append(headers: &mut hyper::HeaderMap, name: &str, value: &[u8]) {
    // A header of one crate is valid in the other, too.
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(with_cookies: bool) -> Head {
        let prefix = "/v1/sandboxes/x/ports/3000".to_owned();
        Head {
            request: hyper::Request::new(()),
            opens_websocket: false,
            prefix,
            own: ["http://localhost:3000", "http://127.0.0.1:3000"].map(str::to_owned).to_vec(),
            with_cookies,
        }
    }

    #[test]
    fn the_rest_of_a_path_goes_on_as_it_was_written() {
        let of = |tail: &str| split(&format!("/v1/sandboxes/x/ports/3000{tail}")).1.to_owned();
        for tail in ["", "a", "a/b/", "%2e%2e/a%2Fb", "../x", "a//b", "é"] {
            assert_eq!(of(&format!("/{tail}")), tail);
        }
        assert_eq!(split("/v1/sandboxes/x/ports/3000/a").0, "/v1/sandboxes/x/ports/3000");
    }

    #[test]
    fn redirects_to_the_server_itself_stay_there() {
        for (to, seen) in [
            ("/login?x=1", "/v1/sandboxes/x/ports/3000/login?x=1"),
            ("http://localhost:3000/a", "/v1/sandboxes/x/ports/3000/a"),
            ("http://127.0.0.1:3000", "/v1/sandboxes/x/ports/3000"),
            ("http://localhost:30001/a", "http://localhost:30001/a"),
            ("//elsewhere.example/a", "//elsewhere.example/a"),
            ("a", "a"),
            ("https://elsewhere.example/", "https://elsewhere.example/"),
        ] {
            assert_eq!(head(false).location(to), seen, "{to}");
        }
    }

    #[test]
    fn an_answer_says_nothing_for_our_address() {
        let mut answer = hyper::HeaderMap::new();
        for (name, value) in [
            ("set-cookie", "issuebox_session=x"),
            ("set-cookie", "a=b"),
            ("clear-site-data", "*"),
            ("service-worker-allowed", "/"),
            ("strict-transport-security", "max-age=1"),
            ("www-authenticate", "Basic realm=\"the admin token\""),
            ("x-accel-redirect", "/private"),
            ("cache-control", "public, max-age=9"),
            ("connection", "close"),
            ("content-security-policy", "sandbox allow-same-origin"),
            ("x-own", "1"),
        ] {
            append(&mut answer, name, value.as_bytes());
        }
        let of = |with_cookies| {
            let back = head(with_cookies).come_back(&answer);
            let mut words: Vec<_> = back.into_iter().map(|(name, _)| name).collect();
            words.sort();
            words
        };
        let policies = ["content-security-policy", "content-security-policy"];
        assert_eq!(of(false), policies, "both policies hold");
        assert_eq!(of(true), [&policies[..], &["set-cookie", "set-cookie", "x-own"]].concat());
    }

    #[test]
    fn an_upgrade_is_one_where_the_connection_says_so() {
        let of = |connection: &str, to: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONNECTION, connection.parse().expect("a value"));
            headers.insert(header::UPGRADE, to.parse().expect("a value"));
            opens_websocket(&headers)
        };
        assert!(of("keep-alive, Upgrade", "websocket"));
        assert!(!of("keep-alive", "websocket"));
        assert!(!of("upgrade, http2-settings", "h2c"), "an offer, declined");
    }

    #[test]
    fn our_cookie_stays_here() {
        let of =
            |cookies: &str| String::from_utf8(other_cookies(cookies.as_bytes())).expect("text");
        assert_eq!(of("a=b; issuebox_session=x; c=d"), "a=b; c=d");
        assert_eq!(of("issuebox_session=x"), "");
        assert_eq!(of("__Host-issuebox_session=x; a=b"), " a=b");
        assert_eq!(of("not_issuebox_session=x"), "not_issuebox_session=x");
    }
}
