//! Servers in a sandbox: everything under `/v1/sandboxes/{id}/ports/{port}/`.
//!
//! What comes there goes to the server that listens on that port of the sandbox's own loopback, if
//! the sandbox's template lists it: any method, bodies both ways as they come, and WebSockets.
//! Without the slash at its end the path is a tunnel that carries bytes and knows nothing of HTTP.
//!
//! # What a hostile answer can do
//! It is from our address, so a browser must not take it for ours. Every answer has a
//! Content-Security-Policy of our own, `sandbox`, without `allow-same-origin`: whatever the document
//! is, its origin is none, it is nobody's session, and it can't read or call this API. Cookies don't
//! pass a session's requests in either direction. What needs more than to be looked at, such as
//! pages that load parts of themselves with a session, is reached by `issuebox port-forward`, under
//! a name of its own: a browser sends cookies to every port of a host.

mod forward;
mod headers;
mod tunnel;

use std::time::Duration;

use actix_web::http::Method;
use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::Work;
use crate::http::Shared;
use crate::http::answers;
use crate::http::auth::{self, Caller};
use crate::http::doc::params;
use crate::http::doc::words::{AnyBytes, EndpointWord};
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code, only};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::websocket;
use crate::http::wire::{EndpointBody, Success};
use crate::sandbox::{Stream, Target, WorkError};
use crate::types::{Phase, Sandbox};

use super::exec::work_where_it_runs;
use super::sandboxes::load;
use forward::AnswerLifetime;
use headers::Head;

/// The sub-protocol of a tunnel: the meaning of the messages, and its version.
pub const TUNNEL: &str = "issuebox.tunnel.v1";

/// How long it may take to find out whether somebody listens, for all ports of a sandbox.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// A server in a sandbox, and whether it is there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointState)]
pub struct EndpointState {
    /// Which one, and where it is reached.
    #[serde(flatten)]
    pub endpoint: EndpointBody,
    /// `listening` or `closed`; null where that could not be told.
    #[schema(value_type = Option<EndpointWord>)]
    pub state: Option<&'static str>,
}

/// The ports that the sandbox's template lists, and whether somebody listens there now.
#[utoipa::path(
    operation_id = "listPorts", tag = "work",
    params(params::OneSandbox),
    responses(
        (status = 200, description = "the listed ports and whether a server listens there", body = Success<Vec<EndpointState>>),
        answers::SandboxReadErrors,
    )
)]
#[get("/v1/sandboxes/{id}/ports")]
pub async fn list(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    let sandbox = load(&shared, &caller.account, &sandbox_ref(&id)).await?;
    let states = states(&shared, &sandbox).await;
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, states)))
}

/// The same, to be shown. A look is no work: it keeps no sandbox up.
pub async fn states(shared: &Shared, sandbox: &Sandbox) -> Vec<EndpointState> {
    let look = async |endpoint: EndpointBody| {
        let state = is_listening(shared, sandbox, endpoint.port).await.map(|is| match is {
            true => "listening",
            false => "closed",
        });
        EndpointState { endpoint, state }
    };
    let all = EndpointBody::all_of(sandbox).into_iter().map(look);
    futures_util::future::join_all(all).await
}

async fn is_listening(shared: &Shared, sandbox: &Sandbox, port: u16) -> Option<bool> {
    let (Some(Phase::Running), Some(external_id)) = (sandbox.phase, &sandbox.external_id) else {
        return Some(false);
    };
    let providers = shared.edge.engine.providers();
    let (_, provider) = providers.iter().find(|(name, _)| *name == sandbox.provider)?;
    let target = Target { external_id: external_id.clone(), expected: sandbox.id.clone() };
    match tokio::time::timeout(LOOK_WAIT, provider.connect(target, port)).await {
        Ok(Ok(_closed_again)) => Some(true),
        Ok(Err(WorkError::NotListening | WorkError::NotRunning)) => Some(false),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// A server in the sandbox, through its port: whatever comes under this path is sent there with the
/// rest of the path, also with other methods and as a WebSocket. The port must be listed in the
/// sandbox's template. `Host` is `localhost` with the port; how it was asked is in
/// `X-Forwarded-For`, `-Host`, `-Proto` and `-Prefix`. The token does not go along.
#[utoipa::path(
    operation_id = "requestPort", tag = "work",
    params(
        params::OnePort,
        ("tail" = String, Path, description = "What the server there is asked for"),
    ),
    responses(
        (status = 101, description = "where the server there agrees to an upgrade"),
        (status = 200, description = "what the server there answers, with its status",
         body = AnyBytes, content_type = "application/octet-stream"),
        answers::PortErrors,
    )
)]
#[get("/v1/sandboxes/{id}/ports/{port}/{tail:.*}")]
pub async fn get(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    place: web::Path<(String, String, String)>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    any(shared, caller, request, place, payload).await
}

/// The same, for every method.
pub async fn any(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    place: web::Path<(String, String, String)>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (id, port, _) = place.into_inner();
    if headers::opens_websocket(request.headers()) {
        check_origin(&shared, &caller, &request)?;
    }
    let (stream, port, work) = connected(&shared, &caller, &id, &port).await?;
    let head = Head::of(&shared, &caller, &request, port);
    let ending = Ending::new(&shared, &caller);
    forward::forward(head, payload, stream, AnswerLifetime { at_work: work.at_work, ending }).await
}

/// Bytes to and from a port, as a WebSocket with the sub-protocol `issuebox.tunnel.v1`; what
/// `issuebox port-forward` uses. Binary messages, of at most 64 KiB, are what is sent there and what
/// comes back, cut anywhere; an empty one ends its direction. It closes once both have ended. The
/// server pings every 15 seconds and hangs up on a client that it heard nothing of for 60.
#[utoipa::path(
    operation_id = "openTunnel", tag = "work",
    params(params::OnePort),
    responses(
        (status = 101, description = "It goes on as a WebSocket"),
        answers::PortErrors, only::UpgradeRequired,
    )
)]
#[get("/v1/sandboxes/{id}/ports/{port}")]
pub async fn open(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    place: web::Path<(String, String)>,
    body: web::Payload,
) -> Result<HttpResponse, ApiError> {
    Query::parse(request.query_string()).finish()?;
    check_origin(&shared, &caller, &request)?;
    let (id, port) = place.into_inner();
    let (stream, _, work) = connected(&shared, &caller, &id, &port).await?;
    let (answer, socket, messages) = websocket::open(&request, body, TUNNEL)?;
    let under = AnswerLifetime { at_work: work.at_work, ending: Ending::new(&shared, &caller) };
    let ping_every = shared.edge.limits.ping_every;
    actix_web::rt::spawn(tunnel::carry(socket, messages, stream, under, ping_every));
    Ok(answer)
}

/// A connection to a port that is listed. A sandbox is not started for it: nothing would listen in
/// it yet.
async fn connected(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    port: &str,
) -> Result<(Box<dyn Stream>, u16, Work), ApiError> {
    let work = work_where_it_runs(shared, caller, id).await?;
    let port = port.parse().ok().filter(|port| work.sandbox.ports.contains(port));
    let port = port.ok_or_else(|| {
        ApiError::new(Code::PortNotListed, "the sandbox's template does not list that port")
            .hint("add it to `ports` of the template; sandboxes that are made then have it")
    })?;
    let stream = work.provider.connect(work.target.clone(), port).await?;
    Ok((stream, port, work))
}

/// A browser sends a session's cookie along with a WebSocket whichever page opens it, as long as its
/// site is the same, and lets that page read what comes.
fn check_origin(shared: &Shared, caller: &Caller, request: &HttpRequest) -> Result<(), ApiError> {
    match caller.session {
        Some(_) => auth::check_origin(shared, request),
        None => Ok(()),
    }
}

/// Registers the methods that are not described one by one.
pub fn other_methods(app: &mut web::ServiceConfig) {
    let mut resource = web::resource("/v1/sandboxes/{id}/ports/{port}/{tail:.*}");
    for method in
        [Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
    {
        resource = resource.route(web::method(method).to(any));
    }
    app.service(resource);
}
