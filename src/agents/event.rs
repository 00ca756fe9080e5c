//! What an agent does, as events: one form for all agents, bounded in size, stored and streamed as JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounds::{LINE_MAX, NAME_MAX, TEXT_MAX, TITLE_MAX, bounded_value, cut, mark, one_line};
use crate::types::{AgentQuestion, AnswerOption, QuestionAnswer};

/// One thing that an agent did or said. In JSON: an object with its `type`, keys in camelCase.
///
/// # Guarantees
/// - Every event is bounded: a text has at most 32 KiB, and says at its end how much was cut off.
/// - What was written stays readable: variants and fields are added, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AgentEvent {
    /// The agent's program is ready. One process says so once for every turn.
    Started {
        /// The session, by the agent's own id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// The model that it uses unless it says otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The version of the program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// It said something.
    Text {
        /// What.
        text: String,
        /// How it joins what came before.
        part: TextPart,
        /// The tool call of the sub-agent that said it; `None` for the agent itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// It thought something.
    Thinking {
        /// What.
        text: String,
        /// How it joins what came before.
        part: TextPart,
        /// The tool call of the sub-agent that thought it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// It uses a tool.
    ToolCall {
        /// The call's id, which its result names.
        id: String,
        /// The tool's name.
        tool: String,
        /// The call in a line, for people: a command, a path.
        title: String,
        /// What the tool is given. Long texts in it are cut.
        input: Value,
        /// The tool call of the sub-agent that calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// A tool answered.
    ToolResult {
        /// The id of the call.
        id: String,
        /// What the tool answered.
        text: String,
        /// Whether the tool failed.
        is_error: bool,
        /// The tool call of the sub-agent that called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// It was not allowed to use a tool, and goes on without.
    Denied {
        /// The id of the call.
        id: String,
        /// The tool's name.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The model did not answer, and it asks again.
    Retrying {
        /// Which retry this is, from 1.
        attempt: u32,
        /// How many there are at most; 0 if it does not say.
        attempts_max: u32,
        /// How long it waits before, in milliseconds.
        delay_ms: u64,
        /// The HTTP status of the failed request; `None` if there was no answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// What failed.
        reason: String,
    },
    /// A sub-agent began, went on or ended.
    SubAgent {
        /// The tool call that began it.
        id: String,
        /// Its state.
        state: SubAgentState,
        /// What it is to do, does, or found.
        text: String,
    },
    /// What the turn that ends used, sub-agents included, as the agent counts it. For people; what is
    /// charged is what the gateway counts.
    Usage {
        /// Input tokens that were in no cache.
        input_tokens: u64,
        /// Output tokens.
        output_tokens: u64,
        /// Input tokens that were read from the model's cache.
        cache_read_tokens: u64,
        /// Input tokens that were written to it.
        cache_write_tokens: u64,
        /// The cost in dollars, if the agent knows prices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
        /// Whether these are the sums of the session so far, because the agent knows no others.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_session_total: bool,
    },
    /// A turn ended. More than one may end in a run: only the process's end ends the run.
    TurnEnded {
        /// How.
        end: TurnEnd,
        /// The HTTP status of the model's last answer, if that ended the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// Its last words, or the error.
        text: String,
        /// How many tools it was not allowed to use.
        denied: u32,
    },
    /// It asks a person, and waits for the answer. Written by the server.
    Question {
        /// The question's id.
        id: String,
        /// What is asked.
        text: String,
        /// What can be answered.
        options: Vec<QuestionChoice>,
    },
    /// A person answered. Written by the server.
    Answered {
        /// The question's id.
        question: String,
        /// The id of the option that was chosen.
        option: String,
        /// The name of that option.
        name: String,
        /// Who chose it.
        by: String,
    },
    /// A remark of the program.
    Note {
        /// The remark.
        text: String,
    },
    /// A line of a kind that we do not know, unchanged.
    Unknown {
        /// The line. What is no UTF-8 in it is replaced.
        line: String,
    },
}

/// One of the answers to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionChoice {
    /// Its id.
    pub id: String,
    /// What it is.
    pub name: String,
    /// What kind of decision it is, such as `allow_once`.
    pub kind: String,
}

/// How a text joins the pieces before it. A block of text comes as pieces and an end, or whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TextPart {
    /// Joins the block's pieces; more of the block follows.
    Piece,
    /// Joins the block's pieces, and ends the block. May be empty.
    End,
    /// The whole block: replaces its pieces, if some came.
    Whole,
    /// The block was broken off and will be written again: its pieces do not count. Empty.
    Dropped,
}

/// The state of a sub-agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SubAgentState {
    /// It began.
    Started,
    /// It goes on.
    Working,
    /// It ended.
    Completed,
    /// It failed or was stopped.
    Failed,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnEnd {
    /// The agent said all it had to say.
    Completed,
    /// A signal or a request interrupted it.
    Interrupted,
    /// It had all the turns that it may have.
    MaxTurns,
    /// The agent's own budget, not the gateway's, is used up.
    AgentBudget,
    /// The model could not be asked, or refused.
    ModelFailed,
    /// The model declined to answer for its safety rules.
    ModelDeclined,
    /// There is no such session to resume.
    NoSession,
    /// Another error.
    Failed,
}

impl AgentEvent {
    /// Whether the model has answered something whole: a run that fails after it did not fail at once.
    pub fn is_progress(&self) -> bool {
        match self {
            Self::Text { part, .. } | Self::Thinking { part, .. } => {
                matches!(part, TextPart::End | TextPart::Whole)
            }
            Self::ToolCall { .. } | Self::ToolResult { .. } => true,
            Self::Started { .. }
            | Self::Denied { .. }
            | Self::Retrying { .. }
            | Self::SubAgent { .. }
            | Self::Usage { .. }
            | Self::TurnEnded { .. }
            | Self::Question { .. }
            | Self::Answered { .. }
            | Self::Note { .. }
            | Self::Unknown { .. } => false,
        }
    }

    /// Whether it says what people are asked or answer, which no agent's program can say.
    pub fn is_of_people(&self) -> bool {
        matches!(self, Self::Question { .. } | Self::Answered { .. })
    }

    /// A question that waits for a person.
    pub fn question(question: &AgentQuestion) -> Self {
        let AgentQuestion { id, text, options } = question.clone();
        let choice = |AnswerOption { id, name, kind }| QuestionChoice { id, name, kind };
        Self::Question { id, text, options: options.into_iter().map(choice).collect() }
    }

    /// A person's answer.
    pub fn answered(answer: &QuestionAnswer) -> Self {
        let QuestionAnswer { question, option: AnswerOption { id, name, .. }, by, .. } =
            answer.clone();
        Self::Answered { question, option: id, name, by }
    }

    /// A remark.
    pub fn note(text: &str) -> Self {
        Self::Note { text: cut(text, TEXT_MAX) }
    }

    /// A line that is kept as it is.
    pub fn unknown(line: &[u8]) -> Self {
        // A character has at most four bytes, so this is enough for what is kept.
        let head = &line[..line.len().min(4 * LINE_MAX)];
        let text = String::from_utf8_lossy(head);
        let left_out = line.len() - head.len();
        let more = if left_out > 0 { mark(left_out) } else { String::new() };
        Self::Unknown { line: cut(&text, LINE_MAX) + &more }
    }

    /// A whole block of text.
    pub fn text(text: &str) -> Self {
        Self::Text { text: cut(text, TEXT_MAX), part: TextPart::Whole, parent: None }
    }

    /// A tool call, its input bounded.
    pub fn tool_call(
        id: &str,
        tool: &str,
        title: &str,
        input: Value,
        parent: Option<&str>,
    ) -> Self {
        Self::ToolCall {
            id: cut(id, NAME_MAX),
            tool: cut(tool, NAME_MAX),
            title: one_line(title, TITLE_MAX),
            input: bounded_value(input),
            parent: parent.map(|it| cut(it, NAME_MAX)),
        }
    }

    /// A tool's answer.
    pub fn tool_result(id: &str, text: &str, is_error: bool, parent: Option<&str>) -> Self {
        Self::ToolResult {
            id: cut(id, NAME_MAX),
            text: cut(text, TEXT_MAX),
            is_error,
            parent: parent.map(|it| cut(it, NAME_MAX)),
        }
    }

    /// The same event within the bounds, for one that was read from elsewhere.
    #[must_use]
    pub(super) fn bounded(mut self) -> Self {
        let clip = |text: &mut String, max: usize| {
            // Twice as much leaves room for the mark of a text that was cut before.
            if text.len() > 2 * max {
                *text = cut(text, max);
            }
        };
        match &mut self {
            Self::Started { session, model, version } => {
                [session, model, version].into_iter().flatten().for_each(|it| clip(it, NAME_MAX));
            }
            Self::Text { text, parent, .. } | Self::Thinking { text, parent, .. } => {
                clip(text, TEXT_MAX);
                parent.iter_mut().for_each(|it| clip(it, NAME_MAX));
            }
            Self::ToolCall { id, tool, title, input, parent } => {
                [id, tool].into_iter().chain(parent).for_each(|it| clip(it, NAME_MAX));
                *title = one_line(title, TITLE_MAX);
                *input = bounded_value(std::mem::take(input));
            }
            Self::ToolResult { id, text, parent, .. } => {
                [id].into_iter().chain(parent).for_each(|it| clip(it, NAME_MAX));
                clip(text, TEXT_MAX);
            }
            Self::Denied { id, tool, reason } => {
                [id, tool].into_iter().for_each(|it| clip(it, NAME_MAX));
                clip(reason, TEXT_MAX);
            }
            Self::SubAgent { id, text, .. } => {
                clip(id, NAME_MAX);
                clip(text, TEXT_MAX);
            }
            Self::Retrying { reason: text, .. }
            | Self::TurnEnded { text, .. }
            | Self::Note { text } => clip(text, TEXT_MAX),
            Self::Unknown { line } => clip(line, LINE_MAX),
            // Those are bounded where they are made.
            Self::Question { .. } | Self::Answered { .. } | Self::Usage { .. } => {}
        }
        self
    }
}
