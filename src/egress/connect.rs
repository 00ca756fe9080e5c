//! From a destination to a connection: judged, resolved once, and connected to what was judged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::idle::Idle;
use super::lookups::{LookupFailure, Lookups};
use super::machine::ThisMachine;
use super::meter::{Meter, Metered, metered};
use super::notices::{Matter, Notices};
use super::policy::{Destination, Policy, Refusal};
use super::race;
use crate::sandbox::EgressResult;
use crate::types::HostName;

/// Of a name's addresses this many are tried.
const ADDRESSES_MAX: usize = 4;

/// How long nothing may go through a connection. Some servers think for minutes over a pack.
pub const IDLE_WAIT: Duration = Duration::from_secs(600);

/// A connection to somewhere outside.
pub type Stream = Idle<Metered<TcpStream>>;

/// Where connections of a sandbox may go, and how to get there.
pub struct Ways {
    /// What it may connect to.
    pub policy: Policy,
    /// From names to addresses.
    pub lookups: Lookups,
    /// Tells people of what did not come about.
    pub notices: Notices,
    /// Counts.
    pub meter: Arc<Meter>,
}

/// Why no connection came about. Prints as what the sandbox is told.
#[derive(Debug, thiserror::Error)]
pub enum NotConnected {
    /// It may not.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// There is no such name.
    #[error("{0} was not found: {1}")]
    NotFound(Destination, LookupFailure),
    /// Nobody answers there.
    #[error("{0} could not be reached: {1}")]
    NotReached(Destination, String),
}

impl NotConnected {
    /// What people are told.
    fn notice(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.notice(),
            Self::NotFound(..) | Self::NotReached(..) => self.to_string(),
        }
    }

    /// What the notice is about.
    fn matter(&self) -> Matter {
        match self {
            Self::Refused(Refusal::NotPublic { .. } | Refusal::Never { .. }) => Matter::Address,
            Self::Refused(Refusal::Malformed(_) | Refusal::NotListed(_) | Refusal::Mail(_))
            | Self::NotFound(..)
            | Self::NotReached(..) => Matter::Other,
        }
    }

    /// As what it counts.
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
                LookupFailure::NoPlace => EgressResult::NameNoPlace,
            },
            Self::NotReached(..) => EgressResult::NotReached,
        }
    }
}

impl Ways {
    /// Connects to where an authority says, at `port` where that has none. What comes of it is
    /// counted, and told where nothing does.
    pub async fn connect(
        &self,
        authority: &str,
        port: Option<u16>,
    ) -> Result<(Destination, Stream), NotConnected> {
        let destination = Destination::parse(authority, port).map_err(NotConnected::from);
        let connected = match destination {
            Ok(destination) => self.reach(&destination).await.map(|stream| (destination, stream)),
            Err(malformed) => Err(malformed),
        };
        match &connected {
            Ok(_) => self.meter.count(EgressResult::Connected),
            Err(error) => {
                self.meter.count(error.result());
                self.notices.tell(error.matter(), error.notice());
            }
        }
        connected
    }

    /// Connects to a destination that may be reached: resolved once, at an address that was checked.
    async fn reach(&self, destination: &Destination) -> Result<Stream, NotConnected> {
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
        // Small packets are worth more than few of them, as in TLS handshakes.
        let _ = stream.set_nodelay(true);
        Ok(Idle::new(metered(stream, &self.meter), IDLE_WAIT))
    }
}
