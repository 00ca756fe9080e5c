//! `issuebox exec -t`: connects this program's terminal to the command's.
//!
//! With `-i` the terminal is in raw mode, so Ctrl-C reaches the command as a byte. The terminal is
//! restored when the command ends, the connection breaks, this program panics or a signal arrives;
//! after a signal n it exits with 128 + n. Closing the connection hangs up the command.
//!
//! Signals are handled even while output blocks (`outlet`). Pings keep the server from dropping a
//! client that does not read, and reveal a server that is gone.

use std::cell::Cell;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetwinsize};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

use super::outlet::Outlet;
use super::{ExecArgs, broken_off, ended, exit_code};
use crate::cli::CliSession;
use crate::cli::client::ApiRequest;
use crate::cli::failure::CliFailure;
use crate::cli::raw::{RawMode, read_keys};
use crate::cli::wire;
use crate::web_socket::WebSocket;

/// The WebSocket sub-protocol.
const PROTOCOL: &str = "issuebox.terminal.v1";

/// Longest silence of a server; it pings every 15 seconds.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How often to ping a server whose own pings wait behind blocked output.
pub(super) const PING_EVERY: Duration = Duration::from_secs(15);

/// How many pieces of input may wait for the connection.
const KEYS_LEN: usize = 4;

/// How a terminal ended.
enum TerminalEnd {
    Exited(i32),
    /// A signal ended this program.
    Signalled(i32),
}

pub(super) async fn run(session: &mut CliSession<'_>, args: ExecArgs) -> anyhow::Result<ExitCode> {
    if !isatty(stdin()) {
        return Err(CliFailure::Usage {
            message: "standard input is not a terminal".to_owned(),
            hint: "leave -t out: -i alone passes a pipe or a file".to_owned(),
        }
        .into());
    }
    let sandbox = args.issue.sandbox(&session.client).await?;
    let call = ApiRequest::get(&["sandboxes", &sandbox.id, "terminal"]);
    let mut socket = session.client.web_socket(call, PROTOCOL).await?;
    let with_input = args.stdin;
    let start = start_of(args, session.env.get("TERM"));
    socket.send(Message::text(start.to_string())).await.map_err(|e| broken(&e))?;
    match attend(socket, with_input).await? {
        TerminalEnd::Exited(code) => Ok(ExitCode::from(exit_code(code))),
        TerminalEnd::Signalled(signal) => Ok(ExitCode::from(exit_code(128 + signal))),
    }
}

fn start_of(args: ExecArgs, term: Option<&str>) -> Value {
    let mut start = Map::new();
    start.insert("type".into(), json!("start"));
    if !args.command.is_empty() {
        start.insert("command".into(), json!(args.command));
    }
    if let Some(workdir) = args.workdir {
        start.insert("cwd".into(), json!(workdir));
    }
    let term = term.map(|term| ("TERM".to_owned(), term.to_owned()));
    let env = term.into_iter().chain(args.env);
    start.insert("env".into(), env.map(|(name, value)| (name, json!(value))).collect());
    if let Some((columns, rows)) = size() {
        start.insert("columns".into(), json!(columns));
        start.insert("rows".into(), json!(rows));
    }
    Value::Object(start)
}

/// The terminal's size; `None` if unknown.
fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdin()).or_else(|_| tcgetwinsize(stdout())).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Connects the terminal to the command until it ends.
async fn attend(socket: WebSocket, with_input: bool) -> anyhow::Result<TerminalEnd> {
    let mut signals = TerminalSignals::listen()?;
    let (sink, stream) = socket.split();
    let (sender, keys) = mpsc::channel(KEYS_LEN);
    // Without -i, Ctrl-C must stay a signal to this program.
    let raw = with_input.then(|| RawMode::take(|| {})).transpose()?;
    if with_input {
        read_keys(move |bytes| sender.blocking_send(bytes.to_vec()).is_ok())?;
    }
    let outlet = Outlet::stdout()?;
    let (resized, is_full) = (signal(SignalKind::window_change())?, outlet.is_full());
    let end = tokio::select! {
        biased;
        signal = signals.end() => Ok(TerminalEnd::Signalled(signal)),
        end = show(stream, outlet) => end.map(TerminalEnd::Exited),
        error = send(sink, keys, resized, is_full) => Err(error.into()),
    };
    drop(raw);
    end
}

/// The signals that end this program.
struct TerminalSignals([(Signal, i32); 4]);

impl TerminalSignals {
    fn listen() -> io::Result<Self> {
        let of = |kind: SignalKind| Ok::<_, io::Error>((signal(kind)?, kind.as_raw_value()));
        Ok(Self([
            of(SignalKind::hangup())?,
            of(SignalKind::interrupt())?,
            of(SignalKind::quit())?,
            of(SignalKind::terminate())?,
        ]))
    }

    async fn end(&mut self) -> i32 {
        let [hangup, interrupt, quit, terminate] = &mut self.0;
        tokio::select! {
            _ = hangup.0.recv() => hangup.1,
            _ = interrupt.0.recv() => interrupt.1,
            _ = quit.0.recv() => quit.1,
            _ = terminate.0.recv() => terminate.1,
        }
    }
}

/// Sends input and terminal sizes until sending fails.
async fn send(
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    mut keys: mpsc::Receiver<Vec<u8>>,
    mut resized: Signal,
    is_full: Rc<Cell<bool>>,
) -> CliFailure {
    let mut types = true;
    let mut pings = interval(PING_EVERY);
    let error = loop {
        let message = tokio::select! {
            typed = keys.recv(), if types => match typed {
                Some(bytes) => Message::binary(bytes),
                None => {
                    types = false;
                    continue;
                }
            },
            _ = resized.recv() => match size() {
                Some((columns, rows)) => {
                    let resize = json!({"type": "resize", "columns": columns, "rows": rows});
                    Message::text(resize.to_string())
                }
                None => continue,
            },
            _ = pings.tick() => match is_full.get() {
                true => Message::Ping(Bytes::new()),
                        // The server's pings are read, and answered.
                false => continue,
            },
        };
        if let Err(error) = sink.send(message).await {
            break broken(&error);
        }
    };
    // While output is read, the reader reports the reason better.
    while !is_full.get() {
        pings.tick().await;
    }
    error
}

/// A text message of the server.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum FromServer {
    /// The command ended.
    #[serde(rename_all = "camelCase")]
    Exit {
        exit_code: i32,
        /// Only commands without a terminal have a timeout.
        #[serde(default)]
        timed_out: bool,
    },
    /// The connection ends for another reason.
    Error {
        #[serde(default)]
        code: String,
        message: String,
    },
    /// `started`, and messages of later versions.
    #[serde(other)]
    Else,
}

/// Prints output until the command ends. If the connection breaks, the output that waits is still
/// written as long as it is read.
async fn show(
    stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
    mut outlet: Outlet,
) -> anyhow::Result<i32> {
    let end = receive(stream, &mut outlet).await?;
    match &end {
        Ok(_) => outlet.finish().await?,
        Err(_) => outlet.finish_while_taken().await,
    }
    end
}

/// Reads from the server until the command or the connection ends; fails if output cannot be written.
async fn receive(
    mut stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
    outlet: &mut Outlet,
) -> io::Result<anyhow::Result<i32>> {
    let failure = loop {
        match timeout(SILENCE_MAX, stream.next()).await {
            Ok(Some(Ok(Message::Binary(bytes)))) => outlet.write(bytes).await?,
            Ok(Some(Ok(Message::Text(text)))) => match wire::read_event(&text) {
                Ok(FromServer::Exit { exit_code, .. }) => return Ok(Ok(exit_code)),
                Ok(FromServer::Error { code, message }) => break broken_off(code, message),
                Ok(FromServer::Else) => {}
                Err(error) => return Ok(Err(error.into())),
            },
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
            Ok(Some(Ok(Message::Close(_))) | None) => {
                break ended("the server ended the connection before the command ended");
            }
            Ok(Some(Err(error))) => break broken(&error),
            Err(_elapsed) => break ended("the connection went silent"),
        }
    };
    Ok(Err(failure.into()))
}

pub(super) fn broken(error: &tungstenite::Error) -> CliFailure {
    ended(&format!("the connection broke: {error}"))
}

#[cfg(test)]
mod tests {
    use futures_util::sink;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_gone_is_noticed_once_nothing_more_is_taken_in() {
        let gone = |(), _: Message| async { Err(tungstenite::Error::ConnectionClosed) };
        let sink = Box::pin(sink::unfold((), gone));
        let (typing, keys) = mpsc::channel(1);
        let resized = signal(SignalKind::window_change()).expect("received");
        let is_full: Rc<Cell<bool>> = Rc::default();
        let mut sending = Box::pin(send(sink, keys, resized, Rc::clone(&is_full)));
        typing.send(b"x".to_vec()).await.expect("taken");
        // While output is read, the reader reports the end.
        timeout(PING_EVERY * 9, &mut sending).await.expect_err("the sender does not end");
        is_full.set(true);
        timeout(PING_EVERY, sending).await.expect("the sender notices");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_pings_are_not_read_gets_pings() {
        let (sent, mut received) = mpsc::unbounded_channel();
        let send_to = move |(), message: Message| {
            let sent = sent.clone();
            async move { sent.send(message).map_err(|_| tungstenite::Error::ConnectionClosed) }
        };
        let sink = Box::pin(sink::unfold((), send_to));
        let (_typing, keys) = mpsc::channel(1);
        let resized = signal(SignalKind::window_change()).expect("received");
        let is_full: Rc<Cell<bool>> = Rc::default();
        let mut sending = Box::pin(send(sink, keys, resized, Rc::clone(&is_full)));
        timeout(PING_EVERY * 9, &mut sending).await.expect_err("it goes on");
        assert!(received.try_recv().is_err(), "nothing to say");
        is_full.set(true);
        timeout(PING_EVERY * 2, &mut sending).await.expect_err("it goes on");
        assert!(matches!(received.try_recv(), Ok(Message::Ping(_))));
    }
}
