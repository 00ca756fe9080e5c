//! `issuebox exec -i`: streams standard input to the command as it arrives, and its two outputs back.
//!
//! Both directions are bounded. Output that is not read blocks the command, not its input; input that
//! the command does not read is not read from standard input either.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

use super::attach::{FromServer, PING_EVERY, SILENCE_MAX, broken};
use super::outlet::Outlet;
use super::{ExecArgs, broken_off, command_of, ended};
use crate::cli::client::{ApiClient, ApiRequest};
use crate::cli::raw::read_keys;
use crate::cli::unresolved::Unresolved;
use crate::cli::wire::{self, ExecExit};

/// The WebSocket sub-protocol.
const PROTOCOL: &str = "issuebox.exec.v1";

/// The first byte of a binary message: the output that it belongs to.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// How many pieces of input may wait for the connection.
const INPUT_LEN: usize = 4;

pub(super) async fn run(
    client: &ApiClient,
    sandbox: &str,
    args: ExecArgs,
    unresolved: &mut Unresolved,
) -> anyhow::Result<ExecExit> {
    let call = ApiRequest::get(&["sandboxes", sandbox, "exec"]);
    let mut socket = client.web_socket(call, PROTOCOL).await?;
    let mut start = command_of(args);
    start.insert("type".into(), json!("start"));
    let start = Message::text(Value::Object(start).to_string());
    socket.send(start).await.map_err(|error| broken(&error))?;
    let (sink, stream) = socket.split();
    let (sender, input) = mpsc::channel(INPUT_LEN);
    read_keys(move |bytes| sender.blocking_send(Bytes::copy_from_slice(bytes)).is_ok())?;
    let outputs = Outputs { stdout: Outlet::stdout()?, stderr: Outlet::stderr()? };
    let is_full = [outputs.stdout.is_full(), outputs.stderr.is_full()];
    tokio::select! {
        biased;
        end = show(stream, outputs, unresolved) => end,
        error = send(sink, input, is_full) => Err(broken(&error).into()),
    }
}

/// Sends input, and pings while output is not read; returns when the connection breaks.
async fn send(
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    mut input: mpsc::Receiver<Bytes>,
    is_full: [Rc<Cell<bool>>; 2],
) -> tungstenite::Error {
    let mut has_more = true;
    let mut pings = interval(PING_EVERY);
    let is_full = || is_full.iter().any(|is_full| is_full.get());
    let error = loop {
        let message = tokio::select! {
            piece = input.recv(), if has_more => match piece {
                Some(bytes) => Message::Binary(bytes),
                None => {
                    has_more = false;
                    Message::text(json!({"type": "endOfInput"}).to_string())
                }
            },
            _ = pings.tick() => match is_full() {
                // The server's pings wait behind the output.
                true => Message::Ping(Bytes::new()),
                false => continue,
            },
        };
        if let Err(error) = sink.send(message).await {
            break error;
        }
    };
    // While output is read, the reader reports the reason better.
    while !is_full() {
        pings.tick().await;
    }
    error
}

/// The two outputs.
struct Outputs {
    stdout: Outlet,
    stderr: Outlet,
}

/// Prints output until the command ends.
async fn show(
    mut stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
    mut outputs: Outputs,
    unresolved: &mut Unresolved,
) -> anyhow::Result<ExecExit> {
    let end = loop {
        match timeout(SILENCE_MAX, stream.next()).await {
            Ok(Some(Ok(Message::Binary(mut bytes)))) if !bytes.is_empty() => {
                let output = bytes.split_to(1)[0];
                unresolved.see(&bytes);
                match output {
                    STDOUT => outputs.stdout.write(bytes).await?,
                    STDERR => outputs.stderr.write(bytes).await?,
                    // Outputs of later versions.
                    _ => {}
                }
            }
            Ok(Some(Ok(Message::Text(text)))) => match wire::read_event(&text) {
                Ok(FromServer::Exit { exit_code, timed_out }) => {
                    break Ok(ExecExit { exit_code, timed_out });
                }
                Ok(FromServer::Error { code, message }) => {
                    break Err(broken_off(code, message).into());
                }
                Ok(FromServer::Else) => {}
                Err(error) => break Err(error.into()),
            },
            Ok(Some(Ok(
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
            ))) => {}
            Ok(Some(Ok(Message::Close(_))) | None) => {
                let message = "the server ended the connection before the command ended";
                break Err(ended(message).into());
            }
            Ok(Some(Err(error))) => break Err(broken(&error).into()),
            Err(_elapsed) => break Err(ended("the connection went silent").into()),
        }
    };
    let Outputs { stdout, stderr } = outputs;
    match &end {
        Ok(_) => {
            stdout.finish().await?;
            stderr.finish().await?;
        }
        Err(_) => {
            stdout.finish_while_taken().await;
            stderr.finish_while_taken().await;
        }
    }
    end
}
