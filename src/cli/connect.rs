//! Chooses the server to call, and the token for it.
//!
//! # Guarantees
//! - Address and token come from one source, so control of one of them is not enough to get the
//!   other: an address that the caller names takes the token that the caller names; the server of a
//!   named configuration or of a data directory takes the token from there. `--token-file` names a
//!   token for this one call, whatever its server is.
//! - No file of the working directory has a say unless it is named: it is often the work of others.
//! - A token leaves this machine over https only, unless `--insecure-http` is given.
//! - A token of this machine's server goes to an address only while that server listens there.

mod local;

use std::net::IpAddr;

use anyhow::Context;
use reqwest::Url;

use crate::types::Secret;

use super::ServerArgs;
use super::client::ApiClient;
use super::env::EnvVars;
use super::failure::CliFailure;
use local::LocalServer;

/// A server and the token that may be sent to it.
#[derive(Debug)]
pub(super) struct Chosen {
    server: Url,
    token: Secret,
    token_from: String,
}

impl Chosen {
    /// A server on this machine whose token is known.
    pub fn local(server: Url, token: Secret) -> Self {
        Self { server, token, token_from: "the server's own token".to_owned() }
    }

    /// The address.
    pub fn server(&self) -> &Url {
        &self.server
    }

    /// The token, and where it was found.
    pub fn into_token(self) -> (Secret, String) {
        (self.token, self.token_from)
    }
}

/// Connects to the chosen server.
pub(super) fn connect(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<ApiClient> {
    let account = server_args.account.clone();
    let account = account.or_else(|| env.get("ISSUEBOX_ACCOUNT").map(str::to_owned));
    Ok(ApiClient::new(choose(server_args, env)?)?.in_account(account))
}

fn choose(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<Chosen> {
    let named = server_args.server.as_deref().or_else(|| env.get("ISSUEBOX_SERVER"));
    match named.map(server_address).transpose()? {
        Some(server) => {
            let (token, token_from) = token_for(&server, server_args, env)?;
            let is_safe = server.scheme() == "https" || is_loopback(&server);
            sendable(Chosen { server, token, token_from }, is_safe, server_args, env)
        }
        None => {
            let local = LocalServer::find(server_args, env)?;
            let listen = local.address()?;
            let (token, token_from) = match token_of_file(server_args)? {
                Some(named) => named,
                None => local.token(env)?,
            };
            let is_safe = local::is_of_this_machine(listen.ip());
            let server = local::url_of(listen);
            sendable(Chosen { server, token, token_from }, is_safe, server_args, env)
        }
    }
}

/// The token for a server that the caller named.
fn token_for(
    server: &Url,
    server_args: &ServerArgs,
    env: &EnvVars,
) -> anyhow::Result<(Secret, String)> {
    if let Some(named) = token_of_file(server_args)? {
        return Ok(named);
    }
    // The variable's token is for the variable's server.
    let env_server = env.get("ISSUEBOX_SERVER");
    let is_for_it = env_server.is_none_or(|text| server_address(text).is_ok_and(|u| u == *server));
    if let Some(text) = env.get("ISSUEBOX_TOKEN").filter(|_| is_for_it) {
        return Ok((token_of(text)?, "ISSUEBOX_TOKEN".to_owned()));
    }
    let local = LocalServer::find(server_args, env).ok().filter(|_| is_loopback(server));
    if let Some(local) = &local
        && local.address().is_ok_and(|listen| local::is_at(server, listen))
    {
        return local.token(env);
    }
    let message = match (env.get("ISSUEBOX_TOKEN"), local.map(|local| local.address())) {
        (Some(_), _) => format!(
            "there is no token for {server}: ISSUEBOX_TOKEN belongs to ISSUEBOX_SERVER, which is \
             another server"
        ),
        (None, Some(Ok(listen))) => format!(
            "there is no token for {server}: the server on this machine listens on {listen}"
        ),
        (None, Some(Err(_)) | None) => format!("there is no token for {server}"),
    };
    let hint = "name a file with --token-file, or set ISSUEBOX_SERVER and ISSUEBOX_TOKEN for it";
    Err(CliFailure::Usage { message, hint: hint.to_owned() }.into())
}

/// Lets a token go to a server if it cannot be read on the way, or the caller accepts that it can.
fn sendable(
    chosen: Chosen,
    is_safe: bool,
    server_args: &ServerArgs,
    env: &EnvVars,
) -> anyhow::Result<Chosen> {
    let is_accepted =
        server_args.insecure_http || env.get("ISSUEBOX_INSECURE_HTTP").is_some_and(is_yes);
    if is_safe || is_accepted {
        return Ok(chosen);
    }
    Err(CliFailure::Usage {
        message: format!(
            "the token was not sent to {}: over http everybody on the way could read it",
            chosen.server
        ),
        hint: "use its https address, or a tunnel (ssh -L 8787:127.0.0.1:8787 HOST) and \
               http://127.0.0.1:8787; --insecure-http sends it all the same"
            .to_owned(),
    }
    .into())
}

fn is_yes(word: &str) -> bool {
    matches!(word, "1" | "true" | "yes")
}

/// Parses a server's address. Without a scheme it is http on this machine and https elsewhere.
fn server_address(text: &str) -> Result<Url, CliFailure> {
    let wrong = || CliFailure::Usage {
        message: format!("{text:?} is not a server's address"),
        hint: "an address looks like http://127.0.0.1:8787 or https://box.example.org".to_owned(),
    };
    let parse = |text: &str| Url::parse(text).map_err(|_| wrong());
    if text.starts_with('/') {
        return Err(wrong());
    }
    let url = match text.contains("://") {
        true => parse(text)?,
        false => match parse(&format!("http://{text}"))? {
            here if is_loopback(&here) => here,
            _ => parse(&format!("https://{text}"))?,
        },
    };
    let plain = url.username().is_empty() && url.password().is_none();
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    if plain && is_web && url.query().is_none() && url.fragment().is_none() {
        Ok(url)
    } else {
        Err(wrong())
    }
}

/// The token that `--token-file` names.
fn token_of_file(server_args: &ServerArgs) -> anyhow::Result<Option<(Secret, String)>> {
    let Some(path) = &server_args.token_file else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|e| CliFailure::Usage {
        message: format!("the token file {} cannot be read: {e}", path.display()),
        hint: "name a file that holds the token and nothing else".to_owned(),
    })?;
    let from = path.display().to_string();
    let token = token_of(&text).with_context(|| from.clone())?;
    Ok(Some((token, from)))
}

fn token_of(text: &str) -> Result<Secret, CliFailure> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(CliFailure::Usage {
            message: "the token is empty or has invalid characters".to_owned(),
            hint: "a token is one word of visible ASCII characters".to_owned(),
        });
    }
    Ok(Secret::new(token))
}

/// Whether an address leads to this machine alone.
pub(super) fn is_loopback(server: &Url) -> bool {
    let Some(host) = server.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests;
