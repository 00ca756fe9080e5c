//! What callers ask of the engine and what it answers: plain data.

use std::sync::Arc;

use super::busy::AtWork;
use crate::conversation::{Run, RunOrder, RunRefusal, SaidMessage};
use crate::issue::commit::CommandRefusal;
use crate::issue::step::around;
use crate::issue::{Denial, InstructionExcerpt, Issue};
use crate::sandbox::Target;
use crate::store::{CommitError, DeliveryRow, StoreError};
use crate::types::{
    AccountName, Cause, HomeId, IssueId, IssueNumber, Mode, Outcome, Phase, ProviderName,
    Repository, Sandbox, SandboxId, SandboxMeta, TemplateName, TimelineEntry, Timestamp, Workload,
};

/// Which issue a caller means: by id, by repository and number, or by both, which then must not
/// contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueKey {
    /// By id.
    pub id: Option<IssueId>,
    /// By repository and number.
    pub numbered: Option<(Repository, IssueNumber)>,
}

/// A call to *ensure*.
#[derive(Clone, Debug)]
pub struct EnsureIssue {
    /// Which issue.
    pub issue: IssueKey,
    /// The template asked for; `None` takes what is there, or the default.
    pub template: Option<TemplateName>,
    /// The provider asked for: its default template is meant if no template is named.
    pub provider: Option<ProviderName>,
    /// The caller's name for who works in it.
    pub agent_id: Option<Arc<str>>,
    /// What the caller notes with it.
    pub meta: SandboxMeta,
    /// How to record a create, if one is needed; `None` takes the template's.
    pub mode: Option<Mode>,
    /// The issue's title, if the caller knows it.
    pub title: Option<String>,
    /// Whether a failed sandbox is to be retried.
    pub retry: bool,
    /// Who asks.
    pub cause: Cause,
}

/// The answer to *ensure*; durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// Why it is as it is, in a word.
    pub outcome: Outcome,
    /// The same in words.
    pub reason: String,
    /// Which parts of what was asked differ from what is there: `template` or `provider`, `agentId`.
    pub mismatch: Vec<&'static str>,
    /// The issue's one sandbox.
    pub sandbox: Sandbox,
}

/// Which sandbox a caller means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxRef {
    /// By id.
    Id(SandboxId),
    /// By its name, `claude-issue-{issueId}`: the newest generation.
    Name(String),
}

/// The answer to a command; durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commanded {
    /// The sandbox after the command.
    pub sandbox: Sandbox,
    /// Whether it was deleted and absent already.
    pub absent: bool,
}

/// The answer to a delivery; durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// What became of it.
    pub status: DeliveredStatus,
    /// The issue it concerns, if it concerns one.
    pub issue_id: Option<IssueId>,
    /// What came of it, in words.
    pub reason: String,
}

impl Delivered {
    /// The answer to a delivery that was processed before.
    pub(super) fn duplicate(issue_id: Option<IssueId>, row: &DeliveryRow) -> Self {
        let reason = format!("this delivery was processed before: {}", row.reason);
        Self { status: DeliveredStatus::Duplicate, issue_id, reason }
    }
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveredStatus {
    /// It is applied, be it only to what is known.
    Accepted,
    /// It was processed before.
    Duplicate,
    /// It has no effect.
    Ignored,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// It is in this phase, or can no longer come there by itself (*failed*, or gone).
    Phase(Phase),
    /// Nothing is under way: running, stopped, failed or absent.
    Settled,
    /// This very sandbox is gone.
    Absent,
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Whether what was waited for came, before the time was up.
    pub settled: bool,
    /// The sandbox as it was last seen; the deleted one if it is gone.
    pub sandbox: Option<Sandbox>,
}

/// A running sandbox to work in (exec, files).
#[derive(Clone)]
pub struct Work {
    /// On which object.
    pub target: Target,
    /// The sandbox as it was when it was found running.
    pub sandbox: Sandbox,
    /// Kept for as long as the work goes on: the sandbox is not idle meanwhile.
    pub at_work: Arc<AtWork>,
}

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The configuration has no template of that name.
    #[error("there is no template {name}; the configuration has {}", listed(known))]
    TemplateUnknown {
        /// What was asked for.
        name: TemplateName,
        /// Those that there are, in alphabetical order.
        known: Vec<TemplateName>,
    },
    /// No template of the configuration has that provider.
    #[error("no template has the provider {name}; the configuration has {}", listed(known))]
    NoTemplateOf {
        /// What was asked for.
        name: ProviderName,
        /// The providers that templates have, in alphabetical order.
        known: Vec<ProviderName>,
    },
    /// A template and a provider were named that do not belong together.
    #[error("the template {template} has the provider {provider}; leave one of the two out")]
    OtherProvider {
        /// The template that was named.
        template: TemplateName,
        /// Its provider.
        provider: ProviderName,
    },
    /// The issue is not known by repository and number, and no issue id was given.
    #[error("the issue {0}#{1} is not known yet")]
    IssueUnknown(Repository, IssueNumber),
    /// The issue id and the repository and number belong to different issues.
    #[error("the issue id and the repository and number belong to different issues")]
    IssueIdConflict,
    /// The object to be adopted carries an issue that has another home since.
    #[error(
        "cannot adopt the object: the issue {0} is recorded under another home now; remove the object \
         instead"
    )]
    IssueElsewhere(IssueId),
    /// There is no such sandbox in this account.
    #[error("there is no such sandbox")]
    SandboxNotFound,
    /// The sandbox's phase does not allow it.
    #[error("{0}")]
    Refused(CommandRefusal),
    /// A hold or a quota forbids it now; nothing was changed.
    #[error("{}", .0.reason)]
    Denied(Denial),
    /// Work needs a running sandbox, and it did not come up in the time given.
    #[error("the sandbox is not running")]
    NotRunning(Box<Sandbox>),
    /// Its provider is no longer configured.
    #[error("the sandbox's provider is not configured")]
    ProviderUnknown,
    /// The provider could not be asked; the text is for the log.
    #[error("the provider {0} could not be asked: {1}")]
    ProviderFailed(ProviderName, String),
    /// A call to the provider is under way for this issue; nothing was stored. Come back in a
    /// second.
    #[error("a call to the provider {0} is under way for this issue; retry in a second")]
    ProviderBusy(ProviderName),
    /// The record of a create in fast mode was refused, and its object is not destroyed yet. The issue
    /// is one with another by this delivery, which was not stored. Come back in a second.
    #[error("a create of this issue is being undone; retry in a second")]
    CreateBeingUndone,
    /// A queue is full; nothing was stored. Come back in a second.
    #[error("the server is overloaded; retry in a second")]
    Overloaded,
    /// The store failed or is shutting down; nothing was stored. The text is for the log.
    #[error("the store failed: {0}")]
    StoreFailed(String),
    /// The issue's actor ended again and again during the call, as it does when its writes fail.
    #[error("the issue's actor ended again and again during the call")]
    ActorEnded,
    /// In fast mode: the record could not be written in time, and its object was destroyed. If
    /// the record is written after all, that was its first try, and the next one follows.
    #[error(
        "the create failed: its record could not be written within 30 s, and what was made for it \
         was deleted"
    )]
    RecordTooSlow,
    /// A message or what was asked of a run was refused; nothing was changed.
    #[error(transparent)]
    RunRefused(#[from] RunRefusal),
    /// The server is shutting down; nothing was stored.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Names with commas between them.
fn listed(names: &[impl ToString]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        Self::StoreFailed(error.to_string())
    }
}

/// Of a write whose other failures are not the caller's concern.
impl From<CommitError> for EngineError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Overloaded => Self::Overloaded,
            CommitError::DuplicateDelivery
            | CommitError::AliasTaken
            | CommitError::Fenced
            | CommitError::Damaged { .. }
            | CommitError::Failed(_) => Self::StoreFailed(error.to_string()),
        }
    }
}

/// Takes what became durable, in commit order for each home.
pub trait Publisher: Send + Sync + 'static {
    /// Takes one change. Must not block: it runs on the engine's thread.
    fn publish(&self, change: Arc<Change>);
}

/// One durable step of one home, as everyone outside sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which home.
    pub home: HomeId,
    /// Its account.
    pub account: AccountName,
    /// How many commits led here: an older one never overwrites a newer.
    pub version: u64,
    /// Every issue id that became an alias of it in this step.
    pub aliases: Vec<IssueId>,
    /// Whether the issue is deleted on GitHub.
    pub is_deleted: bool,
    /// The home that all of its names belong to now, if it was merged into that one.
    pub names_go_to: Option<HomeId>,
    /// The time of the news about its repository and number: if two homes are shown under the same
    /// number, it is the later one's.
    pub placed_as_of: Option<Timestamp>,
    /// The live sandbox after the step; `None` if there is none.
    pub sandbox: Option<Arc<Sandbox>>,
    /// The sandbox that was confirmed absent in this step.
    pub ended: Option<Arc<Sandbox>>,
    /// What its template says runs in the sandbox, if it came up in this step.
    pub came_up: Option<Arc<Workload>>,
    /// What happened.
    pub timeline: Vec<TimelineEntry>,
    /// The words for the agent that the delivery brought which led here.
    pub instruction: Option<InstructionExcerpt>,
    /// What was said to the agent in this step.
    pub messages: Vec<SaidMessage>,
    /// The runs that changed in this step.
    pub runs: Vec<Run>,
    /// What is to be done for a run.
    pub order: Option<RunOrder>,
}

impl Change {
    /// The sandbox that an entry of its timeline is about.
    pub fn sandbox_of(&self, entry: &TimelineEntry) -> Option<&Sandbox> {
        let of_entry = |sandbox: &&Arc<Sandbox>| sandbox.generation == entry.generation;
        let ended = self.ended.as_ref().filter(of_entry);
        ended.or_else(|| self.sandbox.as_ref().filter(of_entry)).map(Arc::as_ref)
    }

    /// An issue as the store has it, with no change.
    pub(super) fn as_it_is(issue: &Issue) -> Self {
        Self {
            home: issue.home,
            account: issue.account.clone(),
            version: issue.version,
            aliases: vec![issue.facts.issue_id.clone()],
            is_deleted: issue.facts.deleted,
            names_go_to: issue.merged_into,
            placed_as_of: issue.facts.named_as_of(),
            sandbox: issue.sandbox().map(Arc::new),
            ended: None,
            came_up: None,
            timeline: Vec::new(),
            instruction: None,
            messages: Vec::new(),
            runs: Vec::new(),
            order: order(issue),
        }
    }
}

#[cfg(test)]
impl Change {
    /// A change of a home of the default account in which nothing happened.
    pub(crate) fn bare(home: HomeId, version: u64) -> Self {
        Self {
            home,
            account: AccountName::default_account(),
            version,
            aliases: Vec::new(),
            is_deleted: false,
            names_go_to: None,
            placed_as_of: None,
            sandbox: None,
            ended: None,
            came_up: None,
            timeline: Vec::new(),
            instruction: None,
            messages: Vec::new(),
            runs: Vec::new(),
            order: None,
        }
    }
}

/// What is to be done for a run of an issue.
pub(super) fn order(issue: &Issue) -> Option<RunOrder> {
    let conversation = issue.conversation.as_ref()?;
    conversation.order(&around(issue, &issue.state.record()?.template))
}
