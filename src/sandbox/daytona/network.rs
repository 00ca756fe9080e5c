//! A template's network access in Daytona's words, and what those cannot express.

use std::net::IpAddr;

use serde::Serialize;

use crate::types::{Network, Template};

/// The network part of `CreateSandbox`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkRules {
    network_block_all: bool,
    /// Addresses, as CIDR blocks with commas between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_allow_list: Option<String>,
    /// Domains with commas between them; `*.example.org` for those below one.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain_allow_list: Option<String>,
}

impl NetworkRules {
    /// Translates a template's network.
    ///
    /// # Errors
    /// Which key of the template cannot be expressed, and what to do.
    pub fn of(network: &Network) -> Result<Self, String> {
        if let Some(address) = network.private().first() {
            return Err(format!(
                "allow_private has \"{address}\", but Daytona cannot open single ports of \
                 addresses; remove it"
            ));
        }
        match network {
            Network::None => Ok(Self { network_block_all: true, ..Self::default() }),
            Network::Full { .. } => Ok(Self::default()),
            Network::Host => Err("network is \"host\", but its sandboxes are on another machine; \
                                  use \"none\", \"allow\" or \"full\""
                .into()),
            Network::Allow { hosts, .. } => {
                let (mut addresses, mut domains) = (Vec::new(), Vec::new());
                for entry in hosts {
                    let text = entry.to_string();
                    match entry.address() {
                        Some((IpAddr::V4(address), None)) => {
                            addresses.push(format!("{address}/32"))
                        }
                        None if !text.contains(':') => domains.push(text),
                        Some((IpAddr::V6(_), _)) => {
                            let why = "but Daytona's list takes IPv4 addresses only; remove it";
                            return Err(format!("allow has \"{text}\", {why}"));
                        }
                        Some((IpAddr::V4(_), Some(_))) | None => {
                            let why = "but Daytona's lists have no ports; write it without one";
                            return Err(format!("allow has \"{text}\", {why}"));
                        }
                    }
                }
                let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(","));
                Ok(Self {
                    network_block_all: false,
                    network_allow_list: list(addresses),
                    domain_allow_list: list(domains),
                })
            }
        }
    }
}

/// What of a template this provider cannot carry out, and what to do; `Ok` if it can all of it.
pub(super) fn check_template(template: &Template) -> Result<NetworkRules, String> {
    let name = &template.name;
    let cannot =
        |what: String| format!("cannot use templates.{name} with provider daytona: {what}");
    if !template.workload.command.is_empty() {
        return Err(cannot(
            "it starts no command of the template; remove command, or make it the entry point of \
             the snapshot"
                .into(),
        ));
    }
    NetworkRules::of(&template.network).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AllowedHost;

    fn allow(entries: &[&str]) -> Network {
        let hosts = entries.iter().map(|entry| AllowedHost::parse(entry).expect("an entry"));
        Network::Allow { hosts: hosts.collect(), private: Vec::new() }
    }

    #[test]
    fn what_daytona_can_express_is_translated() {
        let blocked = NetworkRules { network_block_all: true, ..NetworkRules::default() };
        assert_eq!(NetworkRules::of(&Network::None), Ok(blocked));
        let full = Network::Full { private: Vec::new() };
        assert_eq!(NetworkRules::of(&full), Ok(NetworkRules::default()));
        let listed = allow(&["github.com", "*.crates.io", "192.0.2.7", "198.51.100.1"]);
        let rules = NetworkRules {
            network_block_all: false,
            network_allow_list: Some("192.0.2.7/32,198.51.100.1/32".into()),
            domain_allow_list: Some("github.com,*.crates.io".into()),
        };
        assert_eq!(NetworkRules::of(&listed), Ok(rules));
    }

    #[test]
    fn what_it_cannot_express_is_refused_by_name() {
        let private = vec!["10.0.0.5:443".parse().expect("an address")];
        for (network, named) in [
            (allow(&["github.com:8443"]), "github.com:8443"),
            (allow(&["192.0.2.7:22"]), "192.0.2.7:22"),
            (allow(&["[2001:db8::1]"]), "[2001:db8::1]"),
            (Network::Host, "host"),
            (Network::Full { private: private.clone() }, "10.0.0.5:443"),
            (Network::Allow { hosts: Vec::new(), private }, "10.0.0.5:443"),
        ] {
            let refused = NetworkRules::of(&network).expect_err("refused");
            assert!(refused.contains(named), "{refused}");
        }
    }
}
