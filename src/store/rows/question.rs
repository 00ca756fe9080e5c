//! What agents ask people and what those answer, as rows keep it.

use serde::{Deserialize, Serialize};

use crate::types::{AgentQuestion, AnswerOption, QuestionAnswer, Timestamp};

/// A question that waits for an answer.
#[derive(Serialize, Deserialize)]
pub(super) struct QuestionPart {
    id: String,
    text: String,
    options: Vec<OptionPart>,
}

#[derive(Serialize, Deserialize)]
struct OptionPart {
    id: String,
    name: String,
    kind: String,
}

/// A question that a person answered.
#[derive(Serialize, Deserialize)]
pub(super) struct GivenAnswerPart {
    question: String,
    option: OptionPart,
    by: String,
    at: i64,
}

impl From<&AnswerOption> for OptionPart {
    fn from(option: &AnswerOption) -> Self {
        let AnswerOption { id, name, kind } = option.clone();
        Self { id, name, kind }
    }
}

impl From<OptionPart> for AnswerOption {
    fn from(OptionPart { id, name, kind }: OptionPart) -> Self {
        Self { id, name, kind }
    }
}

impl From<&AgentQuestion> for QuestionPart {
    fn from(question: &AgentQuestion) -> Self {
        let AgentQuestion { id, text, options } = question;
        let options = options.iter().map(Into::into).collect();
        Self { id: id.clone(), text: text.clone(), options }
    }
}

impl From<QuestionPart> for AgentQuestion {
    fn from(QuestionPart { id, text, options }: QuestionPart) -> Self {
        Self { id, text, options: options.into_iter().map(Into::into).collect() }
    }
}

impl From<&QuestionAnswer> for GivenAnswerPart {
    fn from(answer: &QuestionAnswer) -> Self {
        let QuestionAnswer { question, option, by, at } = answer;
        let (question, by) = (question.clone(), by.clone());
        Self { question, option: option.into(), by, at: at.unix_ms() }
    }
}

impl From<GivenAnswerPart> for QuestionAnswer {
    fn from(GivenAnswerPart { question, option, by, at }: GivenAnswerPart) -> Self {
        Self { question, option: option.into(), by, at: Timestamp::from_unix_ms(at) }
    }
}
