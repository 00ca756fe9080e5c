//! Server-sent events: framing, and headers for proxies.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header;
use bytes::Bytes;
use futures_util::Stream;

/// Longest silence of a stream: a comment prevents timeouts of proxies and clients.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment, which clients ignore.
pub const HEARTBEAT_COMMENT: Bytes = Bytes::from_static(b": still here\n\n");

/// The beginning of a stream: the reconnect delay in milliseconds.
pub const GREETING: Bytes = Bytes::from_static(b"retry: 1000\n: welcome\n\n");

/// One event. `data` is one line of JSON.
pub fn event(name: &str, id: Option<&str>, data: &str) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}

/// Answers with a stream of events.
pub fn answer<S>(events: S) -> HttpResponse
where
    S: Stream<Item = Result<Bytes, std::convert::Infallible>> + 'static,
{
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        // Without this nginx buffers the events.
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
