//! What is durable about one home: the facts known of its issue, and the state of its sandbox.
//! One variant per phase, each holding exactly what is valid then.

use std::sync::Arc;
use std::time::Duration;

pub use super::facts::{Dated, Facts};
use crate::conversation::Conversation;
use crate::sabotage::{Bug, on};
use crate::types::{
    AccountName, Attempt, ExternalId, Failure, Generation, HomeId, IssueId, Mode, ObjectName,
    Phase, ProviderStep, Sandbox, SandboxId, SandboxMeta, Template, TemplateVersion, Timestamp,
    Wanted,
};

/// How long after a call's deadline its answer is still waited for. The executor answers at the
/// deadline; this leaves time for the answer to travel.
pub const ANSWER_GRACE: Duration = Duration::from_secs(10);

/// Everything durable about one home.
#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Its identity.
    pub home: HomeId,
    /// The account it belongs to.
    pub account: AccountName,
    /// How many commits led here. The store refuses a commit that does not follow directly.
    pub version: u64,
    /// What is known of the GitHub issue.
    pub facts: Facts,
    /// The last generation given; 0 before the first.
    pub generation: Generation,
    /// A running sandbox that was asked for while a hold or a quota forbade it; granted once
    /// neither does.
    pub pending_start: Option<PendingStart>,
    /// When the sandbox is deleted because the issue was closed, unless it is reopened before.
    pub delete_due: Option<Timestamp>,
    /// When something of the sandbox's life over time is due: idle stop, time to live, delete
    /// after close. Set by each step, from what is configured then.
    pub life_due: Option<Timestamp>,
    /// Until when a create of a generation that was given up by force may still land.
    pub may_land_until: Option<Timestamp>,
    /// The home that this issue turned out to be the same issue as. Its names belong to that one
    /// now, and nothing is made here any more.
    pub merged_into: Option<HomeId>,
    /// What was said to the agent, and its runs; `None` before anything was.
    pub conversation: Option<Box<Conversation>>,
    /// The state of its sandbox.
    pub state: IssueState,
}

impl Issue {
    /// A home that has just been seen for the first time. Its version 0 is not stored yet.
    pub fn new(home: HomeId, account: AccountName, issue_id: IssueId) -> Self {
        Self {
            home,
            account,
            version: 0,
            facts: Facts::new(issue_id),
            generation: Generation::default(),
            pending_start: None,
            delete_due: None,
            life_due: None,
            may_land_until: None,
            merged_into: None,
            conversation: None,
            state: IssueState::Absent,
        }
    }

    /// Whether a running sandbox is wanted, also by a pending start.
    pub fn is_asked_for(&self) -> bool {
        self.pending_start.is_some() || self.state.wanted() == Wanted::Running
    }

    /// When something is to be done without anybody asking.
    pub fn due_at(&self) -> Option<Timestamp> {
        let run_due = self.conversation.as_ref().and_then(|one| one.due_at());
        [self.state.due_at(), self.life_due, run_due].into_iter().flatten().min()
    }

    /// The live sandbox as everyone outside sees it; `None` if there is none.
    pub fn sandbox(&self) -> Option<Sandbox> {
        let record = self.state.record()?;
        Some(Sandbox {
            id: record.id.clone(),
            home: self.home,
            account: self.account.clone(),
            name: record.name.clone(),
            issue_id: self.facts.issue_id.clone(),
            repository: self.facts.repository.clone(),
            issue_number: self.facts.number,
            issue_title: self.facts.title.as_ref().map(|known| known.value.clone()),
            issue_url: self.facts.url.clone(),
            provider: record.template.provider.clone(),
            external_id: self.state.external_id().cloned(),
            template: record.template.name.clone(),
            template_version: Some(record.template_version),
            agent_id: record.agent_id.clone(),
            meta: record.meta.clone(),
            network: record.template.network.kind(),
            ports: record.template.ports.clone(),
            mode: record.mode,
            phase: self.state.phase(),
            wanted: self.state.wanted(),
            generation: record.generation,
            attempt: record.attempt,
            failure: self.state.failure().cloned(),
            reason: record.reason.clone(),
            created_at: record.created_at,
            phase_since: record.phase_since,
            last_activity_at: record.last_activity_at,
            agent: self.conversation.as_ref().and_then(|one| one.standing()).map(Box::new),
            deleted_at: None,
        })
    }
}

/// A start request that waits until nothing forbids it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingStart {
    /// Since when; the longest waiting is granted first.
    pub since: Timestamp,
    /// Who or what asked for it, in words.
    pub why: String,
    /// What to make, if that was said; else the default.
    pub plan: Option<SandboxPlan>,
}

/// What a sandbox that does not exist yet is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxPlan {
    /// What it is made from.
    pub template: Template,
    /// The caller's name for who works in it.
    pub agent_id: Option<Arc<str>>,
    /// What the caller noted with it.
    pub meta: SandboxMeta,
}

/// What a sandbox is in every phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its id.
    pub id: SandboxId,
    /// Its name for people.
    pub name: String,
    /// Its object's name at the provider; stored, never computed again.
    pub object_name: ObjectName,
    /// Which sandbox of its home.
    pub generation: Generation,
    /// What it was made from, as the configuration said then.
    pub template: Template,
    /// The version of that template.
    pub template_version: TemplateVersion,
    /// The name that the caller who had it made gave to who works in it.
    pub agent_id: Option<Arc<str>>,
    /// What callers noted with it.
    pub meta: SandboxMeta,
    /// How its create was recorded.
    pub mode: Mode,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// Since when it has been in its phase.
    pub phase_since: Timestamp,
    /// When it was last asked for, worked in or nudged.
    pub last_activity_at: Timestamp,
    /// Why it is in its phase.
    pub reason: String,
    /// The number of its latest provider call.
    pub attempt: Attempt,
    /// Until when a create whose outcome is unknown may still come into effect; `None` if
    /// there was none. The one in flight is not counted, see [`Step::Asked`].
    pub may_land_until: Option<Timestamp>,
    /// Until when a stop whose outcome is unknown may still take effect: one that was asked
    /// before the sandbox was started again. Kept until the object is found up, or started, by a call
    /// made after that time.
    pub stop_may_land_until: Option<Timestamp>,
    /// By when a transitional phase must be left; `None` in the others, and while *deleting*,
    /// which goes on until it is done.
    pub deadline: Option<Timestamp>,
    /// The nanoseconds since 1970 that went into the id, if it was recorded in fast mode.
    pub made_at_ns: Option<i64>,
    /// The retries of a failure that an outage caused; `None` if it did not fail by that since it
    /// was last up or down.
    pub healing: Option<Healing>,
    /// Whether it failed and the provider is known to have nothing of it.
    pub left_nothing: bool,
    /// Whether its template's cold start has not succeeded since its object was created.
    pub needs_cold_start: bool,
    /// Whether what its template has done before a stop or a delete is still to be done.
    pub owes_farewell: bool,
}

impl Record {
    /// It was found up, or is started, by a call that was made then: what stops of unknown outcome did
    /// before that is over.
    pub fn settle_stop(&mut self, asked_at: Timestamp) {
        self.stop_may_land_until = self.stop_may_land_until.filter(|until| asked_at < *until);
    }
}

/// The automatic retries of a failure that an outage caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Healing {
    /// When it failed first.
    pub since: Timestamp,
    /// How many retries were planned since.
    pub tries: u32,
    /// When the latest of them is due.
    pub due: Timestamp,
}

/// What a provider is asked next, or is being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// What is there for this home?
    Look,
    /// Make it.
    Create,
    /// Bring it up.
    Start,
    /// Run its template's cold start in it, if it needs that.
    ColdStart {
        /// In which object.
        external_id: ExternalId,
    },
    /// Take it down.
    Stop,
    /// Remove this object, which carries this sandbox id.
    Delete {
        /// Which object.
        external_id: ExternalId,
        /// The sandbox id on it: our own, or an older generation's.
        expected: SandboxId,
    },
}

impl Verb {
    /// Which step of a sandbox's life the call is.
    pub const fn step(&self) -> ProviderStep {
        match self {
            Self::Look => ProviderStep::Look,
            Self::Create => ProviderStep::Create,
            Self::Start => ProviderStep::Start,
            Self::ColdStart { .. } => ProviderStep::ColdStart,
            Self::Stop => ProviderStep::Stop,
            Self::Delete { .. } => ProviderStep::Delete,
        }
    }
}

/// Where a transitional phase is with its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call is in flight.
    Asked {
        /// Which.
        verb: Verb,
        /// When the provider gives up.
        until: Timestamp,
        /// How many more times a step of this phase may fail.
        tries_left: u32,
    },
    /// The next call waits for its time.
    Waiting {
        /// Which.
        verb: Verb,
        /// When.
        due: Timestamp,
        /// How many more times a step of this phase may fail.
        tries_left: u32,
    },
}

/// Who stopped a sandbox; decides whether work in it may start it again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    /// A person or a program by command.
    Person,
    /// GitHub: closed, unlabelled, unassigned.
    Issue,
    /// The server's end took it down.
    Restart,
    /// It was found stopped.
    Provider,
    /// Nothing was done in it for too long.
    Idle,
    /// It used up what it may use.
    Limit,
    /// Its provider ended it, since it could harm others or could not go on.
    Host,
}

/// The state of an issue's sandbox, by phase.
#[derive(Clone, Debug, PartialEq)]
pub enum IssueState {
    /// There is none.
    Absent,
    /// It is being made.
    Creating {
        /// What it is.
        record: Record,
        /// What it goes to when up: running, or stopped by whom.
        goal: Goal,
        /// The provider call in progress, or the wait before the next one.
        step: Step,
        /// Set once the tries are used up: leftovers are removed, then it is *failed* with this.
        giving_up: Option<Failure>,
    },
    /// It is up.
    Running {
        /// What it is.
        record: Record,
        /// Its object.
        external_id: ExternalId,
    },
    /// It is being taken down.
    Stopping {
        /// What it is.
        record: Record,
        /// Its object.
        external_id: ExternalId,
        /// Who stops it.
        by: StoppedBy,
        /// What it goes to when down.
        goal: Goal,
        /// The provider call in progress, or the wait before the next one.
        step: Step,
    },
    /// It is down, workspace kept.
    Stopped {
        /// What it is.
        record: Record,
        /// Its object.
        external_id: ExternalId,
        /// Who stopped it.
        by: StoppedBy,
    },
    /// It is being brought up again.
    Starting {
        /// What it is.
        record: Record,
        /// Its object.
        external_id: ExternalId,
        /// What it goes to when up.
        goal: Goal,
        /// The provider call in progress, or the wait before the next one.
        step: Step,
    },
    /// A step failed for good.
    Failed {
        /// What it is.
        record: Record,
        /// Its object, if one is known.
        external_id: Option<ExternalId>,
        /// What it should come to after a retry.
        goal: Goal,
        /// What failed.
        failure: Failure,
    },
    /// It is being removed.
    Deleting {
        /// What it is.
        record: Record,
        /// Its object, if one is known.
        external_id: Option<ExternalId>,
        /// The provider call in progress, or the wait before the next one.
        step: Step,
        /// What stands in the way, if something does.
        failure: Option<Failure>,
        /// The generation that was asked for meanwhile.
        next: Option<SandboxPlan>,
    },
}

/// What a sandbox that lives on should come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Running.
    Running,
    /// Stopped, and by whom.
    Stopped(StoppedBy),
}

impl Goal {
    /// The desired state.
    pub const fn wanted(self) -> Wanted {
        match self {
            Self::Running => Wanted::Running,
            Self::Stopped(_) => Wanted::Stopped,
        }
    }
}

impl IssueState {
    /// The phase; `None` if there is no sandbox.
    pub const fn phase(&self) -> Option<Phase> {
        match self {
            Self::Absent => None,
            Self::Creating { .. } => Some(Phase::Creating),
            Self::Running { .. } => Some(Phase::Running),
            Self::Stopping { .. } => Some(Phase::Stopping),
            Self::Stopped { .. } => Some(Phase::Stopped),
            Self::Starting { .. } => Some(Phase::Starting),
            Self::Failed { .. } => Some(Phase::Failed),
            Self::Deleting { .. } => Some(Phase::Deleting),
        }
    }

    /// What the issue should come to.
    pub const fn wanted(&self) -> Wanted {
        match self {
            Self::Absent => Wanted::Deleted,
            Self::Running { .. } => Wanted::Running,
            Self::Stopped { .. } => Wanted::Stopped,
            Self::Creating { goal, .. }
            | Self::Stopping { goal, .. }
            | Self::Starting { goal, .. }
            | Self::Failed { goal, .. } => goal.wanted(),
            Self::Deleting { next, .. } => match next {
                Some(_) => Wanted::Running,
                None => Wanted::Deleted,
            },
        }
    }

    /// What the sandbox is; `None` if there is none.
    pub const fn record(&self) -> Option<&Record> {
        match self {
            Self::Absent => None,
            Self::Creating { record, .. }
            | Self::Running { record, .. }
            | Self::Stopping { record, .. }
            | Self::Stopped { record, .. }
            | Self::Starting { record, .. }
            | Self::Failed { record, .. }
            | Self::Deleting { record, .. } => Some(record),
        }
    }

    /// The same, to change.
    pub const fn record_mut(&mut self) -> Option<&mut Record> {
        match self {
            Self::Absent => None,
            Self::Creating { record, .. }
            | Self::Running { record, .. }
            | Self::Stopping { record, .. }
            | Self::Stopped { record, .. }
            | Self::Starting { record, .. }
            | Self::Failed { record, .. }
            | Self::Deleting { record, .. } => Some(record),
        }
    }

    /// The provider's id of the object, if one is known.
    pub const fn external_id(&self) -> Option<&ExternalId> {
        match self {
            Self::Absent | Self::Creating { .. } => None,
            Self::Running { external_id, .. }
            | Self::Stopping { external_id, .. }
            | Self::Stopped { external_id, .. }
            | Self::Starting { external_id, .. } => Some(external_id),
            Self::Failed { external_id, .. } | Self::Deleting { external_id, .. } => {
                external_id.as_ref()
            }
        }
    }

    /// Where a transitional phase is with its provider.
    pub const fn step(&self) -> Option<&Step> {
        match self {
            Self::Absent | Self::Running { .. } | Self::Stopped { .. } | Self::Failed { .. } => {
                None
            }
            Self::Creating { step, .. }
            | Self::Stopping { step, .. }
            | Self::Starting { step, .. }
            | Self::Deleting { step, .. } => Some(step),
        }
    }

    /// The same, to change.
    pub const fn step_mut(&mut self) -> Option<&mut Step> {
        match self {
            Self::Absent | Self::Running { .. } | Self::Stopped { .. } | Self::Failed { .. } => {
                None
            }
            Self::Creating { step, .. }
            | Self::Stopping { step, .. }
            | Self::Starting { step, .. }
            | Self::Deleting { step, .. } => Some(step),
        }
    }

    /// Whether it counts under the quotas: all do but a failed create of which nothing is left, also
    /// while its record is being deleted. By that it would get a slot that no one had admitted.
    pub fn takes_slot(&self) -> bool {
        match self {
            Self::Absent => false,
            Self::Failed { record, external_id: None, .. } => !record.left_nothing,
            Self::Deleting { record, external_id: None, .. } => {
                !record.left_nothing || on(Bug::SlotByDelete)
            }
            Self::Creating { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Stopped { .. }
            | Self::Starting { .. }
            | Self::Failed { .. }
            | Self::Deleting { .. } => true,
        }
    }

    /// What failed, or stands in the way of a delete.
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Absent
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Stopped { .. }
            | Self::Starting { .. } => None,
            Self::Creating { giving_up, .. } => giving_up.as_ref(),
            Self::Failed { failure, .. } => Some(failure),
            Self::Deleting { failure, .. } => failure.as_ref(),
        }
    }

    /// By when the phase must be left. A delete whose trouble is shown already goes on without
    /// one.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Deleting { failure: Some(_), .. } => None,
            Self::Absent
            | Self::Creating { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Stopped { .. }
            | Self::Starting { .. }
            | Self::Failed { .. }
            | Self::Deleting { failure: None, .. } => self.record()?.deadline,
        }
    }

    /// When something is to be done without anybody asking: the retry of a failure that an outage
    /// caused, a waiting call's time or the phase's deadline, or the time by which the answer to a call in flight must have come
    /// ([`ANSWER_GRACE`] after its deadline).
    pub fn due_at(&self) -> Option<Timestamp> {
        if let Self::Failed { record, .. } = self {
            return record.healing.map(|healing| healing.due);
        }
        match self.step()? {
            Step::Asked { until, .. } => Some(until.after(ANSWER_GRACE)),
            Step::Waiting { due, .. } => {
                Some(self.deadline().map_or(*due, |deadline| deadline.min(*due)))
            }
        }
    }
}
