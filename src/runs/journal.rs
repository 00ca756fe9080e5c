//! Journals: what was said in a conversation, how its runs went, and what their agents did, in one order.
//!
//! Each home has a file of lines, one JSON object each. An event's id is the place in the file behind its
//! line. So every reader sees the same bytes under the same ids, whenever it comes and from wherever it
//! goes on, and nothing is held in memory for those that do not read.
//!
//! # Guarantees
//! - A message, and each state of a run, is in the journal once, also when the server was killed between
//!   the commit and the line: what is missing is taken from the store when the journal is next opened.
//! - A line that was cut by a crash is removed before the next one is written.
//! - A journal is bounded: beyond [`JOURNAL_LEN_MAX`] what agents do is left out, and a note says so.
//!   Messages and states of runs are always written.
//!
//! # Accepted
//! Lines are not synced: after a power failure the last ones may be gone, except messages and states of
//! runs, which come back from the store.

mod file;
mod reader;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::agents::AgentEvent;
use crate::clock::Clock;
use crate::conversation::{MessageOrigin, MessageText, Run, SaidMessage};
use crate::sandbox::Offset;
use crate::store::StoreError;
use crate::store::conversation::{ConversationStore, MessageRow};
use crate::types::{HomeId, MessageId, RunId, RunState, Timestamp};

use super::removal::homes_in;
use file::JournalFile;
pub use reader::JournalReader;

/// How long a journal may become by what agents do, in bytes.
pub const JOURNAL_LEN_MAX: u64 = 256 << 20;
/// How many messages are read from the store at once.
const PAGE: usize = 256;
/// How many runs are read from the store at most: the newest.
const RUNS_MAX: usize = 10_000;
/// How often it is tried again to open a journal while the store cannot be read, and the pause before that.
const READS_MAX: u32 = 30;
const READ_PAUSE: Duration = Duration::from_secs(1);

/// One event of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEvent {
    /// Its id: readers go on behind it.
    pub id: u64,
    /// What happened, as JSON without line breaks.
    pub json: Bytes,
}

/// Why a journal is not read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// No event has this id.
    #[error("no event of this conversation has the id {0}")]
    NoSuchEvent(u64),
    /// The file cannot be used.
    #[error("the journal of the conversation cannot be read: {0}")]
    File(#[from] io::Error),
}

/// The journals of all conversations.
pub struct Journals {
    dir: PathBuf,
    rows: Arc<dyn ConversationStore>,
    clock: Arc<dyn Clock>,
    open: DashMap<HomeId, Arc<OpenJournal>>,
}

/// A journal that this process has opened.
struct OpenJournal {
    /// What is written, while it is written.
    writing: Mutex<Option<JournalContent>>,
    /// How long the file is.
    len: watch::Sender<u64>,
}

/// A journal while it is written. Followers hear of it when this is dropped.
struct Writing<'a> {
    open: MutexGuard<'a, Option<JournalContent>>,
    len: &'a watch::Sender<u64>,
    /// Whether all went well. If not, what is in the file is found out when it is opened again.
    is_good: bool,
}

impl Writing<'_> {
    fn written(&mut self) -> io::Result<&mut JournalContent> {
        self.open.as_mut().ok_or_else(|| io::Error::other("the journal is not open"))
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(written) = self.open.as_ref() {
            let now = written.file.len();
            self.len.send_if_modified(|len| std::mem::replace(len, now) != now);
        }
        if !self.is_good {
            *self.open = None;
        }
    }
}

/// What a journal has of what must be in it once.
struct JournalContent {
    file: JournalFile,
    messages: HashSet<MessageId>,
    runs: HashMap<RunId, (RunState, u32, String)>,
    /// Where the last line that an agent printed comes from.
    place: Option<OutputPlace>,
    /// Whether the note stands in it that it is full.
    is_full: bool,
}

/// A place in the output of a process of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputPlace {
    /// The number of the process.
    pub process: u64,
    /// Up to where its output was read.
    pub read: Offset,
}

impl Journals {
    /// In this directory, which is made when something is written.
    pub fn new(dir: PathBuf, rows: Arc<dyn ConversationStore>, clock: Arc<dyn Clock>) -> Self {
        Self { dir, rows, clock, open: DashMap::new() }
    }

    /// Records what a step said and which runs it changed.
    pub(super) async fn record(&self, home: HomeId, messages: &[SaidMessage], runs: &[Run]) {
        if !messages.is_empty() || !runs.is_empty() {
            log(home, self.try_record(home, messages, runs).await);
        }
    }

    async fn try_record(
        &self,
        home: HomeId,
        messages: &[SaidMessage],
        runs: &[Run],
    ) -> io::Result<()> {
        let entry = self.entry(home);
        let mut open = self.opened(home, &entry).await?;
        let written = open.written()?;
        for message in messages {
            if !written.messages.contains(&message.id) {
                // With the words of its delivery, which are stored by now.
                let row = self.rows.message(message.id).await.map_err(io::Error::other)?;
                written.message(&row.unwrap_or_else(|| bare(message)))?;
            }
        }
        runs.iter().try_for_each(|run| written.run(run))?;
        open.is_good = true;
        Ok(())
    }

    /// Records what an agent did in a run: all that comes of one place in its output at once.
    pub(super) async fn printed(
        &self,
        home: HomeId,
        run: RunId,
        place: OutputPlace,
        events: &[AgentEvent],
    ) {
        if events.is_empty() {
            return;
        }
        // It is kept nowhere else: where the store cannot be read to open the journal, it waits for that.
        for _ in 0..READS_MAX {
            match self.try_printed(home, run, place, events).await {
                Err(error) if is_passing(&error) => {}
                ended => return log(home, ended),
            }
            self.clock.sleep_until(self.clock.now().after(READ_PAUSE)).await;
        }
        log(home, self.try_printed(home, run, place, events).await);
    }

    async fn try_printed(
        &self,
        home: HomeId,
        run: RunId,
        place: OutputPlace,
        events: &[AgentEvent],
    ) -> io::Result<()> {
        let at = self.clock.now();
        let entry = self.entry(home);
        let mut open = self.opened(home, &entry).await?;
        open.written()?.agent_events(run, place, events, at)?;
        open.is_good = true;
        Ok(())
    }

    /// Up to where the output of a process is in the journal.
    ///
    /// # Errors
    /// The system's error.
    pub(super) async fn read_of(&self, home: HomeId, process: u64) -> io::Result<Offset> {
        let entry = self.entry(home);
        let mut open = self.opened(home, &entry).await?;
        let last = open.written()?.place;
        open.is_good = true;
        Ok(last.filter(|last| last.process == process).map_or(Offset(0), |last| last.read))
    }

    /// Events behind the one with this id, 0 for the beginning: about as many as have `len_max` bytes,
    /// and at least one. None if there are none yet.
    ///
    /// # Errors
    /// [`JournalError`].
    pub async fn read(
        &self,
        home: HomeId,
        after: u64,
        len_max: usize,
    ) -> Result<Vec<JournalEvent>, JournalError> {
        let entry = self.entry(home);
        self.opened(home, &entry).await?.is_good = true;
        let lines = file::read(&self.path(home), after, len_max)?;
        let lines = lines.ok_or(JournalError::NoSuchEvent(after))?;
        Ok(lines.into_iter().map(|(id, json)| JournalEvent { id, json }).collect())
    }

    /// The id behind which the last `count` events come, or fewer if those have more than `len_max` bytes.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub async fn before_last(
        &self,
        home: HomeId,
        count: usize,
        len_max: u64,
    ) -> Result<u64, JournalError> {
        let entry = self.entry(home);
        self.opened(home, &entry).await?.is_good = true;
        Ok(file::place_before_last(&self.path(home), count, len_max)?)
    }

    /// Follows how long a journal is: a new value means new events.
    pub fn follow(&self, home: HomeId) -> watch::Receiver<u64> {
        self.entry(home).len.subscribe()
    }

    /// Removes a journal.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, home: HomeId) -> io::Result<()> {
        self.open.remove(&home);
        match std::fs::remove_file(self.path(home)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The homes that have a journal.
    pub(super) fn homes(&self) -> io::Result<Vec<HomeId>> {
        homes_in(&self.dir)
    }

    fn path(&self, home: HomeId) -> PathBuf {
        self.dir.join(format!("{home}.jsonl"))
    }

    fn entry(&self, home: HomeId) -> Arc<OpenJournal> {
        let new = || {
            let len = watch::Sender::new(0);
            Arc::new(OpenJournal { writing: Mutex::new(None), len })
        };
        Arc::clone(&self.open.entry(home).or_insert_with(new))
    }

    /// A journal to be written; one that was not opened yet is first completed from the store.
    async fn opened<'a>(&self, home: HomeId, entry: &'a OpenJournal) -> io::Result<Writing<'a>> {
        let mut open = entry.writing.lock().await;
        if open.is_none() {
            *open = Some(self.complete(home).await?);
        }
        Ok(Writing { open, len: &entry.len, is_good: false })
    }

    /// Opens a journal, and adds what the store has and it has not.
    async fn complete(&self, home: HomeId) -> io::Result<JournalContent> {
        let (file, lines) = JournalFile::open(&self.path(home))?;
        let is_full = file.len() >= JOURNAL_LEN_MAX;
        let (messages, runs, place) = Default::default();
        let mut written = JournalContent { file, messages, runs, place, is_full };
        lines.iter().for_each(|line| written.remember(line));
        let mut after = 0;
        loop {
            let page = self.rows.messages(home, after, PAGE).await.map_err(io::Error::other)?;
            let is_last = page.len() < PAGE;
            for row in page {
                after = row.number;
                written.message(&row)?;
            }
            if is_last {
                break;
            }
        }
        let runs = self.rows.runs_of(home, RUNS_MAX).await.map_err(io::Error::other)?;
        runs.iter().try_for_each(|row| written.run(&row.run))?;
        Ok(written)
    }
}

/// Whether a journal could not be opened for now, because of the store.
fn is_passing(error: &io::Error) -> bool {
    let store = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>());
    store.is_some_and(|error| !matches!(error, StoreError::Damaged { .. }))
}

impl JournalContent {
    /// Takes in a line that is in the file.
    fn remember(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return };
        let text = |key: &str| line[key].as_str().unwrap_or_default();
        match text("type") {
            "message" => self.messages.extend(uuid(text("id")).map(MessageId)),
            "run" => {
                if let (Some(id), Some(state)) =
                    (RunId::parse(text("id")), RunState::parse(text("state")))
                {
                    let attempt = line["attempt"].as_u64().unwrap_or_default();
                    let attempt = u32::try_from(attempt).unwrap_or_default();
                    self.runs.insert(id, (state, attempt, text("reason").to_owned()));
                }
            }
            _ => {
                let number = |key: &str| line[key].as_u64();
                let place = number("process").zip(number("offset"));
                self.place = place.map(|(process, at)| OutputPlace { process, read: Offset(at) });
            }
        }
    }

    fn message(&mut self, row: &MessageRow) -> io::Result<()> {
        let message = &row.message;
        if !self.messages.insert(message.id) {
            return Ok(());
        }
        self.file.append(&[message_json(row)])
    }

    fn run(&mut self, run: &Run) -> io::Result<()> {
        let now = (run.state, run.attempt, run.reason.clone());
        if self.runs.get(&run.id) == Some(&now) {
            return Ok(());
        }
        self.runs.insert(run.id, now);
        self.file.append(&[json!({
            "type": "run",
            "at": run.since.to_string(),
            "id": run.id.to_string(),
            "agent": run.agent.as_str(),
            "state": run.state.as_str(),
            "reason": run.reason,
            "attempt": run.attempt,
        })])
    }

    fn agent_events(
        &mut self,
        run: RunId,
        place: OutputPlace,
        events: &[AgentEvent],
        at: Timestamp,
    ) -> io::Result<()> {
        if self.is_full {
            return Ok(());
        }
        self.is_full = self.file.len() >= JOURNAL_LEN_MAX;
        let note = AgentEvent::note("this conversation is full: what its agents do is left out");
        let shown = if self.is_full { std::slice::from_ref(&note) } else { events };
        let mut lines = Vec::with_capacity(shown.len());
        for event in shown {
            let mut line = serde_json::to_value(event)?;
            if let Some(object) = line.as_object_mut() {
                object.insert("run".to_owned(), run.to_string().into());
                object.insert("process".to_owned(), place.process.into());
                object.insert("offset".to_owned(), place.read.0.into());
                object.insert("at".to_owned(), at.to_string().into());
            }
            lines.push(line);
        }
        self.place = Some(place);
        self.file.append(&lines)
    }
}

/// A message as an event and as the API shows it.
pub fn message_json(row: &MessageRow) -> Value {
    let message = &row.message;
    let text = match (&message.text, &row.instruction) {
        (MessageText::Own(text), _) => text.as_str(),
        (MessageText::OfDelivery(_), Some(instruction)) => instruction.text.as_str(),
        (MessageText::OfDelivery(_), None) => "",
    };
    let mut json = json!({
        "type": "message",
        "at": message.at.to_string(),
        "id": message.id.to_string(),
        "run": message.run.to_string(),
        "from": from(message.source),
        "author": message.author,
        "text": text,
    });
    if let Some(title) = row.instruction.as_ref().and_then(|words| words.title.as_deref()) {
        json["title"] = title.into();
    }
    json
}

/// Where a message was said, in a word.
pub const fn from(source: MessageOrigin) -> &'static str {
    match source {
        MessageOrigin::Issue => "issue",
        MessageOrigin::Comment(_) => "comment",
        MessageOrigin::Review(_) => "review",
        MessageOrigin::Check(_) => "check",
        MessageOrigin::Api => "api",
    }
}

/// A message whose words are not stored any more.
fn bare(message: &SaidMessage) -> MessageRow {
    MessageRow { number: 0, message: message.clone(), instruction: None }
}

fn uuid(text: &str) -> Option<uuid::Uuid> {
    uuid::Uuid::try_parse(text).ok()
}

fn log(home: HomeId, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(home = home.0, %error, "cannot write to the journal of a conversation");
    }
}

#[cfg(test)]
mod tests;
