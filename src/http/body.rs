//! Request bodies, read within three limits: the size of one, its time, and the sum of all that are
//! read at the same time.
//!
//! actix-web limits neither the time nor the sum of bodies, so a few hundred slow senders of large
//! bodies could exhaust memory. Here the received bytes of a body count until it is dropped; when
//! the budget is used up, the answer is 503 with `Retry-After`. After an early refusal actix-web
//! reads and discards for [`Limits::linger`](super::Limits::linger), so that the client gets the
//! answer instead of a connection reset.

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

/// Largest allocation before a body arrives, in bytes: enough for nearly every delivery, and small
/// enough for clients that only declare a length.
const RESERVED_LEN_MAX: usize = 32 * 1024;

/// The budget of all bodies in memory.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    /// An unused budget of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// The bytes in memory.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// The share of one body in the budget, given back on drop.
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

/// A complete body. It counts towards the budget until it is dropped.
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

/// Reads a complete body.
///
/// # Errors
/// 413 if it is longer than `len_max`, 408 if it takes longer than `time_max`, 503 if the budget is
/// used up, 400 if it ends early.
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
        // One allocation, but a declared length is trusted only up to the usual size.
        let likely = declared.map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let mut whole = BytesMut::with_capacity(likely.min(RESERVED_LEN_MAX));
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(broken_off)?;
            if whole.len() + chunk.len() > len_max {
                return Err(too_large(len_max as u64));
            }
            if !held.budget.take(chunk.len()) {
                return Err(ApiError::new(
                    Code::Overloaded,
                    "too many large request bodies at the same time",
                )
                .hint("nothing was stored; retry in a moment")
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
    cut_short(ApiError::new(Code::RequestTimeout, "the body did not arrive in time"))
}

/// Closes the connection after an answer to an unread body: the rest of the body may still arrive.
pub fn cut_short(error: ApiError) -> ApiError {
    error.header(header::CONNECTION, header::HeaderValue::from_static("close"))
}

/// 400: the client went away or broke the framing.
pub fn broken_off(error: PayloadError) -> ApiError {
    ApiError::new(Code::InvalidRequest, format!("the body ended early: {error}"))
}

/// The length that a request's header declares.
pub fn declared_len(request: &HttpRequest) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The JSON object in a request's body, with any content type: `curl -d` declares a form.
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
