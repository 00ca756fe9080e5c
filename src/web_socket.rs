//! WebSockets that are opened by upgrading an ordinary HTTP request, which keeps its TLS, its timeouts
//! and its headers ([RFC 6455, section 4](https://www.rfc-editor.org/rfc/rfc6455#section-4)).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{RequestBuilder, Response, StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// An open WebSocket.
pub type WebSocket = WebSocketStream<Upgraded>;

/// Largest message that is read, in bytes.
const MESSAGE_LEN_MAX: usize = 1024 * 1024;

/// A WebSocket that is asked for.
#[derive(Debug)]
pub struct WebSocketCall<'a> {
    /// Only keeps caches from answering, so any fresh value will do.
    key: String,
    protocol: Option<&'a str>,
}

impl<'a> WebSocketCall<'a> {
    /// One with a sub-protocol, or with none.
    pub fn new(protocol: Option<&'a str>) -> Self {
        Self { key: BASE64.encode(uuid::Uuid::now_v7().as_bytes()), protocol }
    }

    /// The request that asks for it.
    pub fn of(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &self.key);
        match self.protocol {
            Some(protocol) => request.header(SEC_WEBSOCKET_PROTOCOL, protocol),
            None => request,
        }
    }

    /// Whether an answer agrees to it.
    pub fn is_agreed(&self, answer: &Response) -> bool {
        let says = |name, what: &str| answer.headers().get(name).is_some_and(|value| value == what);
        answer.status() == StatusCode::SWITCHING_PROTOCOLS
            && says(SEC_WEBSOCKET_ACCEPT, &derive_accept_key(self.key.as_bytes()))
            && self.protocol.is_none_or(|protocol| says(SEC_WEBSOCKET_PROTOCOL, protocol))
    }
}

/// Takes over the connection of an answer that agreed.
///
/// # Errors
/// The connection broke.
pub async fn opened(answer: Response) -> Result<WebSocket, reqwest::Error> {
    let stream = answer.upgrade().await?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_LEN_MAX))
        .max_frame_size(Some(MESSAGE_LEN_MAX));
    Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
}
