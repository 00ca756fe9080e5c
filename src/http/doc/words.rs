//! Schemas of the served description that no Rust type of the wire has: words out of a fixed list,
//! and bodies of any bytes.
//!
//! Wire types hold words as text, since each domain type already gives its stable word. What such
//! a field may hold is described by one of the types here, as its `value_type`.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::conversation::RunWait;
use crate::engine::{BreakerState, DriftKind, Remedy};
use crate::http::api::configuration::TemplateToday;
use crate::http::api::deliveries::Status;
use crate::http::api::exec::Encoding;
use crate::http::api::sandboxes::DELETED;
use crate::http::error::Code;
use crate::issue::{EffectKind, EffectQueue};
use crate::logs::LogStream;
use crate::sandbox::Uniqueness;
use crate::store::github::GithubState;
use crate::store::usage::UsageBy;
use crate::types::{
    CheckoutState, FailureCode, Mode, NetworkKind, ObjectState, OnLimit, Outcome, Phase,
    ProviderStep, Role, RunState, SyncDirection, Wanted,
};

/// Declares schemas of words, each with its name in the description.
macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident as $shown:literal = $words:expr;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words: Vec<&str> = $words.iter().map(|word| word.as_str()).collect();
                let about = concat!($($doc),*).trim();
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .enum_values(Some(words))
                    .description(Some(about))
                    .into()
            }
        }

        impl ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                $shown.into()
            }
        }
    )*};
}

words! {
    /// Where a live sandbox is in its life. A deleted sandbox has no phase.
    PhaseWord as "Phase" = Phase::ALL;
    /// What a list of sandboxes can be filtered by: a phase, or `deleted`.
    PhaseFilterWord as "PhaseFilter" = phase_filters();
    /// The state that an issue's sandbox is to reach.
    WantedWord as "Wanted" = Wanted::ALL;
    /// What the agent of a sandbox does. `queued`: a run waits or goes on by itself.
    /// `waiting_for_person`: it asks a question that a person answers. `idle`: there is no run
    /// in progress.
    AgentStateWord as "AgentState" =
        [
            Plain("idle"), Plain("queued"), Plain("running"), Plain("waiting_for_person"),
            Plain("cancelling"),
        ];
    /// What sums of usage are made for: each issue, repository, account, model or day (UTC).
    UsageByWord as "UsageBy" = UsageBy::LISTED;
    /// Where a run of an agent is.
    RunStateWord as "RunState" = RunState::ALL;
    /// What a run waits for.
    RunWaitWord as "RunWait" = RunWait::ALL;
    /// The result of an ensure.
    OutcomeWord as "Outcome" = Outcome::ALL;
    /// How a create is recorded: `strong` before the provider is asked, `fast` at the same time.
    ModeWord as "Mode" = Mode::ALL;
    /// What a sandbox can reach: nothing, a list of hosts, every public address, or all that the
    /// server's machine reaches.
    NetworkWord as "Network" = NetworkKind::ALL;
    /// What happens when a sandbox reaches a limit: the command is killed, or the sandbox stopped.
    LimitEffectWord as "LimitEffect" = OnLimit::ALL;
    /// How the template of a sandbox is now: as it was when the sandbox was recorded, changed since, or
    /// no longer configured.
    TemplateTodayWord as "TemplateToday" = TemplateToday::ALL;
    /// What kind of failure a sandbox has.
    FailureWord as "FailureCode" = FailureCode::ALL;
    /// A step that a provider carries out.
    StepWord as "Step" = ProviderStep::ALL;
    /// A stable word for what went wrong, to branch on.
    ErrorWord as "ErrorCode" = Code::ALL;
    /// What came of a delivery. `accepted`: it had an effect. `ignored`: it had none. `pending`: it
    /// is being applied to each issue that it concerns. `set_aside`: applying it failed too often.
    /// `badly_signed` and `refused`: nothing of it was stored.
    DeliveryWord as "DeliveryStatus" = Status::ALL;
    /// What the answer to a delivery says of it.
    IntakeWord as "IntakeStatus" = [Plain("accepted"), Plain("duplicate"), Plain("ignored")];
    /// What a record and a provider disagree on.
    DriftWord as "DriftKind" = DriftKind::ALL;
    /// What a person can decide about a drift item.
    RemedyWord as "Remedy" = [Remedy::Adopt, Remedy::Remove];
    /// The state of an object at its provider.
    ObjectWord as "ObjectState" = [
        ObjectState::Partial, ObjectState::Running, ObjectState::Stopped, ObjectState::Destroying,
    ];
    /// Whether calls go to a provider. `closed`: they do. `open`: none does. `half_open`: one call
    /// tests whether it can be reached again.
    BreakerWord as "BreakerState" =
        [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
    /// How a provider keeps two objects of one name apart.
    UniquenessWord as "Uniqueness" = [Uniqueness::EnforcedNames, Uniqueness::None];
    /// What is at a path of a workspace.
    FileWord as "FileKind" = [Plain("file"), Plain("directory"), Plain("link"), Plain("other")];
    /// What a caller may do: read, work with sandboxes, or manage the server. Each role may do what those
    /// before it may.
    RoleWord as "Role" = Role::ALL;
    /// What a hold covers.
    ScopeWord as "HoldScope" =
        [Plain("server"), Plain("account"), Plain("repository"), Plain("issue")];
    /// What a log entry is. `command`: a command began. `stdout` and `stderr`: a line of its
    /// output. `exit`: it ended. `note`: a message about the log or the sandbox.
    StreamWord as "LogStream" = LogStream::ALL;
    /// How bytes are written as text.
    EncodingWord as "Encoding" = [Encoding::Utf8, Encoding::Base64];
    /// How far the checkout of a sandbox is. A `failed` one is no failed sandbox.
    CheckoutWord as "CheckoutState" = CheckoutState::ALL;
    /// Which way a sync goes: from the workspace to the object storage, or back.
    SyncDirectionWord as "SyncDirection" = SyncDirection::ALL;
    /// What is to be done at GitHub.
    GithubWorkWord as "GitHubWork" = github_work();
    /// How far something is that is to be done at GitHub: `due`, `asked` (a call is under way), `look`
    /// (the outcome of a call is unknown), `held` (something must change at GitHub first), `gone` (a person
    /// deleted it) or `given_up`.
    GithubStateWord as "GitHubState" = GithubState::ALL;
    /// What to wait for: a phase, `settled` (no step is under way) or `deleted`.
    UntilWord as "Until" = until();
    /// Whether a server in a sandbox accepts connections.
    EndpointWord as "EndpointStatus" = [Plain("listening"), Plain("closed")];
    /// Whether everything works: `degraded` if a provider cannot work, drift needs a decision or a
    /// part of the database is damaged.
    ReadyWord as "Readiness" = [Plain("ready"), Plain("degraded")];
}

/// A word of the wire that no domain type has.
struct Plain(&'static str);

impl Plain {
    const fn as_str(&self) -> &'static str {
        self.0
    }
}

fn phase_filters() -> Vec<Plain> {
    Phase::ALL.iter().map(|phase| phase.as_str()).chain([DELETED]).map(Plain).collect()
}

fn github_work() -> Vec<EffectKind> {
    let of_github = |kind: &EffectKind| kind.queue() == EffectQueue::Github;
    EffectKind::ALL.into_iter().filter(of_github).collect()
}

fn until() -> Vec<Plain> {
    [Plain("settled")].into_iter().chain(phase_filters()).collect()
}

/// Bytes of any kind.
#[derive(Debug)]
pub struct AnyBytes;

impl PartialSchema for AnyBytes {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
            .into()
    }
}

impl ToSchema for AnyBytes {
    fn name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }
}
