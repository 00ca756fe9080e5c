//! `issuebox port-forward`: ports of a sandbox on this machine.
//!
//! Each connection here becomes one to the server in the sandbox, over a WebSocket of the API, so
//! whoever can call the API needs no other way in. It carries bytes: what speaks over them, and
//! which address a browser takes it to come from, is as if the server ran here.

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

use super::Session;
use super::client::{ApiClient, ApiRequest, WebSocket};
use super::failure::CliFailure;
use super::target::IssueRef;

/// The meaning of the messages.
const PROTOCOL: &str = "issuebox.tunnel.v1";

/// How long a server may be silent; it pings every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Longest message, in bytes: what the server takes.
const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// How often the server hears of us, whatever comes: it hangs up after four of its own pings.
const PING_EVERY: Duration = Duration::from_secs(15);

/// A name of this machine's loopback (RFC 6761, section 6.3) that the server is not reached by.
/// Browsers keep cookies for a host and not for a port: under another name than the server's they
/// send a sandbox nothing of ours, and take nothing of a sandbox's for ours.
const NAME: &str = "sandbox.localhost";

/// Most connections at a time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

#[derive(Debug, Args)]
pub(super) struct PortForwardArgs {
    /// Listen on this address of this machine; others than 127.0.0.1 let others in
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// A port that the sandbox's template lists, or LOCAL:PORT for another one here, 0 for any
    #[arg(value_name = "PORT", required = true, value_parser = Ports::parse)]
    ports: Vec<Ports>,
}

/// A port here, and the one in the sandbox that it leads to.
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
            return Err("must name a port of the sandbox, from 1 to 65535".to_owned());
        }
        Ok(Self { here, there })
    }
}

pub(super) async fn run(
    session: &mut Session<'_>,
    args: PortForwardArgs,
) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let mut listeners = Vec::new();
    for ports in args.ports {
        // What is wrong with a port is said now, and not to whoever connects.
        check(&session.client, &sandbox.id, ports.there).await?;
        let address = SocketAddr::from((args.address, ports.here));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            anyhow::anyhow!("cannot listen on {address}: {error}; name another port, as in 0:3000")
        })?;
        let address = listener.local_addr()?;
        let line = format!("{address} leads to port {} of {}", ports.there, sandbox.name);
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

/// Carries every connection to a listener, until it can accept no more.
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

/// Carries one connection. What is in its way is told here: over it there is no way to.
async fn carry(client: &ApiClient, sandbox: &str, port: u16, mut stream: TcpStream) {
    match open(client, sandbox, port).await {
        Ok(socket) => {
            let (sink, source) = socket.split();
            let (reader, writer) = stream.split();
            tokio::select! {
                () = back(source, writer) => {}
                is_ours = there(sink, reader) => if is_ours {
                    eprintln!(
                        "port {port}: a browser sent this server's own cookie along and was not let \
                         through; open http://{NAME}:… instead, which has cookies of its own"
                    );
                },
            }
        }
        Err(failure) => eprintln!("port {port}: {failure}"),
    }
}

/// Whether the port is one that can be asked for; that nobody listens there yet is no trouble.
async fn check(client: &ApiClient, sandbox: &str, port: u16) -> anyhow::Result<()> {
    let answer = client.call(ApiRequest::get(&["sandboxes", sandbox, "ports"])).await?;
    let listed: Vec<u64> = answer
        .data()
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["port"].as_u64())
        .collect();
    if listed.contains(&u64::from(port)) {
        return Ok(());
    }
    let message = format!("the sandbox's template does not list port {port}");
    let hint = match &listed[..] {
        [] => "add it to `ports` of the template; sandboxes that are made then have it".to_owned(),
        listed => {
            format!("it lists {}", listed.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
        }
    };
    Err(CliFailure::Usage { message, hint }.into())
}

async fn open(client: &ApiClient, sandbox: &str, port: u16) -> Result<WebSocket, CliFailure> {
    let call = ApiRequest::get(&["sandboxes", sandbox, "ports", &port.to_string()]);
    client.web_socket(call, PROTOCOL).await
}

/// Sends what comes in here, then its end, and a ping now and then: what comes back may wait for
/// somebody here, and with it our answers to the server's pings. Returns where that can't be sent
/// because the server has gone, or, true, where it holds our session: the sandbox must not see that.
async fn there(mut sink: SplitSink<WebSocket, Message>, mut reader: ReadHalf<'_>) -> bool {
    let mut buffer = vec![0; MESSAGE_LEN_MAX];
    let mut tail = Vec::new();
    let mut has_ended = false;
    let mut pings = tokio::time::interval(PING_EVERY);
    loop {
        let message = tokio::select! {
            // What broke off has ended, as far as the server can be told.
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

/// Whether our session's cookie is in what was sent, also where it was cut; `tail` is the end of what
/// came before.
fn holds_session(tail: &mut Vec<u8>, piece: &[u8]) -> bool {
    let own = format!("{SESSION_COOKIE}=").into_bytes();
    tail.extend_from_slice(piece);
    let holds = tail.windows(own.len()).any(|window| window == own);
    tail.drain(..tail.len().saturating_sub(own.len() - 1));
    holds
}

/// Hands out what comes from the sandbox. Returns once the server closes: both directions have ended.
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
    fn our_session_is_found_however_it_is_cut() {
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
    fn a_port_is_the_same_here_unless_another_is_named() {
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
