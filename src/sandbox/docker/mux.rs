//! Many streams over one connection, for both ends.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::wire::{STREAMS_MAX, mux_config};

/// One stream.
pub type MuxStream = Compat<yamux::Stream>;

/// Requests for new streams that wait.
const OPENS_LEN: usize = 16;

/// A connection. When the last clone is dropped, the connection ends.
#[derive(Clone, Debug)]
pub struct Mux {
    opens: mpsc::Sender<oneshot::Sender<MuxStream>>,
    gone: CancellationToken,
}

impl Mux {
    /// Starts a connection over `socket`. Streams that the other end opens come out of the receiver.
    pub fn start(
        socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mode: yamux::Mode,
    ) -> (Self, mpsc::Receiver<MuxStream>) {
        let connection = yamux::Connection::new(socket.compat(), mux_config(), mode);
        let (opens, wanted) = mpsc::channel(OPENS_LEN);
        // Never full: yamux allows no more streams.
        let (arrived, arrivals) = mpsc::channel(STREAMS_MAX);
        let gone = CancellationToken::new();
        let mut driver = Driver { connection, wanted, opening: None, arrived };
        let ended = gone.clone().drop_guard();
        tokio::spawn(async move {
            poll_fn(|context| driver.poll(context)).await;
            drop((driver, ended));
        });
        (Self { opens, gone }, arrivals)
    }

    /// Opens a stream; `None` if the connection has ended.
    pub async fn open(&self) -> Option<MuxStream> {
        let (sender, opened) = oneshot::channel();
        self.opens.send(sender).await.ok()?;
        opened.await.ok()
    }

    /// Whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// Ends once the connection has. It does not keep the connection.
    pub fn gone(&self) -> WaitForCancellationFutureOwned {
        self.gone.clone().cancelled_owned()
    }
}

/// Moves the bytes of a connection.
struct Driver<T> {
    connection: yamux::Connection<T>,
    wanted: mpsc::Receiver<oneshot::Sender<MuxStream>>,
    opening: Option<oneshot::Sender<MuxStream>>,
    arrived: mpsc::Sender<MuxStream>,
}

impl<T> Driver<T>
where
    T: futures_util::AsyncRead + futures_util::AsyncWrite + Unpin,
{
    /// Ready once the connection has ended or its last handle is dropped.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.opening.is_none() {
                match self.wanted.poll_recv(context) {
                    Poll::Ready(Some(wanted)) => self.opening = Some(wanted),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
            }
            if self.opening.is_some() {
                match self.connection.poll_new_outbound(context) {
                    Poll::Ready(Ok(stream)) => {
                        if let Some(wanted) = self.opening.take() {
                            // A caller that is gone drops the stream.
                            let _ = wanted.send(stream.compat());
                        }
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
            }
            match self.connection.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => drop(self.arrived.try_send(stream.compat())),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn both_ends_open_streams_until_one_of_them_goes() {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (client, mut of_client) = Mux::start(near, yamux::Mode::Client);
        let (server, mut of_server) = Mux::start(far, yamux::Mode::Server);
        for (from, to) in [(&client, &mut of_server), (&server, &mut of_client)] {
            let mut stream = from.open().await.expect("opened");
            stream.write_all(b"ping").await.expect("written");
            stream.shutdown().await.expect("closed");
            let mut got = Vec::new();
            to.recv().await.expect("it arrives").read_to_end(&mut got).await.expect("read");
            assert_eq!(got, b"ping");
        }
        drop(server);
        client.gone().await;
        assert!(client.open().await.is_none());
    }
}
