//! Terminals in a sandbox: `GET /v1/sandboxes/{id}/terminal`, upgraded to a WebSocket.
//!
//! Errors before the upgrade are ordinary answers: authentication, the sandbox, and its phase. A
//! session must come from our own page, since browsers send its cookie with sockets that scripts of
//! foreign pages open, and opening a terminal starts a stopped sandbox.
//!
//! After the upgrade, binary messages carry the bytes of the terminal in both directions, and text
//! messages are JSON (`terminal/frames.rs`). The client begins with `start`.

mod bridge;
mod frames;

use actix_web::{HttpRequest, HttpResponse, get, web};

use crate::http::Shared;
use crate::http::answers;
use crate::http::api::command_socket::CommandSocket;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, only};
use crate::sandbox::Capability;

/// The sub-protocol that a client must offer.
pub const PROTOCOL: &str = "issuebox.terminal.v1";

/// Opens a terminal in a sandbox, as a WebSocket with the sub-protocol `issuebox.terminal.v1`. A
/// stopped sandbox is started.
///
/// Binary messages carry input and output. Text messages are JSON. The client begins
/// with `{"type":"start","command":["bash"],"cwd":"src","env":{"TERM":"xterm"},"columns":80,
/// "rows":24}`. All but `type` are optional; the default command is the login shell, and `PS1` names the
/// sandbox unless `env` has one. Later it may
/// send `{"type":"resize","columns":120,"rows":40}` and `{"type":"signal","signal":"INT"}` (`INT`,
/// `QUIT`: to the foreground process group; `KILL`: to the whole session). The server sends
/// `{"type":"started"}` when the command runs, and at the end `{"type":"exit","exitCode":0}` or
/// `{"type":"error","code":"…","message":"…"}`, then closes. Messages have at most 64 KiB. One that
/// is longer or otherwise wrong, also before the start, such as a size of 0, is left out and answered by
/// `{"type":"refused","code":"…","message":"…","field":"…"}`; the terminal goes on. The
/// server pings every 15 seconds and disconnects a client that is silent for 60. Closing the
/// connection hangs up: the command's session gets SIGHUP, then SIGKILL. The output is recorded in
/// the sandbox's log.
#[utoipa::path(
    operation_id = "openTerminal", tag = "work",
    params(params::OneSandbox, params::StartupWait),
    responses(
        (status = 101, description = "the connection becomes a WebSocket"),
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
    let (socket, needs) = ((&request, body), (PROTOCOL, Some(Capability::Terminal)));
    CommandSocket::open(&shared, &caller, &path, socket, needs, bridge::serve).await
}
