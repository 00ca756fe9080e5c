//! A sandbox's network from inside: resolver settings, the sockets of server and proxy, and the environment
//! variables that name the proxy.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with};
use rustix::thread::UnshareFlags;

use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};
use crate::sandbox::reach::{MODELS_PORT, PROXY_PORT, Reach};

/// Connections that wait for the server to accept them.
const WAITING_MAX: i32 = 128;

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
