//! Builds the HTTP server.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::{App, HttpRequest, HttpServer, web};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use utoipa_actix_web::AppExt;

use super::error::ApiError;
use super::middleware::middleware;
use super::shared::Shared;
use super::{Edge, api, page, routes};

/// Builds the server. It serves when its future is polled, and ends by its handle's `stop`; it does
/// not handle signals. Set [`Edge::closing`] before a graceful stop: open event streams delay it
/// until its timeout.
///
/// # Errors
/// If the listener cannot be used.
pub fn build(edge: Edge, listener: TcpListener) -> std::io::Result<Server> {
    let limits = edge.limits.clone();
    let document = Arc::new(routes::document());
    let shared = web::Data::new(Shared::new(edge, &document));
    let app = move || {
        let document = Arc::clone(&document);
        App::new()
            .app_data(shared.clone())
            .app_data(web::PathConfig::default().error_handler(wrong_path))
            .into_utoipa_app()
            .configure(routes::table)
            .into_app()
            .configure(page::pages)
            .configure(api::ports::other_methods)
            .configure(|app| routes::other_methods(&document, app))
            .default_service(web::to(routes::unknown))
            .wrap(from_fn(middleware))
    };
    let server = HttpServer::new(app)
        .workers(limits.workers)
        .disable_signals()
        .shutdown_timeout(limits.drain_time_max.as_secs())
        .keep_alive(limits.keep_alive)
        .client_request_timeout(limits.header_time_max)
        .client_disconnect_timeout(limits.linger)
        // Otherwise a disconnected caller is not noticed while its command runs.
        .h1_allow_half_closed(false)
        .on_connect(|connection, _| {
            if let Some(stream) = connection.downcast_ref::<actix_web::rt::net::TcpStream>() {
                notice_dead_peers(stream);
            }
        })
        .listen(listener)?
        .run();
    Ok(server)
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
