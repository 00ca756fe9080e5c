//! A client of the server's WebSockets.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::server::opening;

/// How long a message may take to come. Only what is broken takes this long.
pub const SOCKET_WAIT: Duration = Duration::from_secs(10);

type Socket = WebSocketStream<reqwest::Upgraded>;

/// An open WebSocket.
pub struct SocketClient(Socket);

impl SocketClient {
    /// Opens a socket by a request that has the credentials already; the server chooses `protocol`.
    pub async fn open(request: reqwest::RequestBuilder, protocol: &str) -> Self {
        let answer = opening(request).send().await.expect("an answer");
        assert_eq!(answer.status(), 101);
        let header = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(header("sec-websocket-protocol"), protocol);
        assert_eq!(header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let stream = answer.upgrade().await.expect("it is upgraded");
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    pub async fn send(&mut self, message: Message) {
        self.0.send(message).await.expect("it is taken");
    }

    pub async fn send_json(&mut self, message: Value) {
        self.send(Message::text(message.to_string())).await;
    }

    /// Sends bytes.
    pub async fn keys(&mut self, keys: &'static str) {
        self.send(Message::binary(keys)).await;
    }

    /// The next message, pings too; `None` at the end.
    pub async fn next_of_all(&mut self) -> Option<Message> {
        let next = tokio::time::timeout(SOCKET_WAIT, self.0.next()).await;
        next.expect("it goes on or ends")?.ok()
    }

    /// The next message but pings; `None` at the end.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            match self.next_of_all().await {
                Some(Message::Ping(_)) => {}
                other => return other,
            }
        }
    }

    /// The next message, which is JSON.
    pub async fn said(&mut self) -> Value {
        match self.next().await {
            Some(Message::Text(text)) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("not text: {other:?}"),
        }
    }

    /// The next message, which is bytes, as text.
    pub async fn shown(&mut self) -> String {
        match self.next().await {
            Some(Message::Binary(bytes)) => String::from_utf8(bytes.to_vec()).expect("UTF-8"),
            other => panic!("not bytes: {other:?}"),
        }
    }

    /// The code with which it is closed now.
    pub async fn closed(&mut self) -> u16 {
        match self.next().await {
            Some(Message::Close(Some(CloseFrame { code, .. }))) => code.into(),
            other => panic!("not closed: {other:?}"),
        }
    }

    /// Closes it.
    pub async fn close(&mut self) {
        self.0.close(None).await.expect("it closes");
    }

    /// Its two directions.
    pub fn split(self) -> (SplitSink<Socket, Message>, SplitStream<Socket>) {
        self.0.split()
    }
}
