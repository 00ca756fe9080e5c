//! Terminals in a sandbox: `GET /v1/sandboxes/{id}/terminal`, upgraded to a WebSocket.
//!
//! What can be said before the upgrade is an answer like any other: who calls, which sandbox, and
//! whether it runs. A session of the page must come from the page itself: a browser sends the
//! cookie along whoever wrote the script that opens the socket. So must one that only has the page
//! look, since this starts a stopped sandbox.
//!
//! After it, binary messages are bytes of the terminal, both ways, cut anywhere; text messages are
//! JSON (`terminal/frames.rs`). The client begins with `start`.

mod bridge;
mod frames;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, web};

use crate::http::Shared;
use crate::http::answers;
use crate::http::auth::{self, Caller};
use crate::http::doc::params;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::websocket;

use bridge::{Bridge, TerminalLog};

/// The sub-protocol that a client must offer: the meaning of the messages, and its version.
pub const PROTOCOL: &str = "issuebox.terminal.v1";

/// Opens a terminal in a sandbox, as a WebSocket with the sub-protocol `issuebox.terminal.v1`. A
/// stopped sandbox is started, as by exec.
///
/// Binary messages are what is typed and what is shown. Text messages are JSON. The client begins
/// with `{"type":"start","command":["bash"],"cwd":"src","env":{"TERM":"xterm"},"columns":80,
/// "rows":24}`, all but `type` optional: without a command it is the login shell. Later it may send
/// `{"type":"resize","columns":120,"rows":40}` and `{"type":"signal","signal":"INT"}` (`INT`,
/// `QUIT`: to whoever is in front; `KILL`: to all of the session). The server sends
/// `{"type":"started"}` once the command runs, and in the end `{"type":"exit","exitCode":0}` or
/// `{"type":"error","code":"…","message":"…"}`, then closes. Messages have at most 64 KiB. The
/// server pings every 15 seconds and hangs up on a client that it heard nothing of for 60. Who
/// closes the connection hangs up: the command's session gets SIGHUP, then SIGKILL. What is shown is
/// kept in the sandbox's log.
#[utoipa::path(
    operation_id = "openTerminal", tag = "work",
    params(params::OneSandbox, params::StartupWait),
    responses(
        (status = 101, description = "It goes on as a WebSocket"),
        answers::StartupErrors, only::Forbidden, only::UpgradeRequired,
    )
)]
#[get("/v1/sandboxes/{id}/terminal")]
pub async fn terminal(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    body: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = super::wait(&mut query, super::WORK_WAIT_SECS)?;
    query.finish()?;
    if caller.session.is_some() {
        auth::check_origin(&shared, &request)?;
    }
    let work = super::exec::work(&shared, &caller, &path, at_most).await?;
    let (answer, socket, messages) = websocket::open(&request, body, PROTOCOL)?;
    let ending = Ending::new(&shared, &caller);
    let ping_every = shared.edge.limits.ping_every;
    let (logs, request_id) = (shared.edge.logs.clone(), Arc::clone(&caller.request_id));
    let keeper = TerminalLog { logs, request_id };
    let bridge = Bridge::new(work, keeper, (socket, messages), ending, ping_every);
    actix_web::rt::spawn(bridge.run());
    Ok(answer)
}
