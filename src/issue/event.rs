//! Everything that can happen to an issue, and the context of a step.

mod cold_start;
mod effect;
mod meta;
mod rules;

use std::sync::Arc;
use std::time::Duration;

use super::instruction::Instruction;
use super::state::{Facts, SandboxPlan};
use crate::conversation::{FreshIds, RunEvent, SaidWords};
use crate::types::{
    AccountName, Alias, Attempt, Cause, DeliveryId, ExternalId, Generation, HomeId, IssueId,
    IssueNumber, MessageId, MetaChange, Mode, ObjectName, ObjectState, Phase, ProviderName,
    Repository, SandboxId, SandboxMeta, Template, Timestamp,
};

pub use cold_start::ColdStartEnd;
pub use effect::{DeliveryEffect, TriggerKind};
pub use meta::EventMeta;
pub use rules::{GithubRules, ProviderRules, Rules, StepRules};

/// What a step is given beside state and event: the time, the configuration and chance.
#[derive(Clone, Debug)]
pub struct StepContext<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// What is configured.
    pub rules: &'a Rules,
    /// The id of the sandbox that this step may begin.
    pub fresh_id: SandboxId,
    /// Ids for what is said in this step.
    pub fresh: FreshIds,
    /// Chance in `0..=1000`, to spread retries.
    pub jitter_permille: u16,
    /// The wall clock in nanoseconds since 1970: what the id of a sandbox in fast mode is made of.
    pub unix_ns: i64,
    /// Whether everything before this step is durable, so that the home's last generation is known
    /// for certain and a create in fast mode may be asked for before its own record is written.
    pub may_fast_create: bool,
    /// Why no sandbox may be created or started here now; `None` if it may.
    pub denial: Option<Denial>,
}

/// Why no sandbox may be created or started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Of which kind.
    pub kind: DenialKind,
    /// The reason and who can lift it, in words.
    pub reason: String,
}

/// The kinds of [`Denial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialKind {
    /// A person put a hold on the server, the account, the repository or the issue.
    Held,
    /// There are as many live sandboxes as are allowed.
    Quota,
    /// The provider has no room for more now.
    NoRoom,
}

/// Everything that can happen to an issue.
#[derive(Clone, Debug)]
pub enum IssueEvent {
    /// A caller wants a running sandbox.
    Ensure(EnsureAsk),
    /// A caller commands a certain sandbox.
    Command(CommandAsk),
    /// A delivery about the issue.
    Delivery {
        /// What.
        issue_delivery: IssueDelivery,
        /// Names of the issue that belong to no home yet; they become aliases of this one.
        claims: Vec<Alias>,
        /// Names that another home has, which was in a repository of the same name before; they
        /// become aliases of this one.
        takes: Vec<Alias>,
        /// Whether the issue's repository and number belong to another home; then they are not
        /// taken over.
        place_elsewhere: bool,
    },
    /// A delivery about the issue's repository or App installation.
    ScopeEvent {
        /// What, as far as one issue is concerned.
        news: ScopeEvent,
        /// The delivery that brought it.
        delivery: DeliveryId,
    },
    /// This home is the same issue as another one that gives way to it: what that one knows.
    Learned {
        /// The other home.
        from: HomeId,
        /// Its facts.
        facts: Box<Facts>,
        /// Set if a running sandbox was asked for in the other home: when GitHub said that both are
        /// one issue. It is then asked for here.
        asked_for: Option<Timestamp>,
        /// Who found it out.
        cause: Cause,
    },
    /// This home is the same issue as another, which has the older sandbox: its names go there,
    /// its sandbox is deleted.
    Merged {
        /// The home that stays.
        into: HomeId,
        /// Who found it out.
        cause: Cause,
    },
    /// A caller works in a certain sandbox, or is about to.
    Worked {
        /// Which.
        sandbox: SandboxId,
        /// Start it if it was not a person who stopped it.
        start: bool,
        /// Who.
        cause: Cause,
    },
    /// A caller changes what is noted with a certain sandbox.
    SetMeta {
        /// Which.
        sandbox: SandboxId,
        /// How.
        change: MetaChange,
        /// Who.
        cause: Cause,
    },
    /// A limit struck in a certain sandbox.
    LimitStruck {
        /// Which.
        sandbox: SandboxId,
        /// Which limit, for people.
        reason: String,
        /// Whether the provider ended it for that, whatever its template says.
        ended: bool,
    },
    /// Something happened in a certain sandbox that the timeline should show: a step of a hook ended.
    Noted {
        /// Which.
        sandbox: SandboxId,
        /// What, for people.
        what: String,
        /// Who.
        cause: Cause,
    },
    /// A provider call ended.
    Answered(CallAnswer),
    /// The state's due time may have come.
    Due {
        /// The attempt that the executor still holds for this home, if it holds one.
        in_flight: Option<Attempt>,
        /// Whether a command runs in the sandbox now: it is active, however silent.
        busy: bool,
    },
    /// What a sweep saw of this home at its provider.
    Observed(Observation),
    /// A person decided that an object which no record knows is this home's sandbox.
    Adopt(AdoptAsk),
    /// A person decided that an object, or a record whose object is lost, is to be removed.
    Discard {
        /// At which provider.
        provider: ProviderName,
        /// The object, if there is one.
        object: Option<ObservedObject>,
        /// The sandbox whose object is lost, if that is meant.
        lost: Option<SandboxId>,
        /// Who.
        cause: Cause,
    },
    /// A caller says something to the agent.
    Say(SayIssue),
    /// The worker of runs reports something of a run, or people ask something of it.
    Run(RunEvent),
    /// A hold was released or capacity is free: the pending start may be granted.
    Granted,
    /// A provider that could not be reached can be reached again.
    ProviderBack(ProviderName),
    /// The actor was built from the store.
    Activated {
        /// The attempt that the executor still holds for this home, if it holds one.
        in_flight: Option<Attempt>,
        /// Whether this is the first activation after the server started.
        after_restart: bool,
    },
}

/// What a sandbox is to be, if one has to be created. What is `None` was not said.
#[derive(Clone, Debug, Default)]
pub struct SandboxAsk {
    /// The template; by default the default template.
    pub template: Option<Template>,
    /// How to record the create; by default as the template says.
    pub mode: Option<Mode>,
    /// The caller's name for who works in it.
    pub agent_id: Option<Arc<str>>,
    /// What the caller notes with it.
    pub meta: SandboxMeta,
    /// Whether the caller named only the provider of the template.
    pub by_provider: bool,
}

impl From<SandboxPlan> for SandboxAsk {
    fn from(plan: SandboxPlan) -> Self {
        let SandboxPlan { template, agent_id, meta } = plan;
        Self { template: Some(template), agent_id, meta, ..Self::default() }
    }
}

/// A request for a running sandbox.
#[derive(Clone, Debug)]
pub struct EnsureAsk {
    /// What it is to be.
    pub sandbox: SandboxAsk,
    /// The issue's title, if the caller knows it.
    pub title: Option<String>,
    /// The issue's repository and number, if the caller knows them.
    pub numbered: Option<(Repository, IssueNumber)>,
    /// Names of the issue that belong to no home yet; they become aliases of this one.
    pub claims: Vec<Alias>,
    /// Whether a failed sandbox is to be retried.
    pub retry: bool,
    /// Who asks.
    pub cause: Cause,
}

/// Something that a caller says to the agent.
#[derive(Clone, Debug)]
pub struct SayIssue {
    /// Its id, which it keeps if it is said again because the first try had no answer.
    pub id: MessageId,
    /// What.
    pub words: SaidWords,
    /// The issue's repository and number, if the caller knows them.
    pub numbered: Option<(Repository, IssueNumber)>,
    /// Names of the issue that belong to no home yet; they become aliases of this one.
    pub claims: Vec<Alias>,
    /// Who.
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
    /// Delete the record although the provider has not confirmed that the object is gone.
    ForceDelete,
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
pub struct IssueDelivery {
    /// The delivery's GUID.
    pub delivery: DeliveryId,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Whether the server read it from GitHub because it had not arrived.
    pub recovered: bool,
    /// GitHub's event, such as `issues`.
    pub event: String,
    /// Its action.
    pub action: String,
    /// What it says of the issue.
    pub news: News,
    /// When what it is about happened: a comment was written, or `issue.updated_at`.
    pub acted_at: Timestamp,
    /// The other side of a transfer: a name that the same issue had before.
    pub formerly: Option<IssueName>,
    /// The comment that it is about, if it gives a command: it counts once.
    pub comment: Option<u64>,
    /// GitHub's numeric id of the App installation that sent it, if one did.
    pub installation: Option<u64>,
    /// What it may do.
    pub effect: DeliveryEffect,
    /// The words for the agent, when it is a trigger.
    pub instruction: Option<Instruction>,
}

/// What an issue is called on GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueName {
    /// GitHub's global id of it.
    pub issue_id: IssueId,
    /// Its repository.
    pub repository: Repository,
    /// GitHub's numeric id of the repository.
    pub repository_id: u64,
    /// Its number there.
    pub number: IssueNumber,
}

/// A delivery about a repository or an installation, to be applied to each issue of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOut {
    /// The delivery's GUID.
    pub delivery: DeliveryId,
    /// The account that the delivery belongs to; the issues of its scope may belong to others.
    pub account: AccountName,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Whether the server read it from GitHub because it had not arrived.
    pub recovered: bool,
    /// GitHub's event, such as `repository`.
    pub event: String,
    /// Its action.
    pub action: String,
    /// Which issues it concerns.
    pub scope: Scope,
    /// What it means for each of them.
    pub news: ScopeEvent,
}

/// The issues that something concerns. Keys are numeric ids, never names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of these repositories.
    Repositories(Vec<u64>),
    /// Those that this App installation sent deliveries about.
    Installation(u64),
}

/// What news of a repository or an installation mean for one issue of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeEvent {
    /// The repository has a new name or owner.
    Renamed {
        /// What it is called now.
        repository: Repository,
        /// What it was called before, if that was said.
        formerly: Option<Repository>,
        /// As of when: `repository.updated_at`, or when the delivery arrived.
        as_of: Timestamp,
    },
    /// Its sandbox is stopped, for this reason.
    Stop(String),
    /// The trigger label has another name now: no issue carries it any more.
    LabelGone,
    /// Nothing changes for an issue; what it was, in words.
    Noted(String),
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
    /// Its page, if given.
    pub url: Option<String>,
    /// Whether it is open, if said.
    pub open: Option<bool>,
    /// Whether it carries the trigger label, if said.
    pub labelled: Option<bool>,
    /// Whether the bot is assigned to it, if the delivery is about that.
    pub assigned: Option<bool>,
    /// `issue.updated_at`: how new all of this is.
    pub as_of: Timestamp,
}

/// How a provider call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// Which sandbox was asked about: attempts count within one, and a late answer about one whose
    /// record was given up must not meet its successor's.
    pub sandbox: SandboxId,
    /// Which call; any but the one in flight changes nothing.
    pub attempt: Attempt,
    /// What came of it.
    pub result: Result<Done, CallError>,
}

/// What a provider call that went well brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// What is there for this home.
    Found(Vec<ObservedObject>),
    /// It is up.
    Up(ObservedObject),
    /// It is down.
    Down,
    /// The removal was accepted; that it is gone is still to be seen.
    Removing,
    /// The cold start ended.
    ColdStarted(ColdStartEnd),
}

/// One object as a provider showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The sandbox in its labels, if it is one of this home in this installation; else `None`.
    pub owner: Option<Owner>,
    /// Its state.
    pub state: ObjectState,
}

/// The sandbox that an object carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub sandbox: SandboxId,
    /// Its generation.
    pub generation: Generation,
    /// How its create was recorded.
    pub mode: Mode,
}

/// What a sweep saw of one home at a provider.
///
/// A sweep reads the home's state first and looks at the provider after that. Where the state is
/// still the same one when the sight arrives (no call was asked in between: same generation, same
/// attempt, same phase), what was seen is newer than every call, and may decide. Comparing times
/// instead would trust the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The provider that was looked at.
    pub provider: ProviderName,
    /// The home's last generation when the sweep began.
    pub generation: Generation,
    /// The number of the live sandbox's latest call then; 0 if there was none.
    pub attempt: Attempt,
    /// Its phase then.
    pub phase: Option<Phase>,
    /// Whether a provider's event led to the look, not a sweep.
    pub by_event: bool,
    /// When the look was asked for: what takes effect after that need not be in it.
    pub asked_at: Timestamp,
    /// Every object of this home, as a look after the listing showed them.
    pub objects: Vec<ListedObject>,
}

/// One object of a [`Observation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// What it is.
    pub seen: ObservedObject,
    /// Whether the store has its sandbox among the deleted ones.
    pub known_deleted: bool,
    /// When a sweep first saw it without a record.
    pub first_seen_at: Timestamp,
}

/// How long an object of fast mode may be without a record, counted from when a sweep first saw it.
pub const FAST_ORPHAN_MAX: Duration = Duration::from_secs(60);

/// How long an object that no record ever knew is kept, stopped, for a person to decide about.
pub const QUARANTINE: Duration = Duration::from_secs(24 * 3600);

/// An object that a person wants to be the sandbox of its home.
#[derive(Clone, Debug)]
pub struct AdoptAsk {
    /// What it is; its owner is of this home.
    pub object: ObservedObject,
    /// Its name at the provider.
    pub name: ObjectName,
    /// What it counts as made from.
    pub template: Template,
    /// Names of the issue that belong to no home yet; they become aliases of this one.
    pub claims: Vec<Alias>,
    /// Who.
    pub cause: Cause,
}

/// Why a provider call did not do what was asked; the lifecycle's view of the provider's errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The provider was not asked at all; no try is spent.
    NotAsked(NotAsked),
    /// The provider has no such object.
    Absent,
    /// Another object is there.
    Present(ObservedObject),
    /// A definite no; nothing was done.
    Refused(String),
    /// What happened is unknown.
    Unavailable {
        /// What went wrong.
        message: String,
        /// How long the provider asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// It has no room and did nothing; no try is spent.
    Exhausted {
        /// What is used up, and how to make room.
        what: String,
        /// How long the provider asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// It tried and failed; something may be left.
    Broken(String),
    /// The configuration has no provider of that name.
    Unknown(ProviderName),
}

/// Why a provider was not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// There was no turn for the call before its deadline.
    NoTurn,
    /// The provider is known to be unreachable.
    Unreachable {
        /// What is wrong and when it is tried next, for people.
        message: String,
        /// How long until then.
        next_try: Duration,
    },
}
