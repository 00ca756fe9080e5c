//! What a template says of the network. Nothing that it gives is a default but *none*; what would
//! give nothing, or more than anybody may mean, is an error. So is an address that would be refused
//! all the same: it is judged here as it is when a sandbox asks for it.

use std::net::{IpAddr, SocketAddr};

use super::reader::Reader;
use crate::types::address::{Standing, canonical, standing};
use crate::types::{AllowedHost, Network, NetworkKind, WEB_PORTS};

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
    for entry in &hosts {
        if let Some((address, port)) = entry.address()
            && let Some(trouble) = trouble_with(address, port, &addresses)
        {
            r.wrong(&allow, &format!("has \"{entry}\", which {trouble}"));
        }
    }
    for address in &addresses {
        if let Some(trouble) = trouble_with(address.ip(), Some(address.port()), &addresses) {
            r.wrong(&private, &format!("has \"{address}\", which {trouble}"));
        }
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

/// An address with its port.
fn private_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address = text.parse().ok().filter(|address: &SocketAddr| {
        let has_zone = matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0);
        address.port() != 0 && !has_zone
    });
    address.ok_or("must be an address with its port, as in 10.0.0.5:443 or [fd00::5]:443")
}

/// Why an address that is listed would be refused all the same, and what to do; `None` where it would
/// not be. `port` is `None` for those of the web.
fn trouble_with(address: IpAddr, port: Option<u16>, private: &[SocketAddr]) -> Option<String> {
    let meant = canonical(address);
    if meant != address {
        return Some(format!("is another form of {meant}: write that"));
    }
    match standing(address) {
        Standing::Public => None,
        Standing::Never(what) => Some(format!("no sandbox may ever reach ({what}): take it out")),
        Standing::Private(what) => {
            let ports = port.as_ref().map_or(&WEB_PORTS[..], std::slice::from_ref);
            let is_opened = |port: &u16| private.contains(&SocketAddr::new(address, *port));
            let instead = SocketAddr::new(address, port.unwrap_or(443));
            (!ports.iter().any(is_opened)).then(|| {
                format!("is not public ({what}): put \"{instead}\" into allow_private instead")
            })
        }
    }
}
