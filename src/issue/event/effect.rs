//! What a delivery may do to its issue's sandbox.

use std::borrow::Cow;

use super::{Command, Rules};
use crate::types::Repository;

/// What a delivery may do, by the table of effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryEffect {
    /// Start: a person who may trigger asked for it, in this way.
    Trigger(TriggerKind),
    /// The issue was closed, or its trigger was taken away: stop, for this reason.
    Stop(&'static str),
    /// The issue is deleted on GitHub.
    Delete,
    /// Only what we know changes.
    Update,
    /// A person did something on the issue.
    Activity,
    /// A review, a comment without a command or a failed check is said to the agent. It takes no place
    /// in the order of people's acts.
    FollowUp {
        /// The commit whose check failed.
        failed_commit: Option<String>,
    },
    /// A comment commands the sandbox.
    Command(Command),
    /// A comment asks how the sandbox is.
    Status,
    /// A comment asks to publish the work of the sandbox.
    Publish {
        /// Who wrote it, for people.
        by: String,
    },
    /// Verification found something that people should know: it goes on the timeline.
    Note(String),
}

/// What a trigger was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The issue was opened.
    Opened,
    /// The trigger label was put on.
    Label,
    /// The same if taking it off stops nothing: then it counts also if it was taken off since.
    LabelForGood,
    /// A comment gave the command.
    Command,
    /// An edit brought the command into a comment.
    EditedComment,
    /// An edit brought the command into the issue's text.
    EditedIssue,
    /// The bot was assigned.
    Assigned,
    /// The issue was reopened; counts only if it had a sandbox or carries the label.
    Reopened,
    /// The issue turned out to be one that had been asked for under another name.
    OtherName,
}

impl TriggerKind {
    /// What happened in this repository, for reasons.
    pub fn describe(self, rules: &Rules, repository: Option<&Repository>) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Opened => "the issue was opened",
            Self::Label | Self::LabelForGood => {
                return Cow::Owned(format!("label {} added", rules.trigger_label.of(repository)));
            }
            Self::Command => "a comment gave the command",
            Self::EditedComment => "an edited comment gave the command",
            Self::EditedIssue => "an edit of the issue gave the command",
            Self::Assigned => "the bot was assigned",
            Self::Reopened => "the issue was reopened",
            Self::OtherName => "a sandbox was asked for under the issue's other name",
        })
    }
}
