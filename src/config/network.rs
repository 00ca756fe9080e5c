//! The network keys of a template. The only default is `none`. Lists that allow nothing, or more than
//! was probably meant, are errors. So are addresses that the proxy would reject; the same code checks
//! them here and there.

use std::net::{IpAddr, SocketAddr};

use super::reader::ConfigReader;
use crate::types::address::{AddressClass, canonical, classify};
use crate::types::{AllowedHost, Network, NetworkKind, WEB_PORTS};

/// Reads the three network keys of a template.
pub(super) fn network(r: &mut ConfigReader, key: &impl Fn(&str) -> String) -> Network {
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
        let nothing = "is empty, so nothing is reachable: list hosts, as in [\"github.com\", \
                       \"*.githubusercontent.com\"], or set network = \"none\"";
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
            && let Some(trouble) = rejection_of(address, port, &addresses)
        {
            r.wrong(&allow, &format!("has \"{entry}\", which {trouble}"));
        }
    }
    for address in &addresses {
        if let Some(trouble) = rejection_of(address.ip(), Some(address.port()), &addresses) {
            r.wrong(&private, &format!("has \"{address}\", which {trouble}"));
        }
    }
    Network::assemble(kind, hosts, addresses)
}

/// Parses a list's entries, and reports each wrong one.
fn entries<T>(
    r: &mut ConfigReader,
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

/// Why the proxy would reject a listed address, and what to do; `None` if it would not. `port` is
/// `None` for the web's ports.
fn rejection_of(address: IpAddr, port: Option<u16>, private: &[SocketAddr]) -> Option<String> {
    let meant = canonical(address);
    if meant != address {
        return Some(format!("is another form of {meant}: use that one"));
    }
    match classify(address) {
        AddressClass::Public => None,
        AddressClass::Never(what) => Some(format!("no sandbox may ever reach ({what}): remove it")),
        AddressClass::Private(what) => {
            let ports = port.as_ref().map_or(&WEB_PORTS[..], std::slice::from_ref);
            let is_opened = |port: &u16| private.contains(&SocketAddr::new(address, *port));
            let instead = SocketAddr::new(address, port.unwrap_or(443));
            (!ports.iter().any(is_opened)).then(|| {
                format!("is not public ({what}): list \"{instead}\" in allow_private instead")
            })
        }
    }
}
