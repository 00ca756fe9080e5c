//! How a run ended: judged by the process's exit and the last turn's end, never by a word of success.

use serde::{Deserialize, Serialize};

use super::bounds::{TEXT_MAX, cut};
use super::refusal::{is_about_budget, is_about_waiting};
use super::{AgentEvent, TextPart, TurnEnd};
use crate::types::SessionId;

/// How many bytes of standard error are kept: its end.
const STDERR_MAX: usize = 4 * 1024;

/// How an agent's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentExit {
    /// With this code; 128 + n if signal n killed it.
    Code(i32),
    /// The sandbox or the record of the process is gone.
    Unknown,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The agent did what it could and ended by itself. Tools that were denied do not change that.
    Succeeded {
        /// Its last words.
        summary: String,
    },
    /// The gateway refused because a budget is used up; the session can go on after a raise.
    OverBudget {
        /// The gateway's words.
        words: String,
    },
    /// It failed.
    Failed {
        /// Why, for people.
        reason: String,
        /// Whether the same messages may succeed later without a change: the model or the
        /// network was away.
        is_transient: bool,
    },
    /// A signal ended it in the middle; the session can go on.
    Interrupted,
    /// There is no such session: the messages must be sent in a new one.
    SessionMissing,
    /// The id of the new session is used already: it must be resumed.
    SessionTaken,
    /// It was killed, or it is not known how it ended; the session can go on.
    Lost {
        /// What is known, for people.
        reason: String,
    },
}

/// What the events of one run say about its end. Built from the events alone, so that it can be built
/// again from stored lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The session, by the agent's own id.
    pub session: Option<String>,
    /// The last turn that ended.
    pub last_turn: Option<EndedTurn>,
    /// Whether a turn began after that.
    pub is_turn_open: bool,
    /// How many tools the agent was not allowed to use.
    pub denied: u32,
    /// The agent's own words in the last block of text.
    pub last_text: String,
    /// The end of standard error.
    pub stderr: String,
    /// Whether the last block of text goes on.
    is_text_open: bool,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTurn {
    /// How it ended.
    pub end: TurnEnd,
    /// The HTTP status of the model's last answer, if that ended the turn.
    pub status: Option<u16>,
    /// Its last words, or the error.
    pub text: String,
}

impl RunReport {
    /// Takes an event in. Events must come in the order in which the reader gave them.
    pub fn read(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Started { session, .. } => {
                self.is_turn_open = true;
                if let Some(session) = session {
                    self.session = Some(session.clone());
                }
            }
            AgentEvent::Text { text, part, parent } => {
                self.is_turn_open = true;
                if parent.is_none() {
                    self.read_text(text, *part);
                }
            }
            AgentEvent::TurnEnded { end, status, text, denied } => {
                self.is_turn_open = false;
                self.denied = self.denied.saturating_add(*denied);
                let text = text.clone();
                self.last_turn = Some(EndedTurn { end: *end, status: *status, text });
            }
            AgentEvent::Thinking { .. } | AgentEvent::ToolCall { .. } => self.is_turn_open = true,
            AgentEvent::ToolResult { .. }
            | AgentEvent::Denied { .. }
            | AgentEvent::Retrying { .. }
            | AgentEvent::SubAgent { .. }
            | AgentEvent::Usage { .. }
            | AgentEvent::Question { .. }
            | AgentEvent::Answered { .. }
            | AgentEvent::Note { .. }
            | AgentEvent::Unknown { .. } => {}
        }
    }

    fn read_text(&mut self, text: &str, part: TextPart) {
        if !self.is_text_open || matches!(part, TextPart::Whole | TextPart::Dropped) {
            self.last_text.clear();
        }
        if self.last_text.len() < TEXT_MAX {
            self.last_text.push_str(text);
        }
        self.is_text_open = part == TextPart::Piece;
    }

    /// Takes a part of standard error in; only its end is kept.
    pub fn read_stderr(&mut self, bytes: &[u8]) {
        let tail = &bytes[bytes.len().saturating_sub(STDERR_MAX)..];
        self.stderr.push_str(&String::from_utf8_lossy(tail));
        let mut from = self.stderr.len().saturating_sub(STDERR_MAX);
        while !self.stderr.is_char_boundary(from) {
            from += 1;
        }
        self.stderr.drain(..from);
    }

    /// The session, if the agent's id of it is a UUID.
    pub fn session_id(&self) -> Option<SessionId> {
        SessionId::parse(self.session.as_deref()?)
    }

    /// The last line of standard error that says something.
    pub(super) fn last_error_line(&self) -> Option<&str> {
        let lines = self.stderr.lines().rev().map(str::trim);
        lines.into_iter().find(|line| !line.is_empty())
    }
}

/// What a run came to, for an agent that ends each turn with a line that says so.
pub(super) fn judge(exit: AgentExit, report: &RunReport) -> RunOutcome {
    if let Some(outcome) = judge_signal(exit) {
        return outcome;
    }
    let AgentExit::Code(code) = exit else {
        return lost("it is not known how the agent ended");
    };
    let Some(turn) = &report.last_turn else {
        return failed(&without_result(code, report), false);
    };
    if report.is_turn_open {
        return failed(&format!("the agent ended with code {code} in the middle of a turn"), false);
    }
    let text = turn.text.as_str();
    match turn.end {
        TurnEnd::Interrupted => RunOutcome::Interrupted,
        TurnEnd::NoSession => RunOutcome::SessionMissing,
        TurnEnd::MaxTurns => failed("the agent used all the turns that it may have", false),
        TurnEnd::AgentBudget => RunOutcome::OverBudget { words: or_words(text, "over budget") },
        TurnEnd::ModelFailed => judge_model(turn),
        TurnEnd::ModelDeclined => failed(&or_words(text, "the model declined to answer"), false),
        TurnEnd::Failed => failed(&or_words(text, "the agent reported an error"), false),
        TurnEnd::Completed if code == 0 => {
            RunOutcome::Succeeded { summary: or_words(text, report.last_text.trim()) }
        }
        TurnEnd::Completed => failed(&without_result(code, report), false),
    }
}

/// What signals and an unknown end come to; they count more than what was said before.
pub(super) fn judge_signal(exit: AgentExit) -> Option<RunOutcome> {
    let AgentExit::Code(code) = exit else {
        return Some(lost("it is not known how the agent ended"));
    };
    Some(match code - 128 {
        // SIGHUP, SIGINT, SIGTERM.
        1 | 2 | 15 => RunOutcome::Interrupted,
        9 => lost("the agent was killed (SIGKILL): out of memory, or from outside"),
        signal @ (3..=8 | 11 | 24 | 25 | 31) => {
            failed(&format!("the agent crashed with signal {signal}"), false)
        }
        _ => return None,
    })
}

/// What it comes to that the model failed.
fn judge_model(turn: &EndedTurn) -> RunOutcome {
    let words = or_words(&turn.text, "the model did not answer");
    if turn.status == Some(402) || is_about_budget(&words) {
        return RunOutcome::OverBudget { words: without_prefix(&words).to_owned() };
    }
    let is_transient = match turn.status {
        _ if is_about_waiting(&words) => true,
        None => !words.contains("Not logged in"),
        Some(408 | 409 | 425 | 429) => true,
        Some(status) => status >= 500,
    };
    failed(&words, is_transient)
}

/// The gateway's words, without what an agent writes before them.
fn without_prefix(words: &str) -> &str {
    let words = words.strip_prefix("API Error: ").unwrap_or(words);
    words.strip_prefix("402 ").unwrap_or(words)
}

fn without_result(code: i32, report: &RunReport) -> String {
    match report.last_error_line() {
        Some(line) => format!("the agent ended with code {code}: {}", cut(line, 1000)),
        None if report.last_turn.is_some() => format!("the agent ended with code {code}"),
        None => format!("the agent ended with code {code} and without a result"),
    }
}

fn or_words(text: &str, words: &str) -> String {
    let text = text.trim();
    if text.is_empty() { words.to_owned() } else { cut(text, TEXT_MAX) }
}

pub(super) fn failed(reason: &str, is_transient: bool) -> RunOutcome {
    RunOutcome::Failed { reason: reason.to_owned(), is_transient }
}

fn lost(reason: &str) -> RunOutcome {
    RunOutcome::Lost { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(end: TurnEnd, status: Option<u16>, text: &str) -> RunReport {
        let mut report = RunReport::default();
        report.read(&AgentEvent::Started { session: None, model: None, version: None });
        report.read(&AgentEvent::TurnEnded { end, status, text: text.to_owned(), denied: 1 });
        report
    }

    fn outcome(code: i32, end: TurnEnd, status: Option<u16>) -> RunOutcome {
        judge(AgentExit::Code(code), &ended(end, status, "words"))
    }

    #[test]
    fn only_exit_zero_after_a_completed_last_turn_is_success() {
        let succeeded = RunOutcome::Succeeded { summary: "words".into() };
        assert_eq!(outcome(0, TurnEnd::Completed, None), succeeded);
        assert!(matches!(outcome(1, TurnEnd::Completed, None), RunOutcome::Failed { .. }));
        assert_eq!(outcome(143, TurnEnd::Completed, None), RunOutcome::Interrupted);
        assert!(matches!(outcome(137, TurnEnd::Completed, None), RunOutcome::Lost { .. }));
        assert!(matches!(outcome(139, TurnEnd::Completed, None), RunOutcome::Failed { .. }));
        assert_eq!(outcome(0, TurnEnd::Interrupted, None), RunOutcome::Interrupted);
        let none = judge(AgentExit::Code(0), &RunReport::default());
        assert_eq!(none, failed("the agent ended with code 0 and without a result", false));
        let unknown = judge(AgentExit::Unknown, &ended(TurnEnd::Completed, None, ""));
        assert!(matches!(unknown, RunOutcome::Lost { .. }));
    }

    #[test]
    fn a_turn_that_is_open_at_the_end_is_no_success() {
        let mut report = ended(TurnEnd::Completed, None, "first");
        report.read(&AgentEvent::text("second"));
        let outcome = judge(AgentExit::Code(0), &report);
        assert_eq!(outcome, failed("the agent ended with code 0 in the middle of a turn", false));
    }

    #[test]
    fn a_model_that_is_away_is_transient_and_a_refusal_is_not() {
        for (status, is_transient) in [
            (None, true),
            (Some(429), true),
            (Some(529), true),
            (Some(500), true),
            (Some(400), false),
            (Some(401), false),
            (Some(403), false),
            (Some(404), false),
            (Some(413), false),
        ] {
            let outcome = outcome(1, TurnEnd::ModelFailed, status);
            assert_eq!(outcome, failed("words", is_transient), "{status:?}");
        }
        let over = judge(
            AgentExit::Code(1),
            &ended(TurnEnd::ModelFailed, Some(402), "API Error: 402 No more"),
        );
        assert_eq!(over, RunOutcome::OverBudget { words: "No more".into() });
    }

    #[test]
    fn the_end_of_standard_error_is_kept_and_said() {
        let mut report = RunReport::default();
        report.read_stderr(&[b'x'; 10_000]);
        report.read_stderr("ä\nError: no such flag\n\n".as_bytes());
        assert!(report.stderr.len() <= STDERR_MAX);
        assert_eq!(
            judge(AgentExit::Code(1), &report),
            failed("the agent ended with code 1: Error: no such flag", false)
        );
    }

    #[test]
    fn the_last_text_joins_pieces() {
        let mut report = RunReport::default();
        let mut say = |text: &str, part| {
            report.read(&AgentEvent::Text { text: text.into(), part, parent: None });
            report.last_text.clone()
        };
        say("a", TextPart::Piece);
        assert_eq!(say("b", TextPart::End), "ab");
        assert_eq!(say("c", TextPart::Piece), "c");
        assert_eq!(say("", TextPart::Dropped), "");
        assert_eq!(say("d", TextPart::Whole), "d");
    }
}
