//! Commands at terminals: a pseudo-terminal session of the toolbox, over its WebSocket.
//!
//! The toolbox offers a login shell, and no more. It is typed one line, with which it becomes a script of
//! ours that runs the command and reports its end. What is shown before the script's first mark is the
//! shell's own; what comes between the marks is the command's, byte for byte. The toolbox says when the
//! shell has ended, but may lose what was shown just before that: so the script waits for us behind its
//! last mark.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::DaytonaProvider;
use super::files::decoded;
use super::processes::cannot_start;
use super::shell::{Script, quoted};
use super::toolbox::{TerminalBody, Toolbox};
use crate::sandbox::{
    Target, Terminal, TerminalControl, TerminalEvent, TerminalRequest, TerminalSignal,
    TerminalSize, WorkError,
};
use crate::web_socket::WebSocket;

/// Pieces of input, of output and control requests that wait.
const PIECES_LEN: usize = 4;
/// Output that waits for a reader, in bytes. The toolbox cannot make a command wait: it keeps 256 pieces
/// for a slow reader and then hangs up on it.
const KEPT_LEN_MAX: usize = 4 << 20;
/// The largest message of input, in bytes. The toolbox takes at most 64 KiB.
const INPUT_LEN_MAX: usize = 16 << 10;
/// How long the shell may take to start the command.
const START_WAIT: Duration = Duration::from_secs(20);
/// How often the connection is used. Proxies on the way close quiet ones after a minute.
const PING_EVERY: Duration = Duration::from_secs(25);
/// Daytona's limits on a size.
const SIZE_MAX: u16 = 1_000;

/// Opens a terminal. If its caller gives up meanwhile, that goes on: what has begun in the sandbox is
/// ended once it is known.
///
/// # Errors
/// [`WorkError`]
pub(super) async fn open(
    provider: DaytonaProvider,
    target: Target,
    request: TerminalRequest,
) -> Result<Terminal, WorkError> {
    let opened = tokio::spawn(begin(provider, target, request)).await;
    opened.unwrap_or_else(|_| Err(WorkError::Broken("opening the terminal panicked".into())))
}

async fn begin(
    provider: DaytonaProvider,
    target: Target,
    request: TerminalRequest,
) -> Result<Terminal, WorkError> {
    let toolbox = provider.toolbox(&target).await?;
    let id = provider.ids.request_id();
    let mark = format!("\x1b]issuebox;{};", provider.ids.request_id());
    let session = TerminalSession { provider, target, toolbox, id };
    let socket = match session.connect(&request, &mark).await {
        Ok(socket) => socket,
        Err(error) => {
            session.end().await;
            return Err(error);
        }
    };
    let (input, typed) = mpsc::channel(PIECES_LEN);
    let (control, controls) = mpsc::channel(PIECES_LEN);
    let (shown, events) = mpsc::channel(PIECES_LEN);
    let (sink, stream) = socket.split();
    let mut output = MarkedOutput::new(stream, &mark);
    let started = timeout(START_WAIT, output.begin()).await;
    if !matches!(started, Ok(true)) {
        session.end().await;
        let why = "the sandbox's shell did not start the command; see that its image has a shell \
                   that works at a terminal";
        return Err(WorkError::Broken(why.into()));
    }
    tokio::spawn(async move {
        tokio::select! {
            () = output.show(&shown) => {}
            () = shown.closed() => {}
            () = type_in(sink, typed) => {}
            () = session.attend(controls) => {}
        }
        // Who reads is not kept waiting for what is left to do in the sandbox.
        drop(shown);
        session.end().await;
    });
    Ok(Terminal { input, control, events })
}

/// One session of the toolbox.
struct TerminalSession {
    provider: DaytonaProvider,
    target: Target,
    toolbox: Toolbox,
    id: String,
}

impl TerminalSession {
    /// Starts the shell and types the line with which it becomes the script.
    async fn connect(&self, request: &TerminalRequest, mark: &str) -> Result<WebSocket, WorkError> {
        let (place, cwd) = self.prepare(request, mark).await?;
        let home = place.rsplit_once('/').map_or("", |(dir, _)| dir);
        let mut envs = vec![("HOME", format!("{home}/home")), ("HISTFILE", String::new())];
        let term = request.env.iter().find(|(name, _)| name == "TERM");
        envs.extend(term.map(|(_, term)| ("TERM", term.clone())));
        let size = within_limits(request.size);
        let body = TerminalBody {
            id: &self.id,
            cwd: &cwd,
            envs: envs.into_iter().collect(),
            cols: size.columns,
            rows: size.rows,
        };
        let connected = async {
            self.toolbox.create_terminal(&body).await?;
            let mut socket = self.toolbox.connect_terminal(&self.id).await?;
            let line = format!(" exec sh {}\r", quoted(&format!("{place}.run")));
            // If it breaks off, the wait for the first mark ends.
            let _ = socket.send(Message::Binary(line.into())).await;
            Ok(socket)
        };
        match connected.await {
            Ok(socket) => Ok(socket),
            Err(failure) => Err(self.provider.work_error(&self.target, failure).await),
        }
    }

    /// Writes the script; returns where, without `.run`, and where its command begins.
    async fn prepare(
        &self,
        request: &TerminalRequest,
        mark: &str,
    ) -> Result<(String, String), WorkError> {
        let variables = self.provider.variables(&self.toolbox, &request.env)?;
        let dir = self.toolbox.dir_of(request.cwd.as_deref());
        let words: Vec<&str> =
            variables.iter().chain(&request.command).map(String::as_str).collect();
        let run = run_script(mark, &words);
        let count = variables.len().to_string();
        let mut arguments = vec!["open", &self.id, &run, &dir, &count];
        arguments.extend(words);
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(WorkError::CannotStart("the command has a NUL byte".into()));
        }
        let printed = match self.toolbox.run(Script::Terminal, &arguments).await {
            Ok(Some(printed)) => printed,
            Ok(None) => return Err(WorkError::Broken("the sandbox took too long for it".into())),
            Err(failure) => return Err(self.provider.work_error(&self.target, failure).await),
        };
        if let Some(why) = printed.trim().strip_prefix("fail ") {
            return Err(cannot_start(why));
        }
        let (place, dir) = printed.split_once(':').unwrap_or_default();
        let text = |words| decoded(words).map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((text(place)?, text(dir)?))
    }

    /// Does what is asked for, and never ends.
    async fn attend(&self, mut controls: mpsc::Receiver<TerminalControl>) {
        while let Some(control) = controls.recv().await {
            let done = match control {
                TerminalControl::Resize(size) => {
                    self.toolbox.resize_terminal(&self.id, within_limits(size)).await
                }
                TerminalControl::Signal(signal) => {
                    let arguments: &[&str] = match signal {
                        TerminalSignal::Interrupt => &["signal", &self.id, "INT"],
                        TerminalSignal::Quit => &["signal", &self.id, "QUIT"],
                        TerminalSignal::Kill => &["kill", &self.id],
                    };
                    self.toolbox.run(Script::Terminal, arguments).await.map(drop)
                }
            };
            if let Err(failure) = done {
                tracing::debug!(error = failure.words(), "a terminal was not changed");
            }
        }
        std::future::pending().await
    }

    /// Hangs up on what still runs, and ends the session.
    async fn end(&self) {
        let ended = self.toolbox.run(Script::Terminal, &["end", &self.id]).await.map(drop);
        for done in [ended, self.toolbox.delete_terminal(&self.id).await] {
            if let Err(failure) = done {
                tracing::debug!(error = failure.words(), "a terminal in a sandbox stays");
            }
        }
    }
}

/// A size as Daytona takes it.
fn within_limits(size: TerminalSize) -> TerminalSize {
    TerminalSize { columns: size.columns.clamp(1, SIZE_MAX), rows: size.rows.clamp(1, SIZE_MAX) }
}

/// The script that a shell becomes. Keys that end the command do not end the script.
fn run_script(mark: &str, words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let (mark, words) = (mark.replace('\x1b', r"\033"), words.join(" "));
    format!(
        r#"T=${{0%.run}}
. "$T.env"
rm -f "$T.env" "$0"
trap : INT QUIT
read -r line </proc/$$/stat
rest=${{line##*) }}
set -- $rest
shift 19
echo "$$ $1" >"$T.pid"
(
    printf '{mark}begin\007'
    exec env {words}
)
printf '{mark}%d\007' $?
sleep 30
"#
    )
}

/// Sends what is typed, and uses the connection. Never ends: a connection that breaks ends what is read.
async fn type_in(mut sink: SplitSink<WebSocket, Message>, mut typed: mpsc::Receiver<Bytes>) {
    let mut pings = interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            Some(mut bytes) = typed.recv() => {
                let mut sent = Ok(());
                while !bytes.is_empty() && sent.is_ok() {
                    let piece = bytes.split_to(bytes.len().min(INPUT_LEN_MAX));
                    sent = sink.send(Message::Binary(piece)).await;
                }
                sent
            }
            _ = pings.tick() => sink.send(Message::Ping(Bytes::new())).await,
        };
        if sent.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a terminal shows, between the marks.
struct MarkedOutput {
    stream: SplitStream<WebSocket>,
    mark: Vec<u8>,
    /// What is not looked at yet: it may end within a mark.
    rest: Vec<u8>,
    /// What waits for the reader.
    kept: VecDeque<Bytes>,
    kept_len: usize,
}

impl MarkedOutput {
    fn new(stream: SplitStream<WebSocket>, mark: &str) -> Self {
        let mark = mark.as_bytes().to_vec();
        Self { stream, mark, rest: Vec::new(), kept: VecDeque::new(), kept_len: 0 }
    }

    /// Reads up to the first mark; `false` if the connection ended before.
    async fn begin(&mut self) -> bool {
        while let Some(bytes) = next_bytes(&mut self.stream).await {
            self.rest.extend_from_slice(&bytes);
            match found(&self.rest, &self.mark) {
                MarkMatch::Mark { end, .. } => {
                    self.rest.drain(..end);
                    return true;
                }
                MarkMatch::None { clean } => drop(self.rest.drain(..clean)),
            }
        }
        false
    }

    /// Shows what the command shows, then its exit. Returns without one if the connection ended.
    async fn show(&mut self, events: &mpsc::Sender<TerminalEvent>) {
        let (mut code, mut is_over) = (self.sort(), false);
        loop {
            is_over |= code.is_some();
            if is_over && self.kept.is_empty() {
                if let Some(code) = code {
                    let _ = events.send(TerminalEvent::Exit { code }).await;
                }
                return;
            }
            tokio::select! {
                permit = events.reserve(), if !self.kept.is_empty() => {
                    let Ok(permit) = permit else { return };
                    if let Some(bytes) = self.kept.pop_front() {
                        self.kept_len -= bytes.len();
                        permit.send(TerminalEvent::Output(bytes));
                    }
                }
                bytes = next_bytes(&mut self.stream), if !is_over && self.kept_len < KEPT_LEN_MAX => {
                    match bytes {
                        None => is_over = true,
                        Some(bytes) => {
                            self.rest.extend_from_slice(&bytes);
                            code = self.sort();
                        }
                    }
                }
            }
        }
    }

    /// Keeps what is the command's own; returns its exit code once the last mark is there.
    fn sort(&mut self) -> Option<i32> {
        let (len, code) = match found(&self.rest, &self.mark) {
            MarkMatch::Mark { begin, code, .. } => (begin, Some(code)),
            MarkMatch::None { clean } => (clean, None),
        };
        if len > 0 {
            let left = self.rest.split_off(len);
            let shown = std::mem::replace(&mut self.rest, left);
            self.kept_len += shown.len();
            self.kept.push_back(shown.into());
        }
        code
    }
}

/// The next bytes of the terminal; `None` at the end of the connection.
async fn next_bytes(stream: &mut SplitStream<WebSocket>) -> Option<Bytes> {
    loop {
        match stream.next().await? {
            Ok(Message::Binary(bytes)) => return Some(bytes),
            Ok(Message::Close(_)) | Err(_) => return None,
            // A message of text is the toolbox's own: that we are connected.
            Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
        }
    }
}

/// Where a mark is in what a terminal shows.
#[derive(Debug, PartialEq, Eq)]
enum MarkMatch {
    /// There is one, from `begin` to `end`. Of the first mark `code` is 0.
    Mark { begin: usize, end: usize, code: i32 },
    /// There is none. A mark may begin behind the first `clean` bytes.
    None { clean: usize },
}

fn found(shown: &[u8], mark: &[u8]) -> MarkMatch {
    let begins = |at: usize| {
        let rest = &shown[at..];
        rest.starts_with(mark) || mark.starts_with(rest)
    };
    let escapes = shown.iter().enumerate().filter(|(_, byte)| **byte == mark[0]);
    let Some(begin) = escapes.map(|(at, _)| at).find(|at| begins(*at)) else {
        return MarkMatch::None { clean: shown.len() };
    };
    let words = shown.get(begin + mark.len()..).unwrap_or_default();
    let Some(len) = words.iter().position(|byte| *byte == 0x07) else {
        return MarkMatch::None { clean: begin };
    };
    let code = std::str::from_utf8(&words[..len]).ok().and_then(|code| code.parse().ok());
    MarkMatch::Mark { begin, end: begin + mark.len() + len + 1, code: code.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &[u8] = b"\x1b]issuebox;n;";

    #[test]
    fn a_mark_is_found_wherever_the_pieces_are_cut() {
        let shown = b"a\x1b]b \x1b]issuebox;n;7\x07 rest";
        for len in 0..=shown.len() {
            let expected = match len {
                2 | 3 => MarkMatch::None { clean: 1 },
                0..=5 => MarkMatch::None { clean: len },
                6..=19 => MarkMatch::None { clean: 5 },
                _ => MarkMatch::Mark { begin: 5, end: 20, code: 7 },
            };
            assert_eq!(found(&shown[..len], MARK), expected, "{len}");
        }
    }

    #[test]
    fn a_size_is_as_daytona_takes_it() {
        let size = |columns, rows| TerminalSize { columns, rows };
        assert_eq!(within_limits(size(0, 70)), size(1, 70));
        assert_eq!(within_limits(size(80, u16::MAX)), size(80, 1_000));
    }
}
