//! Streams of a conversation's events. They are read from the journal's file at the speed of each
//! connection: a reader that does not read costs nothing.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use crate::http::Shared;
use crate::http::caller::Caller;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code};
use crate::http::sse;
use crate::runs::journal::{JournalError, JournalEvent, JournalReader};
use crate::types::{HomeId, MessageId, RunId};

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
    let reader = JournalReader::new(journals, home, after);
    let follower = JournalFollower::new(reader, Ending::new(shared, caller));
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
    let reader = JournalReader::of_message(journals, home, message, run);
    JournalFollower::new(reader, Ending::new(shared, caller)).stream()
}

/// A reader, and until when it is silent.
struct JournalFollower {
    reader: JournalReader,
    ending: Ending,
    silent_until: Instant,
}

impl JournalFollower {
    fn new(reader: JournalReader, ending: Ending) -> Self {
        Self { reader, ending, silent_until: Instant::now() + sse::HEARTBEAT }
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
            if self.ending.has_come().await.is_some() || self.reader.is_over() {
                return None;
            }
            match self.reader.read().await {
                Ok(events) if events.is_empty() => {}
                Ok(events) => return Some(Bytes::from(text(&events))),
                // It was removed with its issue.
                Err(error) => {
                    let data = serde_json::json!({ "reason": error.to_string() }).to_string();
                    return Some(Bytes::from(sse::event("gap", None, &data)));
                }
            }
            tokio::select! {
                biased;
                _ = self.ending.come() => return None,
                () = self.reader.news() => {}
                () = sleep_until(self.silent_until) => return Some(sse::HEARTBEAT_COMMENT),
            }
        }
    }
}

fn text(events: &[JournalEvent]) -> String {
    let mut text = String::new();
    for event in events {
        let data = String::from_utf8_lossy(&event.json);
        text.push_str(&sse::event("conversation", Some(&event.id.to_string()), &data));
    }
    text
}
