//! The model's terminals: a login shell at a pseudo-terminal each, behind a WebSocket.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::model::Model;
use super::server::ModelAnswer;
use super::toolbox::error;

/// The largest message that is taken, in bytes.
const READ_LIMIT: usize = 64 << 10;

/// A terminal and the shell at it.
pub struct ModelTerminal {
    shell: i32,
    keys: Arc<File>,
    master: OwnedFd,
    size: (u16, u16),
    /// What is shown, for the one that connects.
    shown: Mutex<Option<mpsc::Receiver<Bytes>>>,
    exit: watch::Receiver<Option<i32>>,
}

fn number(value: &Value) -> u16 {
    value.as_u64().and_then(|number| number.try_into().ok()).expect("a size")
}

fn resize(master: &OwnedFd, (columns, rows): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("resized");
}

/// Answers a request of a toolbox that concerns terminals.
pub fn answer(
    model: &Model,
    id: &str,
    call: (&str, &[&str]),
    body: &Bytes,
    login_shell: impl Fn() -> Command,
) -> ModelAnswer {
    let asked = || serde_json::from_slice::<Value>(body).expect("JSON");
    match call {
        ("POST", []) => {
            let asked = asked();
            let session = asked["id"].as_str().expect("an id").to_owned();
            let terminal = ModelTerminal::start(login_shell(), &asked);
            let answer = json!({"sessionId": session});
            model.with(id, |sandbox| drop(sandbox.terminals.insert(session, terminal)));
            (201, answer).into()
        }
        ("POST", [terminal, "resize"]) => {
            let mut info = None;
            model.with(id, |sandbox| {
                info = sandbox.terminals.get_mut(*terminal).map(|found| {
                    found.resize(&asked());
                    found.info(terminal)
                });
            });
            info.map_or_else(|| error(410, "no such terminal"), |info| (200, info).into())
        }
        ("DELETE", [terminal]) => {
            let mut found = None;
            model.with(id, |sandbox| found = sandbox.terminals.remove(*terminal));
            let Some(found) = found else { return error(404, "no such terminal") };
            found.kill();
            (200, json!({"message": "it is deleted"})).into()
        }
        _ => error(404, "no such call"),
    }
}

impl ModelTerminal {
    /// Starts an interactive login shell, with the environment of `command`.
    pub fn start(mut command: Command, asked: &Value) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = rustix::fs::open(name, flags, Mode::empty()).expect("opened");
        let size = (number(&asked["cols"]), number(&asked["rows"]));
        resize(&master, size);
        let given = || Stdio::from(side.try_clone().expect("a copy"));
        command.stdin(given()).stdout(given()).stderr(given());
        command.env("TERM", "xterm-256color").current_dir(asked["cwd"].as_str().expect("a path"));
        for (name, value) in asked["envs"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().expect("a text"));
        }
        let mut child = command.spawn().expect("it starts");
        drop((command, side));
        let shell = child.id().cast_signed();
        let (shows, shown) = mpsc::channel(256);
        let mut output = File::from(master.try_clone().expect("a copy"));
        std::thread::spawn(move || {
            let mut bytes = [0; 32 << 10];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                // It is read before a client connects, too: the shell would wait.
                drop(shows.blocking_send(Bytes::copy_from_slice(&bytes[..len])));
            }
        });
        let (ended, exit) = watch::channel(None);
        std::thread::spawn(move || {
            let status = child.wait().expect("it was not waited for");
            ended.send_replace(Some(status.code().unwrap_or(-1)));
        });
        let keys = Arc::new(File::from(master.try_clone().expect("a copy")));
        Self { shell, keys, master, size, shown: Mutex::new(Some(shown)), exit }
    }

    pub fn resize(&mut self, asked: &Value) {
        self.size = (number(&asked["cols"]), number(&asked["rows"]));
        resize(&self.master, self.size);
    }

    /// What the toolbox says of it.
    pub fn info(&self, id: &str) -> Value {
        json!({
            "id": id, "cwd": "/", "envs": {}, "cols": self.size.0, "rows": self.size.1,
            "createdAt": "2026-01-01T00:00:00Z", "active": true, "lazyStart": false,
        })
    }

    /// Kills the shell, as the toolbox does.
    pub fn kill(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.shell) {
            // It may have ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Carries what is typed and shown over a connection, once that is upgraded.
    pub fn connect(&self, request: Request<Incoming>) {
        let mut shown = self.shown.lock().expect("not poisoned").take().expect("one connects");
        let (mut exit, keys) = (self.exit.clone(), Arc::clone(&self.keys));
        tokio::spawn(async move {
            let stream = hyper::upgrade::on(request).await.expect("upgraded");
            let socket =
                WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, None).await;
            let (mut sink, mut source) = socket.split();
            let connected = json!({"type": "control", "status": "connected"}).to_string();
            // An error means that the client has gone.
            let _ = sink.send(Message::text(connected)).await;
            let typing = async {
                while let Some(Ok(message)) = source.next().await {
                    if message.is_binary() || message.is_text() {
                        let bytes = message.into_data();
                        assert!(bytes.len() <= READ_LIMIT, "the toolbox closes the connection");
                        let mut keys = keys.try_clone().expect("a copy");
                        let written = tokio::task::spawn_blocking(move || keys.write_all(&bytes));
                        // Its shell may have ended.
                        drop(written.await.expect("no panic"));
                    }
                }
            };
            let showing = async {
                let ended = async {
                    let code = exit.wait_for(Option::is_some).await;
                    code.ok().and_then(|code| *code).unwrap_or(-1)
                };
                tokio::pin!(ended);
                let code = loop {
                    tokio::select! {
                        Some(bytes) = shown.recv() => {
                            if sink.send(Message::Binary(bytes)).await.is_err() {
                                return;
                            }
                        }
                        code = &mut ended => break code,
                    }
                };
                let code = json!({"exitCode": code}).to_string();
                let frame = CloseFrame { code: CloseCode::Error, reason: code.into() };
                let _ = sink.send(Message::Close(Some(frame))).await;
            };
            tokio::select! { () = typing => {} () = showing => {} }
        });
    }
}
