//! The log of a sandbox: `GET /v1/sandboxes/{id}/logs`.
//!
//! A follower reads the log from disk at the speed of its connection, piece by piece, without a
//! queue: one that does not read costs one piece.

use std::convert::Infallible;
use std::io;

use actix_web::http::header::ContentType;
use actix_web::{HttpRequest, HttpResponse, get, web};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use super::sandboxes::load;
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::StreamWord;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::sse;
use crate::http::wire::{self, Success};
use crate::logs::{Follower, LogEntry};
use crate::store::StoreError;

/// Default of `?tail=`.
const TAIL_DEFAULT: u64 = 1_000;
/// Most lines of one answer.
const TAIL_MAX: u64 = 10_000;
/// Reads of logs at the same moment.
const READS_MAX: usize = 4;

/// An entry of a sandbox's log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LogEntry)]
pub struct LogBody {
    /// Its number in the log; later entries have greater ones.
    pub n: u64,
    /// When it was written.
    #[schema(format = DateTime)]
    pub at: String,
    /// The id of the request that ran the command; empty for other entries.
    pub exec: String,
    /// What the entry is.
    #[schema(value_type = StreamWord)]
    pub stream: &'static str,
    /// The line without its line break; bytes that are not UTF-8 become U+FFFD.
    pub text: String,
    /// Whether the next entry of its stream continues the line.
    pub partial: bool,
}

impl From<LogEntry> for LogBody {
    fn from(entry: LogEntry) -> Self {
        let LogEntry { n, at, exec, stream, text, is_partial } = entry;
        let (at, stream) = (at.to_string(), stream.as_str());
        Self { n, at, exec, stream, text, partial: is_partial }
    }
}

/// Reads the log of a sandbox, live or deleted, oldest entry first. With `follow=true` the entries
/// are server-sent events `log` with their number as `id:`, from which `Last-Event-ID` resumes.
#[utoipa::path(
    operation_id = "readLogs", tag = "work",
    params(
        params::OneSandbox,
        ("tail" = Option<u64>, Query,
         description = "Most lines, 0 to 10000; default 1000"),
        ("follow" = Option<bool>, Query,
         description = "Stream new lines as events"),
        ("Last-Event-ID" = Option<String>, Header,
         description = "With `follow`: resume after this entry; overrides `tail`"),
    ),
    responses(
        (status = 200, description = "the lines, or a stream of them", content(
            (Success<Vec<LogBody>> = "application/json"),
            (String = "text/event-stream"),
        )),
        answers::SandboxReadErrors,
    )
)]
#[get("/v1/sandboxes/{id}/logs")]
pub async fn logs(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let lines = query.number("tail", 0..=TAIL_MAX)?.unwrap_or(TAIL_DEFAULT);
    let lines = usize::try_from(lines).expect("at most 10,000");
    let follows = query.flag("follow")?;
    query.finish()?;
    let sandbox = load(&shared, &caller.account, &sandbox_ref(&path)).await?;
    let resumed = request.headers().get("last-event-id").and_then(|value| value.to_str().ok());
    let resumed: Option<u64> = resumed.filter(|_| follows).and_then(|value| value.parse().ok());
    if follows {
        let mut follower = shared.edge.logs.follow(&sandbox.id, resumed.unwrap_or(0));
        if resumed.is_none() {
            follower = read(move || follower.seek_tail(lines, u64::MAX).map(|()| follower)).await?;
        }
        return Ok(sse::answer(follow(follower, Ending::new(&shared, &caller))));
    }
    let logs = shared.edge.logs.clone();
    let answer = read(move || {
        let entries = logs.tail(&sandbox.id, lines)?;
        let entries: Vec<LogBody> = entries.into_iter().map(LogBody::from).collect();
        Ok(wire::to_json(&Success::about(&sandbox, entries)))
    });
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(answer.await?))
}

/// Reads from disk on a blocking thread, a few at a time: they leave the processors to others.
///
/// # Errors
/// 503 if the log cannot be read.
pub async fn read<T: Send + 'static>(
    reading: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    static READS: Semaphore = Semaphore::const_new(READS_MAX);
    // It is never closed.
    let _turn = READS.acquire().await;
    let read = web::block(reading).await.map_err(io::Error::other).flatten();
    read.map_err(|error| StoreError::Failed(format!("cannot read a sandbox's log: {error}")).into())
}

/// The entries of a follower until the end of the server or the session.
fn follow(follower: Follower, ending: Ending) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let rest = stream::unfold((follower, ending), |(follower, mut ending)| async move {
        let (bytes, follower) = next(follower, &mut ending).await?;
        Some((Ok(bytes), (follower, ending)))
    });
    stream::once(async { Ok(sse::GREETING) }).chain(rest)
}

/// The next bytes; `None` at the end, or if the log cannot be read.
async fn next(mut follower: Follower, ending: &mut Ending) -> Option<(Bytes, Follower)> {
    let silent_until = Instant::now() + sse::HEARTBEAT;
    loop {
        if ending.has_come().await.is_some() {
            return None;
        }
        // Written there too, so that long logs keep the worker from nothing else.
        let reading = move || Ok((events(follower.read()?), follower));
        let (events, back) = read(reading).await.ok()?;
        follower = back;
        if !events.is_empty() {
            return Some((events, follower));
        }
        tokio::select! {
            biased;
            _ = ending.come() => return None,
            goes_on = follower.changed() => if !goes_on { return None },
            () = sleep_until(silent_until) => return Some((sse::HEARTBEAT_COMMENT, follower)),
        }
    }
}

fn events(entries: Vec<LogEntry>) -> Bytes {
    let one = |entry: LogEntry| {
        let n = entry.n.to_string();
        sse::event("log", Some(&n), &wire::to_json(&LogBody::from(entry)))
    };
    Bytes::from(entries.into_iter().map(one).collect::<String>())
}
