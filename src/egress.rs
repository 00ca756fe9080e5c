//! The HTTP proxy through which sandboxes reach the network.
//!
//! A sandbox has its own network namespace with only loopback. If its template allows a network, PID 1
//! listens on 127.0.0.1:3128 in it and passes the listening socket to the server. This is the sandbox's
//! only connection to the outside. The proxy supports `CONNECT` (for TLS: git, npm, pip, cargo) and plain
//! `http://` requests. A request for [`GATEWAY_HOST`](crate::git::GATEWAY_HOST) leaves it to the git
//! gateway; that name is never resolved.
//!
//! # Guarantees
//! - **Only checked addresses.** A name is resolved once, here, and the connection goes to an address of
//!   that answer that the policy accepts. The proxy follows no redirect; a client that does sends a new
//!   request, which is checked again.
//! - **Bounded.** There are limits on the connections of a sandbox and of all sandboxes
//!   (a share of the server's file descriptors, beside a few reserved for each sandbox), on
//!   look-ups, heads, buffers and every wait. More connections wait in the kernel's queue.
//! - **Ends with the sandbox.** All tasks and file descriptors belong to one [`Proxy`], which the
//!   sandbox's link drops.
//!
//! # Limits
//! The proxy does not look into tunnels: an allowed host may forward what it receives. A host that many
//! share (a CDN) is allowed as a whole.

mod connect;
mod gateway;
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
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::git::LateGateway;
use crate::sandbox::{Arrivals, Egress, EventSender};
use crate::types::{Network, SandboxId};
use connect::Connector;
use gateway::SandboxGateway;
use lookups::Resolver;
use meter::Meter;
use notices::Notices;
use policy::Policy;

pub use resolve::{Resolve, SystemResolver};

/// Most connections of one sandbox. npm opens 15 for each registry, browsers 6 for a host.
const CONNECTIONS_MAX: usize = 64;

/// How many connections are reserved for each sandbox.
const RESERVED: usize = 4;

/// Bounds on the shared connections of all sandboxes, whatever the limit of file descriptors.
const TOTAL_MAX: u64 = 2_048;
const TOTAL_MIN: u64 = 64;

/// The fraction of this process's file descriptors that may be connections. Each takes two, and a third
/// one while it starts: a quarter of all descriptors.
const DESCRIPTORS_SHARE: u64 = 8;

/// The pause after a failed accept, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Shared by the proxies of all sandboxes.
pub struct Proxies {
    resolver: Resolver,
    /// The server's own address.
    server: Option<SocketAddr>,
    permits: Arc<Semaphore>,
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
        let permits = usize::try_from(total).unwrap_or(CONNECTIONS_MAX);
        let resolver = Resolver::new(resolver);
        Self {
            resolver,
            server,
            permits: Arc::new(Semaphore::new(permits)),
            meter: Arc::default(),
            events,
        }
    }

    /// Starts a sandbox's proxy for what arrives from it, if its network has one or git goes through a
    /// gateway. Requires a tokio runtime.
    pub fn start(
        &self,
        arrivals: Option<impl Arrivals>,
        network: &Network,
        sandbox: &SandboxId,
        gateway: Option<LateGateway>,
    ) -> Option<Proxy> {
        let connector = Connector {
            policy: match Policy::of(network, self.server) {
                Some(policy) => policy,
                None if gateway.is_some() => Policy::nothing(),
                None => return None,
            },
            gateway: gateway.map(|gateway| SandboxGateway { sandbox: sandbox.clone(), gateway }),
            lookups: self.resolver.of_one(),
            notices: Notices::new(sandbox.clone(), self.events.clone()),
            meter: Arc::clone(&self.meter),
        };
        let (arrivals, connector) = (arrivals?, Arc::new(connector));
        Some(Proxy(tokio::spawn(accept(arrivals, connector, Arc::clone(&self.permits)))))
    }

    /// The counters of all proxies.
    pub fn egress(&self) -> Egress {
        self.meter.read()
    }
}

/// A sandbox's proxy. A drop ends it and all its connections.
pub struct Proxy(JoinHandle<()>);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Accepts connections within the limits, until it is dropped.
async fn accept(mut arrivals: impl Arrivals, connector: Arc<Connector>, total: Arc<Semaphore>) {
    let own = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let reserved = Arc::new(Semaphore::new(RESERVED));
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&own).acquire_owned().await;
        let shared_permit = tokio::select! {
            biased;
            reserved = Arc::clone(&reserved).acquire_owned() => reserved,
            shared = Arc::clone(&total).acquire_owned() => shared,
        };
        // The semaphores are never closed.
        let (Ok(permit), Ok(shared_permit)) = (permit, shared_permit) else { return };
        let stream = loop {
            tokio::select! {
                arrived = arrivals.next() => match arrived {
                    Ok(stream) => break stream,
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                // Removes connections as they end.
                Some(_ended) = connections.join_next() => {}
            }
        };
        let connector = Arc::clone(&connector);
        connections.spawn(async move {
            let open = connector.meter.open();
            serve::serve(stream, connector).await;
            drop((permit, shared_permit, open));
        });
    }
}
