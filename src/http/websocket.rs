//! WebSockets (RFC 6455) of the API: how they are opened, and whether the other side is still there.

use std::cell::Cell;
use std::time::Duration;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_ws::{Closed, MessageStream, Session};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::error::{ApiError, Code};

/// Longest message of a client, in bytes.
pub const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// How long telling the end may take to a client that does not read.
pub const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);

/// How many pings a client may leave unanswered.
const PINGS_MAX: u32 = 4;

/// Whether a client offers this sub-protocol: the meaning of the messages, and its version.
///
/// # Errors
/// 426 where it does not.
fn check_offer(request: &HttpRequest, protocol: &str) -> Result<(), ApiError> {
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let mut offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    match offered.any(|offer| offer.trim() == protocol) {
        true => Ok(()),
        false => Err(upgrade_required("the sub-protocol is not offered", protocol)),
    }
}

/// Opens a WebSocket with this sub-protocol.
///
/// # Errors
/// 426 where the request does not ask for one.
pub fn open(
    request: &HttpRequest,
    body: web::Payload,
    protocol: &str,
) -> Result<(HttpResponse, Session, MessageStream), ApiError> {
    check_offer(request, protocol)?;
    actix_ws::handle_with_protocols(request, body, &[protocol])
        .map_err(|error| upgrade_required(&error.to_string(), protocol))
}

fn upgrade_required(why: &str, protocol: &str) -> ApiError {
    ApiError::new(Code::UpgradeRequired, format!("this is no WebSocket of ours: {why}"))
        .hint(format!("open a WebSocket (RFC 6455) with Sec-WebSocket-Protocol: {protocol}"))
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
}

/// When something was last heard of a client.
pub struct ClientLiveness {
    /// When that was.
    pub heard: Cell<Instant>,
    /// Whether it is us who do not listen, because nobody takes what it says: its pongs stand behind
    /// that.
    pub is_held: Cell<bool>,
}

impl ClientLiveness {
    /// It was heard just now.
    pub fn new() -> Self {
        Self { heard: Cell::new(Instant::now()), is_held: Cell::new(false) }
    }

    /// Pings, and returns once the client has been silent for too long.
    pub async fn stops(&self, mut socket: Session, ping_every: Duration) {
        loop {
            sleep(ping_every).await;
            if self.is_held.get() {
                self.heard.set(Instant::now());
            }
            if self.heard.get().elapsed() >= ping_every * PINGS_MAX {
                return;
            }
            // Where there is no room the client does not read: what it has will wake it, or not.
            // That a connection has broken on which nothing is read is known by writing to it alone.
            if let Some(Err(Closed)) = socket.ping(b"").now_or_never() {
                return;
            }
        }
    }
}
