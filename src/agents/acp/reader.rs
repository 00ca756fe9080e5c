//! Messages of an agent that speaks the protocol, as events.

use serde_json::Value;

use crate::agents::bounds::{NAME_MAX, TEXT_MAX, cut};
use crate::agents::json::{join_texts, list, number, text, title_of};
use crate::agents::refusal::{is_about_budget, is_about_waiting};
use crate::agents::{AgentEvent, LINE_BYTES_MAX, LineReader, TextPart, TurnEnd};

/// How many tool calls are followed at once; beyond that the oldest one is forgotten.
const CALLS_MAX: usize = 64;

/// Reads messages. Of what came before it keeps the block of text that goes on, and the calls of tools
/// that have no result yet.
#[derive(Debug, Default)]
pub struct AcpReader {
    /// Whether the block whose pieces come is a thought, and its id.
    open: Option<(bool, String)>,
    calls: Vec<OpenCall>,
    version: Option<String>,
    /// How often the agent was not allowed to use a tool.
    pub denied: u32,
}

/// A tool call without a result. What it is given may come after its beginning.
#[derive(Debug, Default)]
struct OpenCall {
    id: String,
    title: String,
    kind: String,
    input: Value,
    is_said: bool,
}

impl LineReader for AcpReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        match parse(line) {
            Some(message) => {
                self.message(&message).unwrap_or_else(|| vec![AgentEvent::unknown(line)])
            }
            None if line.trim_ascii().is_empty() => Vec::new(),
            None => vec![AgentEvent::unknown(line)],
        }
    }
}

/// The message of a line; `None` if it has none.
pub fn parse(line: &[u8]) -> Option<Value> {
    let is_read = line.len() <= LINE_BYTES_MAX;
    let message: Value = serde_json::from_slice(line).ok().filter(|_| is_read)?;
    message.is_object().then_some(message)
}

impl AcpReader {
    /// The events of a message; `None` if it is of a kind that is not known.
    pub fn message(&mut self, message: &Value) -> Option<Vec<AgentEvent>> {
        match message.get("method").and_then(Value::as_str) {
            Some("session/update") => self.update(message.get("params")?.get("update")?),
            Some("session/request_permission") => Some(self.asks(message.get("params")?)),
            Some(_) => None,
            None => match (message.get("result"), message.get("error")) {
                (Some(result), _) => Some(self.result(result)),
                (None, Some(error)) => Some(self.failed(error)),
                (None, None) => None,
            },
        }
    }

    /// The agent answered: to `initialize`, to a new session, or with the end of a turn.
    fn result(&mut self, result: &Value) -> Vec<AgentEvent> {
        if let Some(agent) = result.get("agentInfo") {
            let version = format!("{} {}", text(agent, "name"), text(agent, "version"));
            self.version = Some(cut(version.trim(), NAME_MAX));
        }
        if let Some(session) = result.get("sessionId").and_then(Value::as_str) {
            return vec![self.started(session, result)];
        }
        match result.get("stopReason").and_then(Value::as_str) {
            Some(reason) => self.end(reason, result.get("usage")),
            None => Vec::new(),
        }
    }

    /// A session began or goes on, as the answer to that says.
    pub fn started(&mut self, session: &str, answer: &Value) -> AgentEvent {
        let options = answer.get("configOptions").map_or(&[][..], list);
        let model = options.iter().find(|option| text(option, "id") == "model");
        let model = model.map(|option| text(option, "currentValue"));
        let model = model.or_else(|| Some(text(answer.get("models")?, "currentModelId")));
        AgentEvent::Started {
            session: Some(cut(session, NAME_MAX)),
            model: model.filter(|model| !model.is_empty()).map(|model| cut(model, NAME_MAX)),
            version: self.version.clone(),
        }
    }

    fn end(&mut self, reason: &str, usage: Option<&Value>) -> Vec<AgentEvent> {
        let mut events = self.close();
        if let Some(usage) = usage.filter(|usage| usage.is_object()) {
            events.push(AgentEvent::Usage {
                input_tokens: number(usage, "inputTokens"),
                output_tokens: number(usage, "outputTokens"),
                cache_read_tokens: number(usage, "cachedReadTokens"),
                cache_write_tokens: number(usage, "cachedWriteTokens"),
                cost_usd: None,
                is_session_total: false,
            });
        }
        let (end, words) = match reason {
            "end_turn" => (TurnEnd::Completed, String::new()),
            "cancelled" => (TurnEnd::Interrupted, "The turn was cancelled.".to_owned()),
            "max_turn_requests" => (TurnEnd::MaxTurns, String::new()),
            "max_tokens" => {
                let words = "the model wrote all the tokens that one answer may have";
                (TurnEnd::Failed, words.to_owned())
            }
            "refusal" => (TurnEnd::ModelDeclined, String::new()),
            other => {
                let words = format!("the agent ended its turn for {:?}", cut(other, NAME_MAX));
                (TurnEnd::Failed, words)
            }
        };
        events.push(self.turn_ended(end, words));
        events
    }

    /// The agent answered with an error: its turn is over.
    pub fn failed(&mut self, error: &Value) -> Vec<AgentEvent> {
        let mut events = self.close();
        let words = match text(error, "message") {
            "" => error.to_string(),
            words => words.strip_prefix("Internal error: ").unwrap_or(words).to_owned(),
        };
        let is_of_model = is_about_budget(&words)
            || is_about_waiting(&words)
            || error.get("data").is_some_and(|data| text(data, "errorName") == "APIError");
        let end = if is_of_model { TurnEnd::ModelFailed } else { TurnEnd::Failed };
        events.push(self.turn_ended(end, words));
        events
    }

    /// The end of a turn.
    pub fn turn_ended(&mut self, end: TurnEnd, words: String) -> AgentEvent {
        let (text, denied) = (cut(&words, TEXT_MAX), std::mem::take(&mut self.denied));
        AgentEvent::TurnEnded { end, status: None, text, denied }
    }

    fn update(&mut self, update: &Value) -> Option<Vec<AgentEvent>> {
        Some(match text(update, "sessionUpdate") {
            "agent_message_chunk" => self.piece(update, false),
            "agent_thought_chunk" => self.piece(update, true),
            "tool_call" | "tool_call_update" => self.call(update),
            "plan" => {
                let mut events = self.close();
                events.push(AgentEvent::note(&plan(update)));
                events
            }
            // What it shows of itself or of us; its cost is what the gateway counts.
            "user_message_chunk"
            | "available_commands_update"
            | "current_mode_update"
            | "config_option_update"
            | "session_info_update"
            | "usage_update" => Vec::new(),
            _ => return None,
        })
    }

    /// A piece of a text or a thought.
    fn piece(&mut self, update: &Value, is_thought: bool) -> Vec<AgentEvent> {
        let block = (is_thought, cut(text(update, "messageId"), NAME_MAX));
        let mut events = match &self.open {
            Some(open) if *open == block => Vec::new(),
            _ => self.close(),
        };
        self.open = Some(block);
        let content = update.get("content").cloned().unwrap_or_default();
        let words = join_texts(&Value::Array(vec![content]));
        events.push(block_event(is_thought, cut(&words, TEXT_MAX), TextPart::Piece));
        events
    }

    /// What comes is no piece of the block that was open.
    fn close(&mut self) -> Vec<AgentEvent> {
        let open = self.open.take();
        open.map(|(is_thought, _)| block_event(is_thought, String::new(), TextPart::End))
            .into_iter()
            .collect()
    }

    /// A tool call begins, goes on or ends.
    fn call(&mut self, update: &Value) -> Vec<AgentEvent> {
        let mut events = self.close();
        let at = self.known(update);
        let status = text(update, "status");
        if !matches!(status, "" | "pending") {
            events.extend(self.say(at));
        }
        if matches!(status, "completed" | "failed") {
            let call = self.calls.remove(at);
            let words = result_of(update);
            events.push(AgentEvent::tool_result(&call.id, &words, status == "failed", None));
        }
        events
    }

    /// A tool call waits for a decision.
    fn asks(&mut self, params: &Value) -> Vec<AgentEvent> {
        let mut events = self.close();
        if let Some(call) = params.get("toolCall") {
            let at = self.known(call);
            events.extend(self.say(at));
        }
        events
    }

    /// Where the call is that a message is about, with what the message says of it.
    fn known(&mut self, update: &Value) -> usize {
        let id = cut(text(update, "toolCallId"), NAME_MAX);
        let at = self.calls.iter().position(|call| call.id == id).unwrap_or_else(|| {
            if self.calls.len() == CALLS_MAX {
                self.calls.remove(0);
            }
            self.calls.push(OpenCall { id, ..OpenCall::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        for (known, key) in [(&mut call.title, "title"), (&mut call.kind, "kind")] {
            let new = text(update, key);
            if !new.is_empty() {
                *known = cut(new, TEXT_MAX);
            }
        }
        if let Some(input) = update.get("rawInput").filter(|_| !call.is_said) {
            call.input = input.clone();
        }
        at
    }

    /// What a call is that has no result yet: its kind, and what it does.
    pub fn words_of(&self, call: &str) -> (&str, &str) {
        let call = self.calls.iter().find(|known| known.id == call);
        call.map_or(("", ""), |call| (&call.kind, &call.title))
    }

    /// The call in an event, once.
    fn say(&mut self, at: usize) -> Option<AgentEvent> {
        let call = &mut self.calls[at];
        if std::mem::replace(&mut call.is_said, true) {
            return None;
        }
        let tool = if call.kind.is_empty() { "tool" } else { call.kind.as_str() };
        let input = std::mem::take(&mut call.input);
        call.title = title(&call.title, &input);
        Some(AgentEvent::tool_call(&call.id, tool, &call.title, input, None))
    }
}

/// What a call does, in a line: what the tool is given, if that says it, else what the agent calls it.
pub fn title(title: &str, input: &Value) -> String {
    let given = title_of(input, text(input, "cwd"));
    if given.is_empty() { title.to_owned() } else { given }
}

fn block_event(is_thought: bool, text: String, part: TextPart) -> AgentEvent {
    match is_thought {
        true => AgentEvent::Thinking { text, part, parent: None },
        false => AgentEvent::Text { text, part, parent: None },
    }
}

/// What a tool answered: its content, else its raw output.
fn result_of(update: &Value) -> String {
    let content = update.get("content").map_or(&[][..], list).iter().map(|part| {
        match (text(part, "type"), part.get("content")) {
            ("content", Some(content)) => join_texts(&Value::Array(vec![content.clone()])),
            ("diff", _) => format!("changed {}", text(part, "path")),
            (kind, _) => format!("[{kind}]"),
        }
    });
    let words = content.collect::<Vec<_>>().join("\n");
    match update.get("rawOutput") {
        Some(raw) if words.is_empty() => {
            raw.as_str().map_or_else(|| raw.to_string(), str::to_owned)
        }
        _ => words,
    }
}

fn plan(update: &Value) -> String {
    let entries = update.get("entries").map_or(&[][..], list).iter().map(|entry| {
        let mark = match text(entry, "status") {
            "completed" => 'x',
            "in_progress" => '>',
            _ => ' ',
        };
        format!("[{mark}] {}", text(entry, "content"))
    });
    entries.collect::<Vec<_>>().join("\n")
}
