//! From the edge's parts to a server on a listener.

use std::net::TcpListener;
use std::sync::Arc;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::{App, HttpRequest, HttpServer, web};
use utoipa_actix_web::AppExt;

use super::around::around;
use super::error::ApiError;
use super::shared::Shared;
use super::{Edge, api, page, routes};

/// Builds the server. It serves once its future is polled, and ends by its handle's `stop`: no
/// signal is listened for. Before a graceful stop set [`Edge::closing`]: an open event stream
/// would hold it up until its time-out.
///
/// # Errors
/// Where the listener cannot be used.
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
            .wrap(from_fn(around))
    };
    let server = HttpServer::new(app)
        .workers(limits.workers)
        .disable_signals()
        .shutdown_timeout(limits.drain_time_max.as_secs())
        .keep_alive(limits.keep_alive)
        .client_request_timeout(limits.header_time_max)
        .client_disconnect_timeout(limits.linger)
        // Else a caller that went away is not noticed while its command runs.
        .h1_allow_half_closed(false)
        .listen(listener)?
        .run();
    Ok(server)
}

/// A path whose parts are not text.
fn wrong_path(error: actix_web::error::PathError, _: &HttpRequest) -> actix_web::Error {
    ApiError::field("path", error.to_string()).into()
}
