//! Folds the events of a journal into what people read: words, tools with their results, ends of runs.

use serde::Deserialize;
use serde_json::Value;

use crate::agents::{AgentEvent, SubAgentState, TextPart, TurnEnd};
use crate::runs::journal::JournalEvent;
use crate::types::{RunId, RunState};

/// One entry of the conversation. `key` is that of its first event, so that it keeps its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TalkEntry {
    pub key: u64,
    pub kind: TalkKind,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq)]
pub enum TalkKind {
    /// Something was said to the agent.
    Message { from: String, author: String, title: Option<String>, text: String, at: String },
    /// The agent said something. `is_whole`: it will not go on.
    Words { text: String, is_whole: bool },
    /// The agent thought something.
    Thought { text: String, is_whole: bool },
    /// The agent used a tool.
    Tool { id: String, tool: String, title: String, input: Value, result: Option<ToolResult> },
    /// A remark.
    Note(String),
    /// A run entered a state.
    Run { run: RunId, state: RunState, reason: String, attempt: u32 },
}

/// What a tool answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    pub text: String,
    pub is_error: bool,
}

/// A message or a state of a run, as the journal has it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum OwnLine {
    Message { from: String, author: String, text: String, title: Option<String>, at: String },
    Run { id: String, state: String, reason: String, attempt: u32 },
}

/// The entries of these events.
pub fn of(events: &[JournalEvent]) -> Vec<TalkEntry> {
    let mut entries = Vec::new();
    for event in events {
        match serde_json::from_slice(&event.json) {
            Ok(own) => take_own(&mut entries, event.id, own),
            Err(_) => {
                if let Ok(line) = serde_json::from_slice(&event.json) {
                    take_agents(&mut entries, event.id, line);
                }
            }
        }
    }
    entries
}

/// What was not said to be whole is, since something else comes: a program of one's own ends no text.
fn close(entries: &mut [TalkEntry]) {
    for entry in entries.iter_mut().rev() {
        match &mut entry.kind {
            TalkKind::Words { is_whole, .. } | TalkKind::Thought { is_whole, .. } => {
                *is_whole = true;
            }
            TalkKind::Run { .. } => return,
            TalkKind::Message { .. } | TalkKind::Tool { .. } | TalkKind::Note(_) => {}
        }
    }
}

fn take_own(entries: &mut Vec<TalkEntry>, key: u64, own: OwnLine) {
    let kind = match own {
        OwnLine::Message { from, author, text, title, at } => {
            TalkKind::Message { from, author, title, text, at }
        }
        OwnLine::Run { id, state, reason, attempt } => {
            let (Some(run), Some(state)) = (RunId::parse(&id), RunState::parse(&state)) else {
                return;
            };
            let kind = TalkKind::Run { run, state, reason, attempt };
            if !state.is_in_progress() {
                close(entries);
            }
            // Of the states that follow each other without a word in between the last is enough.
            if let Some(TalkEntry { kind: last, .. }) = entries.last_mut()
                && matches!(last, TalkKind::Run { run: before, .. } if *before == run)
            {
                *last = kind;
                return;
            }
            kind
        }
    };
    entries.push(TalkEntry { key, kind });
}

fn take_agents(entries: &mut Vec<TalkEntry>, key: u64, event: AgentEvent) {
    let note = |entries: &mut Vec<TalkEntry>, text: String| {
        entries.push(TalkEntry { key, kind: TalkKind::Note(text) });
    };
    match event {
        // What a sub-agent says is folded, as what a tool does.
        AgentEvent::Text { parent: Some(_), .. } | AgentEvent::Thinking { parent: Some(_), .. } => {
        }
        AgentEvent::Text { text, part, parent: None } => take_text(entries, key, false, text, part),
        AgentEvent::Thinking { text, part, parent: None } => {
            take_text(entries, key, true, text, part);
        }
        AgentEvent::ToolCall { id, tool, title, input, parent: _ } => {
            let kind = TalkKind::Tool { id, tool, title, input, result: None };
            close(entries);
            entries.push(TalkEntry { key, kind });
        }
        AgentEvent::ToolResult { id: of, text, is_error, parent: _ } => {
            let called = entries.iter_mut().rev().find_map(|entry| match &mut entry.kind {
                TalkKind::Tool { id, result, .. } if *id == of && result.is_none() => Some(result),
                _ => None,
            });
            if let Some(result) = called {
                *result = Some(ToolResult { text, is_error });
            }
        }
        AgentEvent::Denied { tool, reason, .. } => {
            note(entries, format!("{tool} was denied: {reason}"));
        }
        AgentEvent::Retrying { delay_ms, reason, .. } => {
            let seconds = delay_ms.div_ceil(1_000);
            note(entries, format!("The model did not answer ({reason}); again in {seconds} s."));
        }
        AgentEvent::SubAgent { state, text, .. } => {
            let word = match state {
                SubAgentState::Started => "A sub-agent begins",
                SubAgentState::Completed => "The sub-agent is done",
                SubAgentState::Failed => "The sub-agent failed",
                SubAgentState::Working => return,
            };
            note(entries, format!("{word}: {text}"));
        }
        AgentEvent::Question { text, options, .. } => {
            let names: Vec<_> = options.into_iter().map(|option| option.name).collect();
            note(entries, format!("It asks a person: {text} ({})", names.join(", ")));
        }
        AgentEvent::Answered { name, by, .. } => note(entries, format!("{by} answered: {name}")),
        AgentEvent::Note { text } => note(entries, text),
        AgentEvent::TurnEnded { end, text, .. } if end != TurnEnd::Completed => note(entries, text),
        AgentEvent::Started { .. }
        | AgentEvent::Usage { .. }
        | AgentEvent::TurnEnded { .. }
        | AgentEvent::Unknown { .. } => {}
    }
}

/// Adds a part of a text or a thought to the block that is not whole yet, or begins one.
fn take_text(
    entries: &mut Vec<TalkEntry>,
    key: u64,
    is_thought: bool,
    text: String,
    part: TextPart,
) {
    let is_open = |entry: &TalkEntry| match &entry.kind {
        TalkKind::Words { is_whole, .. } => !is_thought && !is_whole,
        TalkKind::Thought { is_whole, .. } => is_thought && !is_whole,
        _ => false,
    };
    let open = entries.iter().rposition(is_open);
    if part == TextPart::Dropped {
        if let Some(at) = open {
            entries.remove(at);
        }
        return;
    }
    let ends = part != TextPart::Piece;
    let at = open.unwrap_or_else(|| {
        let (text, is_whole) = (String::new(), false);
        let kind = match is_thought {
            true => TalkKind::Thought { text, is_whole },
            false => TalkKind::Words { text, is_whole },
        };
        entries.push(TalkEntry { key, kind });
        entries.len() - 1
    });
    if let TalkKind::Words { text: known, is_whole } | TalkKind::Thought { text: known, is_whole } =
        &mut entries[at].kind
    {
        if part == TextPart::Whole {
            known.clear();
        }
        known.push_str(&text);
        *is_whole = ends;
        if ends && known.trim().is_empty() {
            entries.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e";

    fn fold(lines: &[Value]) -> Vec<TalkKind> {
        let events: Vec<_> = lines
            .iter()
            .enumerate()
            .map(|(at, line)| JournalEvent { id: at as u64 + 1, json: line.to_string().into() })
            .collect();
        of(&events).into_iter().map(|entry| entry.kind).collect()
    }

    fn text(text: &str, part: &str) -> Value {
        serde_json::json!({"type": "text", "text": text, "part": part, "run": RUN, "at": "t"})
    }

    #[test]
    fn pieces_become_one_text_and_dropped_ones_nothing() {
        let words = |text: &str, is_whole| TalkKind::Words { text: text.into(), is_whole };
        assert_eq!(fold(&[text("a", "piece"), text("b", "piece")]), [words("ab", false)]);
        assert_eq!(
            fold(&[text("a", "piece"), text("b", "end"), text("c", "whole")]),
            [words("ab", true), words("c", true)]
        );
        assert_eq!(fold(&[text("a", "piece"), text("abc", "whole")]), [words("abc", true)]);
        assert_eq!(fold(&[text("a", "piece"), text("", "dropped")]), []);
        let call = serde_json::json!({"type": "toolCall", "id": "t", "tool": "B", "title": "", "input": {}});
        let around = fold(&[text("a", "piece"), call, text("b", "piece")]);
        assert_eq!((&around[0], &around[2]), (&words("a", true), &words("b", false)));
    }

    #[test]
    fn a_question_and_its_answer_are_remarks() {
        let question = serde_json::json!({"type": "question", "id": "1-1", "text": "execute: ls", "run": RUN,
            "options": [{"id": "o", "name": "Allow", "kind": "allow_once"},
                {"id": "n", "name": "Reject", "kind": "reject_once"}]});
        let answer = serde_json::json!({"type": "answered", "question": "1-1", "option": "o",
            "name": "Allow", "by": "mona", "run": RUN});
        let note = |text: &str| TalkKind::Note(text.to_owned());
        assert_eq!(
            fold(&[question, answer]),
            [note("It asks a person: execute: ls (Allow, Reject)"), note("mona answered: Allow")]
        );
    }

    #[test]
    fn a_result_belongs_to_its_call_and_states_of_a_run_are_one() {
        let state = |state: &str| serde_json::json!({"type": "run", "id": RUN, "state": state, "reason": "", "attempt": 2, "at": "t"});
        let call = |id: &str| serde_json::json!({"type": "toolCall", "id": id, "tool": "Bash", "title": "ls", "input": {}, "run": RUN});
        let result = serde_json::json!({"type": "toolResult", "id": "a", "text": "x", "isError": true, "run": RUN});
        let later = serde_json::json!({"type": "later", "run": RUN});
        let kinds = fold(&[state("queued"), state("running"), call("a"), call("b"), result, later]);
        let run = &kinds[0];
        assert!(
            matches!(run, TalkKind::Run { state: RunState::Running, attempt: 2, .. }),
            "{kinds:?}"
        );
        assert!(
            matches!(&kinds[1], TalkKind::Tool { result: Some(result), .. } if result.is_error)
        );
        assert!(matches!(&kinds[2], TalkKind::Tool { result: None, .. }) && kinds.len() == 3);
    }
}
