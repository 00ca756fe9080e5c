//! A stream that fails when no byte was transferred for a while, in either direction.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The stream.
pub struct Idle<S> {
    stream: S,
    wait: Duration,
    over: Pin<Box<Sleep>>,
}

impl<S> Idle<S> {
    /// Fails the stream after `wait` without a byte.
    pub fn new(stream: S, wait: Duration) -> Self {
        Self { stream, wait, over: Box::pin(sleep(wait)) }
    }

    /// Passes on a result, or fails if it took too long.
    fn within<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            ready!(self.over.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let until = Instant::now() + self.wait;
        self.over.as_mut().reset(until);
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Idle<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.within(polled, context)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(polled, context)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_fails_when_idle_and_not_before() {
        let (near, mut far) = duplex(4);
        let mut near = Idle::new(near, Duration::from_secs(10));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(9)).await;
            far.write_all(b"x").await.expect("written");
            near.read_u8().await.expect("what comes in keeps it");
        }
        let error = near.read_u8().await.expect_err("it is idle");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (near, _far) = duplex(4);
        let mut near = Idle::new(near, Duration::from_secs(10));
        let error = near.write_all(b"not read").await.expect_err("it is idle");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
