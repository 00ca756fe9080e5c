//! How a sandbox is connected.

use serde::{Deserialize, Serialize};

use crate::types::Network;

/// What a sandbox's own network namespace is for, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Nothing but loopback, and the gateway to the models at [`MODELS_PORT`], as with all but the host's
    /// network.
    Loopback,
    /// Loopback, and for git alone the server's proxy at [`PROXY_PORT`], which reaches nothing but the
    /// git gateway.
    Git,
    /// Loopback, and the server's proxy at [`PROXY_PORT`].
    Proxy,
    /// There is none: it has the host's network.
    Host,
}

/// Where PID 1 listens for the server's proxy, on 127.0.0.1 inside: the usual port of proxies, at
/// which nothing in a sandbox should expect a server of its own.
pub const PROXY_PORT: u16 = 3128;

/// Where PID 1 listens for the gateway to the models, on 127.0.0.1 inside, whatever the sandbox reaches.
/// On the host's network it would be every program's: there it does not listen.
pub const MODELS_PORT: u16 = 3129;

impl Reach {
    /// How a sandbox with this network is set up; with git, which needs its gateway.
    pub fn of(network: &Network, has_git: bool) -> Self {
        match network {
            Network::None if has_git => Self::Git,
            Network::None => Self::Loopback,
            Network::Allow { .. } | Network::Full { .. } => Self::Proxy,
            Network::Host => Self::Host,
        }
    }
}
