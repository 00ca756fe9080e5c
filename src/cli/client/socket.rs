//! WebSockets of a server's API, opened by an upgrade of an ordinary request: the same TLS, connect
//! timeout and token header.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::{ANSWER_TIMEOUT, ApiClient, ApiRequest};
use crate::cli::failure::CliFailure;

/// A WebSocket of the API.
pub(in crate::cli) type WebSocket = WebSocketStream<Upgraded>;

/// Largest message from a server, in bytes.
const MESSAGE_LEN_MAX: usize = 1024 * 1024;

impl ApiClient {
    /// Makes a call and upgrades it to a WebSocket with this sub-protocol.
    ///
    /// # Errors
    /// As for [`ApiClient::call`]; [`CliFailure::Failed`] if the server does not upgrade.
    pub async fn web_socket(
        &self,
        call: ApiRequest,
        protocol: &str,
    ) -> Result<WebSocket, CliFailure> {
        // The key only keeps caches from answering, so any fresh value will do.
        let key = BASE64.encode(uuid::Uuid::now_v7().as_bytes());
        let request = self
            .request(&call)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, protocol);
        let sent = tokio::time::timeout(call.wait + ANSWER_TIMEOUT, request.send()).await;
        let response = match sent {
            Ok(answered) => answered.map_err(|e| self.unreachable(e))?,
            Err(_elapsed) => return Err(self.silent()),
        };
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let bytes = self.read(response).await?;
            let body = serde_json::from_slice(&bytes).ok();
            return Err(self.refusal(status.as_u16(), body.as_ref()));
        }
        let says = |name, what: &str| response.headers().get(name).is_some_and(|v| v == what);
        let is_ours = says(SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes()))
            && says(SEC_WEBSOCKET_PROTOCOL, protocol);
        if !is_ours {
            return Err(self.refusal(status.as_u16(), None));
        }
        let stream = response.upgrade().await.map_err(|e| self.unreachable(e))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_LEN_MAX))
            .max_frame_size(Some(MESSAGE_LEN_MAX));
        Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
    }
}
