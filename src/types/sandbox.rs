//! A sandbox outside of its actor: phases, outcomes, failures, and the snapshot that lookups, lists and
//! events use.

use std::fmt;
use std::sync::Arc;

use super::{
    AccountName, AgentStanding, Attempt, ExternalId, Generation, HomeId, IssueId, IssueNumber,
    NetworkKind, ProviderName, Repository, SandboxId, SandboxMeta, TemplateName, TemplateVersion,
    Timestamp,
};

/// Declares an enum with one stable word for each variant, used on the wire and in rows.
macro_rules! worded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

                /// The stable word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

                /// Parses the word; `None` for any other text.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

worded! {
    /// The phase of a live sandbox. A deleted one has none.
    Phase {
            /// The object is being created, or will be.
        Creating = "creating",
            /// It runs.
        Running = "running",
            /// It is being stopped.
        Stopping = "stopping",
            /// It is stopped; its workspace is kept.
        Stopped = "stopped",
            /// It is being started again.
        Starting = "starting",
            /// A step failed permanently; only `retry` and `delete` lead on.
        Failed = "failed",
            /// It is being deleted; an accepted delete is final.
        Deleting = "deleting",
    }
}

impl Phase {
    /// Whether a sandbox in this phase is at work, or comes up for it.
    pub const fn is_at_work(self) -> bool {
        match self {
            Self::Creating | Self::Starting | Self::Running => true,
            Self::Stopping | Self::Stopped | Self::Failed | Self::Deleting => false,
        }
    }

    /// Whether an operation is in progress in this phase.
    pub const fn is_transitional(self) -> bool {
        match self {
            Self::Creating | Self::Stopping | Self::Starting | Self::Deleting => true,
            Self::Running | Self::Stopped | Self::Failed => false,
        }
    }
}

worded! {
    /// The desired state of an issue.
    Wanted {
        /// A running sandbox.
        Running = "running",
        /// A stopped sandbox.
        Stopped = "stopped",
        /// No sandbox.
        Deleted = "deleted",
    }
}

worded! {
    /// How a create is recorded.
    Mode {
            /// The record is durable before the provider is called.
        Strong = "strong",
            /// The record is written concurrently with the provider call.
        Fast = "fast",
    }
}

worded! {
    /// The outcome of *ensure*.
    Outcome {
            /// A new sandbox was recorded and is being created.
        Created = "created",
            /// There already was one.
        Existing = "existing",
            /// A stopped one is being started.
        Resumed = "resumed",
            /// The provider already had this very sandbox.
        Adopted = "adopted",
            /// It starts after a stop or delete has finished.
        Queued = "queued",
            /// There is one, but it has failed.
        Failed = "failed",
            /// A hold or a quota denies it.
        Refused = "refused",
    }
}

worded! {
    /// A provider call.
    ProviderStep {
            /// Observes the object.
        Look = "look",
            /// Creates the object.
        Create = "create",
            /// Starts it.
        Start = "start",
            /// Runs the cold start of its template in it.
        ColdStart = "cold_start",
            /// Stops it.
        Stop = "stop",
            /// Deletes it.
        Delete = "delete",
    }
}

worded! {
    /// The kind of a [`Failure`].
    FailureCode {
        /// The provider could not be reached or did not answer in time.
        ProviderUnavailable = "provider_unavailable",
            /// The provider refused, and a retry would not help.
        ProviderRefused = "provider_refused",
        /// The provider tried and failed.
        ProviderBroken = "provider_broken",
        /// The provider has no room: a full disk, a quota, a rate limit.
        ProviderExhausted = "provider_exhausted",
        /// The name belongs to an object of another owner.
        NameTaken = "name_taken",
            /// The object disappeared without a request of issuebox.
        ObjectLost = "object_lost",
        /// The configuration no longer has the provider of this sandbox.
        ProviderUnknown = "provider_unknown",
            /// The object died without a request of issuebox.
        KilledOutside = "killed_outside",
            /// The provider has two objects for this issue; a person must choose.
        DuplicateObject = "duplicate_object",
            /// The phase lasted longer than its deadline.
        DeadlineExceeded = "deadline_exceeded",
            /// A step of the template's `on_cold_start` failed. What a create made is deleted; a sandbox
            /// that was there before keeps its workspace.
        HookFailed = "hook_failed",
    }
}

/// The state of an object at its provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectState {
    /// Partly created: a create with the same sandbox id completes it, a delete removes it.
    Partial,
    /// Running and ready.
    Running,
    /// Stopped; the workspace is kept.
    Stopped,
    /// Being deleted; counts as present.
    Destroying,
    /// The provider has it and says that it cannot come up. Only a delete leads on.
    Error {
        /// What the provider says of it, for people.
        message: String,
    },
}

impl ObjectState {
    /// The stable word for this.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Partial => "partial",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Destroying => "destroying",
            Self::Error { .. } => "error",
        }
    }

    /// Reads the word back; `None` for any other text. An `error` has no message then.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "partial" => Self::Partial,
            "running" => Self::Running,
            "stopped" => Self::Stopped,
            "destroying" => Self::Destroying,
            "error" => Self::Error { message: String::new() },
            _ => return None,
        })
    }
}

impl fmt::Display for ObjectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { message } if !message.is_empty() => write!(f, "error: {message}"),
            Self::Partial
            | Self::Running
            | Self::Stopped
            | Self::Destroying
            | Self::Error { .. } => f.write_str(self.as_str()),
        }
    }
}

/// Why a sandbox failed, or why its delete fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub code: FailureCode,
    /// The step that failed.
    pub step: ProviderStep,
    /// What happened and what may remain at the provider, for people.
    pub message: String,
    /// Whether `retry` may help without a change elsewhere.
    pub retryable: bool,
}

/// The cause of a step; shown on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A GitHub delivery, by its GUID.
    Delivery(super::DeliveryId),
    /// A caller of the API, by its name (`admin`, a token's name) and request id.
    Caller {
        /// Who called.
        name: String,
        /// The request's `x-request-id`.
        request_id: String,
    },
    /// A part of the service: `provider`, `scheduler`, `startup`.
    Service(&'static str),
}

impl Cause {
    /// A provider reported by itself that something happened.
    pub const PROVIDER_EVENT: Self = Self::Service("provider event");
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivery(id) => write!(f, "delivery {id}"),
            Self::Caller { name, request_id } => write!(f, "caller {name} ({request_id})"),
            Self::Service(part) => write!(f, "{part}"),
        }
    }
}

/// A committed state of a sandbox, as lookups, lists, events and pages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// The home it belongs to.
    pub home: HomeId,
    /// The account it belongs to.
    pub account: AccountName,
    /// Its display name, `claude-issue-{issueId}`.
    pub name: String,
    /// The issue's id.
    pub issue_id: IssueId,
    /// The issue's repository, if known.
    pub repository: Option<Repository>,
    /// The issue's number, if known.
    pub issue_number: Option<IssueNumber>,
    /// The issue's title, if known.
    pub issue_title: Option<String>,
    /// The issue's page, if known.
    pub issue_url: Option<String>,
    /// Its provider.
    pub provider: ProviderName,
    /// The provider's id for it, if known.
    pub external_id: Option<ExternalId>,
    /// The template it was created from.
    pub template: TemplateName,
    /// The version of that template; `None` of a sandbox that was deleted before versions were kept.
    pub template_version: Option<TemplateVersion>,
    /// The name that the caller who had it created gave to who works in it.
    pub agent_id: Option<Arc<str>>,
    /// What callers noted with it.
    pub meta: SandboxMeta,
    /// Its network access.
    pub network: NetworkKind,
    /// TCP ports that are reachable through the server.
    pub ports: Vec<u16>,
    /// How its create was recorded.
    pub mode: Mode,
    /// Its phase; `None` once deleted.
    pub phase: Option<Phase>,
    /// Its desired state.
    pub wanted: Wanted,
    /// Its number within its home.
    pub generation: Generation,
    /// The number of its latest provider call.
    pub attempt: Attempt,
    /// What failed, if anything.
    pub failure: Option<Failure>,
    /// The reason for its phase.
    pub reason: String,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// When it entered its phase.
    pub phase_since: Timestamp,
    /// When it last ran a command, was requested, or got a delivery.
    pub last_activity_at: Timestamp,
    /// What its agent does; `None` before anything was said to one, and of a deleted sandbox.
    pub agent: Option<Box<AgentStanding>>,
    /// When its absence was confirmed.
    pub deleted_at: Option<Timestamp>,
}

/// One entry of an issue's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// When it was decided.
    pub at: Timestamp,
    /// The generation; 0 if there is no sandbox.
    pub generation: Generation,
    /// The phase before; `None` if there was no sandbox.
    pub from: Option<Phase>,
    /// The phase after; `None` if there is none any more.
    pub to: Option<Phase>,
    /// What happened and why.
    pub reason: String,
    /// The cause, as [`Cause`] prints.
    pub cause: String,
}

impl TimelineEntry {
    /// The delivery that led to it, if one did.
    pub fn delivery(&self) -> Option<super::DeliveryId> {
        self.cause.strip_prefix("delivery ").map(super::DeliveryId::trusted)
    }
}
