//! How a server that listens in a sandbox is reached.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways. Dropping it closes the connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A way to the server on one port of a sandbox.
pub enum PortAccess {
    /// An open connection to it, for any protocol. Needs
    /// [`Capability::Tunnels`](super::Capability::Tunnels).
    Stream(Box<dyn Stream>),
    /// An address of the provider that passes HTTP requests on to it.
    Http(HttpAccess),
}

/// An HTTP address that leads to one port of a sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpAccess {
    /// `http` or `https`, host and optional path prefix; the request's path and query follow it.
    pub base_url: String,
    /// Added to every request, such as the provider's token. Secret.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for PortAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(_) => f.write_str("Stream"),
            Self::Http(access) => f.debug_tuple("Http").field(access).finish(),
        }
    }
}

impl fmt::Debug for HttpAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("HttpAccess");
        shown.field("base_url", &self.base_url).field("headers", &names).finish()
    }
}
