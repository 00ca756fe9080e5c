//! Request bodies, read under three bounds: the size of one, the time it may take, and the sum of
//! all that are being read at the same moment.
//!
//! actix-web has no time-out for bodies and no bound on their sum, so a few hundred slow senders
//! of large bodies could take all memory. Here a body counts what has arrived of it until it is
//! dropped; where the sum is used up the sender is told to come back. After an early refusal
//! actix-web keeps reading for [`Limits::linger`](super::Limits::linger) and throws away, so that
//! the client gets the answer instead of a reset connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::header;
use actix_web::{FromRequest, HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use futures_util::{Stream, StreamExt};

use super::Shared;
use super::error::{ApiError, Code};
use super::fields::Fields;

/// How much is set aside for a body before any of it has come, in bytes: more than nearly every
/// delivery has, and little enough to be set aside for everyone who only claims a length.
const RESERVED_LEN_MAX: usize = 32 * 1024;

/// The sum of bodies that are being read.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    /// Nothing is being read; at most `max` bytes may be.
    pub fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// How many bytes are in memory now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// What one body holds of the budget; given back when dropped.
#[derive(Debug)]
struct BudgetShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body that was read whole. It counts towards the sum until it is dropped.
#[derive(Debug)]
pub struct Body {
    bytes: Bytes,
    _held: BudgetShare,
}

impl std::ops::Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body whole.
///
/// # Errors
/// 413 where it is longer than `len_max`, 408 where it takes longer than `time_max`, 503 where
/// the sum of bodies is used up, 400 where it breaks off.
pub async fn read<S>(
    declared: Option<u64>,
    body: S,
    len_max: usize,
    time_max: Duration,
    budget: &Arc<Budget>,
) -> Result<Body, ApiError>
where
    S: Stream<Item = Result<Bytes, PayloadError>>,
{
    if declared.is_some_and(|len| len > len_max as u64) {
        return Err(too_large(len_max as u64));
    }
    let mut held = BudgetShare { budget: Arc::clone(budget), bytes: 0 };
    let collect = async {
        let mut body = std::pin::pin!(body);
        // Made once instead of grown, but on the word of a header no more than what is usual.
        let likely = declared.map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let mut whole = BytesMut::with_capacity(likely.min(RESERVED_LEN_MAX));
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(broken_off)?;
            if whole.len() + chunk.len() > len_max {
                return Err(too_large(len_max as u64));
            }
            if !held.budget.take(chunk.len()) {
                return Err(ApiError::new(Code::Overloaded, "too many large bodies at once")
                    .hint("nothing was stored; send it again in a moment")
                    .retry_after(1));
            }
            held.bytes += chunk.len();
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    };
    match tokio::time::timeout(time_max, collect).await {
        Ok(bytes) => Ok(Body { bytes: bytes?, _held: held }),
        Err(_) => Err(too_slow()),
    }
}

/// 413.
pub fn too_large(len_max: u64) -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("the body is longer than {len_max} bytes"))
}

/// 408.
pub fn too_slow() -> ApiError {
    cut_short(ApiError::new(Code::RequestTimeout, "the body did not come in time"))
}

/// An answer to a body that nobody reads to its end: the rest of it may still come, so the connection
/// cannot serve another request.
pub fn cut_short(error: ApiError) -> ApiError {
    error.header(header::CONNECTION, header::HeaderValue::from_static("close"))
}

/// 400: the client went away or broke the framing.
pub fn broken_off(error: PayloadError) -> ApiError {
    ApiError::new(Code::InvalidRequest, format!("the body broke off: {error}"))
}

/// The length that a request's header declares.
pub fn declared_len(request: &HttpRequest) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The JSON object in a request's body. Whatever content type it is said to be: a body sent by
/// `curl -d` says that it is a form.
#[derive(Debug)]
pub struct JsonBody(pub Fields);

impl FromRequest for JsonBody {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let shared = request.app_data::<web::Data<Shared>>().cloned();
        let declared = declared_len(request);
        let payload = payload.take();
        Box::pin(async move {
            let shared = shared.expect("every app of this server carries its shared state");
            let limits = &shared.edge.limits;
            let time_max = limits.body_time_max;
            let body =
                read(declared, payload, limits.body_len_max, time_max, &shared.budget).await?;
            Fields::parse(&body).map(Self)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    const SECOND: Duration = Duration::from_secs(1);

    fn chunks(parts: &[&'static str]) -> impl Stream<Item = Result<Bytes, PayloadError>> + use<> {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from(*part))).collect::<Vec<_>>())
    }

    fn code<T>(result: Result<T, ApiError>) -> Option<Code> {
        result.err().map(|error| error.code())
    }

    #[tokio::test]
    async fn a_body_is_bounded_by_what_it_declares_and_by_what_it_sends() {
        let budget = Arc::new(Budget::new(100));
        let body = read(None, chunks(&["ab", "cd"]), 4, SECOND, &budget).await.expect("it fits");
        assert_eq!(&*body, b"abcd");
        let declared = read(Some(5), chunks(&["ab"]), 4, SECOND, &budget).await;
        assert_eq!(code(declared), Some(Code::BodyTooLarge));
        let sent = read(None, chunks(&["ab", "cde"]), 4, SECOND, &budget).await;
        assert_eq!(code(sent), Some(Code::BodyTooLarge));
    }

    #[tokio::test]
    async fn the_sum_of_bodies_is_bounded_and_given_back() {
        let budget = Arc::new(Budget::new(5));
        let first = read(None, chunks(&["abc"]), 10, SECOND, &budget).await.expect("it fits");
        let second = read(None, chunks(&["ab", "c"]), 10, SECOND, &budget).await;
        assert_eq!(code(second), Some(Code::Overloaded));
        assert_eq!(budget.used(), 3, "the refused body holds nothing");
        drop(first);
        assert!(read(None, chunks(&["abcde"]), 10, SECOND, &budget).await.is_ok());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_cut_off() {
        let budget = Arc::new(Budget::new(100));
        let slow = chunks(&["a"]).chain(stream::pending());
        assert_eq!(code(read(None, slow, 10, SECOND, &budget).await), Some(Code::RequestTimeout));
        assert_eq!(budget.used(), 0);
    }
}
