//! Connections to servers in a sandbox.

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways. Dropping it closes the connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
