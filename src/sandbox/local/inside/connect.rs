//! Connects to a server in the sandbox, for the server outside.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use super::super::frame::WorkFailure;
use super::files::Failure;

/// A socket that is connected to a port of the sandbox's own loopback, or about to be: PID 1 waits
/// for nobody.
pub fn connect(port: u16, v6: bool) -> Result<OwnedFd, Failure> {
    let (family, address): (_, SocketAddr) = if v6 {
        (AddressFamily::INET6, (Ipv6Addr::LOCALHOST, port).into())
    } else {
        (AddressFamily::INET, (Ipv4Addr::LOCALHOST, port).into())
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        // A host may have been set up without IPv6.
        Err(Errno::CONNREFUSED | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => {
            Err(Failure::new(WorkFailure::NotListening, "nobody listens there"))
        }
        Err(errno) => Err(errno.into()),
    }
}
