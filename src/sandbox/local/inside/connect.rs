//! Connects to a server in the sandbox, for the server on the host.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::sandbox::confined::{RequestFailure, WorkFailure};

/// A socket that is connected, or connecting, to a port on the sandbox's loopback. PID 1 does not
/// wait for the connection.
pub fn connect(port: u16, v6: bool) -> Result<OwnedFd, RequestFailure> {
    let (family, address): (_, SocketAddr) = if v6 {
        (AddressFamily::INET6, (Ipv6Addr::LOCALHOST, port).into())
    } else {
        (AddressFamily::INET, (Ipv4Addr::LOCALHOST, port).into())
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        // The host may lack IPv6.
        Err(Errno::CONNREFUSED | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => {
            Err(RequestFailure::new(WorkFailure::NotListening, "no server listens on this port"))
        }
        Err(errno) => Err(errno.into()),
    }
}
