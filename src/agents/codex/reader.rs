//! Reads the lines of `codex exec --json`. Each stands alone.

use serde_json::{Value, json};

use crate::agents::bounds::{LINE_BYTES_MAX, NAME_MAX, TEXT_MAX, cut};
use crate::agents::json::{list, number, text};
use crate::agents::{AgentEvent, LineReader, TextPart, TurnEnd};

/// It keeps nothing between lines.
#[derive(Debug)]
pub struct CodexReader;

impl LineReader for CodexReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        let parsed = (line.len() <= LINE_BYTES_MAX).then(|| serde_json::from_slice(line));
        let known = match parsed {
            Some(Ok(value)) => object(&value),
            _ => None,
        };
        known.unwrap_or_else(|| vec![AgentEvent::unknown(line)])
    }
}

/// The events of a line; `None` for a kind that we do not know.
fn object(line: &Value) -> Option<Vec<AgentEvent>> {
    let events = match text(line, "type") {
        "thread.started" => {
            let session = Some(cut(text(line, "thread_id"), NAME_MAX));
            vec![AgentEvent::Started { session, model: None, version: None }]
        }
        // A process has one turn, which its thread's line opened; the end of an item has all of it.
        "turn.started" | "item.updated" => Vec::new(),
        "turn.completed" => {
            let usage = line.get("usage").map(usage);
            let ended = ended(TurnEnd::Completed, None, "");
            usage.into_iter().chain([ended]).collect()
        }
        "turn.failed" => {
            let (status, words) = failure(text(line.get("error")?, "message"));
            vec![ended(TurnEnd::ModelFailed, status, &words)]
        }
        "error" => vec![error(text(line, "message"))],
        "item.started" => item_started(line.get("item")?)?,
        "item.completed" => item_completed(line.get("item")?)?,
        _ => return None,
    };
    Some(events)
}

fn ended(end: TurnEnd, status: Option<u16>, words: &str) -> AgentEvent {
    AgentEvent::TurnEnded { end, status, text: cut(words, TEXT_MAX), denied: 0 }
}

/// The thread's total: it adds up over resumed runs.
fn usage(usage: &Value) -> AgentEvent {
    let cached: u64 = number(usage, "cached_input_tokens");
    AgentEvent::Usage {
        input_tokens: number::<u64>(usage, "input_tokens").saturating_sub(cached),
        output_tokens: number(usage, "output_tokens"),
        cache_read_tokens: cached,
        cache_write_tokens: number(usage, "cache_write_input_tokens"),
        cost_usd: None,
        is_session_total: true,
    }
}

/// `Reconnecting... 1/4 (why)` announces a retry; anything else is a remark.
fn error(message: &str) -> AgentEvent {
    let retry = message.strip_prefix("Reconnecting... ").and_then(|rest| {
        let (count, why) = rest.split_once(' ')?;
        let (attempt, max) = count.split_once('/')?;
        Some((attempt.parse().ok()?, max.parse().ok()?, why))
    });
    let Some((attempt, attempts_max, why)) = retry else {
        return AgentEvent::note(&failure(message).1);
    };
    let why = why.strip_prefix('(').and_then(|why| why.strip_suffix(')')).unwrap_or(why);
    let (status, words) = failure(why);
    AgentEvent::Retrying {
        attempt,
        attempts_max,
        delay_ms: 0,
        status,
        reason: cut(&words, TEXT_MAX),
    }
}

/// The HTTP status and the words of an error. The body of a 400 is shown as it came.
fn failure(message: &str) -> (Option<u16>, String) {
    if let Ok(body) = serde_json::from_str::<Value>(message) {
        let words = body.get("error").map(|error| text(error, "message"));
        return (Some(400), words.filter(|words| !words.is_empty()).unwrap_or(message).to_owned());
    }
    let code = ["unexpected status ", "last status: "].iter().find_map(|before| {
        let (_, rest) = message.split_once(before)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    });
    (code, message.to_owned())
}

fn item_started(item: &Value) -> Option<Vec<AgentEvent>> {
    let call = |tool: &str, title: &str, input: Value| {
        vec![AgentEvent::tool_call(text(item, "id"), tool, title, input, None)]
    };
    Some(match text(item, "type") {
        "command_execution" => {
            let command = shell_command(text(item, "command"));
            call("shell", command, json!({ "command": command }))
        }
        "file_change" => {
            call("file_change", &paths(item), json!({ "changes": item.get("changes") }))
        }
        "mcp_tool_call" => {
            let title = format!("{} {}", text(item, "server"), text(item, "tool"));
            call("mcp", &title, item.get("arguments").cloned().unwrap_or_default())
        }
        "web_search" => {
            let query = text(item, "query");
            call("web_search", query, json!({ "query": query }))
        }
        // Their end says what they are.
        "agent_message" | "reasoning" | "todo_list" | "error" => Vec::new(),
        _ => return None,
    })
}

fn item_completed(item: &Value) -> Option<Vec<AgentEvent>> {
    let result = |words: &str| {
        let is_error = matches!(text(item, "status"), "failed" | "declined");
        vec![AgentEvent::tool_result(text(item, "id"), words, is_error, None)]
    };
    let block = |words: &str| (cut(words, TEXT_MAX), TextPart::Whole);
    Some(match text(item, "type") {
        "agent_message" => {
            let (text, part) = block(text(item, "text"));
            vec![AgentEvent::Text { text, part, parent: None }]
        }
        "reasoning" => {
            let (text, part) = block(text(item, "text"));
            vec![AgentEvent::Thinking { text, part, parent: None }]
        }
        "command_execution" => {
            let output = text(item, "aggregated_output");
            match item.get("exit_code").and_then(Value::as_i64) {
                None | Some(0) => result(output),
                Some(code) => result(&format!("Exit code {code}\n{output}")),
            }
        }
        "file_change" => result(&paths(item)),
        "mcp_tool_call" => {
            let answer = item.get("result").or_else(|| item.get("error"));
            result(&answer.map(Value::to_string).unwrap_or_default())
        }
        "web_search" => result(text(item, "query")),
        "todo_list" => vec![AgentEvent::note(&todo_list(item))],
        "error" => vec![error(text(item, "message"))],
        _ => return None,
    })
}

/// The command in `/bin/sh -lc '…'`.
fn shell_command(command: &str) -> &str {
    let inner = command.split_once(" -lc ").map_or(command, |(_, inner)| inner);
    let quoted =
        ['\'', '"'].iter().find_map(|quote| inner.strip_prefix(*quote)?.strip_suffix(*quote));
    quoted.unwrap_or(inner)
}

fn paths(item: &Value) -> String {
    let changes = item.get("changes").map_or(&[][..], list);
    let paths =
        changes.iter().map(|change| format!("{} {}", text(change, "kind"), text(change, "path")));
    paths.collect::<Vec<_>>().join("\n")
}

fn todo_list(item: &Value) -> String {
    let items = item.get("items").map_or(&[][..], list).iter().map(|item| {
        let is_done = item.get("completed").and_then(Value::as_bool) == Some(true);
        format!("[{}] {}", if is_done { 'x' } else { ' ' }, text(item, "text"))
    });
    items.collect::<Vec<_>>().join("\n")
}
