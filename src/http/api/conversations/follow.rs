//! Streams of a conversation's events. They are read from the journal's file at the speed of each
//! connection: a reader that does not read costs nothing.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::http::Shared;
use crate::http::auth::Caller;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code};
use crate::http::sse;
use crate::runs::journal::{JournalError, JournalEvent, Journals};
use crate::types::{HomeId, MessageId, RunId, RunState};

/// How many bytes of events are read at once.
const BATCH_LEN: usize = 64 * 1024;

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::NoSuchEvent(_) => {
                Self::field("Last-Event-ID", "is no id of an event of this conversation")
                    .hint("leave it out to begin at the beginning")
            }
            JournalError::File(_) => {
                tracing::warn!(%error, "a conversation cannot be read; its reader gets an error");
                Self::new(Code::StoreFailed, "the conversation cannot be read")
            }
        }
    }
}

/// Answers with the events behind `Last-Event-ID`, else with the last `tail` ones or all, until the session
/// or the server ends.
pub(super) async fn stream(
    shared: &web::Data<Shared>,
    caller: &Caller,
    request: &HttpRequest,
    home: HomeId,
    tail: Option<usize>,
) -> Result<HttpResponse, ApiError> {
    let journals = Arc::clone(&shared.edge.runs.journals);
    let last = request.headers().get("last-event-id").and_then(|value| value.to_str().ok());
    let after = match (last.filter(|last| !last.is_empty()), tail) {
        (Some(last), _) => {
            last.parse().map_err(|_| ApiError::from(JournalError::NoSuchEvent(0)))?
        }
        (None, Some(tail)) => journals.before_last(home, tail, u64::MAX).await?,
        (None, None) => 0,
    };
    // An unknown id is an answer of its own, before the stream begins.
    journals.read(home, after, 1).await?;
    let follower = JournalFollower::new(journals, home, after, Ending::new(shared, caller));
    // The place is said at once, so that who loses the connection before the first event goes on from it.
    let place = (after > 0 || tail.is_some()).then(|| Ok(Bytes::from(format!("id: {after}\n\n"))));
    Ok(sse::answer(stream::iter(place).chain(follower.stream())))
}

/// The events of a message and its run, from the message on until the run ends.
pub(super) fn until_run_ends(
    shared: &web::Data<Shared>,
    caller: &Caller,
    home: HomeId,
    (message, run): (MessageId, RunId),
) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let journals = Arc::clone(&shared.edge.runs.journals);
    let mut follower = JournalFollower::new(journals, home, 0, Ending::new(shared, caller));
    follower.part = Part::From(message, run);
    follower.stream()
}

/// Which part of a conversation is streamed.
enum Part {
    /// All of it.
    All,
    /// From this message on, and then until its run ends.
    From(MessageId, RunId),
    /// Until this run ends.
    Until(RunId),
    /// Nothing more.
    Over,
}

/// A reader and its place.
struct JournalFollower {
    journals: Arc<Journals>,
    home: HomeId,
    after: u64,
    part: Part,
    news: watch::Receiver<u64>,
    ending: Ending,
    silent_until: Instant,
}

impl JournalFollower {
    fn new(journals: Arc<Journals>, home: HomeId, after: u64, ending: Ending) -> Self {
        let news = journals.follow(home);
        let silent_until = Instant::now() + sse::HEARTBEAT;
        Self { journals, home, after, part: Part::All, news, ending, silent_until }
    }

    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
        let rest = stream::unfold(self, |mut follower| async move {
            let bytes = follower.next().await?;
            follower.silent_until = Instant::now() + sse::HEARTBEAT;
            Some((Ok(bytes), follower))
        });
        stream::once(async { Ok(sse::GREETING) }).chain(rest)
    }

    /// The next bytes; `None` after the end of the server, the session or the part.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ending.has_come().await.is_some() || matches!(self.part, Part::Over) {
                return None;
            }
            // Marked as seen before reading, so that what comes after the read wakes the wait below.
            self.news.borrow_and_update();
            match self.journals.read(self.home, self.after, BATCH_LEN).await {
                Ok(events) if events.is_empty() => {}
                Ok(events) => {
                    let text = self.text(&events);
                    if !text.is_empty() {
                        return Some(Bytes::from(text));
                    }
                    continue;
                }
                // It was removed with its issue.
                Err(error) => {
                    self.part = Part::Over;
                    let data = serde_json::json!({ "reason": error.to_string() }).to_string();
                    return Some(Bytes::from(sse::event("gap", None, &data)));
                }
            }
            tokio::select! {
                biased;
                _ = self.ending.come() => return None,
                _ = self.news.changed() => {}
                () = sleep_until(self.silent_until) => return Some(sse::HEARTBEAT_COMMENT),
            }
        }
    }

    fn text(&mut self, events: &[JournalEvent]) -> String {
        let mut text = String::new();
        for event in events {
            self.after = event.id;
            if self.is_in_part(event) {
                let data = String::from_utf8_lossy(&event.json);
                text.push_str(&sse::event("conversation", Some(&event.id.to_string()), &data));
            }
            if matches!(self.part, Part::Over) {
                break;
            }
        }
        text
    }

    /// Whether an event is in the part that is streamed, which it may begin or end.
    fn is_in_part(&mut self, event: &JournalEvent) -> bool {
        let (message, run) = match self.part {
            Part::All => return true,
            Part::Over => return false,
            Part::From(message, run) => (Some(message), run),
            Part::Until(run) => (None, run),
        };
        // Of others only their kind is of interest, which stands in every line.
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&event.json) else {
            return message.is_none();
        };
        let is = |key: &str, value: &str| json[key].as_str() == Some(value);
        if let Some(message) = message {
            if !(is("type", "message") && is("id", &message.to_string())) {
                return false;
            }
            self.part = Part::Until(run);
            return true;
        }
        let state = json["state"].as_str().and_then(RunState::parse);
        if is("type", "run")
            && is("id", &run.to_string())
            && state.is_some_and(|state| !state.is_in_progress())
        {
            self.part = Part::Over;
        }
        true
    }
}
