//! Checks the listening sockets that a sandbox hands out, which could be anything.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_protocol, socket_type};
use rustix::net::{AddressFamily, SocketType, ipproto};
use tokio::net::TcpListener;

/// Accepts a TCP socket that listens at this port of the loopback, and nothing else. Call it within a
/// tokio runtime.
///
/// # Errors
/// `InvalidInput` for anything else; the system's error.
pub fn take(socket: OwnedFd, port: u16) -> io::Result<TcpListener> {
    let is_listener = socket_type(&socket)? == SocketType::STREAM
        && socket_domain(&socket)? == AddressFamily::INET
        && socket_protocol(&socket)? == Some(ipproto::TCP)
        && socket_acceptconn(&socket)?;
    if !is_listener {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let listener = std::net::TcpListener::from(socket);
    if listener.local_addr()? != SocketAddr::from((Ipv4Addr::LOCALHOST, port)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::sandbox::reach::PROXY_PORT;

    #[tokio::test]
    async fn only_a_socket_listening_at_the_port_is_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let connected = std::net::TcpStream::connect(tcp.local_addr().expect("bound"));
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        let (pair, _other) = UnixStream::pair().expect("a pair");
        let unix = UnixListener::bind(dir.path().join("socket")).expect("bound");
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let file = std::fs::File::open("/dev/null").expect("opened");
        for (what, socket) in [
            ("a pipe", pipe),
            ("a connected socket", connected.expect("connected").into()),
            ("a listener elsewhere", tcp.into()),
            ("a socket pair", pair.into()),
            ("a unix listener", unix.into()),
            ("a datagram socket", udp.into()),
            ("a file", file.into()),
        ] {
            assert!(take(socket, PROXY_PORT).is_err(), "{what} must not be taken");
        }
    }
}
