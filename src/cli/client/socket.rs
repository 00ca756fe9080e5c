//! WebSockets of a server's API.

use reqwest::StatusCode;

use super::{ANSWER_TIMEOUT, ApiClient, ApiRequest};
use crate::cli::failure::CliFailure;
use crate::web_socket::{WebSocket, WebSocketCall, opened};

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
        let asked = WebSocketCall::new(Some(protocol));
        let request = asked.of(self.request(&call));
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
        if !asked.is_agreed(&response) {
            return Err(self.refusal(status.as_u16(), None));
        }
        opened(response).await.map_err(|e| self.unreachable(e))
    }
}
