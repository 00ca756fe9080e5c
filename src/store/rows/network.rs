//! What a template says of the network, as a row keeps it. None is not kept.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::types::{AllowedHost, Network, NetworkKind};

/// A network other than none.
#[derive(Serialize, Deserialize)]
pub(super) struct NetworkPart {
    kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow_private: Vec<SocketAddr>,
}

impl NetworkPart {
    /// The part for this network.
    pub(super) fn of(network: &Network) -> Option<Self> {
        match network {
            Network::None => None,
            Network::Allow { .. } | Network::Full { .. } | Network::Host => Some(Self {
                kind: network.kind().to_string(),
                allow: network.hosts().iter().map(ToString::to_string).collect(),
                allow_private: network.private().to_vec(),
            }),
        }
    }

    /// The network of this part.
    pub(super) fn into_network(self) -> Result<Network, BadRow> {
        let kind = NetworkKind::parse(&self.kind).ok_or(BadRow::UnknownWord(self.kind))?;
        let host = |text: String| AllowedHost::parse(&text).map_err(|_| BadRow::UnknownWord(text));
        let hosts = self.allow.into_iter().map(host).collect::<Result<_, _>>()?;
        Ok(Network::assemble(kind, hosts, self.allow_private))
    }
}
