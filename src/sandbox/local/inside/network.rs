//! A sandbox's network from inside: resolver settings, the sockets of server and proxy, and the environment
//! variables that name the proxy.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bytes::Bytes;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with};
use rustix::thread::UnshareFlags;

use super::super::frame::{MODELS_PORT, PROXY_PORT, Reach};
use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};

/// Connections that wait for the server to accept them.
const WAITING_MAX: i32 = 128;

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

/// Longest `/etc/resolv.conf` of the host that is copied, in bytes.
const RESOLVER_LEN_MAX: u64 = 64 * 1024;

/// Listens for the server in the sandbox's own network namespace: for the gateway to the models, and
/// for the proxy, if it has one.
pub fn listen_for_server(reach: Reach) -> Result<Vec<OwnedFd>, SetupError> {
    let models = || listen_at(MODELS_PORT).step("listen for the gateway to the models");
    let proxy = || listen_at(PROXY_PORT).step("listen for the proxy");
    match reach {
        Reach::Host => Ok(Vec::new()),
        Reach::Loopback => Ok(vec![models()?]),
        Reach::Git | Reach::Proxy => Ok(vec![models()?, proxy()?]),
    }
}

fn listen_at(port: u16) -> Result<OwnedFd, rustix::io::Errno> {
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::INET, kind, flags, Some(ipproto::TCP))?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

/// Enters the network namespace of a sandbox; returns the host's.
pub fn enter_own(reach: Reach) -> Result<PathBuf, SetupError> {
    let host = namespace()?;
    match reach {
        Reach::Loopback | Reach::Git | Reach::Proxy if on(Bug::NetworkShared) => {}
        Reach::Loopback | Reach::Git | Reach::Proxy => {
            sys::unshare(UnshareFlags::NEWNET).step("make a network namespace")?;
        }
        Reach::Host => {}
    }
    Ok(host)
}

/// The network namespace of this process.
pub fn namespace() -> Result<PathBuf, SetupError> {
    std::fs::read_link("/proc/self/ns/net").step("read the network namespace")
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

/// The content of `/etc/resolv.conf`. The host's is read by its path, so call this before the
/// host's files are detached.
pub fn resolver_settings(reach: Reach) -> Vec<u8> {
    match reach {
        Reach::Loopback | Reach::Git => b"# This sandbox has no network.\n".to_vec(),
        Reach::Proxy => b"# Names are resolved by the proxy that HTTPS_PROXY names.\n".to_vec(),
        Reach::Host => {
            use std::io::Read;
            let mut settings = Vec::new();
            let file = std::fs::File::open("/etc/resolv.conf");
            match file.and_then(|file| file.take(RESOLVER_LEN_MAX).read_to_end(&mut settings)) {
                Ok(_) => settings,
                Err(_) => b"# The host has no /etc/resolv.conf that could be read.\n".to_vec(),
            }
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
