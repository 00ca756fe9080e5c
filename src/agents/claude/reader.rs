//! Reads the lines of claude's `stream-json`: one JSON object a line, in no order of fields.

use serde_json::Value;

use super::usage::ReportedUsage;
use crate::agents::blocks::{BlockKind, BlockStreams};
use crate::agents::bounds::{LINE_BYTES_MAX, NAME_MAX, TEXT_MAX, cut};
use crate::agents::json::{join_texts, list, number, text, title_of};
use crate::agents::{AgentEvent, LineReader, SubAgentState, TurnEnd};

/// The state that joins lines: streamed text, and what was already counted.
#[derive(Debug, Default)]
pub struct ClaudeReader {
    streams: BlockStreams,
    usage: ReportedUsage,
    /// The directory in which it works, which titles leave out.
    cwd: String,
}

impl LineReader for ClaudeReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        let parsed = (line.len() <= LINE_BYTES_MAX).then(|| serde_json::from_slice(line));
        let known = match parsed {
            Some(Ok(value)) => self.object(&value),
            _ => None,
        };
        known.unwrap_or_else(|| vec![AgentEvent::unknown(line)])
    }
}

impl ClaudeReader {
    /// The events of a line; `None` for a kind that we do not know.
    fn object(&mut self, line: &Value) -> Option<Vec<AgentEvent>> {
        let parent = line.get("parent_tool_use_id").and_then(Value::as_str);
        match text(line, "type") {
            "system" => self.system(line),
            "assistant" => self.assistant(line, parent),
            "user" => user(line, parent),
            "result" => Some(self.result(line)),
            "stream_event" => self.stream_event(line.get("event")?, parent),
            "rate_limit_event" | "command_lifecycle" | "control_request" | "control_response"
            | "keep_alive" => Some(Vec::new()),
            _ => None,
        }
    }

    fn system(&mut self, line: &Value) -> Option<Vec<AgentEvent>> {
        let event = match text(line, "subtype") {
            "init" => {
                self.cwd = cut(text(line, "cwd"), TEXT_MAX);
                let field = |key| Some(cut(line.get(key)?.as_str()?, NAME_MAX));
                AgentEvent::Started {
                    session: field("session_id"),
                    model: field("model"),
                    version: field("claude_code_version"),
                }
            }
            "api_retry" => {
                let dropped = self.streams.abandon(None);
                let retrying = AgentEvent::Retrying {
                    attempt: number(line, "attempt"),
                    attempts_max: number(line, "max_retries"),
                    delay_ms: number(line, "retry_delay_ms"),
                    status: line.get("error_status").and_then(status),
                    reason: cut(text(line, "error"), NAME_MAX),
                };
                return Some(dropped.into_iter().chain([retrying]).collect());
            }
            "permission_denied" => AgentEvent::Denied {
                id: cut(text(line, "tool_use_id"), NAME_MAX),
                tool: cut(text(line, "tool_name"), NAME_MAX),
                reason: cut(text(line, "message"), TEXT_MAX),
            },
            "task_started" | "task_progress" | "task_notification" => sub_agent(line),
            "informational" => AgentEvent::note(text(line, "content")),
            "model_refusal_no_fallback" => AgentEvent::note("The model declined to answer."),
            "status" if text(line, "status") == "requesting" => return Some(Vec::new()),
            "status" if line.get("status").is_some_and(Value::is_string) => {
                AgentEvent::note(text(line, "status"))
            }
            "compact_boundary" => AgentEvent::note("The conversation was summarised."),
            // They say nothing about the work, or say what another line says.
            "status"
            | "task_updated"
            | "background_tasks_changed"
            | "ui_invalidate"
            | "thinking_tokens"
            | "hook_started"
            | "hook_response"
            | "session_state_changed" => {
                return Some(Vec::new());
            }
            _ => return None,
        };
        Some(vec![event])
    }

    fn assistant(&mut self, line: &Value, parent: Option<&str>) -> Option<Vec<AgentEvent>> {
        let content = line.get("message")?.get("content")?;
        if is_error_message(line) {
            // The end of the turn says it again, for those who judge.
            let dropped = self.streams.abandon(parent);
            let note = AgentEvent::note(&join_texts(content));
            return Some(dropped.into_iter().chain([note]).collect());
        }
        let mut events = Vec::new();
        for block in list(content) {
            match text(block, "type") {
                "text" => {
                    let words = text(block, "text");
                    events.extend(self.streams.whole(parent, BlockKind::Text, words));
                }
                "thinking" => {
                    let words = text(block, "thinking");
                    events.extend(self.streams.whole(parent, BlockKind::Thinking, words));
                }
                "redacted_thinking" => {}
                "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                    let input = block.get("input").cloned().unwrap_or_default();
                    let title = title_of(&input, &self.cwd);
                    let (id, name) = (text(block, "id"), text(block, "name"));
                    events.push(AgentEvent::tool_call(id, name, &title, input, parent));
                }
                _ => events.push(AgentEvent::unknown(block.to_string().as_bytes())),
            }
        }
        Some(events)
    }

    fn stream_event(&mut self, event: &Value, parent: Option<&str>) -> Option<Vec<AgentEvent>> {
        match text(event, "type") {
            // What was streamed and has no whole block will be written again, or never be.
            "message_start" | "content_block_start" => {
                Some(self.streams.abandon(parent).into_iter().collect())
            }
            "content_block_delta" => {
                let delta = event.get("delta")?;
                match text(delta, "type") {
                    "text_delta" => {
                        Some(self.streams.piece(parent, BlockKind::Text, text(delta, "text")))
                    }
                    "thinking_delta" => {
                        let words = text(delta, "thinking");
                        Some(self.streams.piece(parent, BlockKind::Thinking, words))
                    }
                    _ => Some(Vec::new()),
                }
            }
            "content_block_stop" | "message_delta" | "message_stop" | "ping" | "error" => {
                Some(Vec::new())
            }
            _ => None,
        }
    }

    fn result(&mut self, line: &Value) -> Vec<AgentEvent> {
        let errors: Vec<&str> =
            line.get("errors").map_or(&[][..], list).iter().filter_map(Value::as_str).collect();
        let words = match text(line, "result") {
            "" => errors.join("\n"),
            words => words.to_owned(),
        };
        let denied = line.get("permission_denials").map_or(0, |denials| list(denials).len());
        let ended = AgentEvent::TurnEnded {
            end: turn_end(line, &errors),
            status: line.get("api_error_status").and_then(status),
            text: cut(&words, TEXT_MAX),
            denied: u32::try_from(denied).unwrap_or(u32::MAX),
        };
        self.usage.of_result(line).into_iter().chain([ended]).collect()
    }
}

/// Whether an `assistant` line is no answer of the model, but the program's words about an error.
fn is_error_message(line: &Value) -> bool {
    let is_said = line.get("is_api_error_message").and_then(Value::as_bool) == Some(true);
    is_said || line.get("error").is_some_and(Value::is_string)
}

/// How a turn ended. `subtype` alone does not say it: it is `success` for every failed request.
fn turn_end(line: &Value, errors: &[&str]) -> TurnEnd {
    let is_error = line.get("is_error").and_then(Value::as_bool) == Some(true);
    match (text(line, "terminal_reason"), text(line, "subtype")) {
        ("aborted_streaming" | "aborted_tools", _) => TurnEnd::Interrupted,
        ("max_turns", _) | (_, "error_max_turns") => TurnEnd::MaxTurns,
        ("budget_exhausted", _) | (_, "error_max_budget_usd") => TurnEnd::AgentBudget,
        _ if !is_error => TurnEnd::Completed,
        _ if errors.iter().any(|error| error.starts_with("No conversation found")) => {
            TurnEnd::NoSession
        }
        _ if text(line, "stop_reason") == "refusal" => TurnEnd::ModelDeclined,
        ("api_error" | "image_error", _) | (_, "success") => TurnEnd::ModelFailed,
        _ => TurnEnd::Failed,
    }
}

fn status(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|status| u16::try_from(status).ok())
}

fn user(line: &Value, parent: Option<&str>) -> Option<Vec<AgentEvent>> {
    let content = line.get("message")?.get("content")?;
    let mut events = Vec::new();
    if let Some(words) = content.as_str() {
        events.push(AgentEvent::note(words));
    }
    for block in list(content) {
        match text(block, "type") {
            "tool_result" => {
                let answer = block.get("content").map(join_texts).unwrap_or_default();
                let answer = answer.trim();
                let inner = answer.strip_prefix("<tool_use_error>");
                let inner = inner.and_then(|it| it.strip_suffix("</tool_use_error>"));
                let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
                let id = text(block, "tool_use_id");
                events.push(AgentEvent::tool_result(id, inner.unwrap_or(answer), is_error, parent));
            }
            // The prompt of a sub-agent, which its call has.
            "text" if parent.is_some() => {}
            "text" => events.push(AgentEvent::note(text(block, "text"))),
            _ => events.push(AgentEvent::unknown(block.to_string().as_bytes())),
        }
    }
    Some(events)
}

fn sub_agent(line: &Value) -> AgentEvent {
    let state = match (text(line, "subtype"), text(line, "status")) {
        ("task_started", _) => SubAgentState::Started,
        ("task_progress", _) => SubAgentState::Working,
        (_, "completed") => SubAgentState::Completed,
        _ => SubAgentState::Failed,
    };
    let id = match text(line, "tool_use_id") {
        "" => text(line, "task_id"),
        id => id,
    };
    let words = match text(line, "summary") {
        "" => text(line, "description"),
        words => words,
    };
    AgentEvent::SubAgent { id: cut(id, NAME_MAX), state, text: cut(words, TEXT_MAX) }
}
