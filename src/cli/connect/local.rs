//! The server on this machine: that of a configuration which is named, or of a data directory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use reqwest::Url;

use super::{is_loopback, token_of};
use crate::cli::ServerArgs;
use crate::cli::config;
use crate::cli::env::EnvVars;
use crate::cli::failure::CliFailure;
use crate::config::{Config, Secrets, ServerAddress};
use crate::types::Secret;

/// A server on this machine, whether it runs or not.
pub(super) struct LocalServer {
    config: Config,
    /// The configuration, if it was named.
    file: Option<PathBuf>,
    /// Whether the data directory was named for this call. Then it is the source of the token.
    is_data_named: bool,
}

impl LocalServer {
    pub fn find(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<Self> {
        Ok(Self {
            config: config::load_named(server_args, env)?.config,
            file: server_args.config.clone(),
            is_data_named: server_args.data.is_some(),
        })
    }

    /// Where it listens now.
    ///
    /// # Errors
    /// [`CliFailure::Failed`] if it does not run.
    pub fn address(&self) -> Result<SocketAddr, CliFailure> {
        let server = &self.config.server;
        let data = server.data.display();
        let failed = |message: String, hint: &str| {
            Err(CliFailure::Failed { message, hint: hint.to_owned() })
        };
        let start = "start it with issuebox serve, or name another server with --server or \
                     ISSUEBOX_SERVER";
        match server.address() {
            Ok(ServerAddress::Current(address)) => Ok(address),
            Ok(ServerAddress::Last(address)) => failed(
                format!("the server on {data} is not running; it last listened on {address}"),
                start,
            ),
            Ok(ServerAddress::Never) => failed(
                format!("no server has run on {data} yet"),
                "start one with issuebox serve, or name one with --server or ISSUEBOX_SERVER",
            ),
            // Who may not look into the data directory may still have been given the configuration.
            Err(_) if self.file.is_some() => Ok(server.listen),
            Err(error) => failed(
                format!("cannot look for a server on {data}: {error}"),
                "run this as the server's user, or name the server with --server or \
                 ISSUEBOX_SERVER and its token with --token-file or ISSUEBOX_TOKEN",
            ),
        }
    }

    /// Its token, and where it was found.
    pub fn token(&self, env: &EnvVars) -> anyhow::Result<(Secret, String)> {
        // A directory that was named does not get the token of the environment.
        let is_configured = self.file.is_some() || !self.is_data_named;
        if let Some(token) = self.config.auth.admin_token.as_ref().filter(|_| is_configured) {
            let from = match &self.file {
                Some(file) => format!("the configuration ({})", file.display()),
                None => "the configuration in the environment".to_owned(),
            };
            return Ok((token.clone(), from));
        }
        let path = self.config.server.data.join(Secrets::ADMIN_TOKEN_FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            let unused = match env.get("ISSUEBOX_TOKEN") {
                Some(_) => {
                    " ISSUEBOX_TOKEN is used together with ISSUEBOX_SERVER or --server only."
                }
                None => "",
            };
            CliFailure::Usage {
                message: format!("there is no token: {} cannot be read: {e}", path.display()),
                hint: format!(
                    "run this as the server's user; name the server's configuration with --config \
                     if that has the token; or name a file with --token-file.{unused}"
                ),
            }
        })?;
        Ok((token_of(&text)?, path.display().to_string()))
    }
}

/// The URL of a server on this machine that listens on this address.
pub(super) fn url_of(listen: SocketAddr) -> Url {
    let reached = SocketAddr::new(reached_ip(listen.ip()), listen.port());
    Url::parse(&format!("http://{reached}")).expect("an address makes a URL")
}

fn reached_ip(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => listen,
    }
}

/// Whether what is sent to an address stays on this machine: only its own addresses can be bound.
pub(super) fn is_of_this_machine(listen: IpAddr) -> bool {
    let ip = reached_ip(listen);
    ip.is_loopback() || TcpListener::bind((ip, 0)).is_ok()
}

/// Whether a loopback URL has the port on which the server on this machine listens.
pub(super) fn is_at(server: &Url, listen: SocketAddr) -> bool {
    let same_port = server.port_or_known_default() == Some(listen.port());
    let listens_here = listen.ip().is_unspecified() || listen.ip().is_loopback();
    same_port && listens_here && is_loopback(server)
}
