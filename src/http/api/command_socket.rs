//! A WebSocket that serves one command of a sandbox, from the handshake to the end.

use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use actix_ws::{AggregatedMessageStream, Session};

use super::{WORK_WAIT_SECS, wait};
use crate::http::Shared;
use crate::http::auth;
use crate::http::caller::Caller;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::websocket::client::{self, SocketEnd};
use crate::http::websocket::{self, Slips};
use crate::http::work::OpenSandbox;
use crate::logs::Logs;
use crate::sandbox::Capability;

/// How long a client may take to send its start message.
pub const START_WAIT: Duration = Duration::from_secs(10);

/// What serves a command on its socket.
pub struct CommandSocket {
    /// The running sandbox.
    pub work: OpenSandbox,
    /// The logs of all sandboxes, which record the output.
    pub logs: Logs,
    /// The id of the request that opened the socket.
    pub request_id: Arc<str>,
    /// The pause between two pings.
    pub ping_every: Duration,
    /// What the client did that is not among its messages.
    pub slips: Slips,
}

impl CommandSocket {
    /// Starts a stopped sandbox, opens the socket, and serves it beside the answer. When the server,
    /// the session or `serve` ends, the client gets the reason and the socket closes.
    ///
    /// # Errors
    /// As for [`OpenSandbox::open`]; 403 for a session from a foreign page, 426 without `protocol`.
    pub async fn open(
        shared: &Shared,
        caller: &Caller,
        id: &str,
        (request, body): (&HttpRequest, web::Payload),
        (protocol, needs): (&'static str, Option<Capability>),
        serve: impl AsyncFnOnce(&Self, &Session, &mut AggregatedMessageStream) -> SocketEnd + 'static,
    ) -> Result<HttpResponse, ApiError> {
        let mut query = Query::parse(request.query_string());
        let at_most = wait(&mut query, WORK_WAIT_SECS)?;
        query.finish()?;
        if caller.session().is_some() {
            auth::check_origin(shared, request)?;
        }
        let work = OpenSandbox::open(shared, caller, id, true, at_most, needs).await?;
        let (answer, socket, (messages, slips)) = websocket::open(request, body, protocol)?;
        let command = Self {
            work,
            logs: shared.edge.logs.clone(),
            request_id: Arc::clone(&caller.request_id),
            ping_every: shared.edge.limits.ping_every,
            slips,
        };
        let mut ending = Ending::new(shared, caller);
        actix_web::rt::spawn(async move {
            let mut messages = client::aggregate(messages);
            let end = tokio::select! {
                biased;
                ended = ending.come() => SocketEnd::Ended(ended),
                end = serve(&command, &socket, &mut messages) => end,
            };
            // The command's side was dropped, which ended it.
            client::close(socket, end).await;
        });
        Ok(answer)
    }
}
