//! The middleware around every request.
//!
//! It gives each request an id (one from outside could forge log lines), authenticates requests
//! below `/v1` before routing, refuses encoded bodies before reading them, shows a browser errors as
//! pages, and counts answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, HttpRequest, web};
use bytes::Bytes;
use tracing::Instrument;

use super::Shared;
use super::auth;
use super::budget::{NoRoom, Share};
use super::error::{ApiError, Code};
use super::page;
use super::routes;
use super::server::{Answering, ClientConnection};

/// The header that carries a request's id back.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request's id, among its extensions.
#[derive(Clone, Debug)]
pub struct RequestId(pub Arc<str>);

/// The middleware around all routes.
///
/// # Errors
/// Those of the inner service; its own refusals are answers.
pub async fn middleware<B: MessageBody + 'static>(
    shared: web::Data<Shared>,
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let answering =
        request.request().conn_data::<Arc<ClientConnection>>().map(ClientConnection::answering);
    let id: Arc<str> = shared.edge.ids.request_id().into();
    let method = method_word(request.method());
    let asks_for_upgrade = request.head().upgrade();
    // A server in a sandbox answers HEAD itself.
    let head_only = *request.method() == Method::HEAD && !routes::is_below_port(request.path());
    if head_only {
        // HEAD is GET without the body, which actix-web leaves out when it writes the answer.
        request.head_mut().method = Method::GET;
    }
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    let span = tracing::debug_span!(
        "request",
        otel.kind = "server",
        http.request.method = method,
        http.route = tracing::field::Empty,
        request.id = %id,
    );
    let shows_pages = is_browser(&request);
    let mut response = match gate(&shared, &request, &id).await {
        Ok(()) => next.call(request).instrument(span.clone()).await?.map_into_boxed_body(),
        Err(refused) => request.error_response(refused),
    };
    if shows_pages
        && let Some(page) = response
            .response()
            .error()
            .and_then(|error| error.as_error::<ApiError>().map(page::of_error))
    {
        response = response.into_response(page);
    }
    let route = label(response.request());
    span.record("http.route", &route);
    if head_only && response.response().body().size() == BodySize::Stream {
        response = response.map_body(|_, _| BoxBody::new(()));
    }
    let status = response.status();
    let is_upgraded = status == StatusCode::SWITCHING_PROTOCOLS;
    let is_last = *shared.edge.closing.borrow();
    if (asks_for_upgrade || is_last) && !is_upgraded {
        // actix-web takes the bytes after such a request for those of the upgrade, also if it was
        // refused, so the connection cannot serve another request. At the shutdown none does.
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    let status = status.as_u16();
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    tracing::debug!(http.method = method, http.route = route, http.status = status, request.id = %id, "request answered");
    shared.edge.feed.metrics.answered(method, route, status);
    Ok(response
        .map_body(|_, body| BoxBody::new(AnswerBody { body, rest: Bytes::new(), answering })))
}

/// Whether a person looks at the answer: browsers name HTML, programs do not.
fn is_browser(request: &ServiceRequest) -> bool {
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepts.is_some_and(|types| types.contains("text/html"))
}

/// The most that a connection is given at once, in bytes: it copies what it is given.
const PIECE_LEN_MAX: usize = 16 * 1024;

/// A whole answer of at most this many bytes is a part of what each connection costs.
const FREE_ANSWER_LEN: u64 = 4 * 1024;

/// The body of an answer, whose bytes count until the client has taken them. Its drop ends the
/// answer, be it written or given up.
struct AnswerBody {
    body: BoxBody,
    /// What the connection was not given yet.
    rest: Bytes,
    answering: Option<Answering>,
}

impl AnswerBody {
    fn share(&self) -> Option<&Share> {
        self.answering.as_ref()?.connection().unread()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(share) = self.share() {
            share.given(self.rest.len());
        }
    }
}

impl MessageBody for AnswerBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            // Asked before: a whole body has no size once it was taken.
            let is_free =
                matches!(this.body.size(), BodySize::Sized(len) if len <= FREE_ANSWER_LEN);
            match ready!(this.body.as_pin_mut().poll_next(context)) {
                Some(Ok(bytes)) => this.rest = bytes,
                ended => return Poll::Ready(ended),
            }
            match this.share().filter(|_| !is_free).map(|share| share.hold(this.rest.len())) {
                None => return Poll::Ready(Some(Ok(std::mem::take(&mut this.rest)))),
                Some(Ok(())) => {}
                Some(Err(NoRoom)) => {
                    this.rest = Bytes::new();
                    return Poll::Ready(Some(Err("other clients needed the memory".into())));
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_LEN_MAX));
        if let Some(share) = this.share() {
            share.given(piece.len());
        }
        Poll::Ready(Some(Ok(piece)))
    }
}

/// Checks a request before routing.
async fn gate(shared: &Shared, request: &ServiceRequest, id: &Arc<str>) -> Result<(), ApiError> {
    // A server in a sandbox decodes bodies itself.
    let is_ours = !routes::is_below_port(request.path());
    if let Some(encoding) = request.headers().get(header::CONTENT_ENCODING)
        && is_ours
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(ApiError::new(Code::UnsupportedMediaType, "encoded bodies are not supported")
            .hint("send the body without Content-Encoding"));
    }
    // As the router reads it.
    let path = request.match_info().as_str();
    if path.starts_with("/v1/") || path == "/v1" {
        let caller = auth::authenticate(shared, request.request(), id).await?;
        request.extensions_mut().insert(caller);
    }
    Ok(())
}

/// The route of a request, as a metric label: its pattern as the description names it. All paths
/// without a route have one label, so that callers cannot make up labels.
fn label(request: &HttpRequest) -> String {
    let Some(mut route) = request.match_pattern() else { return "other".into() };
    // The one part that has more than its name: it takes any number of parts of the path.
    if let Some(at) = route.find(":.*}") {
        route.truncate(at);
        route.push('}');
    }
    route
}

/// Methods as metric labels: all unknown ones share one, since clients can send any.
fn method_word(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "PATCH" => "PATCH",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
