//! What an agent is given to read in a run: its messages, without their hidden parts.

use super::AgentWorkplace;
use super::inside::WORKSPACE;
use crate::agents::prompt::{
    AuthoredText, Briefing, FollowUp, FollowUpSource as Source, IssueTask, TextAuthor,
    first_message, follow_up_message, hidden_note, system_prompt,
};
use crate::conversation::{MessageOrigin, MessageText};
use crate::github::task::{AUTHOR, MAY_TRIGGER, Task};
use crate::github::text::{HiddenParts, cleaned};
use crate::issue::Facts;
use crate::issue::instruction::InstructionSource;
use crate::store::conversation::MessageRow;
use crate::types::{PublishMode, RepositoryFile};

/// What a run that goes on after an interruption is given, if its session has the messages already.
pub(super) const CONTINUE: &str = "Continue.";

/// The permission that is shown of a caller of the API.
const CALLER: &str = "caller of the API";

/// A message with its words cleaned.
struct CleanMessage {
    source: MessageOrigin,
    /// The number of the pull request, of a review.
    pull: u64,
    author: String,
    permission: &'static str,
    at: String,
    title: Option<String>,
    text: String,
}

fn clean(row: &MessageRow, hidden: &mut HiddenParts) -> CleanMessage {
    let mut clean = |text: &str| {
        let cleaned = cleaned(text);
        hidden.add(cleaned.hidden);
        cleaned.text
    };
    let message = &row.message;
    let words = row.instruction.as_ref();
    let text = match (&message.text, words) {
        // What a caller sends is not Markdown that GitHub shows: nothing of it is hidden.
        (MessageText::Own(text), _) => text.clone(),
        (MessageText::OfDelivery(_), Some(words)) => clean(&words.text),
        (MessageText::OfDelivery(_), None) => String::new(),
    };
    let title = words.and_then(|words| words.title.as_deref()).map(&mut clean);
    let pull = match words.map(|words| words.source) {
        Some(InstructionSource::Review { pull, .. }) => u64::from(pull),
        _ => 0,
    };
    let (author, permission) = written_by(row);
    let (source, at) = (message.source, message.at.to_string());
    CleanMessage { source, pull, author, permission, at, title, text }
}

/// Who wrote a message, and what that person may do. The text of an issue is its author's, who need not be
/// the person who asked for the work.
fn written_by(row: &MessageRow) -> (String, &'static str) {
    let said_by = row.message.author.clone();
    match (row.message.source, row.instruction.as_ref()) {
        (MessageOrigin::Api, _) => (said_by, CALLER),
        (MessageOrigin::Issue, Some(words)) => match (&words.author, &words.sender) {
            (Some(author), Some(sender)) if author.id == sender.id => {
                (author.login.clone(), MAY_TRIGGER)
            }
            (Some(author), _) => (author.login.clone(), AUTHOR),
            (None, _) => (String::new(), AUTHOR),
        },
        _ => (said_by, MAY_TRIGGER),
    }
}

/// The prompt of a run. `task` is what the issue is about, if its session begins.
pub(super) fn prompt(
    facts: &Facts,
    task: Option<&Task>,
    messages: &[MessageRow],
    run: &str,
) -> String {
    let mut hidden = HiddenParts::default();
    let clean: Vec<_> = messages.iter().map(|row| clean(row, &mut hidden)).collect();
    let issue = issue_name(facts);
    let first = clean.iter().position(|message| message.source == MessageOrigin::Issue);
    let mut rest: Vec<&CleanMessage> =
        clean.iter().enumerate().filter(|(at, _)| Some(*at) != first).map(|(_, it)| it).collect();
    let mut text = String::new();
    if first.is_some() || task.is_some() {
        let request = (first.is_none() && !rest.is_empty()).then(|| rest.remove(0));
        let own = first.map(|at| &clean[at]);
        text = about(&issue, own, task, request, &mut hidden);
    }
    let rest: Vec<_> = rest
        .into_iter()
        .map(|message| FollowUp { source: source(message), written: of(message) })
        .collect();
    if !rest.is_empty() {
        text.push_str(&follow_up_message(&rest));
    }
    if let Some(words) = hidden.in_words() {
        text.push_str(&hidden_note(&words));
    }
    // By this the session's file shows whether it has the messages.
    format!("{}\n\n(run {run})\n", text.trim_end())
}

/// What the issue is about: as the message `own` has it, or else as GitHub does.
fn about(
    issue: &str,
    own: Option<&CleanMessage>,
    task: Option<&Task>,
    request: Option<&CleanMessage>,
    hidden: &mut HiddenParts,
) -> String {
    if let Some(task) = task {
        hidden.add(task.hidden);
    }
    let author = task.and_then(|task| task.author.as_ref());
    let by = author.map(|by| TextAuthor { name: &by.login, permission: by.permission });
    let written = task.map_or("", |task| task.body.as_str());
    let body = own.map_or(AuthoredText { by, at: "", text: written }, of);
    let title = own.and_then(|own| own.title.as_deref()).or(task.map(|task| task.title.as_str()));
    let times: Vec<String> =
        task.iter().flat_map(|task| &task.comments).map(|comment| comment.at.to_string()).collect();
    let comments: Vec<AuthoredText<'_>> = task
        .iter()
        .flat_map(|task| &task.comments)
        .zip(&times)
        .map(|(comment, at)| {
            let by = TextAuthor { name: &comment.by.login, permission: comment.by.permission };
            AuthoredText { by: Some(by), at, text: &comment.text }
        })
        .collect();
    first_message(&IssueTask {
        issue,
        title: title.unwrap_or_default(),
        body,
        request: request.map(of),
        comments: &comments,
        left_out: task.map_or(0, |task| task.left_out),
    })
}

fn of(message: &CleanMessage) -> AuthoredText<'_> {
    let by = TextAuthor { name: &message.author, permission: message.permission };
    let by = (!message.author.is_empty()).then_some(by);
    AuthoredText { by, at: &message.at, text: &message.text }
}

fn source(message: &CleanMessage) -> Source<'_> {
    match message.source {
        MessageOrigin::Issue | MessageOrigin::Comment(_) => Source::Comment,
        MessageOrigin::Review(_) => Source::Review { pull_request: message.pull },
        MessageOrigin::Check(_) => {
            Source::FailedCheck { name: message.title.as_deref().unwrap_or_default() }
        }
        MessageOrigin::Api => Source::Api,
    }
}

/// What is added to the agent's system prompt.
pub(super) fn briefing(
    facts: &Facts,
    workplace: &AgentWorkplace,
    publish: PublishMode,
    instructions: &str,
    file: Option<&RepositoryFile>,
) -> String {
    system_prompt(&Briefing {
        issue: &issue_name(facts),
        workspace: WORKSPACE,
        branch: workplace.branch.as_deref(),
        base: workplace.base.as_deref(),
        publish,
        instructions: Some(instructions).filter(|text| !text.is_empty()),
        file_instructions: file.map(|file| file.instructions.as_str()).filter(|it| !it.is_empty()),
    })
}

/// What an issue is called, for people and agents.
fn issue_name(facts: &Facts) -> String {
    match (&facts.repository, facts.number) {
        (Some(repository), Some(number)) => format!("{repository}#{number}"),
        _ => format!("issue {}", facts.issue_id),
    }
}
