//! Prints the events of a conversation: the agent's words as they come, tools in a line each.

use std::io::{self, Write};

use serde::Deserialize;
use serde_json::Value;

use crate::agents::{AgentEvent, SubAgentState, TextPart, TurnEnd};
use crate::cli::output::{Notation, Screen};
use crate::types::{RunState, beginning, inert, inert_lines};

/// One event of a conversation.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ChatEvent {
    /// A message or a state of a run.
    Own(OwnEvent),
    /// What the agent of a run did.
    Agent(AgentLine),
    /// An event of a later version.
    Other(Value),
}

/// An event that is not of an agent.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum OwnEvent {
    /// Something was said.
    Message {
        id: String,
        #[serde(default)]
        author: String,
        #[serde(default)]
        text: String,
    },
    /// A run entered a state.
    Run {
        id: String,
        state: String,
        #[serde(default)]
        reason: String,
    },
}

/// Something that the agent of a run did.
#[derive(Debug, Deserialize)]
pub(super) struct AgentLine {
    run: String,
    #[serde(flatten)]
    event: AgentEvent,
}

impl ChatEvent {
    /// The run whose state this is, and the state.
    pub fn run_state(&self) -> Option<(&str, RunState)> {
        match self {
            Self::Own(OwnEvent::Run { id, state, .. }) => Some((id, RunState::parse(state)?)),
            Self::Own(OwnEvent::Message { .. }) | Self::Agent(_) | Self::Other(_) => None,
        }
    }

    /// Why a run is in its state.
    pub fn reason(&self) -> &str {
        match self {
            Self::Own(OwnEvent::Run { reason, .. }) => reason,
            Self::Own(OwnEvent::Message { .. }) | Self::Agent(_) | Self::Other(_) => "",
        }
    }
}

/// Longest line about a tool, in characters.
const LINE_LEN_MAX: usize = 120;

/// What is printed, and how far.
#[derive(Debug, Default)]
pub(super) struct ChatView {
    is_json: bool,
    /// Whether everything is shown, not only what answers what was said here.
    shows_all: bool,
    messages: Vec<String>,
    runs: Vec<String>,
    /// The run that goes on.
    going: Option<String>,
    /// What of the current block of text was printed.
    block: String,
    /// Whether the last line of standard output is not ended.
    is_in_line: bool,
}

impl ChatView {
    pub fn new(is_json: bool, shows_all: bool) -> Self {
        Self { is_json, shows_all, ..Self::default() }
    }

    /// This was said here, and this run answers it.
    pub fn said_here(&mut self, message: String, run: &str) {
        self.messages.push(message);
        self.runs.push(run.to_owned());
    }

    /// The run that goes on.
    pub fn going(&self) -> Option<String> {
        self.going.clone()
    }

    /// Shows an event; `value` is all of it.
    pub fn show(
        &mut self,
        screen: &mut Screen,
        value: &Value,
        event: &ChatEvent,
    ) -> anyhow::Result<()> {
        if let Some((run, state)) = event.run_state() {
            self.going = state.is_in_progress().then(|| run.to_owned());
        }
        if !self.shows_all && !self.is_ours(event) {
            return Ok(());
        }
        if self.is_json {
            return screen.record(Notation::Json, value);
        }
        match event {
            ChatEvent::Own(OwnEvent::Message { id, author, text }) => {
                if !self.messages.contains(id) {
                    let by = if author.is_empty() { "someone" } else { author };
                    self.aside(screen, &format!("{by}: {}", one_line(text)))?;
                }
            }
            ChatEvent::Own(OwnEvent::Run { state, reason, .. }) => {
                self.run(screen, state, reason)?;
            }
            ChatEvent::Agent(line) => self.agent(screen, &line.event)?,
            ChatEvent::Other(_) => {}
        }
        Ok(())
    }

    /// Ends what is shown.
    pub fn end(&mut self, screen: &mut Screen) -> io::Result<()> {
        if std::mem::take(&mut self.is_in_line) {
            writeln!(screen.out)?;
        }
        self.block.clear();
        Ok(())
    }

    fn is_ours(&self, event: &ChatEvent) -> bool {
        match event {
            ChatEvent::Own(OwnEvent::Message { id, .. }) => self.messages.contains(id),
            ChatEvent::Own(OwnEvent::Run { id, .. }) => self.runs.contains(id),
            ChatEvent::Agent(line) => self.runs.contains(&line.run),
            ChatEvent::Other(value) => {
                value["run"].as_str().is_some_and(|run| self.runs.iter().any(|own| own == run))
            }
        }
    }

    fn run(&mut self, screen: &mut Screen, state: &str, reason: &str) -> anyhow::Result<()> {
        let words = match (RunState::parse(state), reason) {
            // Its question is shown beside.
            (Some(RunState::Running | RunState::WaitingForPerson | RunState::Succeeded), _)
            | (Some(RunState::Queued), "") => {
                return Ok(self.end(screen)?);
            }
            (_, "") => state.replace('_', " "),
            (Some(RunState::Queued), reason) => format!("waits: {reason}"),
            (_, reason) => format!("{}: {reason}", state.replace('_', " ")),
        };
        self.aside(screen, &format!("({})", one_line(&words)))
    }

    fn agent(&mut self, screen: &mut Screen, event: &AgentEvent) -> anyhow::Result<()> {
        match event {
            // What a sub-agent says is folded, as what a tool does.
            AgentEvent::Text { parent: Some(_), .. } => {}
            AgentEvent::Text { text, part, parent: None } => self.text(screen, text, *part)?,
            AgentEvent::ToolCall { tool, title, parent, .. } => {
                let inside = if parent.is_some() { "  " } else { "" };
                let what = one_line(&format!("{tool}: {title}"));
                self.aside(screen, &format!("{inside}▸ {what}"))?;
            }
            AgentEvent::ToolResult { text, is_error: true, .. } => {
                self.aside(screen, &format!("  failed: {}", one_line(text)))?;
            }
            AgentEvent::Denied { tool, reason, .. } => {
                self.aside(
                    screen,
                    &format!("▸ {}", one_line(&format!("{tool} denied: {reason}"))),
                )?;
            }
            AgentEvent::Retrying { delay_ms, reason, .. } => {
                let seconds = delay_ms.div_ceil(1_000);
                let words = format!("the model did not answer ({reason}); again in {seconds} s");
                self.aside(screen, &format!("({})", one_line(&words)))?;
            }
            AgentEvent::SubAgent { state, text, .. } => {
                let word = match state {
                    SubAgentState::Started => "a sub-agent begins",
                    SubAgentState::Completed => "the sub-agent is done",
                    SubAgentState::Failed => "the sub-agent failed",
                    SubAgentState::Working => return Ok(()),
                };
                self.aside(screen, &format!("▸ {}", one_line(&format!("{word}: {text}"))))?;
            }
            AgentEvent::Question { text, options, .. } => {
                self.aside(screen, &format!("? {}", one_line(text)))?;
                for option in options {
                    let what = one_line(&format!("{}: {}", option.id, option.name));
                    self.aside(screen, &format!("    {what}"))?;
                }
                self.aside(screen, "  the agent waits; issuebox answer ISSUE OPTION answers it")?;
            }
            AgentEvent::Answered { name, by, .. } => {
                self.aside(screen, &format!("  {}", one_line(&format!("{by} answered: {name}"))))?;
            }
            AgentEvent::Note { text } => self.aside(screen, &format!("({})", one_line(text)))?,
            AgentEvent::TurnEnded { end, text, .. } if *end != TurnEnd::Completed => {
                self.aside(screen, &format!("({})", one_line(text)))?;
            }
            AgentEvent::Started { .. }
            | AgentEvent::Thinking { .. }
            | AgentEvent::ToolResult { .. }
            | AgentEvent::Usage { .. }
            | AgentEvent::TurnEnded { .. }
            | AgentEvent::Unknown { .. } => {}
        }
        Ok(())
    }

    /// Prints a text of the agent.
    fn text(&mut self, screen: &mut Screen, text: &str, part: TextPart) -> io::Result<()> {
        match part {
            TextPart::Piece => {
                self.block.push_str(text);
                self.write(screen, text)?;
            }
            TextPart::End => {
                self.write(screen, text)?;
                self.end(screen)?;
            }
            TextPart::Whole => {
                // Its pieces were printed; what is the same is not printed again.
                let rest = text.strip_prefix(&self.block).map(str::to_owned);
                if rest.is_none() {
                    self.end(screen)?;
                }
                self.write(screen, rest.as_deref().unwrap_or(text))?;
                self.end(screen)?;
            }
            TextPart::Dropped => {
                if !self.block.is_empty() {
                    self.end(screen)?;
                    eprintln!("{}", screen.faint("(the agent begins this again)"));
                }
            }
        }
        screen.out.flush()
    }

    fn write(&mut self, screen: &mut Screen, text: &str) -> io::Result<()> {
        if let Some(last) = text.chars().next_back() {
            screen.out.write_all(inert_lines(text).as_bytes())?;
            self.is_in_line = last != '\n';
        }
        Ok(())
    }

    /// Prints a line beside the agent's words.
    fn aside(&mut self, screen: &mut Screen, line: &str) -> anyhow::Result<()> {
        self.end(screen)?;
        screen.out.flush()?;
        eprintln!("{}", screen.faint(line));
        Ok(())
    }
}

/// The beginning of a text in one harmless line.
fn one_line(text: &str) -> String {
    // No more words than characters: a message can be long.
    let words: Vec<_> = text.split_whitespace().take(LINE_LEN_MAX).collect();
    inert(&beginning(&words.join(" "), LINE_LEN_MAX)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_written_out_and_lines_stay() {
        assert_eq!(inert_lines("a\tb\n\u{1b}[31mc\r\u{202e}"), "a\tb\n\\u{1b}[31mc\\r\\u{202e}");
        assert_eq!(one_line(" a\n b\u{1b}c "), "a b\\u{1b}c");
        assert_eq!(one_line(&"x".repeat(1_000)).chars().count(), LINE_LEN_MAX + 1);
    }

    #[test]
    fn every_event_of_a_conversation_is_read() {
        let read = |json: &str| serde_json::from_str::<ChatEvent>(json).expect("it is read");
        let run = read(r#"{"type":"run","id":"r","state":"failed","reason":"x","at":"t"}"#);
        assert_eq!(run.run_state(), Some(("r", RunState::Failed)));
        assert!(matches!(
            read(r#"{"type":"text","text":"a","part":"piece","run":"r","at":"t"}"#),
            ChatEvent::Agent(AgentLine { event: AgentEvent::Text { .. }, .. })
        ));
        assert!(matches!(read(r#"{"type":"later","run":"r"}"#), ChatEvent::Other(_)));
    }
}
