//! What goes through all proxies of a server, counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sandbox::{Egress, EgressResult};

/// The counts.
#[derive(Debug, Default)]
pub struct Meter {
    open: AtomicU64,
    results: [AtomicU64; EgressResult::ALL.len()],
    sent: AtomicU64,
    received: AtomicU64,
}

impl Meter {
    /// Counts what became of a request.
    pub fn count(&self, result: EgressResult) {
        // The order of `ALL` is that of the variants.
        self.results[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection from inside as open until this is dropped.
    pub fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    /// How it stands.
    pub fn read(&self) -> Egress {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Egress {
            open: value(&self.open),
            results: self.results.each_ref().map(value),
            sent: value(&self.sent),
            received: value(&self.received),
        }
    }
}

/// A connection that is open.
pub struct Open(Arc<Meter>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream to somewhere outside whose bytes are counted.
pub struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
}

impl<S> Metered<S> {
    /// Counts what goes through a stream.
    pub fn new(stream: S, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        self.meter.received.fetch_add(read as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.meter.sent.fetch_add(written as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_counted_as_itself() {
        let meter = Meter::default();
        for (n, result) in EgressResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, n, "{}", result.as_str());
            meter.count(result);
            assert_eq!(meter.read().results.iter().sum::<u64>(), n as u64 + 1);
        }
        assert_eq!(meter.read().results, [1; EgressResult::ALL.len()]);
    }
}
