//! Server-sent events: their framing and the headers under which they pass through proxies.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header;
use bytes::Bytes;
use futures_util::Stream;

/// How long a stream is silent at most: a comment keeps proxies and clients from giving up.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment, which clients ignore.
pub const HEARTBEAT_COMMENT: Bytes = Bytes::from_static(b": still here\n\n");

/// The first thing on a stream: how long a client waits before it comes back, in milliseconds.
pub const GREETING: Bytes = Bytes::from_static(b"retry: 1000\n: welcome\n\n");

/// One event. `data` is a line of JSON: it holds no line breaks.
pub fn event(name: &str, id: Option<&str>, data: &str) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}

/// An answer that streams events.
pub fn answer<S>(events: S) -> HttpResponse
where
    S: Stream<Item = Result<Bytes, std::convert::Infallible>> + 'static,
{
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        // nginx would gather events into blocks.
        .insert_header(("x-accel-buffering", "no"))
        .streaming(events)
}

/// Whether the client asks for events.
pub fn is_wanted(request: &actix_web::HttpRequest) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| {
        accept.split(',').any(|kind| {
            let essence = kind.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("text/event-stream")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_framed_by_lines() {
        assert_eq!(event("exit", None, "{}"), "event: exit\ndata: {}\n\n");
        assert_eq!(event("a", Some("run-1"), "1"), "event: a\nid: run-1\ndata: 1\n\n");
    }

    #[test]
    fn a_client_says_by_accept_that_it_wants_events() {
        let wants = |accept: &str| {
            let request = actix_web::test::TestRequest::default();
            is_wanted(&request.insert_header((header::ACCEPT, accept)).to_http_request())
        };
        assert!(wants("text/event-stream") && wants("application/json, Text/Event-Stream;q=0.5"));
        assert!(!wants("application/json") && !wants("text/event-streams"));
    }
}
