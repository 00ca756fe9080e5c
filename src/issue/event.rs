//! Everything that can happen to an issue, and the moment in which it happens.

use std::collections::HashMap;
use std::time::Duration;

use crate::types::{
    Alias, Attempt, Cause, DeliveryId, ExternalId, Generation, IssueId, IssueNumber, ObjectState,
    ProviderName, Repository, SandboxId, Template, Timestamp,
};

/// The moment of a step: the time, what is configured, and chance, all from outside.
#[derive(Clone, Debug)]
pub struct Moment<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// What is configured.
    pub rules: &'a Rules,
    /// The id of the sandbox that this step may begin.
    pub fresh_id: SandboxId,
    /// Chance in `0..=1000`, to spread retries.
    pub jitter_permille: u16,
}

/// What is configured of the lifecycle.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Bounds on making.
    pub create: StepRules,
    /// Bounds on bringing up.
    pub start: StepRules,
    /// Bounds on taking down.
    pub stop: StepRules,
    /// Bounds on removing; its tries never run out.
    pub delete: StepRules,
    /// What triggers and callers that name no template get.
    pub default_template: Template,
    /// The providers that are configured.
    pub providers: HashMap<ProviderName, ProviderRules>,
}

/// Bounds on one kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRules {
    /// How often it is tried at most; at least 1.
    pub attempts: u32,
    /// How long one call may take.
    pub timeout: Duration,
}

/// What the lifecycle must know of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderRules {
    /// It refuses a second object of one name, also under concurrent creates.
    pub names_enforced: bool,
    /// How long after a call's deadline its effect may still appear.
    pub settle: Duration,
    /// Its running objects die with this server's process.
    pub dies_with_server: bool,
}

/// Everything that can happen to an issue.
#[derive(Clone, Debug)]
pub enum IssueEvent {
    /// Somebody wants a running sandbox.
    Ensure(EnsureAsk),
    /// Somebody commands a certain sandbox.
    Command(CommandAsk),
    /// GitHub told something.
    Nudge {
        /// What.
        nudge: Nudge,
        /// Names of the issue that belong to no home yet; they become aliases of this one.
        claims: Vec<Alias>,
        /// Whether the issue's repository and number belong to another home; then they are not
        /// taken over.
        place_elsewhere: bool,
    },
    /// Somebody worked in a certain sandbox, or is about to.
    Worked {
        /// Which.
        sandbox: SandboxId,
        /// Start it where it was not a person who stopped it.
        start: bool,
        /// Who.
        cause: Cause,
    },
    /// A provider call ended.
    Answered(Answer),
    /// The state's due time may have come.
    Due {
        /// The attempt that the executor still holds for this home, where it holds one.
        in_flight: Option<Attempt>,
    },
    /// The actor was built from the store.
    Activated {
        /// The attempt that the executor still holds for this home, where it holds one.
        in_flight: Option<Attempt>,
        /// Whether this is the first activation after the server started.
        after_restart: bool,
    },
}

impl IssueEvent {
    /// Names that belong to no home yet and are to become aliases of this one.
    pub fn claims(&self) -> &[Alias] {
        match self {
            Self::Ensure(ask) => &ask.claims,
            Self::Nudge { claims, .. } => claims,
            Self::Command(_)
            | Self::Worked { .. }
            | Self::Answered(_)
            | Self::Due { .. }
            | Self::Activated { .. } => &[],
        }
    }
}

/// A wish for a running sandbox.
#[derive(Clone, Debug)]
pub struct EnsureAsk {
    /// The template asked for; `None` takes what is there, or the default.
    pub template: Option<Template>,
    /// The issue's title, where the caller knows it.
    pub title: Option<String>,
    /// The issue's repository and number, where the caller knows them.
    pub numbered: Option<(Repository, IssueNumber)>,
    /// Names of the issue that belong to no home yet; they become aliases of this one.
    pub claims: Vec<Alias>,
    /// Who asks.
    pub cause: Cause,
}

/// What can be commanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take it down and keep the workspace.
    Stop,
    /// Bring it up.
    Start,
    /// Try again after *failed*.
    Retry,
    /// Remove it.
    Delete,
}

/// A command to one sandbox.
#[derive(Clone, Debug)]
pub struct CommandAsk {
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// What.
    pub command: Command,
    /// Who.
    pub cause: Cause,
}

/// What one GitHub delivery says about one issue, after the policy decided what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nudge {
    /// The delivery's GUID.
    pub delivery: DeliveryId,
    /// When it arrived.
    pub received_at: Timestamp,
    /// GitHub's event, such as `issues`.
    pub event: String,
    /// Its action.
    pub action: String,
    /// What it says of the issue.
    pub news: News,
    /// What it may do.
    pub effect: Effect,
}

/// What a payload says of its issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// GitHub's global id of the issue.
    pub issue_id: IssueId,
    /// Its repository.
    pub repository: Repository,
    /// GitHub's numeric id of the repository.
    pub repository_id: u64,
    /// Its number.
    pub number: IssueNumber,
    /// Its title.
    pub title: String,
    /// Its page, where given.
    pub url: Option<String>,
    /// Whether it is open, where said.
    pub open: Option<bool>,
    /// Whether it carries the trigger label, where said.
    pub labelled: Option<bool>,
    /// Whether the bot is assigned to it, where the delivery is about that.
    pub assigned: Option<bool>,
    /// `issue.updated_at`: how new all of this is.
    pub as_of: Timestamp,
}

/// What a delivery may do, by the table of effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start: somebody who may trigger asked for it; says by what.
    Trigger(TriggerKind),
    /// The issue was closed, or its trigger was taken away: stop, for this reason.
    Stop(&'static str),
    /// The issue is deleted on GitHub.
    Delete,
    /// Only what we know changes.
    Update,
    /// Somebody did something on the issue.
    Activity,
}

/// What a trigger was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The issue was opened.
    Opened,
    /// The trigger label was put on.
    Label,
    /// A comment gave the command.
    Command,
    /// The bot was assigned.
    Assigned,
    /// The issue was reopened; counts only where it had a sandbox or carries the label.
    Reopened,
}

impl TriggerKind {
    /// For reasons: "asked for by …".
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Opened => "the issue was opened",
            Self::Label => "the trigger label was put on",
            Self::Command => "a comment gave the command",
            Self::Assigned => "the bot was assigned",
            Self::Reopened => "the issue was reopened",
        }
    }
}

/// How a provider call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which call; any but the one in flight changes nothing.
    pub attempt: Attempt,
    /// What came of it.
    pub result: Result<Done, Trouble>,
}

/// What a provider call that went well brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// What is there for this home.
    Seen(Vec<Seen>),
    /// It is up.
    Up(Seen),
    /// It is down.
    Down,
    /// The removal was accepted; that it is gone is still to be seen.
    Removing,
}

/// One object as a provider showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The sandbox it carries, where it is one of this home in this installation; `None` for
    /// anybody else's.
    pub owner: Option<(SandboxId, Generation)>,
    /// Its state.
    pub state: ObjectState,
}

/// Why a provider call did not do what was asked; the lifecycle's view of the provider's errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There was no turn for the call before its deadline: the provider was not asked at all.
    NotAsked,
    /// The provider has no such object.
    Absent,
    /// Another object is there.
    Present(Seen),
    /// A definite no; nothing was done.
    Refused(String),
    /// What happened is unknown.
    Unavailable {
        /// What went wrong.
        message: String,
        /// How long the provider asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// It tried and failed; something may be left.
    Broken(String),
    /// The configuration has no provider of that name.
    Unknown(ProviderName),
}
