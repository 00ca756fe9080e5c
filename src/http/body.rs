//! Request bodies, read within three limits: the size of one, its time, and the [`Budget`] of all
//! that are read at the same time.
//!
//! The received bytes of a body count until it is dropped. Where there is no room for them, the
//! answer is 503 with `Retry-After`. After an early refusal actix-web reads and discards for
//! [`Limits::linger`](super::Limits::linger), so that the client gets the answer instead of a
//! connection reset.
//!
//! [`Budget`]: super::budget::Budget

use std::future::poll_fn;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::header;
use actix_web::{FromRequest, HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use futures_util::{Stream, StreamExt};

use super::attempts::network;
use super::auth;
use super::budget::{NoRoom, Share};
use super::error::{ApiError, Code};
use super::fields::Fields;
use super::metrics::CutOff;
use super::{Limits, Shared};

/// Largest allocation before a body arrives, in bytes: enough for nearly every delivery, and small
/// enough for clients that only declare a length.
const RESERVED_LEN_MAX: usize = 32 * 1024;

/// A complete body. It counts towards the budget until it is dropped.
#[derive(Debug)]
pub struct Body {
    bytes: Bytes,
    _held: Share,
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
/// 413 if it is longer than `len_max`, 408 if it takes longer than
/// [`Limits::body_time_max`](super::Limits::body_time_max), 503 if there is no room for it, 400 if
/// it ends early.
pub async fn read<S>(
    shared: &Shared,
    request: &HttpRequest,
    body: S,
    len_max: usize,
) -> Result<Body, ApiError>
where
    S: Stream<Item = Result<Bytes, PayloadError>>,
{
    let address = auth::client_address(shared, request).filter(|address| !address.is_unspecified());
    let share = shared.budget.share(address.map(network));
    let time_max = shared.edge.limits.body_time_max;
    let read = collect(declared_len(request), body, len_max, time_max, share).await;
    if read.as_ref().is_err_and(|error| error.code() == Code::Overloaded) {
        shared.edge.feed.metrics.cut_off(CutOff::BodyOverloaded, 1);
    }
    read
}

async fn collect<S>(
    declared: Option<u64>,
    body: S,
    len_max: usize,
    time_max: Duration,
    held: Share,
) -> Result<Body, ApiError>
where
    S: Stream<Item = Result<Bytes, PayloadError>>,
{
    if declared.is_some_and(|len| len > len_max as u64) {
        return Err(too_large(len_max as u64));
    }
    let collect = async {
        let mut body = std::pin::pin!(body);
        // One allocation, but a declared length is trusted only up to the usual size.
        let likely = declared.map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let mut whole = BytesMut::with_capacity(likely.min(RESERVED_LEN_MAX));
        loop {
            let chunk = tokio::select! {
                biased;
                () = poll_fn(|context| held.poll_given_way(context)) => return Err(no_room(NoRoom)),
                chunk = body.next() => chunk,
            };
            let Some(chunk) = chunk else { break };
            let chunk = chunk.map_err(broken_off)?;
            if whole.len() + chunk.len() > len_max {
                return Err(too_large(len_max as u64));
            }
            held.take(chunk.len()).map_err(no_room)?;
            whole.extend_from_slice(&chunk);
        }
        held.is_whole();
        Ok(whole.freeze())
    };
    match tokio::time::timeout(time_max, collect).await {
        Ok(bytes) => Ok(Body { bytes: bytes?, _held: held }),
        Err(_) => Err(too_slow()),
    }
}

/// 503: others come faster.
fn no_room(NoRoom: NoRoom) -> ApiError {
    let message = "too many large request bodies at the same time";
    let error = ApiError::new(Code::Overloaded, message);
    cut_short(error.hint("nothing was stored; retry in a moment").retry_after(1))
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
        let fields = fields(request, payload, |limits| limits.body_len_max);
        Box::pin(async { fields.await.map(Self) })
    }
}

/// The same of a message to an agent, which may be longer.
#[derive(Debug)]
pub struct MessageJson(pub Fields);

impl FromRequest for MessageJson {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let fields = fields(request, payload, |limits| limits.message_len_max);
        Box::pin(async { fields.await.map(Self) })
    }
}

/// The fields of a body of at most so many bytes.
fn fields(
    request: &HttpRequest,
    payload: &mut Payload,
    len_max: fn(&Limits) -> usize,
) -> impl Future<Output = Result<Fields, ApiError>> + use<> {
    let shared = request.app_data::<web::Data<Shared>>().cloned();
    let (request, payload) = (request.clone(), payload.take());
    async move {
        let shared = shared.expect("every app of this server carries its shared state");
        let len_max = len_max(&shared.edge.limits);
        let body = read(&shared, &request, payload, len_max).await?;
        Fields::parse(&body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::budget::Budget;
    use futures_util::stream;
    use std::sync::Arc;

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
        let body = collect(None, chunks(&["ab", "cd"]), 4, SECOND, budget.share(None))
            .await
            .expect("it fits");
        assert_eq!(&*body, b"abcd");
        let declared = collect(Some(5), chunks(&["ab"]), 4, SECOND, budget.share(None)).await;
        assert_eq!(code(declared), Some(Code::BodyTooLarge));
        let sent = collect(None, chunks(&["ab", "cde"]), 4, SECOND, budget.share(None)).await;
        assert_eq!(code(sent), Some(Code::BodyTooLarge));
    }

    #[tokio::test]
    async fn the_sum_of_bodies_is_bounded_and_given_back() {
        let budget = Arc::new(Budget::new(5));
        let first =
            collect(None, chunks(&["abc"]), 10, SECOND, budget.share(None)).await.expect("it fits");
        let second = collect(None, chunks(&["ab", "c"]), 10, SECOND, budget.share(None)).await;
        assert_eq!(code(second), Some(Code::Overloaded));
        assert_eq!(budget.used(), 3, "the refused body holds nothing");
        drop(first);
        assert!(collect(None, chunks(&["abcde"]), 10, SECOND, budget.share(None)).await.is_ok());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_cut_off() {
        let budget = Arc::new(Budget::new(100));
        let slow = chunks(&["a"]).chain(stream::pending());
        assert_eq!(
            code(collect(None, slow, 10, SECOND, budget.share(None)).await),
            Some(Code::RequestTimeout)
        );
        assert_eq!(budget.used(), 0);
    }
}
