//! The dialogue with an agent's process: its lines are written, its questions asked and answered, and the
//! name of its session is kept.
//!
//! A process is read by one dialogue from its beginning to its end. If the server ends, the process does,
//! too ([`RunOrderKind::Follow`] of a process that this server did not start is a lost one): then the run
//! goes on with another process, which asks again what was not carried out. So no request is answered
//! twice. The answer of a person is durable before the agent is given it.

use bytes::Bytes;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;

use super::inside::{AGENT_DIR, Inside};
use super::process::Reading;
use super::watch::{EndCause, ProcessEnding};
use crate::agents::{AgentDialogue, AgentEvent, Interrupt};
use crate::conversation::{RunEvent, RunOrder, RunOrderKind};
use crate::sandbox::{ProcessId, STDIN_CHUNK_MAX};
use crate::types::SessionId;

/// How many lines wait at most until the process reads them.
const LINES_MAX: usize = 1_000;
/// Longest file with the name of a session, in bytes.
const NAME_FILE_LEN_MAX: usize = 1_000;

/// A dialogue with a process.
pub(super) struct Talk {
    pub dialogue: Box<dyn AgentDialogue>,
    /// Where its lines go; `None` once the process's input is closed.
    lines: Option<mpsc::Sender<Bytes>>,
    writes: JoinHandle<()>,
    /// The question that people were last asked.
    asked: Option<String>,
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.writes.abort();
    }
}

impl Talk {
    pub fn new(dialogue: Box<dyn AgentDialogue>, inside: &Inside, id: &ProcessId) -> Self {
        let (lines, waiting) = mpsc::channel(LINES_MAX);
        let writes = tokio::spawn(write(inside.clone(), id.clone(), waiting));
        Self { dialogue, lines: Some(lines), writes, asked: None }
    }

    /// Has what the dialogue says written; whether the process reads what it is answered.
    fn speak(&mut self) -> bool {
        let Some(lines) = &self.lines else { return true };
        let full =
            |line: String| matches!(lines.try_send(Bytes::from(line)), Err(TrySendError::Full(_)));
        // One that does not read at all has ended, or does soon.
        !self.dialogue.take_lines().into_iter().any(full)
    }
}

/// Writes the lines, then closes the process's input.
async fn write(inside: Inside, id: ProcessId, mut lines: mpsc::Receiver<Bytes>) {
    let Inside { processes, target } = inside;
    while let Some(mut line) = lines.recv().await {
        while !line.is_empty() {
            let piece = line.split_to(line.len().min(STDIN_CHUNK_MAX));
            // A process that has ended needs no line, and the reader of its output sees the end.
            if processes.write_stdin(target.clone(), id.clone(), piece).await.is_err() {
                return;
            }
        }
    }
    let _ = processes.close_stdin(target, id).await;
}

impl Reading<'_> {
    /// The events of a line.
    pub(super) fn read_line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        match &mut self.talk {
            Some(talk) => talk.dialogue.line(line),
            None => self.reader.line(line),
        }
    }

    /// Whether a person is to answer something.
    pub(super) fn waits_for_person(&self) -> bool {
        self.talk.as_ref().is_some_and(|talk| talk.dialogue.question().is_some())
    }

    /// Writes what the dialogue says, asks people what it asks, and ends the process after its turn.
    pub(super) async fn speak(&mut self) {
        let Some(talk) = &mut self.talk else { return };
        let is_read = talk.speak();
        let asks = talk.dialogue.question().cloned();
        let asks = asks.filter(|question| talk.asked.as_ref() != Some(&question.id));
        if let Some(question) = &asks {
            talk.asked = Some(question.id.clone());
        }
        if talk.dialogue.is_over() && talk.lines.take().is_some() && self.ending.is_none() {
            self.ending = Some(ProcessEnding::after_turn(self.worker.parts.clock.now()));
        }
        if !is_read && self.ending.is_none() {
            self.end(EndCause::Limit("it did not read what it was answered".to_owned()));
        }
        let Some(question) = asks.filter(|_| self.ending.is_none()) else { return };
        let (home, run, attempt) = (self.bench.home, self.bench.run, self.bench.attempt);
        self.emit(vec![AgentEvent::question(&question)]).await;
        self.worker.report(home, RunEvent::Asks(run, attempt, Box::new(question))).await;
    }

    /// Gives the agent a person's answer, if the order brings the one that it waits for.
    pub(super) async fn hear(&mut self, order: &Option<RunOrder>) {
        let Some(order) = order.as_ref().filter(|order| order.run == self.bench.run) else {
            return;
        };
        let (Some(answer), RunOrderKind::Follow(attempt)) = (&order.answer, order.kind) else {
            return;
        };
        let Some(talk) = self.talk.as_mut().filter(|_| attempt == self.bench.attempt) else {
            return;
        };
        let asked = talk.dialogue.question().map(|question| question.id.as_str());
        if asked != Some(answer.question.as_str()) {
            return;
        }
        talk.dialogue.answer(&answer.question, &answer.option.id);
        self.bench.going.run.touch(self.worker.parts.clock.now());
        self.emit(vec![AgentEvent::answered(answer)]).await;
        self.speak().await;
    }

    /// Asks the agent by its dialogue to end its turn, if that is its way.
    pub(super) fn interrupt(&mut self) {
        let is_asked = self.bench.agent.adapter.interrupt() == Interrupt::Dialogue;
        if let Some(talk) = self.talk.as_mut().filter(|_| is_asked) {
            talk.dialogue.cancel();
            talk.speak();
            if talk.dialogue.is_over() {
                talk.lines = None;
            }
        }
    }

    /// Keeps what the agent calls its session, and with it the run whose prompt the session has, once
    /// something came of that.
    pub(super) async fn keep_session_name(&mut self) {
        let Some(file) = self.bench.agent.adapter.session_name_file(&self.session) else { return };
        let Some(name) = self.report.session.as_deref() else { return };
        let run = if self.has_progressed { self.bench.run.to_string() } else { String::new() };
        let path = format!("{AGENT_DIR}/{file}");
        let written = self.bench.inside.write(&path, Bytes::from(format!("{name}\n{run}\n"))).await;
        if let Err(reason) = written {
            tracing::warn!(home = self.bench.home.0, run = %self.bench.run, reason,
                "cannot keep the name of an agent's session; its next run begins a new one");
        }
    }
}

/// What the agent calls a session, as it was kept; `None` if that is not known.
pub(super) async fn session_name(
    inside: &Inside,
    file: Option<String>,
    session: &SessionId,
) -> Option<String> {
    let path = format!("{AGENT_DIR}/{}", file?);
    match inside.read(&path, NAME_FILE_LEN_MAX).await {
        Ok(content) => {
            let content = String::from_utf8_lossy(&content?).into_owned();
            content.lines().next().map(str::to_owned).filter(|name| !name.is_empty())
        }
        Err(reason) => {
            tracing::warn!(%session, reason, "cannot read what an agent calls its session");
            None
        }
    }
}
