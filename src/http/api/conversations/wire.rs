//! Conversations on the wire.

use serde::Serialize;
use utoipa::ToSchema;

use crate::conversation::{MessageText, Run};
use crate::http::doc::words::{RunStateWord, RunWaitWord};
use crate::http::question::{AnsweredBody, QuestionBody};
use crate::runs::journal::from;
use crate::store::conversation::{MessageRow, RunRow};
use crate::store::usage::UsageSum;

use super::usage::RunUsage;

/// Something to say.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct SayRequest {
    /// What; at most 4 MiB.
    pub text: String,
    /// The agent that is to answer; by default the one of the sandbox's template.
    pub agent_id: Option<String>,
    /// Whether a run in progress is cancelled for it; by default as the template says.
    pub interrupt: Option<bool>,
}

/// Something to say to the agent of an issue.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct SayToIssueRequest {
    /// What; at most 4 MiB.
    pub text: String,
    /// The agent that is to answer; by default the one of the sandbox's template.
    pub agent_id: Option<String>,
    /// Whether a run in progress is cancelled for it; by default as the template says.
    pub interrupt: Option<bool>,
    /// `owner/name`, if the server may not know it; together with `issueNumber`.
    pub repository: Option<String>,
    /// The issue's number in its repository.
    pub issue_number: Option<u64>,
}

/// A message that was taken in, and the run that answers it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AcceptedMessage)]
pub struct SaidBody {
    /// The message.
    pub message: MessageRef,
    /// The run. Messages that wait together share one.
    pub run: RunBody,
}

/// A message by its ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageRef {
    /// Its id.
    pub id: String,
    /// The id of its run.
    pub run: String,
}

/// What was said to the agent, and its runs.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Conversation)]
pub struct ConversationBody {
    /// What was said, oldest first.
    pub messages: Vec<MessageBody>,
    /// The runs, oldest first.
    pub runs: Vec<RunBody>,
    /// What all of its runs used of models.
    pub usage: UsageBody,
}

/// What was used of models, as the gateway counts it.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Usage)]
pub struct UsageBody {
    /// How many requests.
    pub requests: u64,
    /// Tokens that models read, from a cache or not.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// What that cost, in US dollars.
    pub cost_usd: f64,
}

impl From<&UsageSum> for UsageBody {
    fn from(sum: &UsageSum) -> Self {
        Self {
            requests: sum.requests,
            input_tokens: sum.tokens.all_input(),
            output_tokens: sum.tokens.output,
            cost_usd: sum.cost.dollars(),
        }
    }
}

/// Something that was said.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Message)]
pub struct MessageBody {
    /// Its id.
    pub id: String,
    /// What was said.
    pub text: String,
    /// The issue's title, if the words are the issue's own.
    pub title: Option<String>,
    /// Where it was said: `issue`, `comment`, `review`, `check` or `api`.
    pub from: &'static str,
    /// Who said it; empty if that is not known.
    pub author: String,
    /// The id of the run that answers it.
    pub run: String,
    /// When it was taken in.
    #[schema(format = DateTime)]
    pub at: String,
}

/// An execution of the agent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Run)]
pub struct RunBody {
    /// Its id, which it keeps when it goes on after an interruption or a retry.
    pub id: String,
    /// The agent.
    pub agent: String,
    /// What it is.
    #[schema(value_type = RunStateWord)]
    pub state: &'static str,
    /// Why, in words; may be empty.
    pub reason: String,
    /// What it waits for, while it is queued or interrupted.
    #[schema(value_type = RunWaitWord)]
    pub waits: &'static str,
    /// How many messages it answers.
    pub messages: u32,
    /// How often a process was started for it.
    pub attempt: u32,
    /// The agent's last words, once it succeeded.
    pub summary: String,
    /// When its first message was taken in.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When its process was first started.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// Since when it is in this state.
    #[schema(format = DateTime)]
    pub since: String,
    /// When it is tried again by itself.
    #[schema(format = DateTime)]
    pub retry_at: Option<String>,
    /// What its agent asks a person, while it waits for the answer.
    pub question: Option<QuestionBody>,
    /// The newest 20 questions that people answered, oldest first.
    pub answers: Vec<AnsweredBody>,
    /// What it used of models.
    pub usage: UsageBody,
}

/// A run as the API shows it, with what it used of models.
pub fn run_body(run: &Run, usage: UsageBody) -> RunBody {
    RunBody {
        id: run.id.to_string(),
        agent: run.agent.to_string(),
        state: run.state.as_str(),
        reason: run.reason.clone(),
        waits: run.waits.as_str(),
        messages: run.messages,
        attempt: run.attempt,
        summary: run.summary.clone(),
        created_at: run.created_at.to_string(),
        started_at: run.started_at.map(|at| at.to_string()),
        since: run.since.to_string(),
        retry_at: run.retry_at.map(|at| at.to_string()),
        question: run.questions.open.as_ref().map(Into::into),
        answers: run.questions.answered.iter().map(Into::into).collect(),
        usage,
    }
}

impl From<&MessageRow> for MessageBody {
    fn from(row: &MessageRow) -> Self {
        let message = &row.message;
        let words = row.instruction.as_ref();
        let text = match (&message.text, words) {
            (MessageText::Own(text), _) => text.clone(),
            (MessageText::OfDelivery(_), Some(words)) => words.text.clone(),
            (MessageText::OfDelivery(_), None) => String::new(),
        };
        Self {
            id: message.id.to_string(),
            text,
            title: words.and_then(|words| words.title.clone()),
            from: from(message.source),
            author: message.author.clone(),
            run: message.run.to_string(),
            at: message.at.to_string(),
        }
    }
}

impl ConversationBody {
    /// Of these messages and runs, with what those used.
    pub fn of(messages: &[MessageRow], runs: &[RunRow], usage: &RunUsage) -> Self {
        Self {
            messages: messages.iter().map(Into::into).collect(),
            runs: runs.iter().map(|row| run_body(&row.run, usage.of(row.run.id))).collect(),
            usage: usage.all(),
        }
    }
}
