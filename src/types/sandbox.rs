//! What a sandbox is to everyone outside its actor: phases, wishes, outcomes, failures, and the
//! snapshot that lookups, lists and events show.

use std::fmt;

use super::{
    AccountName, Attempt, ExternalId, Generation, HomeId, IssueId, IssueNumber, NetworkKind,
    ProviderName, Repository, SandboxId, TemplateName, Timestamp,
};

/// Declares an enum whose variants have one stable word each, used on the wire and in rows.
macro_rules! worded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable word for this.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Reads the word back; `None` for any other text.
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
    /// Where a live sandbox is in its life. A deleted one has no phase.
    Phase {
        /// The provider was or will be asked to make it.
        Creating = "creating",
        /// It is up.
        Running = "running",
        /// The provider was asked to stop it.
        Stopping = "stopping",
        /// It is down; its workspace is kept.
        Stopped = "stopped",
        /// The provider was asked to bring it up again.
        Starting = "starting",
        /// A step failed for good; only `retry` or `delete` lead on.
        Failed = "failed",
        /// It is being removed; accepted deletes are final.
        Deleting = "deleting",
    }
}

impl Phase {
    /// Whether something is under way in this phase.
    pub const fn is_transitional(self) -> bool {
        match self {
            Self::Creating | Self::Stopping | Self::Starting | Self::Deleting => true,
            Self::Running | Self::Stopped | Self::Failed => false,
        }
    }
}

worded! {
    /// What the issue should come to.
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
        /// The record is durable before the provider is asked.
        Strong = "strong",
        /// The record is written beside the provider call.
        Fast = "fast",
    }
}

worded! {
    /// Why a call to *ensure* answered as it did.
    Outcome {
        /// A new sandbox was recorded and is being made.
        Created = "created",
        /// There was one already.
        Existing = "existing",
        /// There was a stopped one; it is being started.
        Resumed = "resumed",
        /// The provider had this very sandbox already.
        Adopted = "adopted",
        /// A stop or delete has to end first; then it runs.
        Queued = "queued",
        /// There is one, and it has failed.
        Failed = "failed",
        /// A hold or a quota forbids it now.
        Refused = "refused",
    }
}

worded! {
    /// A step that a provider is asked for.
    ProviderStep {
        /// Looking at what is there.
        Look = "look",
        /// Making the object.
        Create = "create",
        /// Bringing it up.
        Start = "start",
        /// Taking it down.
        Stop = "stop",
        /// Removing it.
        Delete = "delete",
    }
}

worded! {
    /// What kind of trouble a [`Failure`] is.
    FailureCode {
        /// The provider could not be reached or did not answer in time.
        ProviderUnavailable = "provider_unavailable",
        /// The provider said no, and asking again would not help.
        ProviderRefused = "provider_refused",
        /// The provider tried and failed.
        ProviderBroken = "provider_broken",
        /// The provider has no room: a full disk, a quota, a rate limit.
        ProviderExhausted = "provider_exhausted",
        /// Somebody else's object has the name.
        NameTaken = "name_taken",
        /// The object was there and is gone without our asking.
        ObjectLost = "object_lost",
        /// The configuration no longer has the provider of this sandbox.
        ProviderUnknown = "provider_unknown",
        /// The object is there and dead, and it was not us who stopped it.
        KilledOutside = "killed_outside",
        /// The provider has two objects for this issue; only a person can tell which is right.
        DuplicateObject = "duplicate_object",
        /// The phase was not left within its deadline.
        DeadlineExceeded = "deadline_exceeded",
    }
}

/// The state of an object at its provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectState {
    /// Half made: a create with the same sandbox id completes it, a delete removes it.
    Partial,
    /// Up and ready.
    Running,
    /// Down, workspace kept.
    Stopped,
    /// Being removed; counts as present.
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

/// Why a sandbox is *failed*, or what stands in the way of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of trouble.
    pub code: FailureCode,
    /// The step that failed.
    pub step: ProviderStep,
    /// What happened and what may be left at the provider, for people.
    pub message: String,
    /// Whether `retry` may help without anybody changing anything.
    pub retryable: bool,
}

/// Who or what caused a step; shown on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A GitHub delivery, by its GUID.
    Delivery(super::DeliveryId),
    /// A caller of the API, by what is known of it (`admin`, a token's name) and its request id.
    Caller {
        /// Who called.
        name: String,
        /// The request's `x-request-id`.
        request_id: String,
    },
    /// The service itself, in one word: `provider`, `scheduler`, `startup`.
    Service(&'static str),
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

/// A sandbox as lookups, lists, events and pages show it: one committed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// The home it belongs to.
    pub home: HomeId,
    /// The account it belongs to.
    pub account: AccountName,
    /// Its name for people, `claude-issue-{issueId}`.
    pub name: String,
    /// The issue's id.
    pub issue_id: IssueId,
    /// The issue's repository, where known.
    pub repository: Option<Repository>,
    /// The issue's number, where known.
    pub issue_number: Option<IssueNumber>,
    /// The issue's title, where known.
    pub issue_title: Option<String>,
    /// The issue's page, where known.
    pub issue_url: Option<String>,
    /// Which provider makes it.
    pub provider: ProviderName,
    /// The provider's id of it, once known.
    pub external_id: Option<ExternalId>,
    /// Which template it was made from.
    pub template: TemplateName,
    /// What it can reach of the network.
    pub network: NetworkKind,
    /// TCP ports inside that can be reached from outside, through the server.
    pub ports: Vec<u16>,
    /// How its create was recorded.
    pub mode: Mode,
    /// Where it is in its life; `None` once deleted.
    pub phase: Option<Phase>,
    /// What it should come to.
    pub wanted: Wanted,
    /// Which sandbox of its home this is.
    pub generation: Generation,
    /// The number of its latest provider call.
    pub attempt: Attempt,
    /// What failed, where something did.
    pub failure: Option<Failure>,
    /// Why it is in this phase, in words.
    pub reason: String,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// Since when it has been in this phase.
    pub phase_since: Timestamp,
    /// When it was last worked in, asked for or nudged by a delivery.
    pub last_activity_at: Timestamp,
    /// When it was confirmed absent.
    pub deleted_at: Option<Timestamp>,
}

/// One row of an issue's timeline: what happened, why, and who did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// When it was decided.
    pub at: Timestamp,
    /// The generation it concerns; 0 where there is no sandbox.
    pub generation: Generation,
    /// The phase before; `None` where there was no sandbox.
    pub from: Option<Phase>,
    /// The phase after; `None` where there is none any more.
    pub to: Option<Phase>,
    /// What happened and why, in words.
    pub reason: String,
    /// Who or what caused it, as [`Cause`] prints.
    pub cause: String,
}
