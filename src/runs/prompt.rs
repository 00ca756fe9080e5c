//! What an agent is given to read in a run: its messages, without their hidden parts.

use super::AgentWorkplace;
use super::inside::WORKSPACE;
use crate::agents::prompt::{
    AuthoredText, Briefing, FollowUp, FollowUpSource as Source, IssueTask, TextAuthor,
    first_message, follow_up_message, system_prompt,
};
use crate::conversation::{MessageOrigin, MessageText};
use crate::github::text::{HiddenParts, cleaned};
use crate::issue::Facts;
use crate::issue::instruction::InstructionSource;
use crate::store::conversation::MessageRow;
use crate::types::PublishMode;

/// What a run that goes on after an interruption is given, if its session has the messages already.
pub(super) const CONTINUE: &str = "Continue.";

/// The permission that is shown of who asked: verification has let nothing else pass.
const MAY_TRIGGER: &str = "may trigger";
/// The same of a caller of the API.
const CALLER: &str = "caller of the API";

/// A message with its words cleaned.
struct CleanMessage {
    source: MessageOrigin,
    /// The number of the pull request, of a review.
    pull: u64,
    author: String,
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
    let of_delivery = row.instruction.as_ref();
    let text = match (&message.text, of_delivery) {
        // What a caller sends is not Markdown that GitHub shows: nothing of it is hidden.
        (MessageText::Own(text), _) => text.clone(),
        (MessageText::OfDelivery(_), Some(instruction)) => clean(&instruction.text),
        (MessageText::OfDelivery(_), None) => String::new(),
    };
    let title = of_delivery.and_then(|instruction| instruction.title.as_deref()).map(&mut clean);
    let pull = match of_delivery.map(|instruction| instruction.source) {
        Some(InstructionSource::Review { pull, .. }) => u64::from(pull),
        _ => 0,
    };
    let (source, author, at) = (message.source, message.author.clone(), message.at.to_string());
    CleanMessage { source, pull, author, at, title, text }
}

/// The prompt of a run.
pub(super) fn prompt(facts: &Facts, messages: &[MessageRow], run: &str) -> String {
    let mut hidden = HiddenParts::default();
    let clean: Vec<_> = messages.iter().map(|row| clean(row, &mut hidden)).collect();
    let issue = issue_name(facts);
    let first = clean.iter().position(|message| message.source == MessageOrigin::Issue);
    let mut text = String::new();
    if let Some(first) = first {
        let message = &clean[first];
        text = first_message(&IssueTask {
            issue: &issue,
            title: message.title.as_deref().unwrap_or_default(),
            body: of(message),
            request: None,
            comments: &[],
            left_out: 0,
            hidden: hidden.total(),
        });
    }
    let rest = clean.iter().enumerate().filter(|(place, _)| Some(*place) != first);
    let rest: Vec<_> = rest
        .map(|(_, message)| FollowUp { source: source(message), written: of(message) })
        .collect();
    if !rest.is_empty() {
        text.push_str(&follow_up_message(&rest));
    }
    // By this the session's file shows whether it has the messages.
    format!("{}\n\n(run {run})\n", text.trim_end())
}

fn of(message: &CleanMessage) -> AuthoredText<'_> {
    let permission = match message.source {
        MessageOrigin::Api => CALLER,
        MessageOrigin::Issue
        | MessageOrigin::Comment(_)
        | MessageOrigin::Review(_)
        | MessageOrigin::Check(_) => MAY_TRIGGER,
    };
    let by = TextAuthor { name: &message.author, permission };
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
) -> String {
    system_prompt(&Briefing {
        issue: &issue_name(facts),
        workspace: WORKSPACE,
        branch: workplace.branch.as_deref(),
        base: workplace.base.as_deref(),
        publish,
        instructions: Some(instructions).filter(|text| !text.is_empty()),
    })
}

/// What an issue is called, for people and agents.
fn issue_name(facts: &Facts) -> String {
    match (&facts.repository, facts.number) {
        (Some(repository), Some(number)) => format!("{repository}#{number}"),
        _ => format!("issue {}", facts.issue_id),
    }
}
