//! What is said with a process: it is greeted, begins or loads a session, and is given the prompt. Then
//! its requests are answered until its turn ends.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::reader::{AcpReader, parse, title};
use super::resumed_name;
use crate::agents::bounds::{NAME_MAX, cut, one_line};
use crate::agents::json::{list, number, text};
use crate::agents::{AgentDialogue, AgentEvent, AgentTurn, LineReader, TurnEnd};
use crate::types::{AgentPermissions, AgentQuestion, AnswerOption};

/// The version of the protocol.
const PROTOCOL: u64 = 1;
/// How many questions wait at most; beyond that they are answered as cancelled.
const QUESTIONS_MAX: usize = 100;
/// How many options of a question are shown.
const OPTIONS_MAX: usize = 20;
/// The most bytes of a question.
const QUESTION_MAX: usize = 1000;

/// The ids of our requests.
const INITIALIZE: u64 = 1;
const SESSION: u64 = 2;
const PROMPT: u64 = 3;

/// The dialogue with one process.
#[derive(Debug)]
pub struct AcpDialogue {
    reader: AcpReader,
    step: AcpStep,
    lines: Vec<String>,
    /// What the session to be loaded is called; `None` for a new one.
    resumes: Option<String>,
    session: String,
    cwd: String,
    prompt: String,
    permissions: AgentPermissions,
    /// What the ids of questions begin with.
    attempt: u32,
    asked: u32,
    questions: VecDeque<OpenQuestion>,
    is_cancelled: bool,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcpStep {
    Greeting,
    Session,
    Turn,
    Over,
}

/// A request of the agent that a person answers.
#[derive(Debug)]
struct OpenQuestion {
    request: Value,
    question: AgentQuestion,
}

impl AcpDialogue {
    pub fn new(turn: &AgentTurn) -> Self {
        let resumes = resumed_name(turn).map(str::to_owned);
        let prompt = match &turn.append_system_prompt {
            // A session that goes on has them.
            Some(words) if resumes.is_none() => format!("{words}\n\n{}", turn.prompt),
            _ => turn.prompt.clone(),
        };
        let mut dialogue = Self {
            reader: AcpReader::default(),
            step: AcpStep::Greeting,
            lines: Vec::new(),
            resumes,
            session: String::new(),
            cwd: turn.cwd.clone(),
            prompt,
            permissions: turn.settings.permissions,
            attempt: turn.attempt,
            asked: 0,
            questions: VecDeque::new(),
            is_cancelled: false,
        };
        let capabilities = json!({
            "fs": { "readTextFile": false, "writeTextFile": false },
            "terminal": false,
        });
        dialogue.request(
            INITIALIZE,
            "initialize",
            &json!({
                "protocolVersion": PROTOCOL,
                "clientCapabilities": capabilities,
                "clientInfo": { "name": "issuebox", "version": env!("CARGO_PKG_VERSION") },
            }),
        );
        dialogue
    }

    fn write(&mut self, message: &Value) {
        self.lines.push(format!("{message}\n"));
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn respond(&mut self, id: &Value, result: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    fn refuse(&mut self, id: &Value, code: i32, words: &str) {
        let error = json!({ "code": code, "message": words });
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
    }

    /// The events of a message; `None` if it is of a kind that is not known.
    fn message(&mut self, message: &Value) -> Option<Vec<AgentEvent>> {
        let method = message.get("method").and_then(Value::as_str);
        match (method, message.get("id")) {
            (Some(method), Some(id)) => self.requested(method, id, message),
            // The agent shows what was said before; that is known.
            (Some("session/update"), None) if self.step == AcpStep::Session => Some(Vec::new()),
            (Some(_), None) => self.reader.message(message),
            (None, Some(id)) => self.answered(id.as_u64()?, message),
            (None, None) => None,
        }
    }

    /// The agent asks for something.
    fn requested(&mut self, method: &str, id: &Value, message: &Value) -> Option<Vec<AgentEvent>> {
        if !(id.is_number() || id.as_str().is_some_and(|id| id.len() <= NAME_MAX)) {
            return None;
        }
        if method != "session/request_permission" {
            self.refuse(id, -32601, "issuebox has no such method: work in the sandbox itself");
            let words = format!("the agent asked for {}, which issuebox does not offer", method);
            return Some(vec![AgentEvent::note(&cut(&words, NAME_MAX))]);
        }
        let mut events = self.reader.message(message)?;
        events.extend(self.permission(id, &message["params"]));
        Some(events)
    }

    /// The agent asks whether it may use a tool.
    fn permission(&mut self, id: &Value, params: &Value) -> Option<AgentEvent> {
        let options = options(&params["options"]);
        if self.is_cancelled || self.questions.len() >= QUESTIONS_MAX || options.is_empty() {
            self.respond(id, &cancelled());
            return None;
        }
        let call = &params["toolCall"];
        // It need not repeat what it said of the call before.
        let (kind, known) = self.reader.words_of(text(call, "toolCallId"));
        let what = match title("", &call["rawInput"]) {
            given if given.is_empty() => known.to_owned(),
            given => given,
        };
        let (kind, what) = match kind {
            "" => (String::new(), what),
            kind => (kind.to_owned(), format!("{kind}: {what}")),
        };
        if self.permissions == AgentPermissions::Allow {
            let allowing = ["allow_once", "allow_always"].into_iter();
            let found = allowing.filter_map(|kind| options.iter().find(|it| it.kind == kind));
            let chosen = found.into_iter().next().unwrap_or(&options[0]).clone();
            return self.choose(id, &chosen, text(call, "toolCallId"), &kind);
        }
        self.asked += 1;
        let number = format!("{}-{}", self.attempt, self.asked);
        let text = one_line(&what, QUESTION_MAX);
        let question = AgentQuestion { id: number, text, options };
        self.questions.push_back(OpenQuestion { request: id.clone(), question });
        None
    }

    /// Answers a request with an option; the event of a tool that is denied by it.
    fn choose(
        &mut self,
        request: &Value,
        option: &AnswerOption,
        call: &str,
        tool: &str,
    ) -> Option<AgentEvent> {
        let outcome = json!({ "outcome": "selected", "optionId": option.id });
        self.respond(request, &json!({ "outcome": outcome }));
        if option.allows() {
            return None;
        }
        self.reader.denied += 1;
        Some(AgentEvent::Denied {
            id: cut(call, NAME_MAX),
            tool: cut(tool, NAME_MAX),
            reason: format!(
                "the agent offers nothing that allows it, so {:?} was chosen",
                option.name
            ),
        })
    }

    /// The agent answers one of our requests.
    fn answered(&mut self, id: u64, message: &Value) -> Option<Vec<AgentEvent>> {
        match (self.step, id, message.get("error")) {
            (AcpStep::Greeting, INITIALIZE, None) => self.greeted(&message["result"]),
            (AcpStep::Session, SESSION, None) => Some(vec![self.begun(&message["result"])]),
            (AcpStep::Session, SESSION, Some(error)) if self.resumes.is_some() => {
                let words = text(error, "message").to_owned();
                Some(self.no_session(&words))
            }
            (AcpStep::Greeting, INITIALIZE, Some(error))
            | (AcpStep::Session, SESSION, Some(error)) => {
                self.step = AcpStep::Over;
                Some(self.reader.failed(error))
            }
            (AcpStep::Turn, PROMPT, _) => {
                self.step = AcpStep::Over;
                self.questions.clear();
                let mut events = self.reader.message(message)?;
                if !events.iter().any(|event| matches!(event, AgentEvent::TurnEnded { .. })) {
                    let words = "the agent ended its turn without a reason".to_owned();
                    events.push(self.reader.turn_ended(TurnEnd::Failed, words));
                }
                Some(events)
            }
            _ => None,
        }
    }

    fn greeted(&mut self, result: &Value) -> Option<Vec<AgentEvent>> {
        let version: u64 = number(result, "protocolVersion");
        self.reader.message(&json!({ "result": result }));
        if version != PROTOCOL {
            self.step = AcpStep::Over;
            let words = format!(
                "the agent speaks version {version} of the Agent Client Protocol; {PROTOCOL} is needed"
            );
            return Some(vec![self.reader.turn_ended(TurnEnd::Failed, words)]);
        }
        let (cwd, servers) = (self.cwd.clone(), json!([]));
        match self.resumes.clone() {
            None => {
                let params = json!({ "cwd": cwd, "mcpServers": servers });
                self.request(SESSION, "session/new", &params);
            }
            Some(name) if name.is_empty() => {
                return Some(self.no_session("its name is not known any more"));
            }
            Some(_) if result["agentCapabilities"]["loadSession"] != true => {
                return Some(self.no_session("it loads no sessions"));
            }
            Some(name) => {
                let params = json!({ "sessionId": name, "cwd": cwd, "mcpServers": servers });
                self.request(SESSION, "session/load", &params);
            }
        }
        self.step = AcpStep::Session;
        Some(Vec::new())
    }

    /// The session that was to go on does not: another process begins a new one.
    fn no_session(&mut self, why: &str) -> Vec<AgentEvent> {
        self.step = AcpStep::Over;
        let words = format!("The agent does not go on with its session: {why}. A new one begins.");
        vec![self.reader.turn_ended(TurnEnd::NoSession, words)]
    }

    fn begun(&mut self, result: &Value) -> AgentEvent {
        self.session = match &self.resumes {
            Some(name) => name.clone(),
            None => text(result, "sessionId").to_owned(),
        };
        self.step = AcpStep::Turn;
        let prompt = std::mem::take(&mut self.prompt);
        let prompt = json!([{ "type": "text", "text": prompt }]);
        let params = json!({ "sessionId": self.session, "prompt": prompt });
        self.request(PROMPT, "session/prompt", &params);
        let session = self.session.clone();
        self.reader.started(&session, result)
    }
}

impl LineReader for AcpDialogue {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let Some(message) = parse(line) else { return self.reader.line(line) };
        self.message(&message).unwrap_or_else(|| vec![AgentEvent::unknown(line)])
    }
}

impl AgentDialogue for AcpDialogue {
    fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn question(&self) -> Option<&AgentQuestion> {
        self.questions.front().map(|open| &open.question)
    }

    fn answer(&mut self, question: &str, option: &str) {
        let open = self.questions.front().filter(|open| open.question.id == question);
        let chosen = open.and_then(|open| open.question.options.iter().find(|it| it.id == option));
        let Some(chosen) = chosen.cloned() else { return };
        if let Some(open) = self.questions.pop_front() {
            // A person sees what was chosen; it is not said again that it is denied.
            self.choose(&open.request, &chosen, "", "");
        }
    }

    fn cancel(&mut self) {
        self.is_cancelled = true;
        match self.step {
            AcpStep::Turn => {
                let params = json!({ "sessionId": self.session });
                self.write(
                    &json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }),
                );
            }
            AcpStep::Greeting | AcpStep::Session | AcpStep::Over => self.step = AcpStep::Over,
        }
        // In this order: an agent that hears the answer first might take it for one of a person.
        for open in std::mem::take(&mut self.questions) {
            self.respond(&open.request, &cancelled());
        }
    }

    fn is_over(&self) -> bool {
        self.step == AcpStep::Over
    }
}

/// The answer to a question of a turn that is cancelled.
fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// The options of a question. One without an id of its own cannot be chosen.
fn options(options: &Value) -> Vec<AnswerOption> {
    let mut found: Vec<AnswerOption> = Vec::new();
    for option in list(options) {
        let id = text(option, "optionId");
        let is_own = !id.is_empty() && id.len() <= NAME_MAX && !found.iter().any(|it| it.id == id);
        if is_own && found.len() < OPTIONS_MAX {
            let name = one_line(text(option, "name"), NAME_MAX);
            let name = if name.is_empty() { id.to_owned() } else { name };
            let kind = one_line(text(option, "kind"), NAME_MAX);
            found.push(AnswerOption { id: id.to_owned(), name, kind });
        }
    }
    found
}
