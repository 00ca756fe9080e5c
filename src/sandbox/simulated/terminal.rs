//! A terminal of the simulation: a line discipline, and a shell that knows a few words.
//!
//! A command at the terminal is a simulated process like any other, so what it writes and how it ends
//! is the same as without a terminal. A shell reads lines and runs each as one command; it knows `exit`
//! and `stty size` itself.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::SimulatedProvider;
use super::process::SimProcess;
use super::program::Program;
use crate::sandbox::{
    Offset, Overflow, ProcessEvent, ProcessOutput, ProcessSpec, Signal, StdinMode, Target,
    Terminal, TerminalControl, TerminalEvent, TerminalRequest, TerminalSignal, TerminalSize,
    WorkError,
};

/// Pieces of input, and of output, that wait for a reader.
const PIECES_LEN: usize = 16;

/// How much output a command may be ahead of what is shown, in bytes.
const KEEP: u64 = 1 << 20;

/// The longest line that can be typed, in bytes, as on Linux (`N_TTY_BUF_SIZE`); more is dropped.
const LINE_LEN_MAX: usize = 4096;

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const QUIT: u8 = 0x1c;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];

/// Opens a terminal in a running object.
pub(super) fn open(
    provider: SimulatedProvider,
    target: Target,
    request: TerminalRequest,
) -> Result<Terminal, WorkError> {
    provider.running(&target)?;
    let (input, typed) = mpsc::channel(PIECES_LEN);
    let (control, controls) = mpsc::channel(PIECES_LEN);
    let (shown, events) = mpsc::channel(PIECES_LEN);
    let TerminalRequest { command, cwd: _, env: _, size } = request;
    let is_shell = Program::of(&command) == Program::Shell;
    let leader = start(&provider, &target, command)?;
    let (front, keys, line) = (None, VecDeque::new(), Vec::new());
    let session =
        TerminalSession { provider, target, typed, controls, shown, size, front, keys, line };
    tokio::spawn(session.run(leader, is_shell));
    Ok(Terminal { input, control, events })
}

/// A process at the terminal, and its output.
type Front = (Arc<SimProcess>, ProcessOutput);

fn start(
    provider: &SimulatedProvider,
    target: &Target,
    command: Vec<String>,
) -> Result<Front, WorkError> {
    let spec = ProcessSpec {
        command,
        cwd: None,
        env: Vec::new(),
        stdin: StdinMode::Open,
        timeout: None,
        keep: KEEP,
        overflow: Overflow::Wait,
        tag: None,
    };
    let id = provider.processes.spawn(target, spec)?;
    let process = provider.processes.get(target, &id)?;
    let output = provider.processes.attach(Arc::clone(&process), Offset(0))?;
    Ok((process, output))
}

/// Why a terminal ends before its command does.
enum TerminalEnd {
    /// No reader is left.
    HungUp,
    /// The object went down.
    Gone,
    /// The whole session was killed.
    Killed,
}

/// What a terminal waits for.
enum Awaited {
    Wrote(ProcessEvent),
    Typed(TypedInput),
}

/// What is typed, as its reader gets it.
enum TypedInput {
    /// A line with its end, or what stood there when an end of file was typed.
    Line(Vec<u8>),
    EndOfFile,
    Signal(Signal),
}

struct TerminalSession {
    provider: SimulatedProvider,
    target: Target,
    typed: mpsc::Receiver<Bytes>,
    controls: mpsc::Receiver<TerminalControl>,
    shown: mpsc::Sender<TerminalEvent>,
    size: TerminalSize,
    /// The command that runs now.
    front: Option<Arc<SimProcess>>,
    /// What was typed and not looked at yet.
    keys: VecDeque<u8>,
    /// The line that is being typed.
    line: Vec<u8>,
}

impl TerminalSession {
    async fn run(mut self, leader: Front, is_shell: bool) {
        let process = Arc::clone(&leader.0);
        let ended = if is_shell { self.shell(leader).await } else { self.follow(leader).await };
        let (code, signal) = match ended {
            Ok(code) => (Some(code), Signal::Kill),
            Err(TerminalEnd::Killed) => (Some(128 + Signal::Kill.number()), Signal::Kill),
            Err(TerminalEnd::HungUp | TerminalEnd::Gone) => (None, Signal::Hangup),
        };
        // What runs now, and then the shell that started it.
        self.signal(signal);
        self.front = Some(process);
        self.signal(signal);
        if let Some(code) = code {
            // An error means that the reader has gone.
            let _ = self.shown.send(TerminalEvent::Exit { code }).await;
        }
    }

    /// Reads lines and runs them.
    async fn shell(&mut self, (_, mut own): Front) -> Result<i32, TerminalEnd> {
        let mut last = 0;
        loop {
            self.show(b"$ ").await?;
            let line = match self.wait(&mut own).await? {
                Awaited::Typed(TypedInput::Line(line)) => line,
                Awaited::Typed(TypedInput::Signal(_)) => continue,
                Awaited::Typed(TypedInput::EndOfFile) => return Ok(last),
                Awaited::Wrote(ProcessEvent::Exit(exit)) => return Ok(exit.code),
                // It is a process that writes nothing.
                Awaited::Wrote(ProcessEvent::Output { .. } | ProcessEvent::Gap { .. }) => continue,
            };
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                [] => {}
                ["exit"] => return Ok(last),
                // As a shell says of what is no number.
                ["exit", code] => return Ok(code.parse::<u8>().map_or(2, i32::from)),
                ["stty", "size"] => {
                    let TerminalSize { columns, rows } = self.size;
                    self.show(format!("{rows} {columns}\n").as_bytes()).await?;
                }
                _ => {
                    let front = start(&self.provider, &self.target, words);
                    last = self.follow(front.map_err(|_| TerminalEnd::Gone)?).await?;
                }
            }
        }
    }

    /// Has a command at the terminal until its end; returns its exit code.
    async fn follow(&mut self, (process, mut output): Front) -> Result<i32, TerminalEnd> {
        self.front = Some(Arc::clone(&process));
        let mut unread: Option<Bytes> = None;
        loop {
            // While the command reads nothing, nothing more is typed for it.
            unread = unread.filter(|bytes| matches!(process.write_stdin(bytes), Ok(false)));
            let awaited = match unread {
                Some(_) => Awaited::Wrote(self.wait_for_output(&mut output).await?),
                None => self.wait(&mut output).await?,
            };
            match awaited {
                Awaited::Wrote(ProcessEvent::Output { bytes, .. }) => self.show(&bytes).await?,
                // Cannot be: the only reader is the quickest one.
                Awaited::Wrote(ProcessEvent::Gap { .. }) => {}
                Awaited::Wrote(ProcessEvent::Exit(exit)) => {
                    self.front = None;
                    return Ok(exit.code);
                }
                Awaited::Typed(TypedInput::Line(line)) => unread = Some(line.into()),
                // One that has ended shows that by its output.
                Awaited::Typed(TypedInput::EndOfFile) => drop(process.close_stdin()),
                Awaited::Typed(TypedInput::Signal(signal)) => self.signal(signal),
            }
        }
    }

    /// Waits for what a process writes, or for what is typed.
    async fn wait(&mut self, process: &mut ProcessOutput) -> Result<Awaited, TerminalEnd> {
        loop {
            while let Some(key) = self.keys.pop_front() {
                if let Some(input) = self.key(key).await? {
                    return Ok(Awaited::Typed(input));
                }
            }
            tokio::select! {
                biased;
                () = self.shown.closed() => return Err(TerminalEnd::HungUp),
                Some(control) = self.controls.recv() => self.control(control)?,
                event = process.events.recv() => {
                    return event.map(Awaited::Wrote).ok_or(TerminalEnd::Gone);
                }
                Some(typed) = self.typed.recv() => self.keys.extend(typed),
            }
        }
    }

    /// Waits for what a command writes, whatever is typed.
    async fn wait_for_output(
        &mut self,
        process: &mut ProcessOutput,
    ) -> Result<ProcessEvent, TerminalEnd> {
        loop {
            tokio::select! {
                biased;
                () = self.shown.closed() => return Err(TerminalEnd::HungUp),
                Some(control) = self.controls.recv() => self.control(control)?,
                event = process.events.recv() => return event.ok_or(TerminalEnd::Gone),
            }
        }
    }

    /// Takes one key; returns what it completes.
    async fn key(&mut self, key: u8) -> Result<Option<TypedInput>, TerminalEnd> {
        let input = match key {
            b'\r' | b'\n' => {
                self.show(b"\n").await?;
                self.line.push(b'\n');
                TypedInput::Line(std::mem::take(&mut self.line))
            }
            END if self.line.is_empty() => TypedInput::EndOfFile,
            END => TypedInput::Line(std::mem::take(&mut self.line)),
            INTERRUPT | QUIT => {
                self.line.clear();
                let (echo, signal) = match key {
                    INTERRUPT => (b"^C\n", Signal::Interrupt),
                    _ => (b"^\\\n", Signal::Quit),
                };
                self.show(echo).await?;
                TypedInput::Signal(signal)
            }
            key if BACKSPACE.contains(&key) => {
                // The continuation bytes of a character go with its first one.
                while self.line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
                self.show(b"\x08 \x08").await?;
                return Ok(None);
            }
            key => {
                if self.line.len() < LINE_LEN_MAX {
                    self.line.push(key);
                    self.show(&[key]).await?;
                }
                return Ok(None);
            }
        };
        Ok(Some(input))
    }

    fn control(&mut self, control: TerminalControl) -> Result<(), TerminalEnd> {
        match control {
            TerminalControl::Resize(size) => self.size = size,
            TerminalControl::Signal(TerminalSignal::Interrupt) => self.signal(Signal::Interrupt),
            TerminalControl::Signal(TerminalSignal::Quit) => self.signal(Signal::Quit),
            TerminalControl::Signal(TerminalSignal::Kill) => return Err(TerminalEnd::Killed),
        }
        Ok(())
    }

    /// Signals the command that runs now. A shell that waits for a line ignores signals.
    fn signal(&self, signal: Signal) {
        if let Some(front) = &self.front
            && let Err(error) = front.signal(signal)
        {
            tracing::warn!(%error, "a simulated command at a terminal was not signalled");
        }
    }

    /// Shows bytes, each end of a line as a terminal shows it; controls work meanwhile.
    async fn show(&mut self, bytes: &[u8]) -> Result<(), TerminalEnd> {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let ended = |line: &[u8]| match line.strip_suffix(b"\n") {
            Some(line) => [line, b"\r\n"].concat(),
            None => line.to_vec(),
        };
        let bytes: Bytes = lines.flat_map(ended).collect();
        let shown = self.shown.clone();
        let room = shown.reserve();
        tokio::pin!(room);
        loop {
            tokio::select! {
                biased;
                room = &mut room => {
                    room.map_err(|_| TerminalEnd::HungUp)?.send(TerminalEvent::Output(bytes));
                    return Ok(());
                }
                Some(control) = self.controls.recv() => self.control(control)?,
            }
        }
    }
}
