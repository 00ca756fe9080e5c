//! Serves the socket of one sandbox, by which its gateway knows it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{LateModelGateway, ModelGateway, ModelHttpBody};
use crate::sandbox::{Arrivals, Stream};
use crate::types::SandboxId;

/// Longest head of a request, in bytes: agents send some 3 KB.
const HEAD_LEN_MAX: usize = 32 * 1024;
/// Time limit for a request's head, and for the pause before it.
const HEAD_WAIT: Duration = Duration::from_secs(300);
/// Connections of one sandbox at one time. Further ones wait in the socket's queue.
const CONNECTIONS_MAX: usize = 64;
/// How long accepting rests after an error, such as having no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server of one sandbox's socket. Dropping it ends all of its connections.
#[derive(Debug)]
pub struct ModelServer(tokio::task::JoinHandle<()>);

impl ModelServer {
    /// Serves this socket. Call it within a tokio runtime.
    pub fn start(arrivals: impl Arrivals, sandbox: SandboxId, gateway: LateModelGateway) -> Self {
        Self(tokio::spawn(accept(arrivals, sandbox, gateway)))
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept(mut arrivals: impl Arrivals, sandbox: SandboxId, gateway: LateModelGateway) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut open = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        let stream = match arrivals.next().await {
            Ok(stream) => stream,
            Err(_) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (sandbox, gateway) = (sandbox.clone(), gateway.clone());
        open.spawn(async move {
            serve(stream, sandbox, gateway).await;
            drop(place);
        });
        // Only those that ended are taken out.
        while open.try_join_next().is_some() {}
    }
}

/// Serves one connection. It ends when its client goes, and with it what it asked for.
async fn serve(stream: impl Stream + 'static, sandbox: SandboxId, gateway: LateModelGateway) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (sandbox, gateway) = (sandbox.clone(), gateway.clone());
        async move {
            let request = request.map(|body| body.map_err(io::Error::other).boxed_unsync());
            Ok::<Response<ModelHttpBody>, Infallible>(gateway.answer(&sandbox, request).await)
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // An error on a connection concerns only its two ends.
    let _ = serving.await;
}
