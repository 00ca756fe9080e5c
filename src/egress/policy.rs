//! What a sandbox may connect to. Pure: names are checked before they are resolved, addresses after.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::types::address::{AddressClass, canonical, classify};
use crate::types::{AllowedHost, HostName, Network, split_port};

/// The port for mail between servers, which requires no login.
const MAIL_PORT: u16 = 25;

/// The target of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

impl Destination {
    /// Parses an authority; `port` applies if it has none. An address is in the form that the kernel
    /// connects to.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn parse(authority: &str, port: Option<u16>) -> Result<Self, Refusal> {
        let malformed = |needed| Refusal::Malformed(needed);
        let (host, own_port) = split_port(authority).map_err(malformed)?;
        let port = own_port.or(port).ok_or(Refusal::Malformed("must have a port"))?;
        let host = match HostName::parse(host).map_err(malformed)? {
            HostName::Address(address) => HostName::Address(canonical(address)),
            name @ HostName::Name(_) => name,
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why a connection is refused. `Display` says what the user of the sandbox can do. It omits the address
/// behind a name: otherwise a sandbox could look up the addresses of networks that it cannot reach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The target is not in an unambiguous form.
    #[error("the target {0}")]
    Malformed(&'static str),
    /// The host is not in the allow list.
    #[error(
        "{0} is not in the allow list of this sandbox. To allow it, add \"{entry}\" to `allow` of \
         the sandbox's template", entry = entry_for(.0)
    )]
    NotListed(Destination),
    /// Mail between servers, which only an allow list opens.
    #[error(
        "{0} is for mail between servers, which network = \"full\" leaves out. To let it through, \
         use network = \"allow\" with \"{0}\" in `allow` of the sandbox's template"
    )]
    Mail(Destination),
    /// The address is not public.
    #[error("{}", not_public(.destination))]
    NotPublic {
        /// The target.
        destination: Destination,
        /// The address behind it.
        address: SocketAddr,
        /// What kind of address it is.
        what: &'static str,
    },
    /// The address is off limits for every sandbox. The text is the same as for `NotPublic`, because the
    /// difference would reveal what is there.
    #[error("{}", not_public(.destination))]
    Never {
        /// The target.
        destination: Destination,
        /// The address behind it.
        address: SocketAddr,
        /// What is there.
        what: &'static str,
    },
}

/// The text for a sandbox about a target that is not public. A name that does not exist has the same
/// one: the difference would tell which names there are in networks that it cannot reach.
pub fn not_public(destination: &Destination) -> String {
    let found = match destination.host {
        HostName::Address(_) => "",
        HostName::Name(_) => "was not found, or ",
    };
    format!(
        "{destination} {found}leads to an address that is not public. The sandbox's log on the \
         server (`issuebox logs`) says which one, and what to do"
    )
}

impl Refusal {
    /// The text for people, who may see everything.
    pub fn notice(&self) -> String {
        match self {
            Self::Malformed(needed) => format!("refused: the target {needed}"),
            Self::NotListed(to) => format!(
                "refused {to}: it is not in the allow list. To allow it, add \"{}\" to `allow` of the \
                 sandbox's template",
                entry_for(to)
            ),
            Self::Mail(to) => format!(
                "refused {to}: network = \"full\" leaves mail between servers out. To allow it, use \
                 network = \"allow\" with \"{to}\" in `allow`"
            ),
            Self::NotPublic { destination, address, what } => format!(
                "refused {destination}: it leads to {address} ({what}), which is not public. To allow \
                 it nevertheless, add \"{address}\" to `allow_private` of the sandbox's template"
            ),
            Self::Never { destination, address, what } => format!(
                "refused {destination}: it leads to {address} ({what}), which no sandbox may reach"
            ),
        }
    }
}

/// The entry that would allow a destination.
fn entry_for(destination: &Destination) -> String {
    let Destination { host, port } = destination;
    if crate::types::WEB_PORTS.contains(port) { host.to_string() } else { destination.to_string() }
}

/// The refusal of a host that is not listed. For an address that is not public, `allow` does not help.
fn not_listed(destination: &Destination) -> Refusal {
    let HostName::Address(ip) = destination.host else {
        return Refusal::NotListed(destination.clone());
    };
    let (destination, address) = (destination.clone(), SocketAddr::new(ip, destination.port));
    match classify(ip) {
        AddressClass::Public => Refusal::NotListed(destination),
        AddressClass::Private(what) => Refusal::NotPublic { destination, address, what },
        AddressClass::Never(what) => Refusal::Never { destination, address, what },
    }
}

/// The addresses of the server's machine.
pub trait HostAddresses {
    /// Whether the address belongs to this machine.
    fn is_own(&self, address: IpAddr) -> bool;
}

/// What a sandbox may connect to.
#[derive(Debug)]
pub struct Policy {
    /// The listed hosts; `None` allows all.
    hosts: Option<Vec<AllowedHost>>,
    private: Vec<SocketAddr>,
    /// The server's own address, which no list opens.
    server: Option<SocketAddr>,
}

impl Policy {
    /// The policy of a network with a proxy; `None` for one without.
    pub fn of(network: &Network, server: Option<SocketAddr>) -> Option<Self> {
        let (hosts, private) = match network {
            Network::None | Network::Host => return None,
            Network::Allow { hosts, private } => (Some(hosts.clone()), private),
            Network::Full { private } => (None, private),
        };
        let private = private.iter().map(|at| SocketAddr::new(canonical(at.ip()), at.port()));
        Some(Self { hosts, private: private.collect(), server })
    }

    /// The policy of a sandbox that reaches nothing but its gateway.
    pub const fn nothing() -> Self {
        Self { hosts: Some(Vec::new()), private: Vec::new(), server: None }
    }

    /// Checks a destination by its name; an address is also checked as an address.
    ///
    /// # Errors
    /// [`Refusal::NotListed`], [`Refusal::Mail`]; for an address that `allow` does not open, those of
    /// [`check_address`](Self::check_address).
    pub fn check_destination(&self, destination: &Destination) -> Result<(), Refusal> {
        let Destination { host, port } = destination;
        let is_private = match host {
            HostName::Address(ip) => self.private.contains(&SocketAddr::new(*ip, *port)),
            HostName::Name(_) => false,
        };
        match &self.hosts {
            _ if is_private => Ok(()),
            Some(hosts) if hosts.iter().any(|entry| entry.allows(host, *port)) => Ok(()),
            Some(_) => Err(not_listed(destination)),
            None if *port == MAIL_PORT => Err(match not_listed(destination) {
                // An allow list would let it through.
                Refusal::NotListed(destination) => Refusal::Mail(destination),
                other => other,
            }),
            None => Ok(()),
        }
    }

    /// Checks an address to which a destination was resolved, and returns it in the form to connect to.
    ///
    /// # Errors
    /// [`Refusal::NotPublic`], [`Refusal::Never`].
    pub fn check_address(
        &self,
        destination: &Destination,
        ip: IpAddr,
        host: &impl HostAddresses,
    ) -> Result<SocketAddr, Refusal> {
        let address = SocketAddr::new(canonical(ip), destination.port);
        let destination = destination.clone();
        let what = match classify(address.ip()) {
            AddressClass::Never(what) => return Err(Refusal::Never { destination, address, what }),
            AddressClass::Private(what) => Some(what),
            AddressClass::Public => host.is_own(address.ip()).then_some("the server's machine"),
        };
        let is_server = self.server.is_some_and(|server| server.port() == address.port());
        if is_server && (address.ip().is_loopback() || host.is_own(address.ip())) {
            return Err(Refusal::Never { destination, address, what: "the server itself" });
        }
        match what {
            Some(what) if !self.private.contains(&address) => {
                Err(Refusal::NotPublic { destination, address, what })
            }
            Some(_) | None => Ok(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A machine with these addresses.
    struct Machine(&'static [&'static str]);

    impl HostAddresses for Machine {
        fn is_own(&self, address: IpAddr) -> bool {
            self.0.iter().any(|own| own.parse() == Ok(address))
        }
    }

    const MACHINE: Machine = Machine(&["198.51.100.9", "140.82.0.9", "10.0.0.9"]);

    fn list(hosts: &[&str], private: &[&str]) -> Policy {
        let host = |text: &&str| AllowedHost::parse(text).expect("an entry");
        let hosts = hosts.iter().map(host).collect();
        let private = private.iter().map(|text| text.parse().expect("an address")).collect();
        let server = "0.0.0.0:8787".parse().ok();
        Policy::of(&Network::Allow { hosts, private }, server).expect("it has a proxy")
    }

    fn full(private: &[&str]) -> Policy {
        let private = private.iter().map(|text| text.parse().expect("an address")).collect();
        let server = "0.0.0.0:8787".parse().ok();
        Policy::of(&Network::Full { private }, server).expect("it has a proxy")
    }

    /// The result for a connection to this authority, which resolves to `ip`.
    fn judge(policy: &Policy, authority: &str, ip: &str) -> Result<String, String> {
        let judged = || {
            let destination = Destination::parse(authority, None)?;
            policy.check_destination(&destination)?;
            policy.check_address(&destination, ip.parse().expect("an address"), &MACHINE)
        };
        judged().map(|address| address.to_string()).map_err(|refusal: Refusal| refusal.notice())
    }

    #[test]
    fn listed_hosts_are_reached_at_the_checked_address() {
        let policy = list(&["example.org", "*.example.org", "git.test:22"], &["10.0.0.5:443"]);
        for (authority, ip, reached) in [
            ("example.org:443", "1.2.3.4", "1.2.3.4:443"),
            ("EXAMPLE.ORG.:80", "1.2.3.4", "1.2.3.4:80"),
            ("a.b.example.org:443", "2606:50c0::1", "[2606:50c0::1]:443"),
            ("example.org:443", "::ffff:1.2.3.4", "1.2.3.4:443"),
            ("git.test:22", "1.2.3.4", "1.2.3.4:22"),
            // Listed, and it leads to the one listed private address.
            ("example.org:443", "10.0.0.5", "10.0.0.5:443"),
            ("10.0.0.5:443", "10.0.0.5", "10.0.0.5:443"),
            ("[::ffff:10.0.0.5]:443", "::ffff:10.0.0.5", "10.0.0.5:443"),
        ] {
            assert_eq!(judge(&policy, authority, ip).as_deref(), Ok(reached), "{authority}");
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        let listed = list(&["example.org", "169.254.169.254", "127.0.0.1"], &["10.0.0.5:443"]);
        for (authority, ip, why) in [
            ("other.org:443", "1.2.3.4", "add \"other.org\" to `allow`"),
            ("other.org:8443", "1.2.3.4", "add \"other.org:8443\" to `allow`"),
            ("example.org:22", "1.2.3.4", "add \"example.org:22\" to `allow`"),
            ("1.2.3.4:443", "1.2.3.4", "add \"1.2.3.4\" to `allow`"),
            ("[::ffff:1.2.3.4]:443", "1.2.3.4", "add \"1.2.3.4\" to `allow`"),
            ("10.0.0.5:80", "10.0.0.5", "add \"10.0.0.5:80\" to `allow_private`"),
            ("[::ffff:10.0.0.5]:80", "10.0.0.5", "add \"10.0.0.5:80\" to `allow_private`"),
            ("169.254.169.253:80", "169.254.169.253", "no sandbox may reach"),
            // A listed name that leads to another address: DNS rebinding.
            ("example.org:443", "127.0.0.1", "add \"127.0.0.1:443\" to `allow_private`"),
            ("example.org:443", "10.0.0.6", "not public"),
            ("example.org:443", "::1", "not public"),
            ("example.org:443", "::ffff:10.0.0.6", "not public"),
            ("example.org:80", "10.0.0.5", "not public"),
            ("example.org:443", "140.82.0.9", "the server's machine"),
            ("example.org:443", "169.254.169.254", "no sandbox may reach"),
            ("example.org:80", "fd00:ec2::254", "no sandbox may reach"),
            ("example.org:80", "2002:7f00:1::", "no sandbox may reach"),
            // Listed as an address, which does not make it public.
            ("127.0.0.1:443", "127.0.0.1", "not public"),
            ("169.254.169.254:80", "169.254.169.254", "no sandbox may reach"),
            // Ambiguous forms.
            ("127.1:443", "127.0.0.1", "four decimal numbers"),
            ("2130706433:443", "127.0.0.1", "four decimal numbers"),
            ("0x7f000001:443", "127.0.0.1", "four decimal numbers"),
            ("0177.0.0.1:443", "127.0.0.1", "four decimal numbers"),
            ("user@example.org:443", "1.2.3.4", "name or address"),
            ("example.org@other.org:443", "1.2.3.4", "name or address"),
            ("example.org", "1.2.3.4", "must have a port"),
            ("example.org:0", "1.2.3.4", "from 1 to 65535"),
            ("example.org:443:80", "1.2.3.4", "host:port"),
            ("::1:443", "::1", "brackets"),
            ("[fe80::1%25eth0]:443", "fe80::1", "without a zone"),
            ("ex\u{e4}mple.org:443", "1.2.3.4", "ASCII form"),
            ("", "1.2.3.4", "must have a port"),
        ] {
            let judged = judge(&listed, authority, ip);
            assert!(
                judged.as_ref().is_err_and(|refusal| refusal.contains(why)),
                "{authority} at {ip} must be refused with {why:?}, not {judged:?}"
            );
        }
    }

    #[test]
    fn full_is_every_public_address_but_mail() {
        let policy = full(&["10.0.0.5:5000"]);
        assert_eq!(judge(&policy, "any.org:9418", "1.2.3.4").as_deref(), Ok("1.2.3.4:9418"));
        assert_eq!(judge(&policy, "1.2.3.4:22", "1.2.3.4").as_deref(), Ok("1.2.3.4:22"));
        assert_eq!(judge(&policy, "in.test:5000", "10.0.0.5").as_deref(), Ok("10.0.0.5:5000"));
        for (authority, ip, why) in [
            ("mail.org:25", "1.2.3.4", "mail between servers"),
            ("localhost:8787", "127.0.0.1", "the server itself"),
            ("localhost:80", "127.0.0.1", "not public"),
            ("in.test:5001", "10.0.0.5", "not public"),
            ("meta.test:80", "169.254.169.254", "no sandbox may reach"),
            ("self.test:443", "140.82.0.9", "the server's machine"),
        ] {
            let judged = judge(&policy, authority, ip);
            assert!(judged.as_ref().is_err_and(|r| r.contains(why)), "{authority}: {judged:?}");
        }
    }

    #[test]
    fn only_people_see_the_address_behind_a_name() {
        let destination = Destination::parse("inner.test:443", None).expect("a destination");
        let refusal = |ip: &str| {
            let ip = ip.parse().expect("an address");
            full(&[]).check_address(&destination, ip, &MACHINE).expect_err("not public").to_string()
        };
        let one = refusal("10.0.0.6");
        let sentence = "inner.test:443 was not found, or leads to an address that is not public";
        assert!(one.starts_with(sentence), "{one}");
        // All refusals are equal.
        for other in ["10.0.0.7", "127.0.0.1", "169.254.169.254", "140.82.0.9", "fd00::1", "::"] {
            assert_eq!(refusal(other), one, "{other}");
        }
    }

    #[test]
    fn no_list_opens_the_server_itself() {
        for address in ["127.0.0.1:8787", "10.0.0.9:8787", "140.82.0.9:8787"] {
            let policy = full(&[address]);
            let ip = address.split(':').next().expect("an address");
            let judged = judge(&policy, address, ip);
            assert!(judged.as_ref().is_err_and(|r| r.contains("the server itself")), "{judged:?}");
        }
        // The same port on another machine is not the server's.
        let policy = full(&["10.0.0.5:8787"]);
        assert_eq!(judge(&policy, "10.0.0.5:8787", "10.0.0.5").as_deref(), Ok("10.0.0.5:8787"));
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(2048))]

        #[test]
        fn no_authority_means_two_hosts(
            authority in prop_oneof![".{0,40}", "[0-9a-fA-Fx.:@%\\[\\]/ -]{0,40}"],
        ) {
            if let Ok(destination) = Destination::parse(&authority, Some(443)) {
                let again = Destination::parse(&destination.to_string(), None);
                prop_assert_eq!(again, Ok(destination));
            }
        }
    }
}
