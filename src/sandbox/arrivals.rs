//! Connections from a sandbox, however they reach the server.

use std::future::Future;
use std::io;

use tokio::net::{TcpListener, TcpStream};

use super::Stream;

/// Where one sandbox's connections to a service of the server arrive.
pub trait Arrivals: Send + 'static {
    /// One connection.
    type Connection: Stream + 'static;

    /// The next one. Dropping the future loses none.
    ///
    /// # Errors
    /// Nothing can arrive for a moment, such as for want of file descriptors.
    fn next(&mut self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

/// The socket that a sandbox of this machine has passed to the server.
impl Arrivals for TcpListener {
    type Connection = TcpStream;

    async fn next(&mut self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Without it a small piece waits for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}
