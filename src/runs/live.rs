//! What an agent does now, in its own words, and when the issue is to show it.

use std::time::Duration;

use crate::agents::{AgentEvent, TextPart};
use crate::github::messages::AgentDoing;
use crate::types::Timestamp;

/// The pause between two requests to show what an agent does. The comment has a pace of its own, which is
/// no faster.
const SHOWN_EVERY: Duration = Duration::from_secs(30);
/// Longest words that are kept, in bytes.
const WORDS_BYTES_MAX: usize = 4_096;

/// What an agent does, as its events say.
#[derive(Debug)]
pub(super) struct LiveWords {
    pub doing: AgentDoing,
    /// The pieces of the text that it writes now.
    pieces: String,
    /// When what it does was last to be shown.
    shown_at: Timestamp,
    /// Whether it changed since.
    has_news: bool,
}

impl LiveWords {
    pub fn new() -> Self {
        let shown_at = Timestamp::from_unix_ms(0);
        let (doing, pieces) = (AgentDoing::default(), String::new());
        Self { doing, pieces, shown_at, has_news: false }
    }

    /// Takes events in; whether one says something new. What sub-agents do is not shown.
    pub fn take(&mut self, events: &[AgentEvent]) -> bool {
        let before = self.doing.clone();
        for event in events {
            match event {
                AgentEvent::Text { text, part, parent: None } => self.text(text, *part),
                AgentEvent::ToolCall { tool, title, parent: None, .. } => {
                    self.doing.calls = bounded(&format!("{tool}: {title}")).to_owned();
                }
                _ => {}
            }
        }
        let is_new = before != self.doing;
        self.has_news |= is_new;
        is_new
    }

    fn text(&mut self, text: &str, part: TextPart) {
        match part {
            TextPart::Piece if self.pieces.len() < WORDS_BYTES_MAX => self.pieces.push_str(text),
            TextPart::Piece => {}
            TextPart::Dropped => self.pieces.clear(),
            TextPart::Whole | TextPart::End => {
                let pieces = std::mem::take(&mut self.pieces);
                let whole = if part == TextPart::Whole { text.to_owned() } else { pieces + text };
                if !whole.trim().is_empty() {
                    self.doing.says = bounded(&whole).to_owned();
                }
            }
        }
    }

    /// When what it does is to be shown; `None` if nothing is new.
    pub fn due(&self) -> Option<Timestamp> {
        self.has_news.then(|| self.shown_at.after(SHOWN_EVERY))
    }

    /// It is to be shown now.
    pub fn shown(&mut self, now: Timestamp) {
        (self.shown_at, self.has_news) = (now, false);
    }
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(WORDS_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, part: TextPart) -> AgentEvent {
        AgentEvent::Text { text: text.into(), part, parent: None }
    }

    fn call(title: &str, parent: Option<String>) -> AgentEvent {
        let (id, tool) = ("1".into(), "Bash".into());
        AgentEvent::ToolCall {
            id,
            tool,
            title: title.into(),
            input: serde_json::Value::Null,
            parent,
        }
    }

    #[test]
    fn whole_texts_and_calls_are_what_an_agent_does() {
        let mut live = LiveWords::new();
        assert!(!live.take(&[text("Let me ", TextPart::Piece)]), "it still writes");
        assert_eq!(live.due(), None);
        assert!(live.take(&[text("look.", TextPart::Piece), text("", TextPart::End)]));
        assert_eq!(live.doing.says, "Let me look.");
        assert!(live.take(&[
            text("Gone", TextPart::Piece),
            text("", TextPart::Dropped),
            call("ls", None)
        ]));
        assert_eq!(
            (live.doing.says.as_str(), live.doing.calls.as_str()),
            ("Let me look.", "Bash: ls")
        );
        assert!(!live.take(&[call("rm", Some("2".into()))]), "a sub-agent's");
        assert!(live.take(&[text("x", TextPart::Piece), text("Whole.", TextPart::Whole)]));
        assert_eq!(live.doing.says, "Whole.");
    }

    #[test]
    fn it_is_shown_at_once_and_then_every_half_minute() {
        let mut live = LiveWords::new();
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        live.take(&[call("ls", None)]);
        assert!(live.due().is_some_and(|at| at <= now));
        live.shown(now);
        assert_eq!(live.due(), None);
        live.take(&[call("cat", None)]);
        assert_eq!(live.due(), Some(now.after(SHOWN_EVERY)));
    }
}
