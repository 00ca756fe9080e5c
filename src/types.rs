//! The vocabulary: one word per concept, parsed once at the edge.
//!
//! Nothing here does I/O, reads a clock or depends on storage or transport. Rows are in
//! [`store`](crate::store), wire types in `http`; both convert from and to these types.

mod account;
pub mod address;
mod branch;
mod check;
mod git;
mod grant;
mod header;
mod hold;
mod hook;
mod ids;
mod meta;
mod model;
mod network;
mod pattern;
mod per_repository;
mod permission;
mod question;
mod repository_file;
mod repository_settings;
mod reserve;
mod run;
mod sandbox;
mod secret;
mod sync;
mod tally;
mod template;
mod text;
mod time;
mod token;
mod workload;

pub use account::{AccountRules, Accounts, IssueOrigin, Role};
pub use branch::{BranchPattern, is_branch};
pub use check::{Check, CheckState};
pub use git::{
    CheckoutState, CiFailureMode, CloneMode, FollowUpMode, GitWorkload, HiddenMode, PublishMode,
    PullRequestMode, PushPermission,
};
pub use grant::{GrantSubject, LoginGrant, LoginGrants};
pub use header::is_of_one_connection;
pub use hold::{Hold, HoldScope};
pub use hook::{HookAction, HookName, HookStep, Hooks, SyncMoments};
pub use ids::{
    AccountName, AgentName, Alias, Attempt, DeliveryId, Epoch, ExternalId, Generation, HomeId,
    InstanceId, InvalidId, IssueId, IssueNumber, ObjectName, ProviderName, Repository, SandboxId,
    SecretName, TemplateName, TokenId, share_equal,
};
pub use meta::{META_ENTRIES_MAX, META_NAME_MAX, META_VALUE_MAX, MetaChange, SandboxMeta};
pub use model::{ModelBudgets, ModelPattern, TokenPrice};
pub use network::{AllowedHost, HostName, Network, NetworkKind, WEB_PORTS, split_port};
pub use pattern::RepositoryPattern;
pub use per_repository::PerRepository;
pub use permission::PermissionLevel;
pub use question::{AgentPermissions, AgentQuestion, AgentSettings, AnswerOption, QuestionAnswer};
pub use repository_file::RepositoryFile;
pub use repository_settings::RepositorySettings;
pub use reserve::Reserve;
pub use run::{AgentStanding, MessageId, Money, RunId, RunState, SessionId, Tokens, dollars};
pub use sandbox::{
    Cause, Failure, FailureCode, Mode, ObjectState, Outcome, Phase, ProviderStep, Sandbox,
    TimelineEntry, Wanted,
};
pub use secret::{LiveSecrets, NamedSecrets, Secret};
pub use sync::{SyncDirection, SyncStats, SyncVersion};
pub use tally::tally;
pub use template::{OnLimit, Resources, Template, TemplateVersion};
pub use text::{acts, beginning, inert, inert_lines, unfinished_len};
pub use time::Timestamp;
pub use token::{ApiToken, TokenDigest, is_token, token_of};
pub use workload::{AgentWorkload, HostMount, WhileRunning, Workload, WorkloadKey, WorkloadSource};
