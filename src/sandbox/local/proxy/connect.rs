//! From a destination to a connection: judged, resolved once, and connected to what was judged.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::idle::Idle;
use super::lookups::{LookupFailure, Lookups};
use super::policy::{Destination, Policy, Refusal, Surroundings};
use crate::types::HostName;

/// How long one address may take to answer. Of a name's addresses this many are tried.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
const ADDRESSES_MAX: usize = 4;

/// How long nothing may go through a connection. Some servers think for minutes over a pack.
pub const IDLE_WAIT: Duration = Duration::from_secs(600);

/// How many refusals are told within a span: one that tries without end tells nothing new.
const TOLD_MAX: u32 = 10;
const TELL_SPAN: Duration = Duration::from_secs(10);

/// A connection to somewhere outside.
pub type Stream = Idle<TcpStream>;

/// Where connections of a sandbox may go, and how to get there.
pub struct Ways {
    /// What it may connect to.
    pub policy: Policy,
    /// From names to addresses.
    pub lookups: Lookups,
    /// What has been told of refusals.
    pub told: Told,
}

/// Why no connection came about.
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

impl Ways {
    /// Connects to a destination that may be reached: resolved once, at an address that was checked.
    pub async fn connect(&self, destination: &Destination) -> Result<Stream, NotConnected> {
        let Self { policy, lookups, told } = self;
        let refused = |refusal: Refusal| {
            if told.is_news(Instant::now()) {
                tracing::debug!(%destination, "a sandbox's connection is refused: {refusal}");
            }
            refusal
        };
        policy.check_destination(destination).map_err(refused)?;
        let addresses = match &destination.host {
            HostName::Address(address) => vec![*address],
            HostName::Name(name) => lookups
                .resolve(name)
                .await
                .map_err(|why| NotConnected::NotFound(destination.clone(), why))?,
        };
        let mut checked = Vec::with_capacity(ADDRESSES_MAX);
        let mut refusal = None;
        for address in addresses {
            match policy.check_address(destination, address, &ThisMachine) {
                Ok(address) if checked.len() < ADDRESSES_MAX => checked.push(address),
                Ok(_) => break,
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        if let (true, Some(refusal)) = (checked.is_empty(), refusal) {
            return Err(refused(refusal).into());
        }
        let mut why = "it has no address".to_owned();
        for address in checked {
            match timeout(CONNECT_WAIT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small packets are worth more than few of them, as in TLS handshakes.
                    let _ = stream.set_nodelay(true);
                    return Ok(Idle::new(stream, IDLE_WAIT));
                }
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = "it does not answer".to_owned(),
            }
        }
        Err(NotConnected::NotReached(destination.clone(), why))
    }
}

/// The machine that the server runs on.
struct ThisMachine;

impl Surroundings for ThisMachine {
    /// Tries to listen there, which works on one's own addresses alone, also on a second one of an
    /// interface. Where that can't be tried the address counts as one's own.
    fn is_own(&self, address: IpAddr) -> bool {
        match UdpSocket::bind((address, 0)) {
            Ok(_closed_again) => true,
            Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
        }
    }
}

/// How many refusals have been told, since when.
#[derive(Default)]
pub struct Told(Mutex<Option<(Instant, u32)>>);

impl Told {
    /// Whether another is to be told now.
    fn is_news(&self, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = match *told {
            Some((since, count)) if now.duration_since(since) < TELL_SPAN => (since, count),
            Some(_) | None => (now, 0),
        };
        *told = Some((since, count.saturating_add(1)));
        count < TOLD_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn refusals_are_told_sparingly() {
        let (told, begin) = (Told::default(), Instant::now());
        let at = |ms: u64| told.is_news(begin + Duration::from_millis(ms));
        assert_eq!((0..1_000).filter(|n| at(*n)).count(), 10);
        assert!(!at(9_999) && at(10_000));
    }

    #[test]
    fn one_s_own_addresses_are_known() {
        assert!(ThisMachine.is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(ThisMachine.is_own(Ipv4Addr::new(127, 9, 9, 9).into()));
        assert!(!ThisMachine.is_own(Ipv4Addr::new(192, 0, 2, 1).into()));
    }
}
