//! Servers in a sandbox: all paths below `/v1/sandboxes/{id}/ports/{port}/`.
//!
//! A request there is forwarded to the server on that port of the sandbox's loopback, if the
//! sandbox's template lists the port: all methods, streaming bodies, and WebSockets. Without the
//! final slash the path is a tunnel for raw bytes, to every port, if a WebSocket is opened there; any other request
//! is redirected to the path with the slash.
//!
//! # Hostile answers
//! An answer comes from our address, so a browser must not treat it as ours. Every answer has our
//! own Content-Security-Policy `sandbox` without `allow-same-origin`: a document has an opaque
//! origin and no session, and cannot read or call this API. For requests of a session, cookies are
//! removed in both directions. Pages that need a session of their own are reached by `issuebox
//! port-forward` under a host name of their own, since browsers send cookies to all ports of a
//! host.

mod allowed;
mod forward;
mod headers;
mod http_way;
mod tunnel;

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, guard, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Shared;
use crate::http::answers;
use crate::http::auth;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::{AnyBytes, EndpointWord};
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code, only};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::websocket;
use crate::http::wire::{EndpointBody, Success};
use crate::http::work::OpenSandbox;
use crate::sandbox::{Capability, PortAccess, Target, WorkError};
use crate::types::{Phase, Sandbox};

use super::sandboxes::load;
use forward::AnswerLifetime;
use headers::Head;
use http_way::HttpWay;

/// The sub-protocol of a tunnel: the meaning of the messages, and its version.
pub const TUNNEL: &str = "issuebox.tunnel.v1";

/// Timeout of the check which ports have a listening server.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// A listed port, and whether a server listens there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointState)]
pub struct EndpointState {
    /// The port and its path.
    #[serde(flatten)]
    pub endpoint: EndpointBody,
    /// Whether a server listens; null if unknown.
    #[schema(value_type = Option<EndpointWord>)]
    pub state: Option<&'static str>,
}

/// Lists the ports of the sandbox's template, and whether a server listens on each.
#[utoipa::path(
    operation_id = "listPorts", tag = "work",
    params(params::OneSandbox),
    responses(
        (status = 200, description = "the listed ports and whether a server listens there",
         body = Success<Vec<EndpointState>>),
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

/// Checks the listed ports. This does not count as activity of the sandbox.
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
    let provider = shared.edge.providers.get(&sandbox.provider)?;
    if !provider.descriptor.offers(Capability::Ports) {
        return None;
    }
    let target = Target { external_id: external_id.clone(), expected: sandbox.id.clone() };
    match tokio::time::timeout(LOOK_WAIT, provider.processes.port(target, port)).await {
        Ok(Ok(PortAccess::Stream(_closed_again))) => Some(true),
        // Only a request would show whether a server answers there.
        Ok(Ok(PortAccess::Http(_))) => None,
        Ok(Err(WorkError::NotListening | WorkError::NotRunning)) => Some(false),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Forwards a request to a server in the sandbox, with the rest of the path. All methods and
/// WebSockets are forwarded. The sandbox's template must list the port. `Host` is `localhost` with
/// the port; the original request is described in `X-Forwarded-For`, `-Host`, `-Proto` and
/// `-Prefix`. The token is not forwarded.
#[utoipa::path(
    operation_id = "requestPort", tag = "work",
    params(
        params::OnePort,
        ("tail" = String, Path, description = "The path on that server"),
    ),
    responses(
        (status = 101, description = "that server accepts the upgrade"),
        (status = 200, description = "the answer of that server, with its status",
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

/// Forwards a request with any method.
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
    let is_served = |sandbox: &Sandbox, port| sandbox.ports.contains(&port);
    let needs = Capability::Ports;
    let (access, port, work) = reach(&shared, &caller, &id, &port, needs, is_served).await?;
    let mut head = Head::of(&shared, &caller, &request, port);
    let stream = match access {
        PortAccess::Stream(stream) => stream,
        PortAccess::Http(access) => {
            let way = HttpWay::new(&access)?;
            head.aim(&way);
            way.connect().await?
        }
    };
    let ending = Ending::new(&shared, &caller);
    forward::forward(head, payload, stream, AnswerLifetime { at_work: work.at_work, ending }).await
}

/// Opens a tunnel to a port, as a WebSocket with the sub-protocol `issuebox.tunnel.v1`. It is used
/// by `issuebox port-forward`. The template need not list the port. Binary messages of at most 64 KiB carry the bytes of both
/// directions; an empty message ends its direction. The tunnel closes when both have ended. The
/// server pings every 15 seconds and disconnects a client that is silent for 60.
#[utoipa::path(
    operation_id = "openTunnel", tag = "work",
    params(params::OnePort),
    responses(
        (status = 101, description = "the connection becomes a WebSocket"),
        (status = 307, description = "the request opens no WebSocket: the path with a final slash"),
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
    if !headers::opens_websocket(request.headers()) {
        return Ok(with_slash(&request));
    }
    Query::parse(request.query_string()).finish()?;
    check_origin(&shared, &caller, &request)?;
    let (id, port) = place.into_inner();
    // Who may run commands in it can reach any port from inside.
    let is_served = |_: &Sandbox, port| port > 0;
    let needs = Capability::Tunnels;
    let (access, _, work) = reach(&shared, &caller, &id, &port, needs, is_served).await?;
    let PortAccess::Stream(stream) = access else {
        // It declares tunnels and answers an HTTP address.
        return Err(WorkError::Unsupported(Capability::Tunnels).into());
    };
    let (answer, socket, messages) = websocket::open(&request, body, TUNNEL)?;
    let under = AnswerLifetime { at_work: work.at_work, ending: Ending::new(&shared, &caller) };
    let ping_every = shared.edge.limits.ping_every;
    actix_web::rt::spawn(tunnel::carry(socket, messages, stream, under, ping_every));
    Ok(answer)
}

/// The access to a port that is served. The sandbox is not started, since no server would listen in it yet.
async fn reach(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    port: &str,
    needs: Capability,
    is_served: impl Fn(&Sandbox, u16) -> bool,
) -> Result<(PortAccess, u16, OpenSandbox), ApiError> {
    let work = OpenSandbox::open(shared, caller, id, false, Duration::ZERO, Some(needs)).await?;
    let port = port.parse().ok().filter(|port| is_served(&work.sandbox, *port));
    let port = port.ok_or_else(|| {
        ApiError::new(Code::PortNotListed, "the sandbox's template does not list that port").hint(
            "add it to `ports` of the template, which new sandboxes have then; or use issuebox \
                 port-forward, which reaches every port",
        )
    })?;
    let access = work.provider.processes.port(work.target.clone(), port).await?;
    Ok((access, port, work))
}

/// Browsers send a session's cookie with WebSockets that any page of the same site opens, and let
/// that page read the messages.
fn check_origin(shared: &Shared, caller: &Caller, request: &HttpRequest) -> Result<(), ApiError> {
    match caller.session() {
        Some(_) => auth::check_origin(shared, request),
        None => Ok(()),
    }
}

/// Redirects to the path with a final slash, in which the relative addresses of a document on the port
/// begin. The method and the body stay (RFC 9110, section 15.4.8).
fn with_slash(request: &HttpRequest) -> HttpResponse {
    // Relative, since a proxy may have the server below a path of its own.
    let port = request.uri().path().rsplit('/').next().unwrap_or_default();
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let place = format!("./{port}/{query}");
    HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, place)).finish()
}

/// Registers the methods that the description leaves out: all but CONNECT, which asks for a tunnel to
/// another host (RFC 9110, section 9.3.6).
pub fn other_methods(app: &mut web::ServiceConfig) {
    let any_method = || guard::Not(guard::Connect());
    let below = web::resource("/v1/sandboxes/{id}/ports/{port}/{tail:.*}");
    app.service(below.route(web::route().guard(any_method()).to(any)));
    let tunnel = web::resource("/v1/sandboxes/{id}/ports/{port}");
    let redirect = async |request: HttpRequest| with_slash(&request);
    app.service(tunnel.route(web::route().guard(any_method()).to(redirect)));
}
