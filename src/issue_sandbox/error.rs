//! Why an operation on a sandbox was not done.

use crate::engine::EngineError;
use crate::runs::journal::JournalError;
use crate::sandbox::WorkError;
use crate::store::StoreError;
use crate::sync::SyncError;
use crate::types::{Failure, SandboxId};
use crate::verification::EnsureError;

/// Why an operation on a sandbox was not done.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A parameter is wrong; nothing happened.
    #[error("the {parameter} {why}")]
    Invalid {
        /// Which one.
        parameter: &'static str,
        /// What is wrong with it, in words that follow its name.
        why: String,
    },
    /// It failed at a step. [`IssueSandbox::start`](super::IssueSandbox::start) retries that.
    #[error("the sandbox {sandbox} failed at {}: {}; start it to retry", .failure.step, .failure.message)]
    Failed {
        /// Its id.
        sandbox: SandboxId,
        /// At what, and why.
        failure: Box<Failure>,
    },
    /// It did not come to the phase that was waited for in time; it goes on by itself.
    #[error("the sandbox {sandbox} is still {phase} after {seconds} s: {reason}")]
    TooSlow {
        /// Its id.
        sandbox: SandboxId,
        /// Its phase, or `deleted`.
        phase: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// Why it is in that phase.
        reason: String,
    },
    /// No object storage is configured.
    #[error("no object storage is configured; set url in [sync]")]
    SyncNotConfigured,
    /// There is no agent's run to be cancelled.
    #[error("the sandbox's agent is at no run")]
    NoRun,
    /// The repository is of another account, or GitHub says that the issue is to have no
    /// sandbox.
    #[error(transparent)]
    Ensure(EnsureError),
    /// A step of the hook that was asked for did not succeed: which one, and its last lines.
    #[error("{0}")]
    Hook(String),
    /// The engine refused it, as for an unknown sandbox or template.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The work in the sandbox failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The sync failed.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The conversation cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EnsureError> for SandboxError {
    fn from(error: EnsureError) -> Self {
        match error {
            EnsureError::Engine(error) => Self::Engine(error),
            refusal => Self::Ensure(refusal),
        }
    }
}

impl SandboxError {
    pub(super) fn invalid(parameter: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { parameter, why: why.into() }
    }
}
