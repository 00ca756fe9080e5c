//! What agents ask people, on the wire.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::{AgentQuestion, AnswerOption, QuestionAnswer};

/// A question that an agent waits with until a person answers it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Question)]
pub struct QuestionBody {
    /// Its id, which no other question of its run has.
    pub id: String,
    /// What is asked, in the agent's words.
    pub text: String,
    /// What can be answered.
    pub options: Vec<OptionBody>,
}

/// One of the answers to a question.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnswerOption)]
pub struct OptionBody {
    /// Its id.
    pub id: String,
    /// What it is, in the agent's words.
    pub name: String,
    /// What kind of decision it is: `allow_once`, `allow_always`, `reject_once`, `reject_always`, or another
    /// word of the agent's.
    pub kind: String,
}

/// How a person answered a question.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QuestionAnswer)]
pub struct AnsweredBody {
    /// The question's id.
    pub question: String,
    /// What was chosen.
    pub option: OptionBody,
    /// Who chose it.
    pub by: String,
    /// When.
    #[schema(format = DateTime)]
    pub at: String,
}

/// An answer to the question of a run.
#[derive(Debug, ToSchema)]
pub struct AnswerRequest {
    /// The question's id.
    pub question: String,
    /// The id of the option that is chosen.
    pub option: String,
}

impl From<&AnswerOption> for OptionBody {
    fn from(option: &AnswerOption) -> Self {
        let AnswerOption { id, name, kind } = option.clone();
        Self { id, name, kind }
    }
}

impl From<&AgentQuestion> for QuestionBody {
    fn from(question: &AgentQuestion) -> Self {
        let AgentQuestion { id, text, options } = question;
        let options = options.iter().map(Into::into).collect();
        Self { id: id.clone(), text: text.clone(), options }
    }
}

impl From<&QuestionAnswer> for AnsweredBody {
    fn from(answer: &QuestionAnswer) -> Self {
        let QuestionAnswer { question, option, by, at } = answer;
        let (question, by) = (question.clone(), by.clone());
        Self { question, option: option.into(), by, at: at.to_string() }
    }
}
