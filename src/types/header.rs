//! HTTP headers that every forwarding part must know.

/// Whether a header is hop-by-hop (RFC 9110, section 7.6.1) and not forwarded. The headers that
/// `Connection` names, and `Upgrade`, are up to the caller. `name` is in lower case.
pub fn is_of_one_connection(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
    )
}
