//! The lines that the stand-in writes: those of claude that matter to a reader.

use std::io::Write;

use serde_json::{Value, json};

/// What the model has used.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) model: String,
    pub(super) input: u64,
    pub(super) output: u64,
}

/// Standard output, a JSON object a line.
#[derive(Debug)]
pub(super) struct LineWriter {
    session: String,
}

impl LineWriter {
    pub(super) fn new(session: &str) -> Self {
        Self { session: session.to_owned() }
    }

    /// Writes a line. One that goes on without a reader goes on, as claude does.
    pub(super) fn write(&self, line: &Value) {
        let mut line = line.clone();
        line["session_id"] = json!(self.session);
        let mut text = line.to_string();
        text.push('\n');
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
}

pub(super) fn init(model: &str) -> Value {
    let cwd = std::env::current_dir().unwrap_or_default();
    json!({ "type": "system", "subtype": "init", "cwd": cwd, "tools": ["Bash"], "model": model,
        "permissionMode": "bypassPermissions", "claude_code_version": env!("CARGO_PKG_VERSION") })
}

/// An `assistant` or `user` line.
pub(super) fn message(kind: &str, message: &Value) -> Value {
    json!({ "type": kind, "message": message, "parent_tool_use_id": null })
}

/// The `assistant` line with the program's words about an error.
pub(super) fn error_message(words: &str) -> Value {
    let content = json!([{ "type": "text", "text": words }]);
    let mut line = message("assistant", &json!({ "role": "assistant", "content": content }));
    line["error"] = json!("unknown");
    line["is_api_error_message"] = json!(true);
    line
}

/// The last line. `reason` is claude's `terminal_reason`.
pub(super) fn result(
    reason: &str,
    words: &str,
    turns: u32,
    status: Option<u16>,
    used: &Used,
) -> Value {
    let subtype = match reason {
        "completed" | "api_error" => "success",
        "max_turns" => "error_max_turns",
        _ => "error_during_execution",
    };
    // Prices of no model: tests look at the gateway's.
    let cost = (used.input as f64 * 4.0 + used.output as f64 * 20.0) / 1e6;
    let model = json!({ "inputTokens": used.input, "outputTokens": used.output, "costUSD": cost });
    json!({ "type": "result", "subtype": subtype, "is_error": reason != "completed",
        "terminal_reason": reason, "num_turns": turns, "result": words, "total_cost_usd": cost,
        "api_error_status": status, "permission_denials": [],
        "model_usage_since_last_result": { used.model.as_str(): model } })
}

/// The result of a resume without a session file.
pub(super) fn no_session(words: &str) -> Value {
    json!({ "type": "result", "subtype": "error_during_execution", "is_error": true,
        "num_turns": 0, "errors": [words], "permission_denials": [] })
}
