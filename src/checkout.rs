//! The repository in each sandbox: checked out once the sandbox runs, on a branch of its own.
//!
//! # Guarantees
//! - A checkout that fails is no failed sandbox: it has a state and a reason of its own, and is tried
//!   again by itself.
//! - It may be killed at any moment and begin again. Once it is *ready* it is not repeated: what is in
//!   the workspace belongs to who works there.
//! - Nothing that GitHub or an issue says is part of a shell's line: names are arguments, and checked
//!   as refs first.
//! - No credential is part of a command or of a file in the sandbox: git's requests go through the
//!   [gateway](crate::git).

mod base_file;
mod branch;
mod commands;
mod permission;
mod publish;
mod record;
mod run;
mod worker;
mod workplaces;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::github::api::GitHubApi;
use crate::github::permissions::RepositoryPermissions;
use crate::issue::GithubRules;
use crate::logs::Logs;
use crate::sandbox::Processes;
use crate::store::Store;
use crate::store::checkout::CheckoutStore;
use crate::types::{BranchPattern, PerRepository, ProviderName, PublishMode};

pub use base_file::BaseFile;
pub use worker::{CheckoutRetryError, CheckoutWorker, UnfinishedCheckout};
pub use workplaces::SandboxWorkplaces;

/// What checkouts are made with.
pub struct CheckoutParts {
    /// Finds running sandboxes.
    pub engine: Engine,
    /// Run the commands, by provider; only of those whose sandboxes reach the gateway.
    pub processes: HashMap<ProviderName, Arc<dyn Processes>>,
    /// Keep their output.
    pub logs: Logs,
    /// The issues.
    pub store: Arc<dyn Store>,
    /// The checkouts.
    pub rows: Arc<dyn CheckoutStore>,
    /// Held while a checkout's row is read and written again.
    pub writing: Mutex<()>,
    /// Branches and repositories.
    pub api: Arc<dyn GitHubApi>,
    /// What is said on issues.
    pub said: GithubRules,
    /// Whether pushes are published at once.
    pub publish: PublishMode,
    /// The command word that people publish with in each repository; empty if there is none.
    pub command: PerRepository<String>,
    /// What GitHub says of people.
    pub permissions: Arc<RepositoryPermissions>,
    /// How branches are called.
    pub pattern: BranchPattern,
    /// Where repositories are, such as `https://github.com`.
    pub web_url: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Runs them: a checkout outlives the call that begins it.
    pub runtime: Handle,
}
