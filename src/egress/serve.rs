//! Serves one connection from a sandbox: requests that are forwarded, or a tunnel.
//!
//! hyper parses and writes HTTP, so there is only one decision about where a request ends. Each request
//! is checked by its own target, whatever came before it on the connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::task::JoinSet;

use super::connect::{Connector, IDLE_WAIT, NotConnected, OutgoingStream};
use super::gateway;
use super::idle::Idle;
use super::lookups::LookupFailure;
use super::policy::{Destination, Refusal};
use crate::git::GitBody;
use crate::sandbox::{EgressResult, Stream};
use crate::types::is_of_one_connection;

/// Longest head of a request or an answer, in bytes: the limit of most servers.
const HEAD_LEN_MAX: usize = 16 * 1024;
const ANSWER_HEAD_LEN_MAX: usize = 64 * 1024;

/// Time limit for a request's head, and for the pause before it.
const HEAD_WAIT: Duration = Duration::from_secs(30);

/// Delay of a refusal. Without it a sandbox could retry at once and use more of the server's processor
/// than its limits allow.
const REFUSAL_PAUSE: Duration = Duration::from_millis(20);

type ProxyBody = Either<Either<Full<Bytes>, Incoming>, GitBody>;

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("{0}")]
    NotConnected(#[from] NotConnected),
    #[error("this is a proxy: send a whole address that begins with http://, or CONNECT")]
    NoTarget,
    #[error("use CONNECT for https://")]
    NeedsConnect,
    #[error("{0} did not answer with valid HTTP: {1}")]
    NoAnswer(Destination, String),
}

impl RequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotConnected(NotConnected::Refused(refusal)) => match refusal {
                Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
                Refusal::NotListed(_)
                | Refusal::Mail(_)
                | Refusal::NotPublic { .. }
                | Refusal::Never { .. } => StatusCode::FORBIDDEN,
            },
            Self::NoTarget | Self::NeedsConnect => StatusCode::BAD_REQUEST,
            // As for an address that is not public.
            Self::NotConnected(NotConnected::NotFound(_, LookupFailure::NotFound(_))) => {
                StatusCode::FORBIDDEN
            }
            Self::NotConnected(NotConnected::NotFound(..) | NotConnected::NotReached(..))
            | Self::NoAnswer(..) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// A tunnel that starts after its request was answered.
type Tunnel = (OnUpgrade, OutgoingStream);

/// The state of one connection from a sandbox.
struct ProxyConnection {
    connector: Arc<Connector>,
    tunnel: Mutex<Option<Tunnel>>,
    /// The task of the outgoing connection; a drop ends it.
    far: Mutex<JoinSet<()>>,
}

/// Serves a connection from a sandbox until it ends.
pub async fn serve<S: Stream + 'static>(stream: S, connector: Arc<Connector>) {
    let connection =
        Arc::new(ProxyConnection { connector, tunnel: Mutex::default(), far: Mutex::default() });
    let of = Arc::clone(&connection);
    let service = service_fn(move |request| {
        let of = Arc::clone(&of);
        async move { Ok::<_, std::convert::Infallible>(of.answer(request).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_LEN_MAX)
        .half_close(true)
        .serve_connection(TokioIo::new(Idle::new(stream, IDLE_WAIT)), service)
        .with_upgrades();
    // An error on a connection concerns only its two ends.
    let _ = serving.await;
    let tunnel = connection.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((near, far)) = tunnel
        && let Ok(near) = near.await
    {
        // The tunnel may end with an error, which concerns only its two ends.
        let _ = carry::<S>(near, far).await;
    }
}

/// Copies bytes in both directions until both have ended, or one has failed.
async fn carry<S: Stream + 'static>(
    near: Upgraded,
    mut far: OutgoingStream,
) -> std::io::Result<()> {
    let Ok(parts) = near.downcast::<TokioIo<Idle<S>>>() else { return Ok(()) };
    let mut near = parts.io.into_inner();
    far.write_all(&parts.read_buf).await?;
    copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}

impl ProxyConnection {
    async fn answer(&self, request: Request<Incoming>) -> Response<ProxyBody> {
        // The previous request was answered. If its server has not read all of it, that connection ends now;
        // otherwise one sandbox connection could accumulate outgoing ones.
        self.far().abort_all();
        let answered = match *request.method() {
            Method::CONNECT => self.open_tunnel(request).await,
            _ => self.pass_on(request).await,
        };
        let trouble = match answered {
            Ok(answer) => return answer,
            Err(trouble) => trouble,
        };
        if matches!(trouble, RequestError::NoTarget | RequestError::NeedsConnect) {
            self.connector.meter.count(EgressResult::Malformed);
        }
        tokio::time::sleep(REFUSAL_PAUSE).await;
        explain(&trouble)
    }

    fn far(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open_tunnel(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ProxyBody>, RequestError> {
        let authority = request.uri().authority().ok_or(RequestError::NoTarget)?;
        let (_, far) = self.connector.connect(authority.as_str(), None).await?;
        let near = hyper::upgrade::on(request);
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((near, far));
        Ok(Response::new(Either::Left(Either::Left(Full::default()))))
    }

    /// Forwards a request, and returns its answer.
    async fn pass_on(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ProxyBody>, RequestError> {
        let uri = request.uri();
        let authority = uri.authority().ok_or(RequestError::NoTarget)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(RequestError::NeedsConnect),
            Some(_) | None => return Err(RequestError::NoTarget),
        }
        if let Some(of) = &self.connector.gateway
            && Destination::parse(authority.as_str(), Some(80))
                .is_ok_and(|destination| gateway::is_gateway(&destination))
        {
            return Ok(gateway::answer(&self.connector, of, request).await.map(Either::Right));
        }
        // The checked host is also the `Host` header, whatever the request says.
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| RequestError::NoTarget)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>();
        let (destination, far) = self.connector.connect(authority.as_str(), Some(80)).await?;

        let (mut head, body) = request.into_parts();
        head.uri = path.map_err(|_| RequestError::NoTarget)?;
        head.version = hyper::Version::HTTP_11;
        strip(&mut head.headers);
        head.headers.insert(hyper::header::HOST, host);
        let no_answer =
            |error: hyper::Error| RequestError::NoAnswer(destination.clone(), error.to_string());
        let (mut sender, conversation) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(ANSWER_HEAD_LEN_MAX)
            .handshake(TokioIo::new(far))
            .await
            .map_err(no_answer)?;
        {
            let mut far = self.far();
            while far.try_join_next().is_some() {}
            // Errors appear in the answer or in its body.
            far.spawn(async move { drop(conversation.await) });
        }
        let answer = sender.send_request(Request::from_parts(head, body));
        let (mut head, body) = answer.await.map_err(no_answer)?.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let what = "it switched protocols without a request to do so".to_owned();
            return Err(RequestError::NoAnswer(destination, what));
        }
        strip(&mut head.headers);
        head.version = hyper::Version::HTTP_11;
        Ok(Response::from_parts(head, Either::Left(Either::Right(body))))
    }
}

/// Removes hop-by-hop headers, and those that `Connection` names.
fn strip(headers: &mut HeaderMap) {
    let mut gone: Vec<HeaderName> = headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // Upgrades are not forwarded, and the proxy answers `Expect` itself.
    let is_ours = |name: &str| is_of_one_connection(name) || matches!(name, "upgrade" | "expect");
    gone.extend(headers.keys().filter(|name| is_ours(name.as_str())).cloned());
    for name in gone {
        headers.remove(name);
    }
}

/// The answer for a failed request.
fn explain(trouble: &RequestError) -> Response<ProxyBody> {
    let text = format!("issuebox: {trouble}.\n");
    let mut response = Response::new(Either::Left(Either::Left(Full::from(text))));
    *response.status_mut() = trouble.status();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("proxy-authorization", "secret"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("authorization", "theirs"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "content-length"]);
    }
}
