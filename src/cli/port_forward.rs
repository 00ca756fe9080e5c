//! `issuebox port-forward`: forwards local ports to a sandbox.
//!
//! Each local connection becomes a WebSocket of the API to the server in the sandbox, so a caller
//! needs no access beyond the API. It carries raw bytes, so any protocol over TCP works.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::http::SESSION_COOKIE;
use crate::types::inert;
use crate::web_socket::WebSocket;

use super::CliSession;
use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::target::IssueArg;

/// The WebSocket sub-protocol.
const PROTOCOL: &str = "issuebox.tunnel.v1";

/// Longest silence of a server; it pings every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Largest message that the server accepts, in bytes.
const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// How often to ping the server: it hangs up after four of its own pings.
const PING_EVERY: Duration = Duration::from_secs(15);

/// A loopback name (RFC 6761, section 6.3) other than the server's. Browsers separate cookies by host
/// and not by port, so under another name the dashboard and a sandbox see none of each other's.
const NAME: &str = "sandbox.localhost";

/// Most connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

#[derive(Debug, Args)]
pub(super) struct PortForwardArgs {
    /// Local address to listen on; any other than 127.0.0.1 can let other machines in
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// A port of the sandbox, or LOCAL:PORT for another local port (0 for any)
    #[arg(value_name = "PORT", required = true, value_parser = Ports::parse)]
    ports: Vec<Ports>,
}

/// A local port, and the port in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    here: u16,
    there: u16,
}

impl Ports {
    fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u16>().map_err(|_| "must be PORT or LOCAL:PORT");
        let (here, there) = match text.split_once(':') {
            Some((here, there)) => (number(here)?, number(there)?),
            None => (number(text)?, number(text)?),
        };
        if there == 0 {
            return Err("must be a port of the sandbox, from 1 to 65535".to_owned());
        }
        Ok(Self { here, there })
    }
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: PortForwardArgs,
) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let mut listeners = Vec::new();
    for ports in args.ports {
        let address = SocketAddr::from((args.address, ports.here));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            anyhow::anyhow!("cannot listen on {address}: {error}; use another port, as in 0:3000")
        })?;
        let address = listener.local_addr()?;
        let line = format!("{address} forwards to port {} of {}", ports.there, sandbox.name);
        session.screen.line(&line)?;
        session.screen.line(&format!("  in a browser: http://{NAME}:{}/", address.port()))?;
        listeners.push((listener, ports.there));
    }
    let client = &session.client;
    let serving =
        listeners.iter().map(|(listener, port)| serve(client, &sandbox.id, listener, *port));
    let (failed, ..) = futures_util::future::select_all(serving.map(Box::pin)).await;
    Err(failed.into())
}

/// Serves connections until accepting fails.
async fn serve(client: &ApiClient, sandbox: &str, listener: &TcpListener, port: u16) -> io::Error {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => open.push(carry(client, sandbox, port, stream)),
                Err(error) => return error,
            },
            Some(()) = open.next() => {}
        }
    }
}

/// Serves one connection. Errors are printed here, since the client cannot receive them.
async fn carry(client: &ApiClient, sandbox: &str, port: u16, mut stream: TcpStream) {
    match open(client, sandbox, port).await {
        Ok(socket) => {
            let (sink, source) = socket.split();
            let (reader, writer) = stream.split();
            tokio::select! {
                () = back(source, writer) => {}
                is_ours = there(sink, reader) => if is_ours {
                    eprintln!(
                        "port {port}: rejected a request with the dashboard's session cookie; \
                         open http://{NAME}:… instead, which has its own cookies"
                    );
                },
            }
        }
        Err(failure) => eprintln!("port {port}: {}", inert(&failure.to_string())),
    }
}

async fn open(client: &ApiClient, sandbox: &str, port: u16) -> Result<WebSocket, CliFailure> {
    let call = ApiRequest::get(&["sandboxes", sandbox, "ports", &port.to_string()]);
    client.web_socket(call, PROTOCOL).await
}

/// Sends the client's bytes, then its end, and pings now and then. The pings are needed because our
/// answers to the server's pings wait behind a slow client. Returns when the server is gone, or
/// `true` when the bytes hold the dashboard's session cookie, which a sandbox must not see.
async fn there(mut sink: SplitSink<WebSocket, Message>, mut reader: ReadHalf<'_>) -> bool {
    let mut buffer = vec![0; MESSAGE_LEN_MAX];
    let mut tail = Vec::new();
    let mut has_ended = false;
    let mut pings = tokio::time::interval(PING_EVERY);
    loop {
        let message = tokio::select! {
                // A read error counts as the end.
            read = reader.read(&mut buffer), if !has_ended => {
                let piece = &buffer[..read.unwrap_or(0)];
                has_ended = piece.is_empty();
                if holds_session(&mut tail, piece) {
                    return true;
                }
                Message::binary(piece.to_vec())
            }
            _ = pings.tick() => Message::Ping(Vec::new().into()),
        };
        if sink.send(message).await.is_err() {
            return false;
        }
    }
}

/// Whether the session cookie is in the bytes, even across pieces; `tail` is the previous piece's end.
fn holds_session(tail: &mut Vec<u8>, piece: &[u8]) -> bool {
    let own = format!("{SESSION_COOKIE}=").into_bytes();
    tail.extend_from_slice(piece);
    let holds = tail.windows(own.len()).any(|window| window == own);
    tail.drain(..tail.len().saturating_sub(own.len() - 1));
    holds
}

/// Writes the sandbox's bytes to the client, until the server closes the WebSocket.
async fn back(mut source: SplitStream<WebSocket>, mut writer: WriteHalf<'_>) {
    while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENCE_MAX, source.next()).await {
        let written = match message {
            Message::Binary(bytes) if bytes.is_empty() => writer.shutdown().await,
            Message::Binary(bytes) => writer.write_all(&bytes).await,
            Message::Text(_) | Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(()),
        };
        if written.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_cookie_is_found_across_pieces() {
        let sent = b"GET / HTTP/1.1\r\ncookie: a=b; issuebox_session=secret\r\n\r\n";
        for at in 0..sent.len() {
            let mut tail = Vec::new();
            let (head, rest) = sent.split_at(at);
            assert!(holds_session(&mut tail, head) || holds_session(&mut tail, rest), "{at}");
        }
        let mut tail = Vec::new();
        assert!(!holds_session(&mut tail, b"cookie: issuebox_session"));
        assert!(!holds_session(&mut tail, b"s=1"));
    }

    #[test]
    fn the_local_port_is_the_same_unless_another_is_given() {
        for (text, here, there) in
            [("3000", 3000, 3000), ("8080:3000", 8080, 3000), ("0:80", 0, 80)]
        {
            assert_eq!(Ports::parse(text), Ok(Ports { here, there }), "{text}");
        }
        for wrong in ["", "0", "1:0", "a", "1:2:3", "65536", "-1", ":80", "80:"] {
            assert!(Ports::parse(wrong).is_err(), "{wrong}");
        }
    }
}
