//! The network in an object's record. "None" is not stored.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::types::{AllowedHost, Network, NetworkKind};

/// A network other than none.
#[derive(Serialize, Deserialize)]
pub struct NetworkRow {
    kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow_private: Vec<SocketAddr>,
}

impl NetworkRow {
    /// The row for this network.
    pub fn of(network: &Network) -> Option<Self> {
        match network {
            Network::None => None,
            Network::Allow { .. } | Network::Full { .. } | Network::Host => Some(Self {
                kind: network.kind().to_string(),
                allow: network.hosts().iter().map(ToString::to_string).collect(),
                allow_private: network.private().to_vec(),
            }),
        }
    }

    /// The network of this row; `None` if this program did not write it.
    pub fn network(&self) -> Option<Network> {
        let kind = NetworkKind::parse(&self.kind)?;
        let hosts = self.allow.iter().map(|text| AllowedHost::parse(text).ok());
        Some(Network::assemble(kind, hosts.collect::<Option<_>>()?, self.allow_private.clone()))
    }
}
