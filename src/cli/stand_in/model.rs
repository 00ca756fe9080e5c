//! Asks a model over the Messages API, streamed, with claude's patience.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::super::env::EnvVars;
use super::lines::{self, LineWriter, Used};
use super::session::SessionLog;
use super::{Flags, InProgress};

/// The model behind `ANTHROPIC_BASE_URL`.
pub(super) struct Model {
    client: reqwest::Client,
    url: String,
    token: String,
    session: String,
    system: String,
    max_tokens: u64,
    retries: u32,
    pub(super) name: String,
    pub(super) usage: Used,
}

/// A whole answer.
pub(super) struct ModelAnswer {
    pub(super) content: Vec<Value>,
    pub(super) stop: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct ModelError {
    pub(super) words: String,
    pub(super) status: Option<u16>,
    is_final: bool,
}

impl Model {
    pub(super) fn new(flags: &Flags, env: &EnvVars, session: &str) -> anyhow::Result<Self> {
        let base = env.get("ANTHROPIC_BASE_URL").context("ANTHROPIC_BASE_URL is not set")?;
        let number = |name, or| env.get(name).and_then(|text| text.parse().ok()).unwrap_or(or);
        let system = flags.system.as_ref().map(std::fs::read_to_string).transpose()?;
        let name = flags.model.clone().unwrap_or_else(|| "claude-stand-in".to_owned());
        Ok(Self {
            client: reqwest::Client::builder()
                .no_proxy()
                .read_timeout(Duration::from_millis(number("API_TIMEOUT_MS", 600_000)))
                .build()?,
            url: format!("{}/v1/messages", base.trim_end_matches('/')),
            token: env.get("ANTHROPIC_AUTH_TOKEN").unwrap_or_default().to_owned(),
            session: session.to_owned(),
            system: system.unwrap_or_default(),
            max_tokens: number("CLAUDE_CODE_MAX_OUTPUT_TOKENS", 8192),
            retries: u32::try_from(number("CLAUDE_CODE_MAX_RETRIES", 10)).unwrap_or(10),
            usage: Used { model: name.clone(), ..Used::default() },
            name,
        })
    }

    /// Asks until there is an answer, or no more sense in asking.
    pub(super) async fn ask(
        &mut self,
        log: &SessionLog,
        lines: &LineWriter,
        doing: &mut InProgress,
    ) -> Result<ModelAnswer, ModelError> {
        let mut attempt = 0;
        loop {
            *doing = InProgress::Answer(Vec::new(), None);
            let error = match self.try_once(log, lines, doing).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_final || attempt == self.retries => return Err(error),
                Err(error) => error,
            };
            let delay = 500 << attempt.min(6);
            attempt += 1;
            lines.write(&json!({ "type": "system", "subtype": "api_retry", "attempt": attempt,
                "max_retries": self.retries, "retry_delay_ms": delay,
                "error_status": error.status, "error": "unknown" }));
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }

    async fn try_once(
        &mut self,
        log: &SessionLog,
        lines: &LineWriter,
        doing: &mut InProgress,
    ) -> Result<ModelAnswer, ModelError> {
        let tool = json!({ "name": "Bash", "description": "Runs a shell command.",
            "input_schema": { "type": "object", "required": ["command"],
                "properties": { "command": { "type": "string" } } } });
        let body = json!({ "model": self.name, "max_tokens": self.max_tokens, "stream": true,
            "system": self.system, "messages": log.messages(), "tools": [tool] });
        let request = self
            .client
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("anthropic-version", "2023-06-01")
            .header("x-claude-code-session-id", &self.session)
            .header("content-type", "application/json")
            .body(body.to_string());
        let mut response = request.send().await.map_err(|error| unanswered(&error))?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        let mut message = Streamed::default();
        let mut held = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| unanswered(&error))? {
            held.extend_from_slice(&piece);
            while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = held.drain(..=end).collect();
                let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
                let Some(event) = data.and_then(|it| serde_json::from_slice::<Value>(it).ok())
                else {
                    continue;
                };
                message.event(&event, lines, &mut self.usage);
                *doing = InProgress::Answer(message.content.clone(), message.partial());
                if message.is_whole {
                    return Ok(ModelAnswer { content: message.content, stop: message.stop });
                }
            }
        }
        let words = "API Error: the answer was cut".to_owned();
        Err(ModelError { words, status: None, is_final: false })
    }
}

fn unanswered(error: &reqwest::Error) -> ModelError {
    let what = if error.is_connect() { "Connection refused" } else { "no answer" };
    ModelError { words: format!("API Error: {what} ({error})"), status: None, is_final: false }
}

/// An answer with an error, in the words that claude has for it.
async fn refused(response: reqwest::Response) -> ModelError {
    let status = response.status().as_u16();
    let is_asked_not_to =
        response.headers().get("x-should-retry").is_some_and(|value| value == "false");
    let body: Value = response.json().await.unwrap_or_default();
    let words = body["error"]["message"].as_str().unwrap_or("no words");
    let words = match status {
        401 | 403 => format!("Failed to authenticate. API Error: {status} {words}"),
        429 => format!("API Error: Request rejected (429) · {words}"),
        _ => format!("API Error: {status} {words}"),
    };
    let is_final = is_asked_not_to || (status < 500 && status != 429);
    ModelError { words, status: Some(status), is_final }
}

/// An answer while it streams.
#[derive(Debug, Default)]
struct Streamed {
    id: Value,
    /// The blocks that are whole.
    content: Vec<Value>,
    /// The block that streams, and the JSON of its input so far.
    block: Option<Value>,
    input: String,
    stop: String,
    is_whole: bool,
}

impl Streamed {
    /// Takes an event in, and writes the lines that it gives: the event, and each whole block before
    /// its end.
    fn event(&mut self, event: &Value, lines: &LineWriter, used: &mut Used) {
        let count = |usage: &Value, key: &str| usage[key].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                self.id = event["message"]["id"].clone();
                used.input += count(&event["message"]["usage"], "input_tokens");
            }
            "content_block_start" => {
                self.block = Some(event["content_block"].clone());
                self.input.clear();
            }
            "content_block_delta" => self.delta(&event["delta"]),
            "content_block_stop" => {
                if let Some(mut block) = self.block.take() {
                    if let Ok(input) = serde_json::from_str::<Value>(&self.input) {
                        block["input"] = input;
                    }
                    let message = json!({ "id": self.id, "role": "assistant", "content": [block] });
                    lines.write(&lines::message("assistant", &message));
                    self.content.push(block);
                }
            }
            "message_delta" => {
                self.stop = event["delta"]["stop_reason"].as_str().unwrap_or_default().to_owned();
                used.output += count(&event["usage"], "output_tokens");
            }
            "message_stop" => self.is_whole = true,
            _ => {}
        }
        lines.write(&json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null }));
    }

    fn delta(&mut self, delta: &Value) {
        let Some(block) = &mut self.block else { return };
        for (kind, key) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
            if delta["type"] == kind {
                let before = block[key].as_str().unwrap_or_default();
                block[key] = json!(before.to_owned() + delta[key].as_str().unwrap_or_default());
            }
        }
        if delta["type"] == "signature_delta" {
            block["signature"] = delta["signature"].clone();
        }
        self.input.push_str(delta["partial_json"].as_str().unwrap_or_default());
    }

    /// What would be kept of the answer if it ended here.
    fn partial(&self) -> Option<Value> {
        self.block.clone().filter(|block| block["text"].as_str().is_some_and(|it| !it.is_empty()))
    }
}
