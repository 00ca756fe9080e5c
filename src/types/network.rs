//! The network access of a sandbox: four kinds, and their lists.
//!
//! Names are compared in lower case, without a trailing dot, and in ASCII (Punycode). Text that some
//! programs read as an address and others as a name is rejected: `0x7f.1`, `127.1` and `2130706433` all
//! mean 127.0.0.1 to some.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The ports of an entry without a port: those of `http://` and `https://`.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// Longest name, in bytes (RFC 1035).
const NAME_LEN_MAX: usize = 253;

/// Longest part of a name between dots, in bytes (RFC 1035).
const LABEL_LEN_MAX: usize = 63;

/// The network access of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Only its own loopback.
    #[default]
    None,
    /// The listed hosts, through the server's proxy.
    Allow {
        /// Hosts with public addresses.
        hosts: Vec<AllowedHost>,
        /// Allowed addresses that are not public.
        private: Vec<SocketAddr>,
    },
    /// Every public address, through the server's proxy.
    Full {
        /// Allowed addresses that are not public.
        private: Vec<SocketAddr>,
    },
    /// Everything that the host reaches, including its loopback, without a proxy.
    Host,
}

impl Network {
    /// The word for it.
    pub const fn kind(&self) -> NetworkKind {
        match self {
            Self::None => NetworkKind::None,
            Self::Allow { .. } => NetworkKind::Allow,
            Self::Full { .. } => NetworkKind::Full,
            Self::Host => NetworkKind::Host,
        }
    }

    /// A network of this kind; lists that the kind does not have are ignored.
    pub fn assemble(kind: NetworkKind, hosts: Vec<AllowedHost>, private: Vec<SocketAddr>) -> Self {
        match kind {
            NetworkKind::None => Self::None,
            NetworkKind::Allow => Self::Allow { hosts, private },
            NetworkKind::Full => Self::Full { private },
            NetworkKind::Host => Self::Host,
        }
    }

    /// The listed hosts.
    pub fn hosts(&self) -> &[AllowedHost] {
        match self {
            Self::Allow { hosts, .. } => hosts,
            Self::None | Self::Full { .. } | Self::Host => &[],
        }
    }

    /// The listed addresses that are not public.
    pub fn private(&self) -> &[SocketAddr] {
        match self {
            Self::Allow { private, .. } | Self::Full { private } => private,
            Self::None | Self::Host => &[],
        }
    }
}

/// The kind of network access. Later ones reach more.
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

/// The host of a connection: a name to resolve, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// A name in its compared form.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl HostName {
    /// Parses the host of an authority, with an IPv6 address in brackets.
    ///
    /// # Errors
    /// What is needed instead: `must …`.
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

/// Whether a resolver might read the name as a number: its last part is one, in any base.
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
    /// Whether it means every name below `host`, at any depth, and not `host` itself.
    below: bool,
    host: HostName,
    /// The one port; `None` for [`WEB_PORTS`].
    port: Option<u16>,
}

impl AllowedHost {
    /// Parses an entry.
    ///
    /// # Errors
    /// What is needed instead: `must …`.
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

    /// The entry's address and port; `None` for names.
    pub fn address(&self) -> Option<(IpAddr, Option<u16>)> {
        match self.host {
            HostName::Address(address) => Some((address, self.port)),
            HostName::Name(_) => None,
        }
    }

    /// Whether the entry allows a connection.
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
/// What is needed instead.
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
    fn hosts_have_one_form_and_odd_ones_are_rejected() {
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
            assert!(HostName::parse(odd).is_err(), "{odd:?} must be rejected");
        }
    }

    #[test]
    fn entries_allow_only_what_they_name() {
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
    fn entries_print_in_the_form_in_which_they_are_parsed() {
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
            assert!(AllowedHost::parse(bad).is_err(), "{bad:?} must be rejected");
        }
    }
}
