//! Chooses the server to call, and the token.
//!
//! The command line comes first, then the environment, then the configuration of the server on this
//! machine and the token file in its data directory. That token is used for that server only, so a
//! program that listens at another address never gets it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;

use crate::config::{Config, Secrets};
use crate::types::Secret;

use super::ServerArgs;
use super::client::ApiClient;
use super::failure::CliFailure;

/// A copy of the environment.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvVars(BTreeMap<String, String>);

impl EnvVars {
    /// The environment of this process, without variables that are not UTF-8.
    pub fn of_process() -> Self {
        let text = |(name, word): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, word.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// An environment for a test.
    #[cfg(test)]
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(n, w)| ((*n).to_owned(), (*w).to_owned())).collect())
    }

    /// A variable; `None` if it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|word| !word.is_empty())
    }

    /// All variables, for the configuration.
    pub fn vars(&self) -> impl Iterator<Item = (String, String)> {
        self.0.clone().into_iter()
    }
}

/// Connects to the chosen server.
pub(super) fn connect(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<ApiClient> {
    let (server, token) = choose(server_args, env)?;
    ApiClient::new(&server, token)
}

fn choose(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<(Url, Secret)> {
    let given = server_args.server.as_deref().or_else(|| env.get("ISSUEBOX_SERVER"));
    let given = given.map(server_address).transpose()?;
    let token = given_token(server_args, env)?;
    match (given, token) {
        (Some(server), Some(token)) => Ok((server, token)),
        (Some(server), None) if !is_loopback(&server) => Err(CliFailure::Usage {
            message: format!("there is no token for {server}"),
            hint: "set ISSUEBOX_TOKEN, or name a file with --token-file".to_owned(),
        }
        .into()),
        (given, token) => {
            let mut config = super::config::load(server_args, env, None)?.config;
            // The running server may have been started with another address.
            if let Some(address) = config.server.running_at() {
                config.server.listen = address;
            }
            let local = local_address(config.server.listen);
            let ours = given.as_ref().is_none_or(|server| is_at(server, config.server.listen));
            let token = match token {
                Some(token) => token,
                None => local_token(&config, ours)?,
            };
            Ok((given.unwrap_or(local), token))
        }
    }
}

fn server_address(text: &str) -> Result<Url, CliFailure> {
    let wrong = || CliFailure::Usage {
        message: format!("{text:?} is not a server's address"),
        hint: "an address looks like http://127.0.0.1:8787 or https://box.example.org".to_owned(),
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    let plain = url.username().is_empty() && url.password().is_none();
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    if plain && is_web && url.query().is_none() && url.fragment().is_none() {
        Ok(url)
    } else {
        Err(wrong())
    }
}

fn given_token(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<Option<Secret>> {
    let Some(path) = &server_args.token_file else {
        return env.get("ISSUEBOX_TOKEN").map(token_of).transpose();
    };
    let text = std::fs::read_to_string(path).map_err(|e| CliFailure::Usage {
        message: format!("the token file {} cannot be read: {e}", path.display()),
        hint: "name a file that holds the token and nothing else".to_owned(),
    })?;
    token_of(&text).map(Some)
}

fn token_of(text: &str) -> anyhow::Result<Secret> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(CliFailure::Usage {
            message: "the token is empty or has invalid characters".to_owned(),
            hint: "a token is one word of visible ASCII characters".to_owned(),
        }
        .into());
    }
    Ok(Secret::new(token))
}

/// The token of the server on this machine.
fn local_token(config: &Config, ours: bool) -> anyhow::Result<Secret> {
    let hint = "run this as the server's user with --data or ISSUEBOX_DATA set to its data \
                directory, or pass a token with ISSUEBOX_TOKEN or --token-file";
    if !ours {
        return Err(CliFailure::Usage {
            message: format!(
                "there is no token, and the server on this machine listens on {}",
                config.server.listen
            ),
            hint: hint.to_owned(),
        }
        .into());
    }
    if let Some(token) = &config.auth.admin_token {
        return Ok(token.clone());
    }
    let path = config.server.data.join(Secrets::ADMIN_TOKEN_FILE);
    let text = std::fs::read_to_string(&path).map_err(|e| CliFailure::Usage {
        message: format!("there is no token: {} cannot be read: {e}", path.display()),
        hint: hint.to_owned(),
    })?;
    token_of(&text)
}

/// The URL of a server on this machine that listens on this address.
fn local_address(listen: SocketAddr) -> Url {
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

/// Whether a loopback URL has the port on which the server on this machine listens.
fn is_at(server: &Url, listen: SocketAddr) -> bool {
    let same_port = server.port_or_known_default() == Some(listen.port());
    let listens_here = listen.ip().is_unspecified() || listen.ip().is_loopback();
    same_port && listens_here && is_loopback(server)
}

pub(super) fn is_loopback(server: &Url) -> bool {
    let Some(host) = server.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_args(server: Option<&str>) -> ServerArgs {
        // An empty file, so that the working directory does not matter.
        ServerArgs {
            server: server.map(str::to_owned),
            config: Some("/dev/null".into()),
            ..ServerArgs::default()
        }
    }

    fn connected(
        server_args: &ServerArgs,
        vars: &[(&str, &str)],
    ) -> Result<(String, String), String> {
        let (server, token) =
            choose(server_args, &EnvVars::from_pairs(vars)).map_err(|error| error.to_string())?;
        Ok((server.to_string(), token.expose().to_owned()))
    }

    fn is(server: &str, token: &str) -> Result<(String, String), String> {
        Ok((server.to_owned(), token.to_owned()))
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("token");
        std::fs::write(&file, "from-file\n").expect("written");
        let vars = [("ISSUEBOX_SERVER", "https://env.example.org"), ("ISSUEBOX_TOKEN", "from-env")];
        assert_eq!(
            connected(&server_args(None), &vars),
            is("https://env.example.org/", "from-env")
        );
        let server_args = ServerArgs {
            token_file: Some(file),
            ..server_args(Some("http://flag.example.org:1/"))
        };
        assert_eq!(connected(&server_args, &vars), is("http://flag.example.org:1/", "from-file"));
    }

    #[test]
    fn on_the_servers_machine_its_token_file_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("admin-token"), "kept\n").expect("written");
        let data = dir.path().to_str().expect("UTF-8");
        let vars = [("ISSUEBOX_DATA", data)];
        assert_eq!(connected(&server_args(None), &vars), is("http://127.0.0.1:8787/", "kept"));
        let listening = [("ISSUEBOX_DATA", data), ("ISSUEBOX_LISTEN", "0.0.0.0:9000")];
        assert_eq!(connected(&server_args(None), &listening), is("http://127.0.0.1:9000/", "kept"));
        let named = server_args(Some("http://localhost:9000"));
        assert_eq!(connected(&named, &listening), is("http://localhost:9000/", "kept"));
        let configured = [("ISSUEBOX_DATA", data), ("ISSUEBOX_ADMIN_TOKEN", "configured")];
        assert_eq!(
            connected(&server_args(None), &configured),
            is("http://127.0.0.1:8787/", "configured")
        );
    }

    #[test]
    fn the_local_token_goes_to_the_local_server_only() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("admin-token"), "kept\n").expect("written");
        let vars = [("ISSUEBOX_DATA", dir.path().to_str().expect("UTF-8"))];
        for server in ["https://box.example.org", "http://127.0.0.1:9999", "http://10.0.0.1:8787"] {
            let refused = connected(&server_args(Some(server)), &vars);
            assert!(refused.is_err_and(|text| text.starts_with("there is no token")), "{server}");
        }
    }

    #[test]
    fn a_server_is_a_plain_web_address() {
        for bad in ["box", "ftp://x", "http://", "http://u:p@x", "http://x/?q", "127.0.0.1:8787"] {
            let refused = connected(&server_args(Some(bad)), &[("ISSUEBOX_TOKEN", "t")]);
            assert!(refused.is_err_and(|text| text.ends_with("address")), "{bad}");
        }
    }

    #[test]
    fn a_token_is_one_word() {
        for bad in [" ", "a b", "ä"] {
            let refused = connected(&server_args(Some("http://x")), &[("ISSUEBOX_TOKEN", bad)]);
            assert!(refused.is_err(), "{bad:?}");
        }
    }
}
