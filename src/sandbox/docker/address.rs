//! Where the container engine is, and the certificates that it is spoken with.

use std::path::{Path, PathBuf};

use super::settings::DockerSettings;

/// Where engines usually listen, in this order.
const SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

/// Where an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAddress {
    /// `unix://PATH` or `tcp://HOST:PORT`.
    pub url: String,
    /// The directory with `ca.pem`, `cert.pem` and `key.pem`; `None` without TLS.
    pub tls_dir: Option<PathBuf>,
}

impl EngineAddress {
    /// An address without TLS.
    #[cfg(test)]
    pub fn plain(url: impl Into<String>) -> Self {
        Self { url: url.into(), tls_dir: None }
    }

    /// The configured one, else that of the environment, else the first usual socket that exists. TLS comes from
    /// where the address does.
    pub fn of(settings: &DockerSettings) -> Self {
        Self::choose(settings, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn choose(settings: &DockerSettings, variable: impl Fn(&str) -> Option<String>) -> Self {
        if !settings.host.is_empty() {
            return Self { url: settings.host.clone(), tls_dir: settings.tls_dir.clone() };
        }
        if let Some(url) = variable("DOCKER_HOST") {
            // Docker's command line looks into ~/.docker where DOCKER_CERT_PATH is not set.
            let of_user = || variable("HOME").map(|home| Path::new(&home).join(".docker"));
            let dir = variable("DOCKER_CERT_PATH").map(PathBuf::from).or_else(of_user);
            // Where TLS is asked for there is none without certificates, and no connection.
            let tls_dir = variable("DOCKER_TLS_VERIFY").map(|_| dir.unwrap_or_default());
            return Self { url, tls_dir };
        }
        let of_user = variable("XDG_RUNTIME_DIR").map(|dir| format!("{dir}/podman/podman.sock"));
        let sockets = SOCKETS.map(str::to_owned).into_iter().chain(of_user);
        let found = sockets.into_iter().find(|socket| Path::new(socket).exists());
        let socket = found.unwrap_or_else(|| SOCKETS[0].to_owned());
        Self { url: format!("unix://{socket}"), tls_dir: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_certificates_come_from_one_source() {
        let configured = DockerSettings {
            host: "tcp://a:2376".into(),
            tls_dir: Some("/certs".into()),
            ..DockerSettings::default()
        };
        let environment = |name: &str| match name {
            "DOCKER_HOST" => Some("tcp://b:2376".to_owned()),
            "DOCKER_TLS_VERIFY" => Some("1".to_owned()),
            "HOME" => Some("/home/mona".to_owned()),
            _ => None,
        };
        let of = |settings: &DockerSettings| EngineAddress::choose(settings, environment);
        let with_tls =
            |url: &str, dir: &str| EngineAddress { url: url.to_owned(), tls_dir: Some(dir.into()) };
        assert_eq!(of(&configured), with_tls("tcp://a:2376", "/certs"));
        let without = DockerSettings { tls_dir: None, ..configured };
        assert_eq!(of(&without), EngineAddress::plain("tcp://a:2376"));
        assert_eq!(of(&DockerSettings::default()), with_tls("tcp://b:2376", "/home/mona/.docker"));
        let elsewhere = |name: &str| match name {
            "DOCKER_CERT_PATH" => Some("/elsewhere".to_owned()),
            name => environment(name),
        };
        let found = EngineAddress::choose(&DockerSettings::default(), elsewhere);
        assert_eq!(found, with_tls("tcp://b:2376", "/elsewhere"));
        let homeless = |name: &str| environment(name).filter(|_| name != "HOME");
        let found = EngineAddress::choose(&DockerSettings::default(), homeless);
        assert_eq!(found, with_tls("tcp://b:2376", ""), "never without TLS");
        let unverified = |name: &str| environment(name).filter(|_| name != "DOCKER_TLS_VERIFY");
        let found = EngineAddress::choose(&DockerSettings::default(), unverified);
        assert_eq!(found, EngineAddress::plain("tcp://b:2376"));
    }
}
