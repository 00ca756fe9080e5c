//! Every sentence that is said on an issue. Pure: the same facts always make the same text.
//!
//! # Guarantees
//! - A comment of ours begins with a marker by which it is found again, together with its author.
//! - Only what stands between `<!-- begin -->` and `<!-- end -->` is ours; what people wrote around it
//!   stays.
//! - Words of others (titles, reasons) notify, reference and command nothing.

mod agent;
mod pull;
mod work;

use std::fmt::Write as _;

use super::text::plain;
use crate::issue::{CommentAnswer, Issue};
use crate::store::TimelineListRow;
use crate::types::{Failure, FailureCode, HomeId, InstanceId, Phase, Timestamp};

pub use agent::{AgentAnswer, AgentAsks, AgentDoing, AgentShown, LiveAgents, OutgoingTexts};
pub use pull::{PullText, pull_text};
pub use work::WorkShown;

/// What our part of a comment begins with.
const BEGIN: &str = "<!-- begin -->";
/// What it ends with.
const END: &str = "<!-- end -->";
/// Longest part of ours, in bytes. GitHub's limit is 65,536 characters.
const PART_LEN_MAX: usize = 16 * 1024;
/// What stands at the end of a part that was longer.
const CUT: &str = "… more on the page";
/// Longest reason that is shown, in characters.
const REASON_LEN_MAX: usize = 400;
/// How many reasons of the timeline are shown.
pub const REASONS_MAX: usize = 3;

/// What all sentences need to know of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageContext {
    /// Which installation of issuebox this is.
    pub instance: InstanceId,
    /// The server's address for people, without a slash at its end.
    pub public_url: Option<String>,
    /// The command word, such as `/issuebox`; empty if there is none.
    pub command: String,
}

/// The status of an issue's sandbox, as the comment shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusText {
    /// The phase and generation: a change of it is an edit at once.
    pub phase: String,
    /// The text between the marks.
    pub part: String,
    /// Whether it is the last word: there is no sandbox any more.
    pub is_end: bool,
    /// Whether the issue is closed.
    pub is_closed: bool,
}

/// The first line of the status comment of a home.
pub fn status_marker(context: &MessageContext, home: HomeId) -> String {
    format!("<!-- issuebox {} {} -->", context.instance, home.0)
}

/// The first line of the reply to a comment.
pub fn reply_marker(context: &MessageContext, home: HomeId, comment: u64) -> String {
    format!("<!-- issuebox {} {} reply {comment} -->", context.instance, home.0)
}

/// Whether a comment's text begins with this marker.
pub fn has_marker(body: &str, marker: &str) -> bool {
    body.lines().next().is_some_and(|line| line.trim_end() == marker)
}

/// A comment with this marker and our part.
pub fn comment_body(marker: &str, part: &str) -> String {
    format!("{marker}\n{BEGIN}\n{part}\n{END}\n")
}

/// A comment's text with our part replaced; `None` when its marks are gone.
pub fn with_part(body: &str, part: &str) -> Option<String> {
    let begin = body.find(BEGIN)? + BEGIN.len();
    let end = begin + body[begin..].find(END)?;
    // GitHub may send the line ends that a form has.
    Some(format!("{}\n{part}\n{}", &body[..begin], &body[end..]))
}

/// The reply to a comment.
pub fn reply_body(
    marker: &str,
    answer: &CommentAnswer,
    work: &WorkShown,
    (context, issue): (&MessageContext, &Issue),
) -> String {
    let part = match (answer, work.sentences(&context.command, &issue.facts)) {
        (CommentAnswer::Status(reason), work) if work.is_empty() => sentence(reason),
        (CommentAnswer::Status(reason), work) => format!("{} {work}", sentence(reason)),
        (CommentAnswer::Refused(reason), _) => {
            format!("This was not carried out: {}", sentence(reason))
        }
    };
    format!("{marker}\n{part}{}\n", page_link(context, None))
}

/// What the status comment says of an issue and of the work in its sandbox. `latest` are its newest
/// timeline entries, newest first.
pub fn status_text(
    context: &MessageContext,
    issue: &Issue,
    work: &WorkShown,
    latest: &[TimelineListRow],
) -> StatusText {
    let is_closed = issue.facts.open.as_ref().is_some_and(|open| !open.value);
    let phase = issue.state.phase();
    let mut part = headline(issue, is_closed);
    let sentences = work.sentences(&context.command, &issue.facts);
    if !sentences.is_empty() {
        // Writing to a text never fails.
        let _ = write!(part, "\n\n{sentences}\n");
    }
    if !work.agent.is_empty() {
        let _ = write!(part, "\n\n{}\n", work.agent);
    }
    for row in latest.iter().take(REASONS_MAX) {
        let entry = &row.entry;
        let _ = write!(part, "\n- {} {}", minute(entry.at), shortened(&plain(&entry.reason)));
    }
    let is_end = phase.is_none() && issue.pending_start.is_none() || issue.merged_into.is_some();
    if !is_end && !context.command.is_empty() {
        let command = &context.command;
        let _ =
            write!(part, "\n\nComment `{command} stop`, `{command} delete` or `{command} status`.");
    }
    let sandbox = issue.state.record().map(|record| record.id.as_str());
    part.push_str(&page_link(context, sandbox));
    let closed = if is_closed { " closed" } else { "" };
    let word = match (phase, &issue.pending_start) {
        (Some(phase), _) => phase.as_str(),
        (None, Some(_)) => "waiting",
        (None, None) => "absent",
    };
    let phase = format!("{} {word}{closed}{}", issue.generation.0, work.phase());
    StatusText { phase, part: bounded(part), is_end, is_closed }
}

/// The first line: what the sandbox does, and since when.
fn headline(issue: &Issue, is_closed: bool) -> String {
    if issue.merged_into.is_some() {
        return "**Stopped**: this issue is handled under its other name.".to_owned();
    }
    let Some(record) = issue.state.record() else {
        return match (&issue.pending_start, is_closed) {
            (Some(pending), _) => {
                format!("**Waiting** for a sandbox since {}.", minute(pending.since))
            }
            (None, true) => "The issue is **closed** and its sandbox is deleted.".to_owned(),
            (None, false) => "**Stopped**: the sandbox is deleted.".to_owned(),
        };
    };
    let since = minute(record.phase_since);
    // What a command printed is for those who may see the sandbox.
    let public = |failure: &Failure| match failure.code {
        FailureCode::HookFailed => failure.message.lines().next().unwrap_or_default().to_owned(),
        FailureCode::ProviderUnavailable
        | FailureCode::ProviderRefused
        | FailureCode::ProviderBroken
        | FailureCode::ProviderExhausted
        | FailureCode::NameTaken
        | FailureCode::ObjectLost
        | FailureCode::ProviderUnknown
        | FailureCode::KilledOutside
        | FailureCode::DuplicateObject
        | FailureCode::DeadlineExceeded => failure.message.clone(),
    };
    let failure = issue.state.failure().map(|failure| plain(&public(failure)));
    match issue.state.phase().unwrap_or(Phase::Deleting) {
        Phase::Creating => format!("**Creating** a sandbox since {since}."),
        Phase::Running => format!("**Running**: the sandbox is up since {since}."),
        Phase::Stopping => format!("**Stopping** the sandbox since {since}."),
        Phase::Stopped if is_closed => {
            let until = issue.delete_due.map_or_else(String::new, |due| {
                format!(" It is deleted after {}, unless the issue is reopened.", minute(due))
            });
            format!("The issue is **closed** and its sandbox stopped.{until}")
        }
        Phase::Stopped => format!("**Stopped** since {since}; its workspace is kept."),
        Phase::Starting => format!("**Starting** the sandbox again since {since}."),
        Phase::Failed => {
            let why = failure.map_or_else(String::new, |why| format!(": {}", shortened(&why)));
            format!("**Failed** at {since}{why}")
        }
        Phase::Deleting if is_closed => {
            format!("The issue is **closed**; deleting the sandbox since {since}.")
        }
        Phase::Deleting => format!("**Stopped**: deleting the sandbox since {since}."),
    }
}

/// A link to the page of a sandbox, if there is one.
fn page_link(context: &MessageContext, sandbox: Option<&str>) -> String {
    match (&context.public_url, sandbox) {
        (Some(url), Some(id)) => format!("\n\n[More on the page]({url}/sandboxes/{id})"),
        (Some(url), None) => format!("\n\n[More on the page]({url}/)"),
        (None, _) => String::new(),
    }
}

/// Words of ours or others as a sentence of its own.
fn sentence(words: &str) -> String {
    let words = shortened(&plain(words));
    let mut chars = words.chars();
    let first = chars.next().map(|first| first.to_uppercase().collect::<String>());
    let end = if words.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{}{}{end}", first.unwrap_or_default(), chars.as_str())
}

/// At most [`REASON_LEN_MAX`] characters of a line.
fn shortened(line: &str) -> String {
    match line.char_indices().nth(REASON_LEN_MAX) {
        None => line.to_owned(),
        // What was cut off may have been half of a code span: no mark is left open.
        Some((end, _)) => format!("{}…", line[..end].replace(['`', '\\', '*', '['], "")),
    }
}

/// A time to the minute, in UTC.
fn minute(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.unix_ms()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => at.to_string(),
    }
}

/// At most [`PART_LEN_MAX`] bytes, cut at a line.
fn bounded(part: String) -> String {
    if part.len() <= PART_LEN_MAX {
        return part;
    }
    let end = part.floor_char_boundary(PART_LEN_MAX - CUT.len() - 1);
    let end = part[..end].rfind('\n').unwrap_or(end);
    format!("{}\n{CUT}", &part[..end])
}

#[cfg(test)]
mod tests;
