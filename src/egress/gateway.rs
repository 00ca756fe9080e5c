//! Requests for the git gateway, which the proxy takes by its name before anything is resolved.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};

use super::connect::Connector;
use super::meter::Meter;
use super::policy::Destination;
use crate::git::{BodyError, GATEWAY_HOST, GitBody, GitGateway, GitRequest, LateGateway};
use crate::sandbox::EgressResult;
use crate::types::{HostName, SandboxId};

/// The gateway of one sandbox.
pub struct SandboxGateway {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Answers its requests.
    pub gateway: LateGateway,
}

/// Whether this is the gateway's name.
pub fn is_gateway(destination: &Destination) -> bool {
    matches!(&destination.host, HostName::Name(name) if name == GATEWAY_HOST)
}

/// Has a sandbox's gateway answer a request.
pub async fn answer(
    connector: &Connector,
    of: &SandboxGateway,
    request: Request<Incoming>,
) -> Response<GitBody> {
    let (host, port) = of.gateway.upstream();
    let upstream = Destination { host, port };
    let reaches_upstream = connector.policy.check_destination(&upstream).is_ok();
    connector.meter.count(EgressResult::Connected);
    let sent = |meter: &Meter, len| meter.sent.fetch_add(len, Ordering::Relaxed);
    let received = |meter: &Meter, len| meter.received.fetch_add(len, Ordering::Relaxed);
    let request = request.map(|body| {
        let body = body.map_err(BodyError::other).boxed_unsync();
        counted(body, &connector.meter, sent)
    });
    let sandbox = of.sandbox.clone();
    let request = GitRequest { sandbox, reaches_upstream, request };
    let answer = of.gateway.answer(request).await;
    answer.map(|body| counted(body, &connector.meter, received))
}

/// A body whose bytes are counted as they pass.
fn counted(body: GitBody, meter: &Arc<Meter>, count: fn(&Meter, u64) -> u64) -> GitBody {
    let meter = Arc::clone(meter);
    body.map_frame(move |frame| {
        let len = frame.data_ref().map_or(0, bytes::Bytes::len);
        count(&meter, len as u64);
        frame
    })
    .boxed_unsync()
}
