//! Which headers pass between a caller and a server in a sandbox.
//!
//! A session's caller is a browser that treats the answer as ours: only listed headers pass, since
//! browsers and the proxies in front of us learn new ones every year. A caller with the token is a
//! program that asked for just this answer: all pass but those that others on the way obey.

use crate::http::auth::FORM_TOKEN_HEADER;
use crate::types::is_of_one_connection;

/// Headers of a browser's request that say what it asks for, and not who asks.
const ASKED: [&str; 24] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "origin",
    "pragma",
    "range",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "user-agent",
];

/// Headers of an answer that are about its content, or restrict what a document may do.
const ANSWERED: [&str; 33] = [
    "accept-ranges",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-range",
    "content-security-policy",
    "content-type",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "permissions-policy",
    "pragma",
    "referrer-policy",
    "retry-after",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "sourcemap",
    "vary",
    "x-content-type-options",
    "x-frame-options",
];

/// Headers by which proxies before us name their client, besides `X-Forwarded-*`.
const CLIENT_NAMES: [&str; 7] = [
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-real-ip",
];

/// Headers by which a sandbox could change how our address is treated.
const OURS_TO_SAY: [&str; 18] = [
    "accept-ch",
    "alt-svc",
    // A program could ask for a password for this address, and send it here from then on.
    "authentication-info",
    "clear-site-data",
    "critical-ch",
    "nel",
    "public-key-pins",
    "public-key-pins-report-only",
    "report-to",
    "reporting-endpoints",
    "sec-session-registration",
    "secure-session-registration",
    "service-worker-allowed",
    "set-login",
    "speculation-rules",
    "strict-transport-security",
    "use-as-dictionary",
    "www-authenticate",
];

/// Parts of headers that proxies in front of us obey, such as to serve one of their own files.
const TO_PROXIES: [&str; 7] = [
    "cdn-cache-control",
    "surrogate-",
    "x-accel-",
    "x-lighttpd-",
    "x-litespeed-",
    "x-reproxy-",
    "x-sendfile",
];

/// Whether a header of a request is forwarded. `is_program` means a caller with the token.
pub fn goes_in(name: &str, is_program: bool) -> bool {
    match name {
        "authorization" | "host" | "upgrade" | FORM_TOKEN_HEADER => false,
        "cookie" => is_program,
        name if is_program => {
            !is_of_one_connection(name)
                && !name.starts_with("x-forwarded-")
                && !CLIENT_NAMES.contains(&name)
        }
        name => ASKED.contains(&name),
    }
}

/// Whether a header of an answer is forwarded.
pub fn comes_back(name: &str, is_program: bool) -> bool {
    match name {
        "upgrade" | "content-length" => false,
        "set-cookie" => is_program,
        name if is_program => {
            !is_of_one_connection(name)
                && !OURS_TO_SAY.contains(&name)
                && !TO_PROXIES.iter().any(|part| name.contains(part))
        }
        name => ANSWERED.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browsers_request_names_neither_the_caller_nor_what_proxies_know_of_it() {
        for name in
            ["x-auth", "x-forwarded-email", "remote-user", "referer", "x-real-ip", "forwarded"]
        {
            assert!(!goes_in(name, false), "{name}");
        }
        for name in ["accept", "content-type", "range", "sec-websocket-key"] {
            assert!(goes_in(name, false) && goes_in(name, true), "{name}");
        }
        for name in ["x-real-ip", "forwarded", "x-forwarded-for", "authorization", "connection"] {
            assert!(!goes_in(name, true), "{name}");
        }
        assert!(goes_in("x-own", true) && goes_in("referer", true), "a program's own words");
    }

    #[test]
    fn an_answer_gives_orders_to_neither_browsers_nor_proxies() {
        for name in [
            "cdn-cache-control",
            "cloudflare-cdn-cache-control",
            "surrogate-control",
            "x-litespeed-location",
            "x-reproxy-url",
            "x-reproxy-file",
            "x-accel-redirect",
            "x-sendfile",
            "sec-session-registration",
            "secure-session-registration",
            "use-as-dictionary",
            "set-login",
            "accept-ch",
            "speculation-rules",
            "public-key-pins-report-only",
            "www-authenticate",
        ] {
            assert!(!comes_back(name, false) && !comes_back(name, true), "{name}");
        }
        assert!(comes_back("x-own", true) && !comes_back("x-own", false));
        assert!(comes_back("content-type", false) && comes_back("location", false));
    }
}
