//! The stream of changes: `GET /v1/events`.
//!
//! A subscriber reads from the ring at the speed of its connection, without a queue. If a cursor
//! cannot be resumed, the stream sends a `gap` event and continues with new events; the client
//! lists again.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, web};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::http::Shared;
use crate::http::caller::Caller;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::events::{Position, Read};
use crate::http::feed::Feed;
use crate::http::query::Query;
use crate::http::sse;
use crate::types::AccountName;

/// Events in one write: about 64 KB.
const BATCH_LEN: usize = 64;

/// Streams server-sent events, one for each change of a sandbox, in commit order.
///
/// `event: sandbox.changed` has `data:` with the fields of a timeline entry (`at`, `generation`, `from`,
/// `to`, `reason`, `cause`, `instruction`) and the `sandbox`; `at` is null for a change that is in no
/// timeline. `id:` is the cursor to resume from. `event: gap` means that the cursor cannot be resumed: list again.
#[utoipa::path(
    operation_id = "streamEvents", tag = "events",
    params(
        ("cursor" = Option<String>, Query,
         description = "The cursor to resume from: an event's id or a list's `eventCursor`"),
        ("Last-Event-ID" = Option<String>, Header, description = "The same; it overrides `cursor`"),
    ),
    responses(
        (status = 200, description = "a stream of server-sent events",
         body = String, content_type = "text/event-stream"),
    )
)]
#[get("/v1/events")]
pub async fn changes(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let given = query.text("cursor")?;
    query.finish()?;
    let last = request.headers().get("last-event-id").and_then(|value| value.to_str().ok());
    let cursor = last.filter(|last| !last.is_empty()).map(str::to_owned).or(given);
    let feed = Arc::clone(&shared.edge.feed);
    let ending = Ending::new(&shared, &caller);
    Ok(sse::answer(follow(feed, caller.account, cursor, ending)))
}

/// A subscriber and its position.
struct Subscriber {
    feed: Arc<Feed>,
    account: AccountName,
    position: Position,
    gap: bool,
    news: watch::Receiver<u64>,
    ending: Ending,
    silent_until: Instant,
}

/// The events of an account from a cursor, until the shutdown.
fn follow(
    feed: Arc<Feed>,
    account: AccountName,
    cursor: Option<String>,
    ending: Ending,
) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let news = feed.events.subscribe();
    let resumed = cursor.as_deref().map(|cursor| feed.events.parse(cursor));
    let subscriber = Subscriber {
        position: resumed.flatten().unwrap_or_else(|| feed.events.now()),
        gap: resumed == Some(None),
        feed,
        account,
        news,
        ending,
        silent_until: Instant::now() + sse::HEARTBEAT,
    };
    let rest = stream::unfold(subscriber, |mut subscriber| async move {
        let bytes = subscriber.next().await?;
        subscriber.silent_until = Instant::now() + sse::HEARTBEAT;
        Some((Ok(bytes), subscriber))
    });
    stream::once(async { Ok(sse::GREETING) }).chain(rest)
}

impl Subscriber {
    /// The next bytes; `None` after the end of the server or the session.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ending.has_come().await.is_some() {
                return None;
            }
            // Marked as seen before reading, so that a push after the read wakes the wait below.
            self.news.borrow_and_update();
            if let Some(bytes) = self.read() {
                return Some(bytes);
            }
            tokio::select! {
                biased;
                _ = self.ending.come() => return None,
                _ = self.news.changed() => {}
                () = sleep_until(self.silent_until) => return Some(sse::HEARTBEAT_COMMENT),
            }
        }
    }

    /// Reads the ring.
    fn read(&mut self) -> Option<Bytes> {
        let ring = &self.feed.events;
        loop {
            let events = match ring.read(self.position, BATCH_LEN) {
                Read::Events(events) if !self.gap => events,
                Read::Events(_) | Read::Gap => {
                    self.gap = false;
                    self.position = ring.now();
                    let cursor = ring.cursor(self.position);
                    return Some(Bytes::from(sse::event("gap", Some(&cursor), GAP)));
                }
            };
            if events.is_empty() {
                return None;
            }
            let mut text = String::new();
            for (n, event) in events.iter().enumerate() {
                if *event.account() == self.account {
                    let cursor = ring.cursor(self.position.after(n + 1));
                    text.push_str(&sse::event("sandbox.changed", Some(&cursor), event.data()));
                }
            }
            self.position = self.position.after(events.len());
            if !text.is_empty() {
                return Some(Bytes::from(text));
            }
        }
    }
}

const GAP: &str =
    r#"{"reason":"the events since this cursor are no longer kept; list the sandboxes again"}"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Change, Publisher};
    use crate::http::ending::TestSession;
    use crate::http::ending::until_closed;
    use crate::http::wire::tests::sample;
    use crate::types::{Generation, HomeId, Phase, TimelineEntry, Timestamp};

    fn publish(feed: &Feed, version: u64, account: &str) {
        feed.publish(Arc::new(Change {
            account: AccountName::trusted(account),
            sandbox: Some(Arc::new(sample("5"))),
            timeline: vec![TimelineEntry {
                at: Timestamp::from_unix_ms(0),
                generation: Generation(1),
                from: None,
                to: Some(Phase::Running),
                reason: "because".into(),
                cause: "test".into(),
            }],
            ..Change::bare(HomeId(1), version)
        }));
    }

    async fn text(events: &mut (impl Stream<Item = Result<Bytes, Infallible>> + Unpin)) -> String {
        let Some(Ok(bytes)) = events.next().await else { return "(end)".into() };
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_resumes_where_it_was_and_sees_its_account_alone() {
        let feed = Arc::new(Feed::new("run"));
        let (close, closing) = watch::channel(false);
        let cursor = feed.events.cursor(feed.events.now());
        publish(&feed, 1, "other");
        publish(&feed, 2, "default");
        let account = AccountName::default_account();
        let mut events =
            Box::pin(follow(Arc::clone(&feed), account, Some(cursor), until_closed(closing)));
        assert!(text(&mut events).await.starts_with("retry:"));
        let first = text(&mut events).await;
        assert!(first.starts_with("event: sandbox.changed\nid: run-2\ndata: {"), "{first}");
        assert_eq!(first.matches("event:").count(), 1, "{first}");
        assert_eq!(text(&mut events).await, ": still here\n\n", "a heartbeat after silence");
        close.send_replace(true);
        assert_eq!(text(&mut events).await, "(end)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cursor_of_another_run_is_a_gap_and_then_goes_on() {
        let feed = Arc::new(Feed::new("run"));
        let (_close, closing) = watch::channel(false);
        publish(&feed, 1, "default");
        let account = AccountName::default_account();
        let cursor = Some("old-7".to_owned());
        let mut events =
            Box::pin(follow(Arc::clone(&feed), account, cursor, until_closed(closing)));
        text(&mut events).await;
        assert!(text(&mut events).await.starts_with("event: gap\nid: run-1\n"));
        publish(&feed, 2, "default");
        assert!(text(&mut events).await.starts_with("event: sandbox.changed\nid: run-2\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_cursor_only_new_events_are_sent() {
        let feed = Arc::new(Feed::new("run"));
        let (_close, closing) = watch::channel(false);
        publish(&feed, 1, "default");
        let account = AccountName::default_account();
        let mut events = Box::pin(follow(Arc::clone(&feed), account, None, until_closed(closing)));
        text(&mut events).await;
        publish(&feed, 2, "default");
        assert!(text(&mut events).await.contains("id: run-2\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_soon_after_its_session() {
        let session = TestSession::begin().await;
        let (_open, closing) = watch::channel(false);
        let account = AccountName::default_account();
        let feed = Arc::new(Feed::new("run"));
        let mut events = Box::pin(follow(feed, account, None, session.ending(closing)));
        for expected in [sse::GREETING, sse::HEARTBEAT_COMMENT] {
            assert_eq!(events.next().await, Some(Ok(expected)));
        }
        session.end().await;
        // The session is checked every 15 seconds.
        let rest = tokio::time::timeout(sse::HEARTBEAT * 3, events.collect::<Vec<_>>()).await;
        let rest = rest.expect("the stream ends");
        assert!(rest.len() <= 1, "{rest:?}");
    }
}
