//! WebSockets (RFC 6455) of the API: opening, and detection of dead clients.

pub mod client;
mod frames;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{FromRequest, HttpRequest, HttpResponse, web};
use actix_ws::{Closed, MessageStream, Session};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

pub use frames::{Slip, Slips};

use self::frames::guarded;
use super::error::{ApiError, Code};

/// Longest message of a client, in bytes.
pub const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// Timeout of the last messages to a client that does not read.
pub const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);

/// How many pings a client may leave unanswered.
const PINGS_MAX: u32 = 4;

/// Checks that the client offers the sub-protocol.
///
/// # Errors
/// 426 if it does not.
fn check_offer(request: &HttpRequest, protocol: &str) -> Result<(), ApiError> {
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let mut offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    match offered.any(|offer| offer.trim() == protocol) {
        true => Ok(()),
        false => Err(upgrade_required("the sub-protocol is not offered", protocol)),
    }
}

/// Opens a WebSocket with this sub-protocol. No frame that is longer than [`MESSAGE_LEN_MAX`] reaches
/// the reader, who learns of it by a pong.
///
/// # Errors
/// 426 if the request opens no WebSocket.
pub fn open(
    request: &HttpRequest,
    body: web::Payload,
    protocol: &str,
) -> Result<(HttpResponse, Session, (MessageStream, Slips)), ApiError> {
    check_offer(request, protocol)?;
    let refused = |error: actix_web::Error| upgrade_required(&error.to_string(), protocol);
    let slips = Slips::default();
    let mut body = guarded(body.into_inner(), MESSAGE_LEN_MAX as u64, Rc::clone(&slips));
    let body = web::Payload::from_request(request, &mut body).now_or_never();
    let body = body.expect("it takes what is there").map_err(refused)?;
    let (answer, socket, messages) =
        actix_ws::handle_with_protocols(request, body, &[protocol]).map_err(refused)?;
    Ok((answer, socket, (messages, slips)))
}

fn upgrade_required(why: &str, protocol: &str) -> ApiError {
    ApiError::new(Code::UpgradeRequired, format!("cannot open the WebSocket: {why}"))
        .hint(format!("open a WebSocket (RFC 6455) with Sec-WebSocket-Protocol: {protocol}"))
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
}

/// Whether a client is alive: when its last message arrived.
pub struct ClientLiveness {
    /// When the last message arrived.
    pub heard: Cell<Instant>,
    /// Whether its messages wait for a slow receiver; its pongs wait behind them.
    pub is_held: Cell<bool>,
}

impl ClientLiveness {
    /// Starts with a live client.
    pub fn new() -> Self {
        Self { heard: Cell::new(Instant::now()), is_held: Cell::new(false) }
    }

    /// Pings the client, and returns when it was silent for too long.
    pub async fn stops(&self, mut socket: Session, ping_every: Duration) {
        loop {
            sleep(ping_every).await;
            if self.is_held.get() {
                self.heard.set(Instant::now());
            }
            if self.heard.get().elapsed() >= ping_every * PINGS_MAX {
                return;
            }
            // A full buffer means that the client does not read, so the ping is skipped. Only
            // writing detects a broken connection that is not read.
            if let Some(Err(Closed)) = socket.ping(b"").now_or_never() {
                return;
            }
        }
    }
}
