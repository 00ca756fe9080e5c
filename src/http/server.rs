//! The HTTP server: accepts connections, gives them to its workers, and ends them at the shutdown.
//!
//! # The end
//! What was sent before the end is answered: the server accepts what waits, closes the listener,
//! and ends each connection when its socket has been read empty and its request is answered, with
//! `Connection: close`. A head that is not complete gets another [`LATE_HEADS_WAIT`], and so does the
//! first head of a connection that was opened just before.

mod connections;
mod framing;
mod stream;
mod worker;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::{App, HttpRequest, web};
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_send_buffer_size, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl,
};
use rustix::process::{Resource, getrlimit};
use tokio::time::{sleep, timeout};

use super::attempts::network;
use super::error::ApiError;
use super::metrics::CutOff;
use super::middleware::middleware;
use super::routes::ServedDocument;
use super::shared::Shared;
use super::{Edge, Feed, api, page, routes};

pub use connections::{Answering, ClientConnection};
use connections::{ConnectionAdmission, Connections, EndStage};
use stream::StreamRules;
use worker::{Accepted, ServerWorker};

/// How long the head of a request may still take to come when the server ends, and how new a connection
/// is whose first one is waited for.
const LATE_HEADS_WAIT: Duration = Duration::from_secs(1);
/// How long the server waits after it could not accept a connection. The cause lasts, such as a
/// lack of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What the kernel keeps for a client that does not read, in bytes of answers. Otherwise it is up to
/// `net.ipv4.tcp_wmem`, 4 MB by default. It allows twice as much, for its own part (`socket(7)`).
const SEND_BUFFER_LEN: usize = 128 * 1024;

/// A server that listens.
pub struct HttpServer {
    listener: TcpListener,
    workers: Vec<ServerWorker>,
    next_worker: usize,
    connections: Arc<Connections>,
    trusted_proxies: Vec<IpAddr>,
    feed: Arc<Feed>,
    drain_time_max: Duration,
}

/// Builds the server on an actix system. It serves while [`HttpServer::run`] is polled.
///
/// # Errors
/// If the listener cannot be used.
pub fn build(edge: Edge, listener: TcpListener) -> std::io::Result<HttpServer> {
    listener.set_nonblocking(true)?;
    let (limits, feed) = (edge.limits.clone(), Arc::clone(&edge.feed));
    let trusted_proxies = edge.trusted_proxies.clone();
    let document = Arc::new(ServedDocument::build());
    let shared = Shared::new(edge, Arc::clone(&document), listener.local_addr()?);
    let shared = web::Data::new(shared);
    let (budget, answers) = (Arc::clone(&shared.budget), Arc::clone(&shared.answers));
    let app = move || {
        App::new()
            .app_data(shared)
            .app_data(web::PathConfig::default().error_handler(wrong_path))
            .configure(routes::table)
            .configure(page::pages)
            .configure(api::ports::other_methods)
            .configure(|app| document.other_methods(app))
            .default_service(web::to(routes::unknown))
            .wrap(from_fn(middleware))
    };
    let rules = Arc::new(StreamRules {
        head_len_max: limits.head_len_max,
        head_time_max: limits.header_time_max,
        linger: limits.linger,
        budget,
        answers,
        feed: Arc::clone(&feed),
    });
    let worker = |_: usize| ServerWorker::start(app.clone(), &limits, Arc::clone(&rules));
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections_max = usize::try_from(files / 2).unwrap_or(usize::MAX);
    Ok(HttpServer {
        listener,
        workers: (0..limits.workers).map(worker).collect(),
        next_worker: 0,
        connections: Arc::new(Connections::new(limits.connections_max.min(connections_max))),
        trusted_proxies,
        feed,
        drain_time_max: limits.drain_time_max,
    })
}

impl HttpServer {
    /// Serves until its end comes; whether all requests were answered then. What takes longer than
    /// [`Limits::drain_time_max`](super::Limits::drain_time_max) is aborted. Set [`Edge::closing`]
    /// before: streams that are open delay the end until then.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub async fn run(mut self, end: impl Future<Output = ()>) -> std::io::Result<bool> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let connections = Arc::clone(&self.connections);
        let accept = async || {
            connections.room().await;
            listener.accept().await
        };
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                accepted = accept() => match accepted {
                    Ok((stream, peer)) => match stream.into_std() {
                        Ok(stream) => self.give(stream, peer),
                        Err(error) => tracing::debug!(%error, "lost a new connection"),
                    },
                    // Its client went away.
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
        while let Ok((stream, peer)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            self.give(stream, peer);
        }
        drop(listener);
        let Self { listener, workers, drain_time_max, .. } = self;
        drop(listener);
        let drain = async {
            connections.enter(EndStage::Draining);
            if timeout(LATE_HEADS_WAIT, connections.all_ended()).await.is_err() {
                connections.enter(EndStage::Closing);
                connections.all_ended().await;
            }
        };
        let is_drained = timeout(drain_time_max, drain).await.is_ok();
        workers.into_iter().for_each(ServerWorker::end);
        Ok(is_drained)
    }

    /// Gives a connection to the next worker.
    fn give(&mut self, stream: TcpStream, peer: SocketAddr) {
        let address = Some(peer.ip()).filter(|peer| !self.trusted_proxies.contains(peer));
        let ConnectionAdmission { place, gave_way } = self.connections.admit(address.map(network));
        let metrics = &self.feed.metrics;
        metrics.cut_off(CutOff::ConnectionGaveWay, gave_way);
        let Some(place) = place else {
            metrics.cut_off(CutOff::ConnectionRefused, 1);
            return;
        };
        notice_dead_peers(&stream);
        if let Err(error) = set_socket_send_buffer_size(&stream, SEND_BUFFER_LEN) {
            tracing::debug!(%error, "cannot limit a connection's send buffer");
        }
        if let Some(worker) = self.workers.get(self.next_worker) {
            worker.give(Accepted { stream, peer, place });
        }
        self.next_worker = (self.next_worker + 1) % self.workers.len();
    }
}

/// Enables TCP keepalive. Without it a peer that lost its network or power keeps silent streams,
/// and its sandbox, busy.
fn notice_dead_peers(stream: &impl AsFd) {
    let set = || {
        set_socket_keepalive(stream, true)?;
        set_tcp_keepidle(stream, Duration::from_secs(60))?;
        set_tcp_keepintvl(stream, Duration::from_secs(15))?;
        set_tcp_keepcnt(stream, 4)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "cannot enable keepalive on a connection");
    }
}

/// The answer to a path that is not UTF-8.
fn wrong_path(error: actix_web::error::PathError, _: &HttpRequest) -> actix_web::Error {
    ApiError::field("path", error.to_string()).into()
}
