//! Headers of HTTP that every part which passes messages on must know.

/// Whether a header speaks of one connection and not of what goes over it (RFC 9110, section 7.6.1),
/// so that it is not passed on; with what is named in `Connection`, and with `Upgrade`, which some
/// pass on all the same. `name` is in lower case.
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
