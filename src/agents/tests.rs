//! Tests over recorded lines: which events each run gives, what it came to, and that no bytes harm.

mod acp;
mod fuzz;
mod golden;
mod launch;

use super::*;

/// The events of an output.
fn events_of(agent: &dyn Agent, output: &[u8]) -> Vec<AgentEvent> {
    let (mut reader, mut splitter) = (agent.reader(), LineSplitter::default());
    let mut events = Vec::new();
    splitter.push(output, |line| events.extend(reader.line(line)));
    splitter.finish(|line| events.extend(reader.line(line)));
    events
}

/// A recorded output, below `fixtures/agents/`.
fn recorded(name: &str) -> Vec<u8> {
    let path = format!("{}/fixtures/agents/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blocks of text as a follower shows them: pieces joined, dropped ones left out.
fn blocks_of(events: &[AgentEvent]) -> Vec<String> {
    let (mut blocks, mut open) =
        (Vec::<String>::new(), Vec::<(Option<String>, bool, String)>::new());
    for event in events {
        let (text, part, parent, is_text) = match event {
            AgentEvent::Text { text, part, parent } => (text, part, parent, true),
            AgentEvent::Thinking { text, part, parent } => (text, part, parent, false),
            _ => continue,
        };
        let at = open.iter().position(|(of, kind, _)| of == parent && *kind == is_text);
        let before = at.map(|at| open.remove(at).2).unwrap_or_default();
        match part {
            TextPart::Piece => open.push((parent.clone(), is_text, before + text)),
            TextPart::End => blocks.push(before + text),
            TextPart::Whole => blocks.push(text.clone()),
            TextPart::Dropped => {}
        }
    }
    blocks.extend(open.into_iter().map(|(_, _, text)| text));
    blocks
}

#[test]
fn built_in_agents_are_found_by_name() {
    for name in ["claude-code", "codex", "command", "acp"] {
        assert_eq!(built_in(name).map(|agent| agent.name()), Some(name));
    }
    assert!(built_in("claude").is_none());
    assert!(ClaudeCode.is_tested("2.1.332 (Claude Code)"));
    assert!(Codex.is_tested("codex-cli 0.171.0\n"));
    assert!(!ClaudeCode.is_tested("2.1.33 (Claude Code)"));
}
