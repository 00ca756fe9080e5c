//! One connection from inside: requests that are passed on, or a tunnel.
//!
//! hyper reads and writes HTTP, so that where one request ends and the next begins is decided once:
//! each request is judged by its own target, whatever came before it on the same connection.

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
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::connect::{IDLE_WAIT, NotConnected, Stream, Ways};
use super::idle::Idle;
use super::policy::{Destination, Refusal};
use crate::sandbox::EgressResult;
use crate::types::is_of_one_connection;

/// Longest head of a request or an answer, in bytes: what most servers take.
const HEAD_LEN_MAX: usize = 16 * 1024;
const ANSWER_HEAD_LEN_MAX: usize = 64 * 1024;

/// How long a request's head may take, and a connection may wait for its next one.
const HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long whoever asked for what does not come about waits for the answer. Asking again at once would
/// find the same, and cost the server more processor than a sandbox's limits give.
const REFUSAL_PAUSE: Duration = Duration::from_millis(20);

type ProxyBody = Either<Full<Bytes>, Incoming>;

/// Why a request is not done.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("{0}")]
    NotConnected(#[from] NotConnected),
    #[error("this is a proxy: give it a whole address that begins with http://, or CONNECT")]
    NoTarget,
    #[error("https:// goes through CONNECT")]
    NeedsConnect,
    #[error("{0} did not answer as HTTP wants it: {1}")]
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
            Self::NotConnected(NotConnected::NotFound(..) | NotConnected::NotReached(..))
            | Self::NoAnswer(..) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// A tunnel that begins once its request has been answered.
type Tunnel = (OnUpgrade, Stream);

/// What one connection from inside holds beside itself.
struct ProxyConnection {
    ways: Arc<Ways>,
    tunnel: Mutex<Option<Tunnel>>,
    /// The far end of the request that is passed on; it ends with this.
    far: Mutex<JoinSet<()>>,
}

/// Serves a connection from inside to its end.
pub async fn serve(stream: TcpStream, ways: Arc<Ways>) {
    let connection =
        Arc::new(ProxyConnection { ways, tunnel: Mutex::default(), far: Mutex::default() });
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
    // What goes wrong on a connection is the affair of whoever made it.
    let _ = serving.await;
    let tunnel = connection.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((near, far)) = tunnel
        && let Ok(near) = near.await
    {
        // It ends by an error as often as by an end of file: both are the two sides' own affair.
        let _ = carry(near, far).await;
    }
}

/// Carries bytes both ways until both have ended, or one has failed.
async fn carry(near: Upgraded, mut far: Stream) -> std::io::Result<()> {
    let Ok(parts) = near.downcast::<TokioIo<Idle<TcpStream>>>() else { return Ok(()) };
    let mut near = parts.io.into_inner();
    far.write_all(&parts.read_buf).await?;
    copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}

impl ProxyConnection {
    async fn answer(&self, request: Request<Incoming>) -> Response<ProxyBody> {
        // The request before this one has its answer. A far end that has not taken all of that request
        // goes now, or one connection from inside could gather any number of them.
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
            self.ways.meter.count(EgressResult::Malformed);
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
        let (_, far) = self.ways.connect(authority.as_str(), None).await?;
        let near = hyper::upgrade::on(request);
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((near, far));
        Ok(Response::new(Either::Left(Full::default())))
    }

    /// Passes one request on, and its answer back.
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
        // The host that is judged is the host that is named, whatever the request's header says.
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| RequestError::NoTarget)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>();
        let (destination, far) = self.ways.connect(authority.as_str(), Some(80)).await?;

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
            // What goes wrong shows in the answer, or in its body.
            far.spawn(async move { drop(conversation.await) });
        }
        let answer = sender.send_request(Request::from_parts(head, body));
        let (mut head, body) = answer.await.map_err(no_answer)?.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let what = "it switches protocols, which nobody asked it to".to_owned();
            return Err(RequestError::NoAnswer(destination, what));
        }
        strip(&mut head.headers);
        head.version = hyper::Version::HTTP_11;
        Ok(Response::from_parts(head, Either::Right(body)))
    }
}

/// Takes out the headers that speak of one connection, and those that `ProxyConnection` names.
fn strip(headers: &mut HeaderMap) {
    let mut gone: Vec<HeaderName> = headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // Nobody here upgrades, and what is expected the proxy has answered by itself.
    let is_ours = |name: &str| is_of_one_connection(name) || matches!(name, "upgrade" | "expect");
    gone.extend(headers.keys().filter(|name| is_ours(name.as_str())).cloned());
    for name in gone {
        headers.remove(name);
    }
}

/// The answer for whoever asked for what does not come about.
fn explain(trouble: &RequestError) -> Response<ProxyBody> {
    let text = format!("issuebox: {trouble}.\n");
    let mut response = Response::new(Either::Left(Full::from(text)));
    *response.status_mut() = trouble.status();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_of_one_connection_stays_behind() {
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
