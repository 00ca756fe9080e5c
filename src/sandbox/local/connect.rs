//! Connects to servers in a sandbox.
//!
//! PID 1 connects, since that is only possible inside, and hands the socket out. It may keep a
//! copy, and both share the flags of the socket. So no call on it may block, whatever the flags
//! are.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_linger, socket_acceptconn, socket_domain, socket_error, socket_protocol, socket_type,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketType, ipproto, recv, send, shutdown,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{Answer, Request};
use super::link::{Link, broken};
use crate::sandbox::WorkError;
use crate::sandbox::descriptors::watched;

/// How long connecting to a server inside may take. Over loopback it takes microseconds, unless
/// the server accepts no connections.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Connects to a port on the sandbox's loopback: on IPv4's, or on IPv6's if that refuses, since
/// some programs listen only there for `localhost`.
///
/// # Errors
/// [`WorkError`].
pub async fn connect(link: &Arc<Link>, port: u16) -> Result<Connection, WorkError> {
    match connect_by(link, port, false).await {
        Err(WorkError::NotListening) => connect_by(link, port, true).await,
        other => other,
    }
}

async fn connect_by(link: &Arc<Link>, port: u16, v6: bool) -> Result<Connection, WorkError> {
    let mut call = link.call(|id| Request::Connect { id, port, v6 }, &[]).await?;
    let (Answer::Opened { .. }, Some(socket)) = call.answer().await? else {
        return Err(broken("the sandbox gave an answer that makes no sense"));
    };
    if !is_connection(&socket).map_err(broken)? {
        return Err(broken("the sandbox handed out something other than a TCP connection"));
    }
    let connection = Connection(watched(socket).map_err(broken)?);
    connection.never_linger();
    let connected = tokio::time::timeout(CONNECT_WAIT, connection.0.writable()).await;
    // Not ready in time: the server's accept queue is full.
    drop(connected.map_err(|_| WorkError::NotListening)?.map_err(broken)?);
    match socket_error(&connection.0).map_err(broken)? {
        Ok(()) => Ok(connection),
        Err(_) => Err(WorkError::NotListening),
    }
}

/// Whether it is a TCP socket for one connection, possibly not connected yet.
fn is_connection(socket: &OwnedFd) -> rustix::io::Result<bool> {
    let family = socket_domain(socket)?;
    Ok((family == AddressFamily::INET || family == AddressFamily::INET6)
        && socket_type(socket)? == SocketType::STREAM
        && socket_protocol(socket)? == Some(ipproto::TCP)
        && !socket_acceptconn(socket)?)
}

/// A connection to a server in a sandbox.
pub struct Connection(AsyncFd<OwnedFd>);

impl Connection {
    /// Makes close return at once: PID 1 could have set lingering, and can again.
    fn never_linger(&self) {
        // Fails if it is no socket any more; then it closes at once.
        let _ = set_socket_linger(self.0.get_ref(), None);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.never_linger();
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let receive = |socket: &AsyncFd<OwnedFd>| {
                let free = buffer.initialize_unfilled();
                Ok(recv(socket.get_ref(), free, RecvFlags::DONTWAIT)?)
            };
            if let Ok(received) = ready.try_io(receive) {
                let (_, len) = received?;
                buffer.advance(len);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = ready.try_io(|socket| Ok(send(socket.get_ref(), bytes, flags)?));
            if let Ok(sent) = sent {
                return Poll::Ready(sent);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.0.get_ref(), Shutdown::Write).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn only_a_connection_over_tcp_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("connected");
        assert!(is_connection(&stream.into()).expect("checked"));
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (unix, _) = UnixStream::pair().expect("a pair");
        for other in [listener.into(), datagrams.into(), unix.into()] {
            assert!(!is_connection(&other).expect("checked"), "{other:?}");
        }
        let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
        assert!(is_connection(&pipe).is_err());
    }

    #[tokio::test]
    async fn a_blocking_socket_does_not_block_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut other, _) = listener.accept().expect("accepted");
        let mut connection = Connection(watched(stream.into()).expect("watched"));
        connection.write_all(b"ping").await.expect("sent");
        let mut got = [0; 4];
        std::io::Read::read_exact(&mut other, &mut got).expect("received");
        assert_eq!(&got, b"ping");
        // There is no data: a blocking call would stop time on this one thread.
        let wait = Duration::from_millis(20);
        tokio::time::timeout(wait, connection.read(&mut got)).await.expect_err("nothing is there");
        let endless = async { while connection.write_all(&[0; 65_536]).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(1), endless)
            .await
            .expect_err("there is no reader");
        drop(other);
    }
}
