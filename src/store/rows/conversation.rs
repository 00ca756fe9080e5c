//! Conversations, messages and runs, as rows keep them.

use serde::{Deserialize, Serialize};

use super::BadRow;
use super::question::{GivenAnswerPart, QuestionPart};
use crate::conversation::{
    AgentSession, Conversation, IssueWords, MessageOrigin, Run, RunQuestions, RunWait,
};
use crate::types::{AgentName, MessageId, RunId, RunState, SandboxId, SessionId, Timestamp};

/// A conversation in the body of its issue.
#[derive(Serialize, Deserialize)]
pub(super) struct ConversationPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<RunPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issue_words: Option<(i64, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    heard: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed_commits: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tried: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct SessionPart {
    id: String,
    agent: String,
}

/// A run, in the body of its issue and in a row of its own.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct RunPart {
    id: String,
    agent: String,
    messages: u32,
    state: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    summary: String,
    waits: String,
    since: i64,
    created_at: i64,
    said_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    #[serde(default)]
    interruptions: u32,
    #[serde(default)]
    failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failing_since: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    question: Option<QuestionPart>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<GivenAnswerPart>,
}

impl From<&Run> for RunPart {
    fn from(run: &Run) -> Self {
        let Run { id, agent, messages, state, reason, waits, since, created_at, .. } = run;
        let Run { started_at, attempt, sandbox, interruptions, failures, .. } = run;
        let ms = |at: Option<Timestamp>| at.map(Timestamp::unix_ms);
        Self {
            id: id.to_string(),
            agent: agent.to_string(),
            messages: *messages,
            state: state.as_str().to_owned(),
            reason: reason.clone(),
            summary: run.summary.clone(),
            waits: waits.as_str().to_owned(),
            since: since.unix_ms(),
            created_at: created_at.unix_ms(),
            said_at: run.said_at.unix_ms(),
            started_at: ms(*started_at),
            attempt: *attempt,
            sandbox: sandbox.as_ref().map(ToString::to_string),
            interruptions: *interruptions,
            failures: *failures,
            failing_since: ms(run.failing_since),
            retry_at: ms(run.retry_at),
            question: run.questions.open.as_ref().map(Into::into),
            answers: run.questions.answered.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<RunPart> for Run {
    type Error = BadRow;

    fn try_from(part: RunPart) -> Result<Self, BadRow> {
        let at = |ms: Option<i64>| ms.map(Timestamp::from_unix_ms);
        Ok(Self {
            id: RunId::parse(&part.id).ok_or(BadRow::UnknownWord(part.id))?,
            agent: AgentName::trusted(part.agent),
            messages: part.messages,
            state: RunState::parse(&part.state).ok_or(BadRow::UnknownWord(part.state))?,
            reason: part.reason,
            summary: part.summary,
            waits: RunWait::parse(&part.waits).ok_or(BadRow::UnknownWord(part.waits))?,
            since: Timestamp::from_unix_ms(part.since),
            created_at: Timestamp::from_unix_ms(part.created_at),
            said_at: Timestamp::from_unix_ms(part.said_at),
            started_at: at(part.started_at),
            attempt: part.attempt,
            sandbox: part.sandbox.map(SandboxId::trusted),
            interruptions: part.interruptions,
            failures: part.failures,
            failing_since: at(part.failing_since),
            retry_at: at(part.retry_at),
            questions: RunQuestions {
                open: part.question.map(Into::into),
                answered: part.answers.into_iter().map(Into::into).collect(),
            },
        })
    }
}

impl TryFrom<SessionPart> for AgentSession {
    type Error = BadRow;

    fn try_from(part: SessionPart) -> Result<Self, BadRow> {
        let id = SessionId::parse(&part.id).ok_or(BadRow::UnknownWord(part.id))?;
        Ok(Self { id, agent: AgentName::trusted(part.agent) })
    }
}

impl From<&Conversation> for ConversationPart {
    fn from(conversation: &Conversation) -> Self {
        let Conversation { session, run, next, issue_words, heard, .. } = conversation;
        let Conversation { failed_commits, tried, .. } = conversation;
        Self {
            session: session.as_ref().map(|session| SessionPart {
                id: session.id.to_string(),
                agent: session.agent.to_string(),
            }),
            run: run.as_ref().map(Into::into),
            next: next.as_ref().map(Into::into),
            issue_words: issue_words.map(|words| (words.as_of.unix_ms(), words.digest)),
            heard: heard.iter().copied().map(source_word).collect(),
            failed_commits: failed_commits.clone(),
            tried: tried.iter().map(|(id, run)| (id.to_string(), run.to_string())).collect(),
        }
    }
}

impl TryFrom<ConversationPart> for Conversation {
    type Error = BadRow;

    fn try_from(part: ConversationPart) -> Result<Self, BadRow> {
        Ok(Self {
            session: part.session.map(TryInto::try_into).transpose()?,
            run: part.run.map(TryInto::try_into).transpose()?,
            next: part.next.map(TryInto::try_into).transpose()?,
            issue_words: part.issue_words.map(|(as_of, digest)| IssueWords {
                as_of: Timestamp::from_unix_ms(as_of),
                digest,
            }),
            heard: part.heard.iter().map(|word| source(word)).collect::<Result<_, _>>()?,
            failed_commits: part.failed_commits,
            tried: part.tried.into_iter().map(tried).collect::<Result<_, _>>()?,
        })
    }
}

/// A message of a caller, and its run.
fn tried((message, run): (String, String)) -> Result<(MessageId, RunId), BadRow> {
    let id = MessageId::parse(&message).ok_or(BadRow::UnknownWord(message))?;
    Ok((id, RunId::parse(&run).ok_or(BadRow::UnknownWord(run))?))
}

/// The body of the row of a run.
///
/// # Errors
/// [`BadRow::Body`] if JSON cannot express it, which no run is known to cause.
pub(in crate::store) fn run_body(run: &Run) -> Result<String, BadRow> {
    Ok(serde_json::to_string(&RunPart::from(run))?)
}

/// Reads a run back.
///
/// # Errors
/// [`BadRow`] if this version cannot have written it.
pub(in crate::store) fn run(body: &str) -> Result<Run, BadRow> {
    serde_json::from_str::<RunPart>(body)?.try_into()
}

/// The column that says where a message was said.
pub(in crate::store) fn source_word(source: MessageOrigin) -> String {
    match source {
        MessageOrigin::Issue => "issue".to_owned(),
        MessageOrigin::Comment(id) => format!("comment/{id}"),
        MessageOrigin::Review(id) => format!("review/{id}"),
        MessageOrigin::Check(id) => format!("check/{id}"),
        MessageOrigin::Api => "api".to_owned(),
    }
}

/// Reads it back.
///
/// # Errors
/// [`BadRow::UnknownWord`].
pub(in crate::store) fn source(word: &str) -> Result<MessageOrigin, BadRow> {
    let unknown = || BadRow::UnknownWord(word.to_owned());
    match (word, word.split_once('/')) {
        ("issue", _) => Ok(MessageOrigin::Issue),
        ("api", _) => Ok(MessageOrigin::Api),
        (_, Some((kind, id))) => {
            let id = id.parse().map_err(|_| unknown())?;
            match kind {
                "comment" => Ok(MessageOrigin::Comment(id)),
                "review" => Ok(MessageOrigin::Review(id)),
                "check" => Ok(MessageOrigin::Check(id)),
                _ => Err(unknown()),
            }
        }
        (_, None) => Err(unknown()),
    }
}
