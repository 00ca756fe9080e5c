//! `issuebox exec -t`: this program's terminal becomes the command's.
//!
//! With `-i` the terminal is raw meanwhile, so Ctrl-C goes to the command as a byte, and it is given
//! back on every way out: the command's end, a broken connection, a panic, and signals, which end
//! this program with 128 + n after that. Closing the connection hangs the command up.

use std::future::pending;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetwinsize};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{self, Message};

use super::{ExecArgs, ended, exit_code};
use crate::cli::Session;
use crate::cli::client::{Call, WebSocket};
use crate::cli::failure::Failure;
use crate::cli::raw::{RawMode, read_keys};
use crate::cli::wire;

/// The meaning of the messages.
const PROTOCOL: &str = "issuebox.terminal.v1";

/// How long a server may be silent; it pings every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Pieces of what is typed that wait for the connection.
const KEYS_LEN: usize = 4;

/// How a terminal came to its end.
enum End {
    Exited(i32),
    /// A signal ended this program first.
    Signalled(i32),
}

pub(super) async fn run(session: &mut Session<'_>, args: ExecArgs) -> anyhow::Result<ExitCode> {
    if !isatty(stdin()) {
        return Err(Failure::Usage {
            message: "standard input is not a terminal".to_owned(),
            hint: "leave -t out: -i alone hands over what a pipe or a file holds".to_owned(),
        }
        .into());
    }
    let sandbox = args.issue.sandbox(&session.client).await?;
    let call = Call::get(&["sandboxes", &sandbox.id, "terminal"]);
    let mut socket = session.client.web_socket(call, PROTOCOL).await?;
    let with_input = args.stdin;
    let start = start_of(args, session.env.get("TERM"));
    socket.send(Message::text(start.to_string())).await.map_err(|e| broken(&e))?;
    match attend(socket, with_input).await? {
        End::Exited(code) => Ok(ExitCode::from(exit_code(code))),
        End::Signalled(signal) => Ok(ExitCode::from(exit_code(128 + signal))),
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

/// How large this terminal is; `None` where it does not say.
fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdin()).or_else(|_| tcgetwinsize(stdout())).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Is the command's terminal until it ends.
async fn attend(socket: WebSocket, with_input: bool) -> anyhow::Result<End> {
    let mut signals = Signals::listen()?;
    let (sink, stream) = socket.split();
    let (sender, keys) = mpsc::channel(KEYS_LEN);
    // Where nothing is typed into the command, Ctrl-C must stay a signal to this program.
    let raw = with_input.then(|| RawMode::take(|| {})).transpose()?;
    if with_input {
        read_keys(move |bytes| sender.blocking_send(bytes.to_vec()).is_ok())?;
    }
    let end = tokio::select! {
        biased;
        signal = signals.end() => Ok(End::Signalled(signal)),
        end = show(stream) => end.map(End::Exited),
        error = send(sink, keys, signal(SignalKind::window_change())?) => Err(error),
    };
    drop(raw);
    end
}

/// The signals that end this program.
struct Signals([(Signal, i32); 4]);

impl Signals {
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

/// Sends what is typed and how large the terminal is, for as long as that can be sent.
async fn send(
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    mut keys: mpsc::Receiver<Vec<u8>>,
    mut resized: Signal,
) -> anyhow::Error {
    let mut types = true;
    loop {
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
        };
        if sink.send(message).await.is_err() {
            // Why is told by what can still be read.
            pending::<()>().await;
        }
    }
}

/// A text message of the server.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum FromServer {
    #[serde(rename_all = "camelCase")]
    Exit {
        exit_code: i32,
    },
    Error {
        message: String,
    },
    /// That it began, and what later versions may tell.
    #[serde(other)]
    Else,
}

/// Shows what the command shows, until it ends.
async fn show(
    mut stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
) -> anyhow::Result<i32> {
    loop {
        let message = tokio::time::timeout(SILENCE_MAX, stream.next())
            .await
            .map_err(|_elapsed| ended("the connection went silent"))?;
        match message {
            Some(Ok(Message::Binary(bytes))) => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Some(Ok(Message::Text(text))) => match wire::read_event(&text)? {
                FromServer::Exit { exit_code } => return Ok(exit_code),
                FromServer::Error { message } => return Err(ended(&message).into()),
                FromServer::Else => {}
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(_))) | None => {
                let message = "the server ended the connection before the command ended";
                return Err(ended(message).into());
            }
            Some(Err(error)) => return Err(broken(&error).into()),
        }
    }
}

fn broken(error: &tungstenite::Error) -> Failure {
    ended(&format!("the connection broke: {error}"))
}
