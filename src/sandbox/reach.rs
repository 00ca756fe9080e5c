//! How a sandbox is connected.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::types::Network;

/// Names the proxy for programs. Upper and lower case, since programs differ (curl reads only the
/// lower for `http://`, others only the upper). node needs `NODE_USE_ENV_PROXY`.
const ENVIRONMENT: [&str; 7] = [
    "HTTP_PROXY=http://127.0.0.1:3128",
    "HTTPS_PROXY=http://127.0.0.1:3128",
    "http_proxy=http://127.0.0.1:3128",
    "https_proxy=http://127.0.0.1:3128",
    "NO_PROXY=localhost,127.0.0.1,::1",
    "no_proxy=localhost,127.0.0.1,::1",
    "NODE_USE_ENV_PROXY=1",
];

/// Where git's settings are, also for a git that has another place for them. A file that is not there
/// is as an empty one.
const GIT_SETTINGS: &str = "GIT_CONFIG_SYSTEM=/etc/gitconfig";

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

/// A command's own variables after the network's, which they override.
pub fn environment(reach: Reach, own: Vec<Bytes>) -> Vec<Bytes> {
    match reach {
        Reach::Loopback | Reach::Host => own,
        Reach::Git => std::iter::once(Bytes::from(GIT_SETTINGS)).chain(own).collect(),
        Reach::Proxy => {
            let all = ENVIRONMENT.into_iter().chain([GIT_SETTINGS]);
            all.map(Bytes::from).chain(own).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_s_own_variables_come_last_and_only_a_proxy_adds_any() {
        let own = vec![Bytes::from("HTTPS_PROXY=mine")];
        for reach in [Reach::Loopback, Reach::Host] {
            assert_eq!(environment(reach, own.clone()), own);
        }
        let all = environment(Reach::Proxy, own.clone());
        assert_eq!(all.last(), own.last());
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            assert!(all.contains(&Bytes::from(format!("{name}={proxy}"))), "{name}");
        }
    }
}
