//! The result of a step, as data. Nothing of it leaves the actor before it is durable.

use std::time::Duration;

use crate::types::{
    AccountName, Alias, Attempt, ExternalId, HomeId, IssueId, Outcome, ProviderName, Sandbox,
    TimelineEntry, Timestamp,
};

use super::effect::Effect;
use super::event::{Command, Denial};
use super::instruction::Instruction;
use super::state::{Issue, Record, Verb};
use crate::conversation::{ConversationRows, RunReply};

/// What one step leads to.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The state after the step.
    pub issue: Issue,
    /// Whether the state differs from before in anything that must be durable, or the timeline has a
    /// new entry. If not, only the delivery and the effects are stored.
    pub changed: bool,
    /// Names that from now on belong to the home.
    pub aliases: Vec<Alias>,
    /// The sandbox that was confirmed absent in this step.
    pub ended: Option<Sandbox>,
    /// New entries of the timeline.
    pub timeline: Vec<TimelineEntry>,
    /// The words for the agent that the delivery brought, when it was applied.
    pub instruction: Option<Instruction>,
    /// What was said to the agent, and the runs that changed.
    pub said: ConversationRows,
    /// What to answer.
    pub reply: Reply,
    /// The provider call to make.
    pub call: Option<ProviderCall>,
    /// Whether that call may leave before the commit is durable: a create in fast mode.
    pub is_fast_create: bool,
    /// What is to be done outside of the issue's state. It is recorded in the same transaction.
    pub effects: Vec<Effect>,
    /// Whether the issue's conversation was unlocked: what was held because of that may be said.
    pub is_unlocked: bool,
    /// Names that from now on belong to the home although another one had them.
    pub taken_over: Vec<Alias>,
    /// The home that all names of this one belong to from now on.
    pub names_go_to: Option<HomeId>,
}

/// What to answer the sender of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No caller waits.
    Nothing,
    /// To *ensure*.
    Ensured {
        /// Why it is as it is, in a word.
        outcome: Outcome,
        /// The same in words.
        reason: String,
        /// Which parts of what was asked differ from what is there.
        mismatch: Vec<&'static str>,
    },
    /// To *ensure* that names another repository and number than the issue is known to have;
    /// nothing was changed.
    OtherPlace,
    /// To a command or work that was accepted.
    Accepted,
    /// To a delete of what is absent already.
    AlreadyAbsent,
    /// To a command or work that the state forbids.
    Refused(CommandRefusal),
    /// To *ensure*, a command or work that a hold or a quota forbids; nothing was changed.
    Denied(Denial),
    /// To a home that gave way to another one of the same issue.
    Merged {
        /// Whether a running sandbox was wanted there, also by a pending start.
        wanted: bool,
    },
    /// To a delivery.
    Delivered(DeliveryResult),
    /// To a message, or to what was asked of a run.
    Run(RunReply),
}

/// Why a command is not possible now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// The sandbox is deleted.
    #[error("the sandbox is deleted")]
    SandboxDeleted,
    /// The sandbox is being deleted.
    #[error("the sandbox is being deleted")]
    Deleting,
    /// Only a failed sandbox can be retried.
    #[error("only a failed sandbox can be retried")]
    NotFailed(Command),
    /// A person stopped it; work does not start it again by itself.
    #[error("the sandbox was stopped by a person")]
    StoppedByPerson,
    /// What a caller notes with it has not the form for that.
    #[error("meta {0}")]
    BadMeta(String),
    /// The object to be adopted or removed has changed since it was listed.
    #[error("this drift item has changed since it was listed")]
    ObservationOutdated,
}

/// What came of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryResult {
    /// Whether it had an effect, be it only on what is known.
    pub applied: bool,
    /// What came of it, in words.
    pub reason: String,
}

/// One call to a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderCall {
    /// Which provider.
    pub provider: ProviderName,
    /// Its number, which the answer must name.
    pub attempt: Attempt,
    /// What is asked.
    pub verb: Verb,
    /// The account of the issue.
    pub account: AccountName,
    /// The issue's first id.
    pub issue: IssueId,
    /// The sandbox it is for.
    pub record: Record,
    /// Its object, if known.
    pub external_id: Option<ExternalId>,
    /// Without grace: the last try of a stop kills at once.
    pub force: bool,
    /// When the provider gives up.
    pub deadline: Timestamp,
    /// How long that is after the step that ordered the call: the clock may be set back before it is made.
    pub lasts_max: Duration,
    /// What is done in the sandbox before a stop or a delete; `None` for nothing.
    pub before: Option<Farewell>,
}

impl ProviderCall {
    /// If the clock was set back since the step, the provider must not go on for longer than a server that
    /// starts meanwhile believes.
    pub fn bound_by(&mut self, now: Timestamp) {
        self.deadline = self.deadline.min(now.after(self.lasts_max));
    }
}

/// What is done in a running sandbox before it is stopped or deleted, as its template says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// How long the call waits for that.
    pub grace: Duration,
    /// Whether the hook `on_terminate` runs.
    pub has_hook: bool,
    /// Whether the workspace is pushed after that.
    pub pushes: bool,
}
