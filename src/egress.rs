//! The way out of a sandbox that has one: an HTTP proxy, run by the server on a socket that listens
//! inside.
//!
//! A sandbox has a network namespace of its own with nothing but loopback in it. Where its template
//! gives it a network, PID 1 listens on 127.0.0.1:3128 there and hands the listening socket over;
//! so connections made inside arrive here, and nothing else of the sandbox reaches out. It speaks
//! `CONNECT` (whatever goes through TLS: git, npm, pip, cargo) and plain `http://` requests.
//!
//! # What it guarantees
//! - **What is reached was checked.** A name is resolved once, here, and the connection goes to an
//!   address out of that answer which the [policy] accepts; nothing is resolved a
//!   second time. The proxy follows no redirect: whoever does comes back and is checked again.
//! - **Bounded.** [Connections](CONNECTIONS_MAX) of a sandbox, those of all sandboxes together (a
//!   fraction of the descriptors that the server may have, beside [a few](RESERVED) that each
//!   sandbox has for itself), [look-ups](lookups), heads, buffers, and every wait. Past the bound
//!   connections wait in the kernel's queue.
//! - **Ends with the sandbox.** All tasks and descriptors belong to one [`Proxy`], which the sandbox's
//!   link drops.
//!
//! # What it does not do
//! Through a tunnel it does not look: whoever serves an allowed host decides where what is sent
//! there goes on to. A host that many share (a CDN) is allowed as a whole.

mod connect;
mod idle;
mod lookups;
mod machine;
mod meter;
mod notices;
mod policy;
mod race;
mod resolve;
mod serve;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::sandbox::{Egress, EventSender};
use crate::types::{Network, SandboxId};
use connect::Ways;
use lookups::Resolver;
use meter::Meter;
use notices::Notices;
use policy::Policy;

pub use resolve::{Resolve, SystemResolver};

/// Most connections of one sandbox at once. npm opens 15 for each registry, browsers 6 for a host.
const CONNECTIONS_MAX: usize = 64;

/// How many of these a sandbox always has, whatever all the others hold.
const RESERVED: usize = 4;

/// Most connections of all sandboxes beyond those, and fewest, whatever the limit of descriptors says.
const TOTAL_MAX: u64 = 2_048;
const TOTAL_MIN: u64 = 64;

/// Which part of the descriptors that this process may have go into connections, each of which
/// takes two, and a third one while it begins: a quarter of them altogether.
const DESCRIPTORS_SHARE: u64 = 8;

/// The pause after a connection that could not be accepted, as where no descriptor is left: trying
/// again at once would only find the same.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all sandboxes' proxies share.
pub struct Proxies {
    resolver: Resolver,
    /// Where the server itself listens.
    server: Option<SocketAddr>,
    places: Arc<Semaphore>,
    meter: Arc<Meter>,
    events: EventSender,
}

impl Proxies {
    /// The proxies of a server that listens at `server`; they publish notices to `events`.
    pub fn new(
        resolver: Arc<dyn Resolve>,
        server: Option<SocketAddr>,
        events: EventSender,
    ) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let total = (limit / DESCRIPTORS_SHARE).clamp(TOTAL_MIN, TOTAL_MAX);
        let places = usize::try_from(total).unwrap_or(CONNECTIONS_MAX);
        let resolver = Resolver::new(resolver);
        Self {
            resolver,
            server,
            places: Arc::new(Semaphore::new(places)),
            meter: Arc::default(),
            events,
        }
    }

    /// Starts the proxy of a sandbox, on the socket that it handed over where it has a way out. Must
    /// be called within a tokio runtime.
    pub fn start(
        &self,
        listener: Option<TcpListener>,
        network: &Network,
        sandbox: &SandboxId,
    ) -> Option<Proxy> {
        let ways = Ways {
            policy: Policy::of(network, self.server)?,
            lookups: self.resolver.of_one(),
            notices: Notices::new(sandbox.clone(), self.events.clone()),
            meter: Arc::clone(&self.meter),
        };
        let (listener, ways) = (listener?, Arc::new(ways));
        Some(Proxy(tokio::spawn(accept(listener, ways, Arc::clone(&self.places)))))
    }

    /// What went through all of them.
    pub fn egress(&self) -> Egress {
        self.meter.read()
    }
}

/// A sandbox's proxy. Dropping it ends it, and every connection through it.
pub struct Proxy(JoinHandle<()>);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Accepts connections as there are places, until it is dropped and they with it.
async fn accept(listener: TcpListener, ways: Arc<Ways>, total: Arc<Semaphore>) {
    let own = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let reserved = Arc::new(Semaphore::new(RESERVED));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&own).acquire_owned().await;
        let place_of_all = tokio::select! {
            biased;
            reserved = Arc::clone(&reserved).acquire_owned() => reserved,
            shared = Arc::clone(&total).acquire_owned() => shared,
        };
        // No semaphore is ever closed.
        let (Ok(place), Ok(place_of_all)) = (place, place_of_all) else { return };
        let stream = loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => break stream,
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                // Those that have ended are taken out as they end.
                Some(_ended) = connections.join_next() => {}
            }
        };
        let ways = Arc::clone(&ways);
        connections.spawn(async move {
            let open = ways.meter.open();
            serve::serve(stream, ways).await;
            drop((place, place_of_all, open));
        });
    }
}
