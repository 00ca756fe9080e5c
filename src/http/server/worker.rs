//! Serves connections on a thread of its own.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use actix::Arbiter;
use actix_http::error::DispatchError;
use actix_http::{HttpService, Request, Response};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, map_config};
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions};
use tokio::sync::mpsc;

use super::connections::Registered;
use super::stream::{RequestStream, StreamRules};
use crate::http::Limits;
use crate::http::metrics::CutOff;

/// Threads for lists and files, all workers together.
const BLOCKING_THREADS_MAX: usize = 512;

/// A connection on its way to a worker.
pub struct Accepted {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    pub place: Registered,
}

/// A thread that serves connections.
pub struct ServerWorker {
    connections: mpsc::UnboundedSender<Accepted>,
    arbiter: Arbiter,
}

impl ServerWorker {
    /// Starts a thread that serves what `app` builds.
    pub fn start<F, I, S, B>(app: F, limits: &Limits, rules: Arc<StreamRules>) -> Self
    where
        F: FnOnce() -> I + Send + 'static,
        I: IntoServiceFactory<S, Request> + 'static,
        S: ServiceFactory<Request, Config = AppConfig> + 'static,
        S::Error: Into<actix_web::Error> + 'static,
        S::InitError: std::fmt::Debug,
        S::Response: Into<Response<B>> + 'static,
        <S::Service as Service<Request>>::Future: 'static,
        B: MessageBody + 'static,
    {
        let (connections, accepted) = mpsc::unbounded_channel();
        let (limits, threads) = (limits.clone(), BLOCKING_THREADS_MAX / limits.workers);
        let arbiter = Arbiter::with_tokio_rt(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(threads.max(1))
                .build()
                .expect("a runtime needs descriptors and memory, as all that follows does")
        });
        arbiter.spawn_fn(move || drop(actix_web::rt::spawn(serve(app(), limits, rules, accepted))));
        Self { connections, arbiter }
    }

    /// Gives it a connection.
    pub fn give(&self, accepted: Accepted) {
        // It fails only if the thread ended, which drops the connection.
        drop(self.connections.send(accepted));
    }

    /// Ends the thread with what it still serves.
    pub fn end(self) {
        self.arbiter.stop();
        if self.arbiter.join().is_err() {
            tracing::error!("a thread that serves connections panicked");
        }
    }
}

async fn serve<I, S, B>(
    app: I,
    limits: Limits,
    rules: Arc<StreamRules>,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
) where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: std::fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let app = app.into_factory().map_err(|error: S::Error| {
        let error: actix_web::Error = error.into();
        error.error_response()
    });
    let built = HttpService::build()
        .keep_alive(limits.keep_alive)
        .client_request_timeout(limits.header_time_max)
        .client_disconnect_timeout(limits.linger)
        // Otherwise a disconnected caller is not noticed while its command runs.
        .h1_allow_half_closed(false)
        .on_connect_ext(|stream: &RequestStream, data: &mut Extensions| {
            data.insert(Arc::clone(&stream.place().connection));
        })
        .h1(map_config(app, |()| AppConfig::default()))
        .new_service(())
        .await;
    let Ok(service) = built else { return };
    while let Some(Accepted { stream, peer, place }) = accepted.recv().await {
        let stream = match tokio::net::TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot serve a connection");
                continue;
            }
        };
        let served =
            service.call((RequestStream::new(stream, place, Arc::clone(&rules)), Some(peer)));
        let feed = Arc::clone(&rules.feed);
        actix_web::rt::spawn(async move {
            if let Err(error) = served.await {
                if matches!(error, DispatchError::Parse(_)) {
                    feed.metrics.cut_off(CutOff::Malformed, 1);
                }
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
}
