//! What a sandbox can reach of the network: four words, and the lists that go with them.
//!
//! Names are compared as they are resolved: in lower case, without the dot that may end them, and in
//! ASCII (an international name has its form in Punycode). What looks like an address but is not
//! written as one is neither: `0x7f.1`, `127.1` and `2130706433` mean 127.0.0.1 to some programs
//! and a name to others, and so they are not taken at all.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The ports that an entry without one allows: those of `http://` and `https://`.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// Longest name, in bytes (RFC 1035).
const NAME_LEN_MAX: usize = 253;

/// Longest part of a name between dots, in bytes (RFC 1035).
const LABEL_LEN_MAX: usize = 63;

/// What a sandbox can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Loopback of its own, and nothing else.
    #[default]
    None,
    /// What is listed, through the server's proxy.
    Allow {
        /// Hosts that lead to public addresses.
        hosts: Vec<AllowedHost>,
        /// Addresses that are not public and may be reached all the same.
        private: Vec<SocketAddr>,
    },
    /// Every public address, through the server's proxy.
    Full {
        /// Addresses that are not public and may be reached all the same.
        private: Vec<SocketAddr>,
    },
    /// Everything that the host reaches, its own loopback included, without a proxy.
    Host,
}

impl Network {
    /// Its one word.
    pub const fn kind(&self) -> NetworkKind {
        match self {
            Self::None => NetworkKind::None,
            Self::Allow { .. } => NetworkKind::Allow,
            Self::Full { .. } => NetworkKind::Full,
            Self::Host => NetworkKind::Host,
        }
    }

    /// The network of a kind with those of the lists that it has.
    pub fn assemble(kind: NetworkKind, hosts: Vec<AllowedHost>, private: Vec<SocketAddr>) -> Self {
        match kind {
            NetworkKind::None => Self::None,
            NetworkKind::Allow => Self::Allow { hosts, private },
            NetworkKind::Full => Self::Full { private },
            NetworkKind::Host => Self::Host,
        }
    }

    /// The hosts that it lists.
    pub fn hosts(&self) -> &[AllowedHost] {
        match self {
            Self::Allow { hosts, .. } => hosts,
            Self::None | Self::Full { .. } | Self::Host => &[],
        }
    }

    /// The addresses that it lists although they are not public.
    pub fn private(&self) -> &[SocketAddr] {
        match self {
            Self::Allow { private, .. } | Self::Full { private } => private,
            Self::None | Self::Host => &[],
        }
    }
}

/// The word for what a sandbox can reach. Later ones reach more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkKind {
    /// See [`Network::None`].
    #[default]
    None,
    /// See [`Network::Allow`].
    Allow,
    /// See [`Network::Full`].
    Full,
    /// See [`Network::Host`].
    Host,
}

impl NetworkKind {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::None, Self::Allow, Self::Full, Self::Host];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allow => "allow",
            Self::Full => "full",
            Self::Host => "host",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a connection is to lead: a name still to be resolved, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// A name in its compared form.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl HostName {
    /// Reads a host as it stands in an authority, an IPv6 address in brackets.
    ///
    /// # Errors
    /// What it must be instead, for people: `must …`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(bracketed) = text.strip_prefix('[') {
            let inner = bracketed.strip_suffix(']').filter(|inner| !inner.contains('%'));
            let address = inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok());
            return address
                .map(|address| Self::Address(address.into()))
                .ok_or("must have an IPv6 address, without a zone, between brackets");
        }
        if text.contains(':') {
            return Err("must have an IPv6 address in brackets");
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if is_like_an_address(name) {
            return match name.parse::<Ipv4Addr>() {
                Ok(address) if name == text => Ok(Self::Address(address.into())),
                Ok(_) | Err(_) => Err("must have an IPv4 address as four decimal numbers"),
            };
        }
        if !name.is_ascii() {
            return Err("must have an international name in its ASCII form (xn--…)");
        }
        let is_label = |label: &str| {
            (1..=LABEL_LEN_MAX).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > NAME_LEN_MAX || !name.split('.').all(is_label) {
            return Err("must be a host's name or address");
        }
        Ok(Self::Name(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Whether some resolver would take it for a number: the last part is one, in whatever base.
fn is_like_an_address(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match digits {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// An entry of an allow list: `example.org`, `example.org:8443`, `*.example.org`, `192.0.2.7:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    /// Every name below `host`, at any depth, and not `host` itself.
    below: bool,
    host: HostName,
    /// The one port; `None` for [`WEB_PORTS`].
    port: Option<u16>,
}

impl AllowedHost {
    /// Reads an entry.
    ///
    /// # Errors
    /// What it must be instead, for people: `must …`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains("://") || text.contains('/') {
            return Err("must be a host, or host:port, without a scheme or path");
        }
        if text.contains('@') {
            return Err("must be a host, or host:port, without a user");
        }
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err("must have its one * at the beginning, as in *.example.org");
        }
        let (host, port) = split_port(rest)?;
        let host = HostName::parse(host)?;
        let is_short = |name: &String| !name.contains('.');
        match &host {
            HostName::Address(_) if below => Err("must have a name behind *."),
            HostName::Name(name) if below && is_short(name) => {
                Err("must have a name with a dot behind *., or it would allow a whole domain")
            }
            HostName::Address(_) | HostName::Name(_) => Ok(Self { below, host, port }),
        }
    }

    /// The address that it is, and its port where it has one; `None` for names.
    pub fn address(&self) -> Option<(IpAddr, Option<u16>)> {
        match self.host {
            HostName::Address(address) => Some((address, self.port)),
            HostName::Name(_) => None,
        }
    }

    /// Whether it allows a connection.
    pub fn allows(&self, host: &HostName, port: u16) -> bool {
        let port_fits = match self.port {
            Some(own) => own == port,
            None => WEB_PORTS.contains(&port),
        };
        let host_fits = match (&self.host, host) {
            (HostName::Name(own), HostName::Name(name)) if self.below => {
                name.strip_suffix(own.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            (own, other) => own == other,
        };
        port_fits && host_fits
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Splits `host:port`; the port may be missing.
///
/// # Errors
/// What it must be instead, for people.
pub fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let behind_host = match text.starts_with('[') {
        true => text.find(']').map_or(text.len(), |at| at + 1),
        false => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(behind_host);
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok((host, None)),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(port) if port > 0 => Ok((host, Some(port))),
            Ok(_) | Err(_) => Err("must have a port from 1 to 65535"),
        },
        None | Some(_) => Err("must be a host, or host:port; an IPv6 address in brackets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_in_one_form_and_odd_ones_not_at_all() {
        for (text, read) in [
            ("example.org", "example.org"),
            ("EXAMPLE.Org.", "example.org"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("_srv.example.org", "_srv.example.org"),
            ("localhost", "localhost"),
            ("1.2.3.4.example", "1.2.3.4.example"),
            ("192.0.2.7", "192.0.2.7"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
        ] {
            assert_eq!(HostName::parse(text).map(|host| host.to_string()), Ok(read.into()));
        }
        for odd in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "-a",
            "a-",
            "a b",
            "a\0b",
            "a%2eb",
            "bücher.example",
            "127.1",
            "127.0.0.1.",
            "0177.0.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.0.0.0x1",
            "1.2.3.4.5",
            "256.1.1.1",
            "::1",
            "[::1",
            "[::1]x",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "user@example.org",
            &"a".repeat(64),
            &"a.".repeat(128),
        ] {
            assert!(HostName::parse(odd).is_err(), "{odd:?} must not be taken");
        }
    }

    #[test]
    fn entries_allow_what_they_name_and_no_more() {
        for (entry, host, port, allowed) in [
            ("example.org", "example.org", 443, true),
            ("example.org", "EXAMPLE.ORG.", 80, true),
            ("example.org", "example.org", 22, false),
            ("example.org", "www.example.org", 443, false),
            ("example.org:8443", "example.org", 8443, true),
            ("example.org:8443", "example.org", 443, false),
            ("*.example.org", "www.example.org", 443, true),
            ("*.example.org", "a.b.example.org", 443, true),
            ("*.example.org", "example.org", 443, false),
            ("*.example.org", "badexample.org", 443, false),
            ("*.example.org:8443", "a.example.org", 8443, true),
            ("192.0.2.7", "192.0.2.7", 443, true),
            ("192.0.2.7", "192.0.2.8", 443, false),
            ("[2001:db8::1]:8443", "[2001:DB8:0::1]", 8443, true),
        ] {
            let entry = AllowedHost::parse(entry).expect("an entry");
            let host = HostName::parse(host).expect("a host");
            assert_eq!(entry.allows(&host, port), allowed, "{entry} and {host}:{port}");
        }
    }

    #[test]
    fn entries_print_as_they_are_read() {
        for text in ["a.b", "a.b:1", "*.a.b:65535", "[2001:db8::1]:8443", "[::1]", "192.0.2.7"] {
            assert_eq!(AllowedHost::parse(text).map(|e| e.to_string()), Ok(text.into()));
        }
        for bad in [
            "https://example.org",
            "example.org/path",
            "user@example.org",
            "*",
            "*.",
            "*.org",
            "a.*.org",
            "*a.org",
            "**.a.org",
            "*.192.0.2.7",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:+1",
            "2001:db8::1",
            "",
        ] {
            assert!(AllowedHost::parse(bad).is_err(), "{bad:?} must not be taken");
        }
    }
}
