//! Connects to a destination: checks it, resolves it once, and connects to a checked address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::gateway::{SandboxGateway, is_gateway};
use super::idle::Idle;
use super::lookups::{LookupFailure, Lookups};
use super::machine::ThisMachine;
use super::meter::{Meter, MeteredStream, metered};
use super::notices::{NoticeKind, Notices};
use super::policy::{Destination, Policy, Refusal, not_public};
use super::race;
use crate::sandbox::EgressResult;
use crate::types::HostName;

/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Longest silence of a connection. Some git servers compute a pack for minutes.
pub const IDLE_WAIT: Duration = Duration::from_secs(600);

/// A connection to the outside.
pub type OutgoingStream = Idle<MeteredStream<TcpStream>>;

/// Makes the connections of one sandbox.
pub struct Connector {
    /// What the sandbox may connect to.
    pub policy: Policy,
    /// Answers git's requests, if they go through a gateway.
    pub gateway: Option<SandboxGateway>,
    /// Resolves names.
    pub lookups: Lookups,
    /// Reports failed connections to people.
    pub notices: Notices,
    /// Counts requests and bytes.
    pub meter: Arc<Meter>,
}

/// Why there is no connection. `Display` is the text for the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum NotConnected {
    /// The policy refuses it.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The name has no address. If name servers said so, the text is that of an address that is not
    /// public.
    #[error("{}", not_found(.0, .1))]
    NotFound(Destination, LookupFailure),
    /// No address accepts a connection.
    #[error("cannot reach {0}: {1}")]
    NotReached(Destination, String),
}

fn not_found(destination: &Destination, why: &LookupFailure) -> String {
    match why {
        LookupFailure::NotFound(_) => not_public(destination),
        LookupFailure::NoAnswer | LookupFailure::Overloaded => {
            format!("{destination} was not found: {why}")
        }
    }
}

impl NotConnected {
    /// The text for people.
    fn notice(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.notice(),
            Self::NotFound(destination, why) => format!("{destination} was not found: {why}"),
            Self::NotReached(..) => self.to_string(),
        }
    }

    /// The kind of the notice.
    fn kind(&self) -> NoticeKind {
        match self {
            Self::Refused(Refusal::NotPublic { .. } | Refusal::Never { .. }) => NoticeKind::Address,
            Self::Refused(Refusal::Malformed(_) | Refusal::NotListed(_) | Refusal::Mail(_))
            | Self::NotFound(..)
            | Self::NotReached(..) => NoticeKind::Other,
        }
    }

    /// The result for the metrics.
    fn result(&self) -> EgressResult {
        match self {
            Self::Refused(refusal) => match refusal {
                Refusal::Malformed(_) => EgressResult::Malformed,
                Refusal::NotListed(_) => EgressResult::NotListed,
                Refusal::Mail(_) => EgressResult::Mail,
                Refusal::NotPublic { .. } => EgressResult::NotPublic,
                Refusal::Never { .. } => EgressResult::Never,
            },
            Self::NotFound(_, failure) => match failure {
                LookupFailure::NotFound(_) => EgressResult::NameNotFound,
                LookupFailure::NoAnswer => EgressResult::NameNoAnswer,
                LookupFailure::Overloaded => EgressResult::NameNoPlace,
            },
            Self::NotReached(..) => EgressResult::NotReached,
        }
    }
}

impl Connector {
    /// Connects to an authority, at `port` if it has none of its own. Counts the result, and reports a
    /// failure.
    pub async fn connect(
        &self,
        authority: &str,
        port: Option<u16>,
    ) -> Result<(Destination, OutgoingStream), NotConnected> {
        let destination = Destination::parse(authority, port).map_err(NotConnected::from);
        let connected = match destination {
            Ok(destination) => self.reach(&destination).await.map(|stream| (destination, stream)),
            Err(malformed) => Err(malformed),
        };
        match &connected {
            Ok(_) => self.meter.count(EgressResult::Connected),
            Err(error) => {
                self.meter.count(error.result());
                self.notices.send(error.kind(), error.notice());
            }
        }
        connected
    }

    /// Checks a destination, resolves it once and connects to a checked address.
    async fn reach(&self, destination: &Destination) -> Result<OutgoingStream, NotConnected> {
        if is_gateway(destination) {
            let needed = "must be http://git.issuebox/OWNER/REPO: that is all the gateway serves";
            return Err(Refusal::Malformed(needed).into());
        }
        self.policy.check_destination(destination)?;
        let addresses = match &destination.host {
            HostName::Address(address) => vec![*address],
            HostName::Name(name) => (self.lookups.resolve(name).await)
                .map_err(|why| NotConnected::NotFound(destination.clone(), why))?,
        };
        let mut checked = Vec::with_capacity(ADDRESSES_MAX);
        let mut refusal = None;
        for address in addresses {
            match self.policy.check_address(destination, address, &ThisMachine) {
                Ok(address) if checked.len() < ADDRESSES_MAX => checked.push(address),
                Ok(_) => break,
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        if let (true, Some(refusal)) = (checked.is_empty(), refusal) {
            return Err(refusal.into());
        }
        let connected = race::first_of(&checked, TcpStream::connect::<SocketAddr>).await;
        let stream = connected.map_err(|why| NotConnected::NotReached(destination.clone(), why))?;
        // Low latency matters more than few packets, as in TLS handshakes.
        let _ = stream.set_nodelay(true);
        Ok(Idle::new(metered(stream, &self.meter), IDLE_WAIT))
    }
}
