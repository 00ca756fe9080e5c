//! The vocabulary: one word per concept, parsed once at the edge.
//!
//! Nothing here does I/O, reads a clock or depends on storage or transport. Rows are in
//! [`store`](crate::store), wire types in `http`; both convert from and to these types.

pub mod address;
mod branch;
mod check;
mod git;
mod header;
mod hold;
mod ids;
mod model;
mod network;
mod permission;
mod question;
mod reserve;
mod run;
mod sandbox;
mod secret;
mod tally;
mod template;
mod text;
mod time;
mod workload;

pub use branch::BranchPattern;
pub use check::{Check, CheckState};
pub use git::{
    CheckoutState, CiFailureMode, CloneMode, FollowUpMode, GitWorkload, HiddenMode, PublishMode,
    PullRequestMode, PushPermission,
};
pub use header::is_of_one_connection;
pub use hold::{Hold, HoldScope};
pub use ids::{
    AccountName, AgentName, Alias, Attempt, DeliveryId, Epoch, ExternalId, Generation, HomeId,
    InstanceId, InvalidId, IssueId, IssueNumber, ObjectName, ProviderName, Repository, SandboxId,
    SecretName, TemplateName,
};
pub use model::{ModelBudgets, ModelPattern, TokenPrice};
pub use network::{AllowedHost, HostName, Network, NetworkKind, WEB_PORTS, split_port};
pub use permission::PermissionLevel;
pub use question::{AgentPermissions, AgentQuestion, AgentSettings, AnswerOption, QuestionAnswer};
pub use reserve::Reserve;
pub use run::{AgentStanding, MessageId, Money, RunId, RunState, SessionId, Tokens, dollars};
pub use sandbox::{
    Cause, Failure, FailureCode, Mode, ObjectState, Outcome, Phase, ProviderStep, Sandbox,
    TimelineEntry, Wanted,
};
pub use secret::{LiveSecrets, NamedSecrets, Secret};
pub use tally::tally;
pub use template::{OnLimit, Resources, Template};
pub use text::{acts, beginning, inert, inert_lines, unfinished_len};
pub use time::Timestamp;
pub use workload::{AgentWorkload, HostMount, WhileRunning, Workload, WorkloadKey, WorkloadSource};
