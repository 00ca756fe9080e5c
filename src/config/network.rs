//! What a template says of the network. Nothing that it gives is a default but *none*; what would
//! give nothing, or more than anybody may mean, is an error.

use std::net::{IpAddr, SocketAddr};

use super::reader::Reader;
use crate::types::{AllowedHost, Network, NetworkKind};

/// Reads the three keys of a template.
pub(super) fn network(r: &mut Reader, key: &impl Fn(&str) -> String) -> Network {
    let kind = r.parsed(&key("network"), NetworkKind::None, |text| {
        NetworkKind::parse(text).ok_or_else(|| "must be none, allow, full or host".to_owned())
    });
    let (allow, private) = (key("allow"), key("allow_private"));
    let listed = r.texts(&allow, &[]);
    let hosts = entries(r, &allow, &listed, AllowedHost::parse);
    let listed_private = r.texts(&private, &[]);
    let addresses = entries(r, &private, &listed_private, private_address);
    let (is_listed, is_proxied) = match kind {
        NetworkKind::None | NetworkKind::Host => (false, false),
        NetworkKind::Allow => (true, true),
        NetworkKind::Full => (false, true),
    };
    if is_listed && listed.is_empty() && listed_private.is_empty() {
        let nothing = "is empty, so that nothing could be reached: name hosts, as in \
                       [\"github.com\", \"*.githubusercontent.com\"], or set network = \"none\"";
        r.wrong(&allow, nothing);
    }
    if !is_listed && !listed.is_empty() {
        r.wrong(&allow, "needs network = \"allow\"");
    }
    if !is_proxied && !listed_private.is_empty() {
        r.wrong(&private, "needs network = \"allow\" or \"full\"");
    }
    Network::assemble(kind, hosts, addresses)
}

/// Reads a list's entries, and names each that is wrong.
fn entries<T>(
    r: &mut Reader,
    key: &str,
    listed: &[String],
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Vec<T> {
    let mut read = Vec::with_capacity(listed.len());
    for text in listed {
        match parse(text) {
            Ok(entry) => read.push(entry),
            Err(needed) => r.wrong(key, &format!("{needed}, not {text:?}")),
        }
    }
    read
}

/// An address with its port, other than those that nobody may reach by any entry.
fn private_address(text: &str) -> Result<SocketAddr, &'static str> {
    let needed = "must be an address with its port, as in 10.0.0.5:443 or [fd00::5]:443";
    let address: SocketAddr = text.parse().map_err(|_| needed)?;
    let is_link_local = match address.ip() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    if address.port() == 0 || matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0) {
        return Err(needed);
    }
    if is_link_local || address.ip().is_unspecified() || address.ip().is_multicast() {
        return Err("must be one host's address, and none that is valid on one link only");
    }
    Ok(address)
}
