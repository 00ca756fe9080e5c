//! Follows a journal: the events of a whole conversation, or those of one message and its run.

use std::sync::Arc;

use tokio::sync::watch;

use super::{JournalError, JournalEvent, Journals};
use crate::types::{HomeId, MessageId, RunId, RunState};

/// How many bytes of events are read at once.
const BATCH_LEN: usize = 64 * 1024;

/// Which part of a conversation is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalPart {
    /// All of it.
    All,
    /// From this message on, and then until its run ends.
    From(MessageId, RunId),
    /// Until this run ends.
    Until(RunId),
    /// Nothing more.
    Over,
}

/// A reader and its place. One that is not read costs nothing.
pub struct JournalReader {
    journals: Arc<Journals>,
    home: HomeId,
    after: u64,
    part: JournalPart,
    news: watch::Receiver<u64>,
}

impl JournalReader {
    /// Of all events behind this one.
    pub fn new(journals: Arc<Journals>, home: HomeId, after: u64) -> Self {
        let news = journals.follow(home);
        Self { journals, home, after, part: JournalPart::All, news }
    }

    /// Of the events from this message on until its run ends.
    pub fn of_message(
        journals: Arc<Journals>,
        home: HomeId,
        message: MessageId,
        run: RunId,
    ) -> Self {
        Self { part: JournalPart::From(message, run), ..Self::new(journals, home, 0) }
    }

    /// Whether nothing more comes.
    pub const fn is_over(&self) -> bool {
        matches!(self.part, JournalPart::Over)
    }

    /// The next events that are written already; none if there are no more yet. After an error it is
    /// over.
    ///
    /// # Errors
    /// [`JournalError`], such as of a journal that was removed with its issue.
    pub async fn read(&mut self) -> Result<Vec<JournalEvent>, JournalError> {
        while !self.is_over() {
            // Marked as seen before reading, so that what comes after the read ends the next wait.
            self.news.borrow_and_update();
            let read = self.journals.read(self.home, self.after, BATCH_LEN).await;
            let mut events = read.inspect_err(|_| self.part = JournalPart::Over)?;
            let was_last = events.is_empty();
            events.retain(|event| self.takes(event));
            if was_last || !events.is_empty() {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }

    /// Waits until more may be written.
    pub async fn news(&mut self) {
        // The sender is the journal's, which this reader keeps.
        let _ = self.news.changed().await;
    }

    /// Whether an event is in the part that is read, which it may begin or end.
    fn takes(&mut self, event: &JournalEvent) -> bool {
        let (message, run) = match self.part {
            JournalPart::All => (None, None),
            JournalPart::Over => return false,
            JournalPart::From(message, run) => (Some(message), Some(run)),
            JournalPart::Until(run) => (None, Some(run)),
        };
        self.after = event.id;
        let Some(run) = run else { return true };
        // Of others only their kind is of interest, which stands in every line.
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&event.json) else {
            return message.is_none();
        };
        let is = |key: &str, value: &str| json[key].as_str() == Some(value);
        if let Some(message) = message {
            if !(is("type", "message") && is("id", &message.to_string())) {
                return false;
            }
            self.part = JournalPart::Until(run);
            return true;
        }
        let state = json["state"].as_str().and_then(RunState::parse);
        if is("type", "run")
            && is("id", &run.to_string())
            && state.is_some_and(|state| !state.is_in_progress())
        {
            self.part = JournalPart::Over;
        }
        true
    }
}
